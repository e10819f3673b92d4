"""How many values the columns of a Parquet file claim to hold, read from its footer alone.

Arrow says it too, but an exception in its C++ code for one damaged column ends the whole process.
The footer is a struct of Thrift's compact protocol: see parquet.thrift for the numbers of fields.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

from proselflc.errors import InputError
from proselflc.files.regular import open_regular

_LARGEST = 1 << 26  # bytes of a footer
_DEEPEST = 16  # structs within structs; Parquet has 5
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_ROW_GROUPS, _COLUMNS, _ROWS, _META_DATA, _CODEC, _NUM_VALUES = 4, 1, 3, 3, 4, 5
_CODECS = ("NONE", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4")

_Struct: TypeAlias = dict[int, Any]


def claimed_values(path: Path) -> list[list[int]]:
    """Return the number of values in every column of every row group, at least its rows.

    Raises:
        InputError: the footer is damaged.
    """
    try:
        groups = _row_groups(path)
        return [[_values(column, group) for column in group.get(_COLUMNS, [])] for group in groups]
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise _damaged(path, error) from None


def codec(path: Path) -> str:
    """Return the compression of the first column, such as "ZSTD"; "SNAPPY" where there is none.

    Raises:
        InputError: the footer is damaged.
    """
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


def _damaged(path: Path, error: Exception) -> InputError:
    words = " ".join(str(error).split())[:200]
    return InputError(f"cannot read the Parquet file {path} ({words}): write it again")


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
