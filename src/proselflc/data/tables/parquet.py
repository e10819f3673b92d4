"""Parquet files, whose header is checked before memory is allocated.

An exception in Arrow's C++ code for a damaged column ends the whole process, so the numbers of
values are read from the footer here. It is a struct of Thrift's compact protocol: see
parquet.thrift for the numbers of fields.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.tables.cells import parse_numbers
from proselflc.errors import InputError
from proselflc.files.regular import open_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# A Parquet row takes at least a twentieth of a byte of its file, unless there are few rows.
_ROWS_PER_BYTE, _FEW_ROWS = 20, 2**24
# Bytes of memory allowed for each byte of a Parquet file, and for any file.
_RATIO, _HARMLESS = 200, 2**30
# Bytes of a value in memory; a text becomes a Python object.
_WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 12,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 64,
}
_LARGEST = 1 << 26  # bytes of a footer
_DEEPEST = 16  # structs within structs; Parquet has 5
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_ROW_GROUPS, _COLUMNS, _ROWS, _META_DATA, _CODEC, _NUM_VALUES = 4, 1, 3, 3, 4, 5
_CODECS = ("NONE", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4")

_Struct: TypeAlias = dict[int, Any]


@dataclass(frozen=True)
class Parquet:
    """A Parquet file, whose columns are read on demand."""

    path: Path
    columns: tuple[str, ...]
    length: int

    def __len__(self) -> int:
        return self.length

    def texts(self, column: str) -> list[str]:
        """Return the cells as text; "" if empty."""
        return arrow_texts(self.path, column, self.read([column]).column(0))

    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the cells of some columns as numbers [n, D]; NaN if empty."""
        table = self.read(columns)
        values = np.empty((len(self), len(columns)))
        for k, name in enumerate(columns):
            values[:, k] = self._numbers(name, table.column(k))
        return values

    def arrow(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """Return some columns as Arrow has them."""
        return list(self.read(columns).columns)

    def where(self, row: int) -> str:
        """Return the number of a row, counted from 1."""
        return f"row {row + 1}"

    def _numbers(self, name: str, column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
        found = arrow_numbers(self.path, column)
        if found is not None:
            return found
        return parse_numbers(self.path, name, arrow_texts(self.path, name, column))

    @property
    def form(self) -> str:
        """Return how the file is written."""
        return "Parquet"

    @property
    def finding(self) -> str:
        """Return what was found out about the file: nothing that its name does not say."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences about cells that could not be read: none."""
        return ()

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return some of the columns as an Arrow table."""
        import pyarrow.parquet as pq

        try:
            with open_regular(self.path) as stream, pq.ParquetFile(stream) as file:
                size = os.fstat(stream.fileno()).st_size
                _check_memory(self.path, file.metadata, set(columns), size)
                table = file.read(columns=list(columns))
                # Pages may hold more or fewer rows than the header says, in another order.
                table = table.select(list(columns))
                table.validate(full=True)
        except InputError:
            raise
        except Exception as error:
            raise _damaged(self.path, error) from None
        if len(table) != len(self):
            raise InputError(
                f"{self.path} is damaged: it holds {len(table)} rows, but its header says "
                f"{len(self)}",
                fix="write it again",
            )
        return table


def open_parquet(path: Path) -> Parquet:
    """Return a Parquet file that does not claim more rows than its bytes can hold."""
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
            f"{path} is damaged: it has {size:,} bytes, but its header claims {length:,} rows of "
            f"{claimed:,} bytes, where at most {most:,} rows are possible",
            fix="write it again",
        )
    return Parquet(path, columns, length)


def _check_memory(path: Path, about: pq.FileMetaData, wanted: set[str], size: int) -> None:
    """Refuse columns that would take far more memory than their file has bytes.

    A repeated value takes almost no space in a file and its whole width in memory.
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
            "size)",
            fix="if these are your data, write them again without compression and without "
            "dictionaries",
        )


def _damaged(path: Path, error: Exception) -> InputError:
    # Arrow raises its own errors for some damage and standard ones for other.
    words = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"cannot read the Parquet file {path} ({words}): write it again")


def arrow_numbers(path: Path, column: pa.ChunkedArray) -> npt.NDArray[np.float64] | None:
    """Return [n] the numbers of a column, NaN if empty; None if its type is another."""
    import pyarrow as pa

    kind = column.type
    try:
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            numbers: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
            return numbers
    except Exception as error:
        raise _damaged(path, error) from None
    return None


def arrow_texts(path: Path, name: str, column: pa.ChunkedArray) -> list[str]:
    """Return the cells of a column as text; "" if empty."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind):
        raise InputError(
            f'the column "{name}" of {path} holds {kind} values, but one text or number per row '
            "is expected",
            fix="split it into several columns",
        )
    try:
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            column = column.cast(pa.large_string())  # text that its writer did not mark as such
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


def claimed_values(path: Path) -> list[list[int]]:
    """Return the number of values in every column of every row group, at least its rows."""
    try:
        groups = _row_groups(path)
        return [[_values(column, group) for column in group.get(_COLUMNS, [])] for group in groups]
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise _damaged(path, error) from None


def codec(path: Path) -> str:
    """Return the compression of the first column, such as "ZSTD"; "SNAPPY" where there is none."""
    try:
        columns = [one for group in _row_groups(path) for one in group.get(_COLUMNS, [])]
        return _CODECS[columns[0][_META_DATA][_CODEC]] if columns else "SNAPPY"
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise _damaged(path, error) from None


def _row_groups(path: Path) -> list[_Struct]:
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8))
            length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
            if magic != b"PAR1" or length > min(size - 8, _LARGEST):
                raise ValueError("it has no footer")
            file.seek(size - 8 - length)
            groups: list[_Struct] = _Reader(file.read(length)).struct().get(_ROW_GROUPS, [])
            return groups
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _values(column: _Struct, group: _Struct) -> int:
    values, rows = column.get(_META_DATA, {}).get(_NUM_VALUES, 0), group.get(_ROWS, 0)
    return max(int(values), int(rows), 0)


class _Reader:
    """Reads Thrift's compact protocol; what is damaged raises ValueError or IndexError."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def struct(self, depth: int = 0) -> _Struct:
        """Return the fields of a struct by their numbers."""
        if depth > _DEEPEST:
            raise ValueError("its footer is nested too deeply")
        fields: _Struct = {}
        number = 0
        while head := self._byte():
            step = head >> 4
            number = number + step if step else self._signed()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in (_I16, _I32, _I64):
            return self._signed()
        if kind == _DOUBLE:
            return self._skip(8)
        if kind == _BINARY:
            return self._skip(self._unsigned())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"its footer has a field of the kind {kind}")  # Parquet has no maps

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._unsigned()
        if count > len(self._content) - self._at:  # every element takes a byte at least
            raise ValueError("a list in its footer is longer than the footer")
        if kind in (_TRUE, _FALSE):
            return [self._byte() for _ in range(count)]
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        byte = self._content[self._at]
        self._at += 1
        return byte

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._content):
            raise ValueError("its footer ends too early")

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value
            if shift > 63:
                raise ValueError("a number in its footer has too many digits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
