"""Only the command line and `wording.py` spell an option or a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "proselflc"
SPELLED = re.compile(
    r"(?<![\w-])(?<!var\()--[a-z]|proselflc (train|predict|search|audit|report|review|export"
    r"|reproduce|noise|methods|datasets|models|embed|doctor|demo) "
)
EDGES = ("cli", "wording.py")


def strings(tree: ast.Module) -> Iterator[ast.expr]:
    """Return the string constants of a module that are not docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node


@pytest.mark.parametrize("folder", sorted({p.name for p in SOURCE.iterdir()} - set(EDGES)))
def test_below_the_command_line_no_string_spells_an_option(folder: str) -> None:
    place = SOURCE / folder
    for path in [place] if place.suffix == ".py" else sorted(place.rglob("*.py")):
        for node in strings(ast.parse(path.read_text(encoding="utf-8"))):
            found = SPELLED.search(str(ast.literal_eval(node)))
            assert found is None, f"{path.name}:{node.lineno} spells {found[0]!r}"
