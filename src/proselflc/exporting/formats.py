"""The file formats of exported labels: a new one is a name, a function and a line of `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from proselflc.exporting.labels import LabelExport

Format: TypeAlias = Literal["csv", "parquet", "npz", "cleanlab"]

_PARQUET = (".parquet", ".pq")
_ROWS = 1 << 16  # converted to Python objects at once


@dataclass(frozen=True)
class FileFormat:
    """A file format.

    Attributes:
        suffixes: endings of its files; the first is used for printing.
        write: writes labels to a file with the given ending, with distributions if soft.
        is_text: whether it can be printed to a terminal.
        takes_soft: whether it can hold distributions.
    """

    suffixes: tuple[str, ...]
    write: Callable[[LabelExport, IO[bytes], str, bool], None]
    is_text: bool = True
    takes_soft: bool = True


def _write_labels(labels: LabelExport, file: IO[bytes], suffix: str, soft: bool) -> None:
    write_table(labels.table(soft=soft), file, suffix)


def _write_arrays(labels: LabelExport, file: IO[bytes], suffix: str, soft: bool) -> None:
    labels.write_npz(file, soft=soft)


def _write_issues(labels: LabelExport, file: IO[bytes], suffix: str, soft: bool) -> None:
    write_table(labels.issues(), file, suffix)


FORMATS: dict[Format, FileFormat] = {
    "csv": FileFormat((".csv", ".tsv"), _write_labels),
    "parquet": FileFormat(_PARQUET, _write_labels, is_text=False),
    "npz": FileFormat((".npz",), _write_arrays, is_text=False),
    "cleanlab": FileFormat((".csv", ".tsv", *_PARQUET), _write_issues, takes_soft=False),
}


def write_table(table: pa.Table, file: IO[bytes], suffix: str) -> None:
    """Write a table in the form that the ending of its file says."""
    if suffix in _PARQUET:
        import pyarrow.parquet as pq

        pq.write_table(table, file, compression="zstd")
        return
    for line in text_lines(table, "\t" if suffix == ".tsv" else ","):
        file.write(line.encode())


def text_lines(table: pa.Table, delimiter: str = ",") -> Iterator[str]:
    """Return the lines of a CSV or TSV file, heading first, neutralised for spreadsheets."""
    from proselflc.data.tables.cells import format_row

    yield format_row(table.column_names, delimiter)
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in zip(*(_cells(column) for column in batch.columns), strict=True):
            yield format_row(row, delimiter)


def _cells(column: pa.Array) -> list[object]:
    import pyarrow as pa

    cells: list[object] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [None if cell is None else round(cell, 6) for cell in cells]  # type: ignore[call-overload]
    return cells
