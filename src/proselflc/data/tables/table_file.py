"""A table as its file has it: named columns of cells, from delimited text or Parquet."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.request import PARQUET
from proselflc.data.tables.parquet_footer import claimed_values
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, open_regular
from proselflc.files.text import decoded

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


# A row takes a byte of a file or at least a twentieth of one, unless there are few rows.
_ROWS_PER_BYTE, _FEW_ROWS = 20, 2**24
# Bytes of memory for each byte of a file, unless there are few.
_RATIO, _HARMLESS = 200, 2**30
# Bytes that a value takes in memory; a text becomes an object of Python.
_WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 12,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 64,
}
_DELIMITERS = {".csv": ",;\t", ".tsv": "\t", ".tab": "\t"}


class NoNumberError(InputError):
    """A column of numbers has a cell that is none; `unusable_columns` says more about it."""


@dataclass(frozen=True)
class Delimited:
    """A CSV or TSV file, read whole."""

    path: Path
    columns: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]  # on which line each row begins
    delimiter: str
    has_quotes: bool  # whether a quotation mark is one, or just a character

    def __len__(self) -> int:
        return len(self.rows)

    def texts(self, column: str) -> list[str]:
        """The cells without the white space around them; "" where there is none."""
        k = self.columns.index(column)
        return [row[k].strip() for row in self.rows]

    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float64]:
        """[n, D] as numbers."""
        return np.stack([_parsed(self, name, self.texts(name)) for name in columns], axis=1)

    def where(self, row: int) -> str:
        return f"line {self.lines[row]}"


@dataclass(frozen=True)
class Parquet:
    """A Parquet file, whose columns are read when they are wanted."""

    path: Path
    columns: tuple[str, ...]
    length: int

    def __len__(self) -> int:
        return self.length

    def texts(self, column: str) -> list[str]:
        """The cells as text; "" where there is none."""
        return _texts(self.path, column, self.read([column]).column(0))

    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float64]:
        """[n, D] as numbers; NaN where there is none."""
        table = self.read(columns)
        values = np.empty((len(self), len(columns)))
        for k, name in enumerate(columns):
            values[:, k] = self._numbers(name, table.column(k))
        return values

    def where(self, row: int) -> str:
        return f"row {row + 1}"

    def _numbers(self, name: str, column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
        import pyarrow as pa

        kind = column.type
        try:
            if pa.types.is_boolean(kind):
                column = column.cast(pa.uint8())
            if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
                numbers: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
                return numbers
        except Exception as error:
            raise _damaged(self.path, error) from None
        return _parsed(self, name, _texts(self.path, name, column))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some of the columns as they are."""
        import pyarrow.parquet as pq

        try:
            with open_regular(self.path) as stream, pq.ParquetFile(stream) as file:
                size = os.fstat(stream.fileno()).st_size
                _must_have_room(self.path, file.metadata, set(columns), size)
                table = file.read(columns=list(columns))
                # Pages may hold other numbers of rows, in another order, than the header claims.
                table = table.select(list(columns))
                table.validate(full=True)
        except InputError:
            raise
        except Exception as error:
            raise _damaged(self.path, error) from None
        if len(table) != len(self):
            raise InputError(
                f"{self.path} holds {len(table)} rows, but its header claims {len(self)}: "
                "it is damaged, so write it again"
            )
        return table


Table: TypeAlias = Delimited | Parquet


def open_table(path: Path) -> Table:
    """The table with its column names checked."""
    suffix = path.suffix.lower()
    if suffix not in _DELIMITERS and suffix not in PARQUET:
        known = ", ".join([*_DELIMITERS, *PARQUET])
        raise InputError(f"{path} is no table by its ending: expected one of {known}")
    if not is_regular(path):
        raise InputError(
            f"the table {path} does not exist: give the path of a CSV, TSV or Parquet file"
        )
    table = open_parquet(path) if suffix in PARQUET else _open_delimited(path, suffix)
    seen: set[str] = set()
    for name in table.columns:
        if name in seen:
            raise InputError(
                f'{path} has two columns named "{name}": give every column a name of its own'
            )
        seen.add(name)
    return table


def _open_delimited(path: Path, suffix: str) -> Delimited:
    text = decoded(path)
    delimiters = _DELIMITERS[suffix]
    delimiter = next((d for d in delimiters if _divides(text, d)), delimiters[0])
    try:
        table = _rows(path, text, delimiter, csv.QUOTE_MINIMAL)
    except InputError:
        # Tabs need no quotes, so a quotation mark in a TSV may be just that.
        if delimiter != "\t" or '"' not in text:
            raise
        return _plain(path, text, delimiter)
    if (
        delimiter == "\t"
        and '"' in text
        and any("\t" in cell or "\n" in cell for row in table.rows for cell in row)
    ):
        # Quotes that swallow tabs and lines, where the same file without quotes is a whole table
        # too, are two quotation marks in different rows.
        try:
            return _plain(path, text, delimiter)
        except InputError:
            return table
    return table


