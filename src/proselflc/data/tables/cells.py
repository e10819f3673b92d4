"""Cells of text tables: numbers in them, how messages show them, and how they are written.

A spreadsheet executes cells that begin like a formula, so these are written as plain text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class NotNumericError(InputError):
    """A column of numbers has a cell that is not a number; `columns.refusal` explains it."""


def parse_numbers(path: Path, column: str, cells: Sequence[str]) -> npt.NDArray[np.float64]:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        raise NotNumericError(
            f'the column "{column}" of {path} has cells that are not numbers: fix them'
        ) from None


def is_number(cell: str) -> bool:
    """Return whether a cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def short(cell: str) -> str:
    """Return the cell on one line, cut to 40 characters."""
    cell = " ".join(cell.split())
    return cell if len(cell) <= 40 else cell[:39] + "…"


def one_line(name: str) -> str:
    """Return the name of a column without its line breaks."""
    return re.sub(r"\s*[\r\n]\s*", " ", name)


def format_row(cells: Iterable[object], delimiter: str = ",") -> str:
    """Return a row of a CSV or TSV file; None is an empty cell, and texts are neutralised."""
    return delimiter.join(_written(cell, delimiter) for cell in cells) + "\n"


def neutralize(cell: str) -> str:
    """Return a cell that a spreadsheet shows and does not execute.

    A cell that begins like a formula (=, +, -, @ or their wide forms, also after white space, or a
    tab or line break) gets an apostrophe in front. Numbers stay as they are. `restore` undoes it.

    >>> neutralize("=1+1"), neutralize("-1.5"), neutralize("a=b")
    ("'=1+1", '-1.5', 'a=b')
    """
    return "'" + cell if _is_formula(cell) else cell


def restore(cell: str) -> str:
    """Return the cell that was passed to `neutralize`; any other cell is unchanged.

    >>> restore("'=1+1"), restore("'quoted'")
    ('=1+1', "'quoted'")
    """
    return cell[1:] if cell.startswith("'") and _is_formula(cell) else cell


def quote(cell: str, delimiter: str = ",") -> str:
    """Return the cell, in quotation marks if it would be read differently without them."""
    if any(c in cell for c in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _written(cell: object, delimiter: str) -> str:
    if isinstance(cell, str):
        return quote(neutralize(cell), delimiter)
    return "" if cell is None else str(cell)


def _is_formula(cell: str) -> bool:
    """Return whether a spreadsheet would execute the cell without its leading apostrophes.

    A neutralised cell counts too; otherwise `restore` would change cells that had an apostrophe.
    """
    if cell[:1].isalnum():  # the common case
        return False
    cell = cell.lstrip("'")
    if cell[:1] in ("\t", "\r", "\n"):
        return True
    start = next((k for k, c in enumerate(cell) if c.isprintable() and not c.isspace()), None)
    if start is None:
        return False
    begin = unicodedata.normalize("NFKC", cell[start])[0]  # the plain form of a wide = or a small @
    return begin in "=+-@−" and not _NUMBER.fullmatch(cell[start:].strip())
