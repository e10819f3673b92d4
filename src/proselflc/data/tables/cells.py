"""Cells of text tables: numbers in them, how messages show them, and how they are written.

A spreadsheet executes cells that begin like a formula, so these are written as plain text.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError

DecimalMark: TypeAlias = Literal[".", ","]

# Usual spellings of a missing value, in lower case; the last ones are a spreadsheet's errors.
MISSING = frozenset(
    (
        *("", "na", "n/a", "n.a.", "<na>", "nan", "nat", "null", "none", "nil", "missing"),
        *("unknown", "-", "--", "?", "."),
        *("#n/a", "#null!", "#div/0!", "#value!", "#ref!", "#name?", "#num!"),
    )
)

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONGEST = 400  # characters of a number
_POWER = r"([eE][+-]?[0-9]+)?"
_SPACES = "_'’ \u00a0\u202f"  # between thousands, beside the mark that is not the decimal mark
_THOUSANDS = {
    mark: re.compile(
        rf"(?P<sign>[+\-−])?(?P<whole>[0-9]{{1,3}}(?:([{other}{_SPACES}])[0-9]{{3}}(?:\3[0-9]{{3}})*)?|"
        rf"[0-9]*)(?P<rest>{re.escape(mark)}[0-9]*{_POWER}|{_POWER})"
    )
    for mark, other in ((".", ","), (",", "."))
}


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


def number_in(cell: str, mark: DecimalMark = ".") -> float | None:
    """Return the number in a cell with this decimal mark; None if there is none.

    Thousands may be divided by the other mark, a space, an apostrophe or an underscore, in groups
    of three.

    >>> number_in("1,234.5"), number_in("1.234,5", ","), number_in("12 000"), number_in("1,2")
    (1234.5, 1234.5, 12000.0, None)
    """
    if not cell or len(cell) > _LONGEST:
        return None
    if _NUMBER.fullmatch(cell):
        if mark == "." or "." not in cell:
            return _finite(cell)
        return _finite(cell.replace(".", "")) if _THOUSANDS[mark].fullmatch(cell) else None
    found = _THOUSANDS[mark].fullmatch(cell)
    if found is None:
        return None
    sign, whole, rest = found["sign"] or "", found["whole"], found["rest"] or ""
    digits = "".join(c for c in whole if c.isdigit())
    return _finite(f"{sign.replace('−', '-')}{digits}{rest.replace(',', '.')}")


def decimal_mark(cells: Sequence[str]) -> DecimalMark:
    """Return the decimal mark with which more of the cells are numbers; a point if either will do.

    >>> decimal_mark(["17,99", "1.234,50"]), decimal_mark(["1,001", "2,500"]), decimal_mark(["1"])
    (',', '.', '.')
    """
    if not any("," in cell for cell in cells):
        return "."
    some = cells[:10_000]
    point = sum(number_in(cell) is not None for cell in some)
    comma = sum(number_in(cell, ",") is not None for cell in some)
    return "," if comma > point else "."


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # a sign or a mark alone
        return None
    return value if math.isfinite(value) else None


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
