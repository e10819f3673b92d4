"""Rows of a table whose columns are of several kinds, with missing cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proselflc.data.inputs import Inputs, Ints, Preview
from proselflc.data.tables.kinds import Column, ColumnKind, Found
from proselflc.errors import InputError
from proselflc.files.regular import whole_file

_SHOWN = 12  # columns of a preview
_KINDS = b"proselflc.kinds"  # key of the metadata of a kept file


@dataclass(frozen=True)
class MixedColumns(Inputs):
    """n rows of numbers, booleans, dates, categories and texts, any of which may be missing.

    Attributes:
        cells: D columns with n cells each.
        found: what the training cells of every column of the table look like, ignored ones
            included; empty for rows that are only predicted.
    """

    cells: tuple[Column, ...]
    found: tuple[Found, ...] = ()
    kind = "columns of several kinds"
    medium = "table"

    def __post_init__(self) -> None:
        assert self.cells
        assert len({len(column) for column in self.cells}) == 1
        object.__setattr__(self, "columns", tuple(column.kind.name for column in self.cells))

    def __len__(self) -> int:
        return len(self.cells[0])

    @property
    def kinds(self) -> tuple[ColumnKind, ...]:
        """Return the kinds of the columns."""
        return tuple(column.kind for column in self.cells)

    def take(self, index: Ints) -> MixedColumns:
        return replace(self, cells=tuple(column.take(index) for column in self.cells))

    def concat(self, others: Sequence[MixedColumns]) -> MixedColumns:
        for other in others:
            if other.kinds != self.kinds:
                mine, theirs = next(
                    pair
                    for pair in zip(self.kinds, other.kinds, strict=False)
                    if pair[0] != pair[1]
                )
                raise InputError(
                    f'the column "{mine.name}" is a {mine.kind} in one table, and the other has '
                    f'"{theirs.name}", a {theirs.kind}, in its place',
                    fix="give both tables the same columns",
                )
        cells = tuple(
            column.concat([other.cells[k] for other in others])
            for k, column in enumerate(self.cells)
        )
        return replace(self, cells=cells)

    def preview(self, row: int, side: int) -> Preview:
        shown = [f"{c.kind.name}: {c.cell(row) or '–'}" for c in self.cells[:_SHOWN]]
        return Preview(text=" · ".join(shown))

    def describe(self) -> str:
        return f"{len(self.cells)} columns of several kinds"


def write(inputs: MixedColumns, path: Path) -> None:
    """Keep the rows in a Parquet file, which `read` reads."""
    import json
    from dataclasses import asdict

    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays: list[Any] = []
    for column in inputs.cells:
        gone = column.is_missing
        if column.has_words:
            codes = pa.array(column.values, pa.int32(), mask=gone)
            arrays.append(
                pa.DictionaryArray.from_arrays(codes, pa.array(column.words, pa.string()))
            )
        else:
            arrays.append(pa.array(column.values, mask=gone))
    table = pa.Table.from_arrays(arrays, names=[f"c{k}" for k in range(len(arrays))])
    kinds = json.dumps([asdict(kind) for kind in inputs.kinds]).encode()
    with whole_file(path) as file:
        pq.write_table(table.replace_schema_metadata({_KINDS: kinds}), file, compression="zstd")


def read(table: Any, path: Path) -> MixedColumns | None:
    """Return the rows of an Arrow table that `write` has kept; None if it holds something else."""
    import msgspec

    from proselflc.data.tables import kinds
    from proselflc.files.typed import convert

    stored = (table.schema.metadata or {}).get(_KINDS)
    if stored is None:
        return None
    try:
        plain = msgspec.json.decode(stored)
    except msgspec.DecodeError:
        raise InputError(f"{path} is damaged: its columns have no kinds") from None
    known = convert(plain, tuple[ColumnKind, ...], path)
    if len(known) != table.num_columns or any(one.kind == "ignored" for one in known):
        raise InputError(f"{path} is damaged: it has {table.num_columns} columns")
    cells = []
    for kind, column in zip(known, table.columns, strict=True):
        if kind.kind in ("category", "text"):
            cells.append(kinds.of_words(kind, column))
        else:
            dtype = np.float64 if kind.kind == "date" else np.float32
            cells.append(Column(kind, column.to_numpy().astype(dtype, copy=False)))
    return MixedColumns(tuple(cells))
