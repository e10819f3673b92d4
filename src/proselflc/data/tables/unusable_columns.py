"""Columns that should hold numbers and do not: which they are, and what to do about them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Literal

from proselflc.data.images.image import SUFFIXES
from proselflc.data.tables.table_file import NoNumberError, Table, is_number, short
from proselflc.errors import InputError

NAMED = 10  # so many columns are named at most
PASTED = 2000  # so many characters of names to paste at most
LONG = 30  # texts of more characters than this are worth learning from
NOTHING = {"", "na", "n/a", "nan", "null", "none", "nil", "missing", "unknown", "-", "?", "."}
# 17,99 and 1.234,50 with a decimal comma; 1,001 and 1,234.5 with commas between thousands.
COMMAS = re.compile(r"[+-]?([0-9]+(\.[0-9]{3})*,[0-9]+|[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?)")

Kind = Literal["gaps", "commas", "files", "texts", "slips", "names", "words"]


def refusal(
    table: Table, columns: Sequence[str], *, has_ids: bool, is_needed: bool = False
) -> InputError:
    """The sentence about those of the columns that hold something else than numbers.

    Args:
        table: that they are of.
        columns: all that should hold numbers; one at least does not.
        has_ids: whether another column names the rows.
        is_needed: whether no column can be left out.
    """
    found = [_Column(name, table.texts(name)) for name in columns if not _holds(table, name)]
    first, others = found[0], [one.name for one in found[1:]]
    row = first.odd[0]
    cell = short(first.cells[row])
    came = f'"{cell}", which is no number' if cell else "nothing"
    also = ""
    if others:
        verb = "are" if len(others) > 1 else "is"
        also = f", and {listed(others, NAMED - 1)} {verb} not all numbers either"
    commas = [one for one in found if one.kind == "commas"]
    rest = [one for one in found if one.kind != "commas"]
    advice = [_about_commas(commas, is_all=not rest)] if commas else []
    if rest:
        advice.append(
            _repairs(rest) if is_needed else _advice(rest, has_ids, len(rest) == len(columns))
        )
    return InputError(
        f'the column "{short(first.name)}" of {table.path} holds {came} in {table.where(row)}'
        f"{also}: {'; '.join(advice)}"
    )


def listed(names: Sequence[str], most: int) -> str:
    """Names in quotation marks as a sentence has them, no more than so many."""
    quoted = [f'"{short(name)}"' for name in names[:most]]
    if len(names) > most:
        quoted.append(f"{len(names) - most} more")
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def option(name: str, columns: Sequence[str]) -> str:
    """An option with columns behind it, to paste into a shell.

    >>> option("--ignore-column", ["age", "home town"])
    "--ignore-column age 'home town'"
    >>> option("--ignore-column", ["-x"])
    '--ignore-column=-x'
    """
    plain = [shlex.quote(one) for one in columns if not one.startswith("-")]
    dashed = [shlex.quote(f"{name}={one}") for one in columns if one.startswith("-")]
    words = [name, *plain, *dashed] if plain else dashed
    kept, length = 0, 0
    while kept < len(words) and (kept < 2 or length + len(words[kept]) < PASTED):
        length += len(words[kept]) + 1
        kept += 1
    return " ".join(words[:kept]) + (" …" if kept < len(words) else "")


@dataclass(frozen=True)
class _Column:
    """A column with a cell that is no number."""

    name: str
    cells: Sequence[str]

    @cached_property
    def odd(self) -> list[int]:
        """The rows whose cells are no numbers."""
        return [row for row, cell in enumerate(self.cells) if not is_number(cell)]

    @cached_property
    def length(self) -> float:
        """The mean number of characters of the cells that are no numbers."""
        return sum(len(self.cells[row]) for row in self.odd) / len(self.odd)

    @cached_property
    def kind(self) -> Kind:
        """What the cells look like."""
        words = [self.cells[row] for row in self.odd]
        words = [word for word in words if word.lower() not in NOTHING]
        if not words:
            return "gaps"
        if all(COMMAS.fullmatch(word) for word in words):
            return "commas"
        if all(PurePath(word).suffix.lower() in SUFFIXES for word in words):
            return "files"
        if self.length > LONG:
            return "texts"
        if 2 * len(self.odd) < len(self.cells):
            return "slips"
        return "names" if len(set(self.cells)) == len(self.cells) else "words"


def _holds(table: Table, column: str) -> bool:
    """Whether a column holds numbers alone."""
    try:
        table.numbers([column])
    except NoNumberError:
        return False
    return True


def _repairs(columns: Sequence[_Column]) -> str:
    """How to make numbers of the cells."""
    kinds = {one.kind for one in columns}
    ways = []
    if "gaps" in kinds:
        ways.append("fill it in or drop the row")
    if kinds - {"gaps"}:
        ways.append("repair the cells")
    return ", and ".join(ways)


def _about_commas(columns: Sequence[_Column], *, is_all: bool) -> str:
    """What to do about numbers with commas; their columns are named if there are others."""
    which = "" if is_all else f" of {listed([one.name for one in columns], NAMED)}"
    return (
        "decimal commas are not read, nor are commas between thousands, so save the numbers"
        f"{which} with decimal points"
    )


def _advice(columns: Sequence[_Column], has_ids: bool, is_all: bool) -> str:
    """What to do about the columns; if they are all there is, none can be left out."""
    can_be_numbers = [one for one in columns if one.kind in ("gaps", "slips")]
    ways = [_repairs(can_be_numbers)] if can_be_numbers else []
    if not is_all:
        ids = next((one.name for one in columns if one.kind == "names"), None)
        ways.append(_leaving_out([one.name for one in columns], None if has_ids else ids))
    files = next((one.name for one in columns if one.kind == "files"), None)
    if files is not None:
        ways.append("learn from images with " + option("--path-column", [files]))
    texts = [one for one in columns if one.kind in ("texts", *(("names", "words") * is_all))]
    if texts:
        longest = max(texts, key=lambda one: one.length)
        ways.append("learn from texts with " + option("--text-column", [longest.name]))
    return ", or ".join(ways)


def _leaving_out(columns: Sequence[str], ids: str | None) -> str:
    """How to have columns not learned from, one of which may name the rows."""
    others = [name for name in columns if name != ids]
    what = "them" if len(others) > 1 else "the column"
    if ids is None:
        return f"leave {what} out with {option('--ignore-column', others)}"
    named = f"name the rows with {option('--id-column', [ids])}"
    if not others:
        return named
    what = "the others" if len(others) > 1 else "the other"
    return f"{named} and leave {what} out with {option('--ignore-column', others)}"