def _divides(text: str, delimiter: str) -> bool:
    """Whether the first line has several columns when divided so."""
    first = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    try:
        return any(len(row) > 1 for row in csv.reader([first], delimiter=delimiter))
    except csv.Error:
        return False


def _plain(path: Path, text: str, delimiter: str) -> Delimited:
    return _rows(path, text, delimiter, csv.QUOTE_NONE)


def _rows(path: Path, text: str, delimiter: str, quoting: Literal[0, 3]) -> Delimited:
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True
    )
    rows: list[list[str]] = []
    lines: list[int] = []
    header: list[str] | None = None
    blank: int | None = None  # a line without a cell that a row may yet follow
    begin = 1
    try:
        for row in reader:
            line, begin = begin, reader.line_num + 1
            if header is None:
                header = row or None
            elif not row:
                blank = blank or line
            elif len(row) != len(header):
                raise InputError(
                    f"line {line} of {path} has {len(row)} cells, but the first line names "
                    f"{len(header)} columns: repair that line"
                )
            elif blank is not None and len(header) == 1:
                raise InputError(
                    f"line {blank} of {path} is empty, but rows follow: fill it in or remove it"
                )
            else:
                rows.append(row)
                lines.append(line)
    except csv.Error as error:
        raise InputError(
            f"line {begin} of {path} cannot be read ({error}): look for a quotation mark that is "
            "not closed, or a cell that is too long"
        ) from None
    if header is None:
        raise InputError(f"{path} is empty: expected a first line with the names of the columns")
    names = [one_line(name.strip()) for name in header]
    kept = [k for k, name in enumerate(names) if name or k == 0 or any(r[k].strip() for r in rows)]
    for k in kept[1:]:
        if not names[k]:
            raise InputError(f"column {k + 1} of {path} has cells but no name: name or remove it")
    if len(kept) < len(names):
        rows = [[row[k] for k in kept] for row in rows]
    columns = tuple(names[k] for k in kept)
    return Delimited(path, columns, rows, lines, delimiter, quoting != csv.QUOTE_NONE)


def open_parquet(path: Path) -> Parquet:
    """A Parquet file, if it is one and does not claim more rows than its bytes can hold.

    Raises:
        InputError: it is no such file, or is damaged.
    """
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as stream, pq.ParquetFile(stream) as file:
            size = os.fstat(stream.fileno()).st_size
            about = file.metadata
            columns = tuple(file.schema_arrow.names)
            length = about.num_rows
            claimed = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    except InputError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None
    most = max(_FEW_ROWS, _ROWS_PER_BYTE * size)
    if not 0 <= length <= most or claimed > max(2**26, 1000 * size):
        raise InputError(
            f"{path} has {size:,} bytes, but its header claims {length:,} rows of {claimed:,} "
            f"bytes, where at most {most:,} rows are believed: it is damaged, so write it again"
        )
    return Parquet(path, columns, length)


def _must_have_room(path: Path, about: pq.FileMetaData, wanted: set[str], size: int) -> None:
    """Refuse columns that would take far more memory than their file has bytes.

    A value that is repeated takes next to nothing in a file and its whole width in memory.
    """
    claimed = claimed_values(path)
    needed = 0
    for k in range(about.num_columns):
        leaf = about.schema.column(k)
        if leaf.path.partition(".")[0] in wanted:
            width = _WIDTHS.get(leaf.physical_type) or max(leaf.length, 1)
            needed += sum(columns[k] for columns in claimed if k < len(columns)) * width
    room = max(_HARMLESS, _RATIO * size)
    if needed > room:
        raise InputError(
            f"{path} has {size:,} bytes, but its {about.num_rows:,} rows would take about "
            f"{needed:,} bytes of memory, where at most {room:,} are allowed ({_RATIO} times its "
            "size): if these are your data, write them again without compression and without "
            "dictionaries"
        )


def _damaged(path: Path, error: Exception) -> InputError:
    # Arrow has its own errors for some damage and lets the standard ones through for other.
    words = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"cannot read the Parquet file {path} ({words}): write it again")


def _texts(path: Path, name: str, column: pa.ChunkedArray) -> list[str]:
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind):
        raise InputError(
            f'the column "{name}" of {path} holds {kind} values, but one text or number per row '
            "is expected: unfold it"
        )
    try:
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            column = column.cast(pa.large_string())  # text of writers that do not say so
        return [_text(cell) for cell in column.to_pylist()]
    except Exception as error:
        raise _damaged(path, error) from None


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        # pandas makes floats of integers where a cell of the column is missing.
        if math.isnan(cell):
            return ""
        return str(int(cell)) if cell.is_integer() else str(cell)
    return str(cell).strip()


def _parsed(table: Table, column: str, cells: Sequence[str]) -> npt.NDArray[np.float64]:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        raise NoNumberError(
            f'the column "{column}" of {table.path} is not all numbers: repair it'
        ) from None


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def short(cell: str) -> str:
    cell = " ".join(cell.split())
    return cell if len(cell) <= 40 else cell[:39] + "…"


def one_line(name: str) -> str:
    """The name of a column without its line breaks."""
    return re.sub(r"\s*[\r\n]\s*", " ", name)
