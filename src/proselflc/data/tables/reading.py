"""The columns of a table to learn from: numbers alone, or columns of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from proselflc.data.inputs import Features, Floats, Inputs, Ints
from proselflc.data.request import KINDS_ASKED, Request
from proselflc.data.tables import kinds
from proselflc.data.tables.cells import NotNumericError, is_number, short
from proselflc.data.tables.columns import (
    find_column,
    names_to_show,
    option_for,
    quote_names,
    refusal,
)
from proselflc.data.tables.kinds import Column, ColumnKind, Found, InfiniteError
from proselflc.data.tables.mixed import MixedColumns
from proselflc.data.tables.parquet import Parquet
from proselflc.data.tables.table_file import Table
from proselflc.errors import InputError
from proselflc.wording import option

if TYPE_CHECKING:
    import pyarrow as pa

_CELLS = 1 << 22  # cells that are converted together, 32 MB of float64
_FIRST = 100  # rows that tell most columns of words from numbers
_NAMED = 10  # columns named in a message
_ASKED: dict[str, Literal["category", "number", "text"]] = {
    "categorical": "category",
    "numeric": "number",
    "text": "text",
}


def learned_columns(
    table: Table, columns: Sequence[str], request: Request, train: Ints | None
) -> Features | MixedColumns:
    """Return the columns to learn from.

    A table of finite numbers alone is a matrix. Any other is read by the kinds of its columns,
    which are those of the request or are found from the training rows.

    Args:
        table: the table.
        columns: names of the columns.
        request: names the columns whose kind is asked for.
        train: [n] rows of the training part; None for all.
    """
    if not columns:
        raise InputError(
            f"{table.path} has nothing to learn from: add a column of image paths or "
            f"texts, or columns of numbers, to {', '.join(names_to_show(table, 'text'))}"
        )
    asked = asked_kinds(table, columns, request)
    if not asked:  # as before there were kinds, bit for bit
        numbers = _numbers(table, columns)
        if numbers is not None:
            return Features(numbers, tuple(columns))
    found: list[Found] = []
    cells: list[Column] = []
    for name, column in in_blocks(table, columns):
        one = find(table, name, column, train, asked.get(name))
        found.append(one)
        if one.kind.kind != "ignored":
            cells.append(read(table, one.kind, column))
    if not cells:
        reasons = ", ".join(f'"{short(f.kind.name)}" ({f.kind.reason})' for f in found[:_NAMED])
        raise InputError(
            f"{table.path} has nothing to learn from: its columns are ignored, {reasons}",
            fix="add other columns, or say what one of them holds with "
            f"{option_for('text', [found[0].kind.name])}",
        )
    return MixedColumns(tuple(cells), tuple(found))


def file_notes(table: Table, inputs: Inputs) -> Iterator[str]:
    """Yield what was found out about the file, in one sentence, and about cells of it."""
    commas = []
    if isinstance(inputs, MixedColumns):
        commas = [kind.name for kind in inputs.kinds if kind.form == "comma"]
    said = [table.finding] if table.finding else []
    if commas:
        said.append(f"decimal commas in {quote_names(commas, _NAMED)}")
    if said:
        yield f"found in {table.path}: {', '.join(said)}"
    yield from table.notes


def known_columns(table: Table, known: Sequence[ColumnKind]) -> MixedColumns:
    """Return columns whose kinds are known, as of a model that was trained on them."""
    kind = {one.name: one for one in known}
    blocks = in_blocks(table, list(kind))
    return MixedColumns(tuple(read(table, kind[name], column) for name, column in blocks))


def needed_numbers(
    table: Table,
    columns: Sequence[str],
    fill: Sequence[float] | None,
    report: Callable[[str], None],
) -> Features:
    """Return the columns that a model of numbers needs, which cannot be ignored.

    Args:
        table: the table.
        columns: names of the columns.
        fill: what stands for missing cells of each column; None to refuse them.
        report: receives a sentence about these.
    """
    values = np.empty((len(table), len(columns)), np.float32)
    gaps: dict[str, int] = {}
    for k, (name, cells) in enumerate(in_blocks(table, columns)):
        try:
            numbers = table.numbers([name])[:, 0]
        except NotNumericError:
            if fill is None or not _is_numbers_and_gaps(name, cells):
                raise refusal(table, columns, with_gaps=fill is not None) from None
            numbers = kinds.read(ColumnKind(name, "number", "point"), cells).values.astype(float)
        missing = np.isnan(numbers)
        if fill is not None and missing.any():
            gaps[name] = int(missing.sum())
            numbers = np.where(missing, fill[k], numbers)
        with np.errstate(all="ignore"):  # too large for float32 becomes infinite
            values[:, k] = numbers
        odd = np.flatnonzero(~np.isfinite(values[:, k]))
        if len(odd):
            cell = "nothing or NaN" if np.isnan(numbers[odd[0]]) else f"{numbers[odd[0]]}"
            raise InputError(
                f'the column "{short(name)}" of {table.path} holds {cell} in '
                f"{table.where(int(odd[0]))}, where a finite number is expected",
                fix="fill it in or drop the row",
            )
    if gaps:
        many, shown = sum(gaps.values()), quote_names(list(gaps), _NAMED)
        report(
            f"1 cell of {shown} is missing and counts as the training median of its column"
            if many == 1
            else f"{many:,} cells of {shown} are missing and count as the training median of "
            "their column"
        )
    return Features(values, tuple(columns))


def _is_numbers_and_gaps(name: str, cells: pa.ChunkedArray) -> bool:
    """Return whether all cells are numbers or missing."""
    found = kinds.find(name, cells, "number")
    return found.misfits == 0 and found.kind.form != "comma"


def asked_kinds(
    table: Table, columns: Sequence[str], request: Request
) -> dict[str, Literal["category", "number", "text"]]:
    """Return the kinds that the request asks for, by the names of the columns."""
    asked: dict[str, Literal["category", "number", "text"]] = {}
    by: dict[str, str] = {}
    for field in KINDS_ASKED:
        for wanted in getattr(request, field):
            name = find_column(table, wanted, (), field=field)
            assert name is not None
            if name not in columns:
                raise InputError(
                    f"{option(field, (wanted,))} names a column of {table.path} that is not "
                    "learned from",
                    field=field,
                    fix="leave it out",
                )
            if asked.setdefault(name, _ASKED[field]) != _ASKED[field]:
                raise InputError(
                    f'the column "{short(name)}" of {table.path} is given by '
                    f"{option(by[name])} and by {option(field)}",
                    field=field,
                    fix="drop one of them",
                )
            by[name] = field
    return asked


def find(
    table: Table,
    name: str,
    column: pa.ChunkedArray,
    train: Ints | None,
    asked: Literal["category", "number", "text"] | None = None,
) -> Found:
    """Return the kind of a column, with notes that say where its first odd cell is."""
    import pyarrow as pa

    cells = column if train is None or len(train) == len(column) else column.take(pa.array(train))
    try:
        found = kinds.find(name, cells, asked)
    except InputError as error:
        raise InputError(f"{table.path}: {error.reason}", fix=error.fix) from None
    if not found.misfit:
        return found
    row = _row(cells, found.misfit)
    where = table.where(row if train is None else int(train[row]))
    if found.misfits:
        many = "1 cell is" if found.misfits == 1 else f"{found.misfits:,} cells are"
        first = "" if found.misfits == 1 else "the first "
        note = (
            f"{many} not a {found.kind.kind} and count{'s' * (found.misfits == 1)} as missing, "
            f'{first}"{short(found.misfit)}" in {where}'
        )
        return replace(found, notes=(note, *found.notes))
    first_note, *others = found.notes
    return replace(
        found, notes=(f'{first_note}, the first "{short(found.misfit)}" in {where}', *others)
    )


def read(table: Table, kind: ColumnKind, column: pa.ChunkedArray) -> Column:
    """Return the cells of a column, read by its kind."""
    try:
        return kinds.read(kind, column)
    except InfiniteError as error:
        raise InputError(
            f'the column "{short(error.column)}" of {table.path} holds {error.value:g} in '
            f"{table.where(error.row)}, where a finite number is expected",
            fix=f"fill it in or drop the row, or ignore the column with "
            f"{option_for('ignore_column', [error.column])}",
        ) from None


def in_blocks(table: Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield the columns; few of them are read at a time."""
    step = max(1, _CELLS // max(1, len(table)))
    for start in range(0, len(columns), step):
        names = columns[start : start + step]
        yield from zip(names, table.arrow(names), strict=True)


def require_columns(
    table: Table, needed: Sequence[str], optional: Collection[str] = ()
) -> list[str]:
    """Refuse a table that lacks columns that a model needs; return the optional ones it lacks."""
    absent = [name for name in needed if name not in table.columns]
    missing = [name for name in absent if name not in optional]
    if missing or (absent and len(absent) == len(needed)):
        missing = missing or absent
        what = "column" if len(missing) == 1 else "columns"
        here = ", ".join(map(short, names_to_show(table, missing[0])))
        raise InputError(
            f"{table.path} lacks the {what} {quote_names(missing, 10)} that the model was trained "
            f"on; its columns: {here}",
            fix="add what is missing",
        )
    return absent


def without_constants(table: Table, absent: Sequence[str]) -> str:
    """Return a note about absent columns that were constant in training."""
    what, verb, them = ("column", "was", "it") if len(absent) == 1 else ("columns", "were", "them")
    return (
        f"{table.path} has no {what} {quote_names(absent, _NAMED)}, which {verb} constant in "
        f"training, so the model does not need {them}"
    )


def _numbers(table: Table, columns: Sequence[str]) -> Floats | None:
    """Return [n, D] the columns if they all hold finite numbers, or None."""
    if not _may_be_numbers(table, columns):
        return None
    values = np.empty((len(table), len(columns)), np.float32)
    step = max(1, _CELLS // max(1, len(table)))
    for start in range(0, len(columns), step):
        try:
            block = table.numbers(columns[start : start + step])
        except NotNumericError:
            return None
        with np.errstate(all="ignore"):  # too large for float32 becomes infinite
            values[:, start : start + step] = block
        if not np.isfinite(values[:, start : start + step]).all():
            return None
    return values


def _may_be_numbers(table: Table, columns: Sequence[str]) -> bool:
    """Return whether the first cells of columns in memory are numbers, so that all may be."""
    if isinstance(table, Parquet):
        return True  # reading a column only to look at its first cells would cost more
    for column in table.arrow(columns):
        head = column.slice(0, _FIRST).to_pylist()
        if not all(not isinstance(cell, str) or is_number(cell.strip()) for cell in head):
            return False
    return True


def _row(cells: pa.ChunkedArray, cell: str) -> int:
    """Return the first row with a cell, white space aside."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = cells.cast(pa.string())
    return max(0, int(pc.index(pc.utf8_trim_whitespace(texts), pa.scalar(cell)).as_py()))
