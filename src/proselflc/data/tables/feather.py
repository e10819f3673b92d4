"""Feather files, whose compressed buffers are measured before memory is allocated for them.

A buffer of a compressed record batch begins with its size after decompression. Where the buffers
are is said by the metadata of each message, a flatbuffer: see Message.fbs of Arrow for its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from proselflc.data.memory_budget import require
from proselflc.data.tables.encodings import open_bytes
from proselflc.data.tables.loaded import Loaded
from proselflc.errors import InputError

_MAGIC = b"ARROW1\0\0"
_INSTEAD = "use fewer rows or columns"
_CELL = 8  # bytes of a cell in memory, which may take none in the file
_HEADER, _BUFFERS, _COMPRESSION, _DATA = 2, 2, 3, 1  # numbers of fields
_BATCH, _DICTIONARY = "record batch", "dictionary"


def open_feather(path: Path) -> Loaded:
    """Return the table in a Feather or Arrow IPC file."""
    import pyarrow as pa

    try:
        with open_bytes(path) as stream:
            require(path.stat().st_size, f"reading {path}", _INSTEAD)
            content = stream.read()
        # A file is a stream between a magic number and a footer, which need not be trusted.
        begin = len(_MAGIC) if content.startswith(_MAGIC) else 0
        source = pa.py_buffer(content).slice(begin)
        size = len(content)
        for unpacked in _unpacked_sizes(source):
            size += unpacked
            require(size, f"reading {path}", _INSTEAD)
        table = pa.ipc.open_stream(source).read_all()
        require(_CELL * table.num_rows * table.num_columns, f"reading {path}", _INSTEAD)
        table.validate(full=True)
    except InputError:
        raise
    except Exception as error:  # Arrow raises its own errors for some damage, others for other
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"cannot read the Feather file {path} ({words}): write it again") from None
    return Loaded(path, tuple(table.column_names), table, "Feather")


def _unpacked_sizes(source: object) -> Iterator[int]:
    """Yield how much memory decompressing each message of a stream takes."""
    import pyarrow as pa

    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type in (_BATCH, _DICTIONARY):
            metadata, body = message.metadata.to_pybytes(), memoryview(message.body)
            header = _Flat.root(metadata).table(_HEADER)
            batch = header.table(_DATA) if message.type == _DICTIONARY else header
            if batch.place(_COMPRESSION) is None:
                continue
            total = 0
            for start, length in batch.pairs(_BUFFERS):
                if length >= 8:
                    total += max(0, *struct.unpack_from("<q", body, start))
            yield total


class _Flat:
    """A table in a flatbuffer; what is damaged raises struct.error."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at

    @classmethod
    def root(cls, content: bytes) -> _Flat:
        """Return the outermost table."""
        return cls(content, *struct.unpack_from("<I", content))

    def place(self, field: int) -> int | None:
        """Return where a field is, or None if it is absent."""
        entry = self._at - self._read("<i", self._at)
        if 4 + 2 * field >= self._read("<H", entry):
            return None
        offset = self._read("<H", entry + 4 + 2 * field)
        return self._at + offset if offset else None

    def table(self, field: int) -> _Flat:
        """Return the table in a field."""
        return _Flat(self._content, self._target(field))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the structs of two 64-bit numbers in a field."""
        start = self._target(field)
        for k in range(self._read("<I", start)):
            yield struct.unpack_from("<qq", self._content, start + 4 + 16 * k)

    def _target(self, field: int) -> int:
        place = self.place(field)
        if place is None:
            raise ValueError("a message lacks a field")
        return place + self._read("<I", place)

    def _read(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self._content, at)[0])
