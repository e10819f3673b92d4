"""Text tables for people: cells that a spreadsheet would execute are written as plain text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def line(cells: Iterable[object], delimiter: str = ",") -> str:
    """A row of a CSV or TSV file: None is an empty cell, and texts are `neutralised`."""
    return delimiter.join(_written(cell, delimiter) for cell in cells) + "\n"


def neutralised(cell: str) -> str:
    """The cell as a spreadsheet shows it and does not execute it.

    What begins like a formula (=, +, -, @ or their wide forms, also behind white space, or a tab or
    line break) gets an apostrophe before it. Numbers stay as they are. `original` undoes it.

    >>> neutralised("=1+1"), neutralised("-1.5"), neutralised("a=b")
    ("'=1+1", '-1.5', 'a=b')
    """
    return "'" + cell if _is_formula(cell) else cell


def original(cell: str) -> str:
    """The cell before it was `neutralised`; every other cell is left alone.

    >>> original("'=1+1"), original("'quoted'")
    ('=1+1', "'quoted'")
    """
    return cell[1:] if cell.startswith("'") and _is_formula(cell) else cell


def quoted(cell: str, delimiter: str = ",") -> str:
    """The cell in quotation marks, if it would be read as something else without them."""
    if any(c in cell for c in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _written(cell: object, delimiter: str) -> str:
    if isinstance(cell, str):
        return quoted(neutralised(cell), delimiter)
    return "" if cell is None else str(cell)


def _is_formula(cell: str) -> bool:
    """Whether the cell, or the same behind apostrophes, would be executed.

    A neutralised cell counts too, or taking the apostrophe off one that was there before would
    change it.
    """
    if cell[:1].isalnum():  # nearly all cells
        return False
    cell = cell.lstrip("'")
    if cell[:1] in ("\t", "\r", "\n"):
        return True
    start = next((k for k, c in enumerate(cell) if c.isprintable() and not c.isspace()), None)
    if start is None:
        return False
    begin = unicodedata.normalize("NFKC", cell[start])[0]  # of a wide = or a small @, the plain one
    return begin in "=+-@−" and not _NUMBER.fullmatch(cell[start:].strip())
