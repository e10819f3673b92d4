"""A table from standard input, saved as a file so that later commands can open it again."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO

from proselflc.data.memory_budget import gigabytes, limit
from proselflc.errors import InputError
from proselflc.files.regular import whole_file

_PREFIX = "stdin-"
_BLOCK = 1 << 20
_MAGIC = {b"PAR1": ".parquet", b"ARRO": ".feather", b"PK\x03\x04": ".xlsx"}


def title(path: str) -> str:
    """Return what to call a table: "standard input" if it was saved for one command alone."""
    is_temporary = Path(path).is_relative_to(tempfile.gettempdir())
    return "standard input" if is_temporary and Path(path).name.startswith(_PREFIX) else path


def save(folder: Path, stream: BinaryIO | None = None) -> Path:
    """Save a table from standard input, named by its content.

    Args:
        folder: where to save it; made if needed.
        stream: what to read instead of standard input.
    """
    source = stream or sys.stdin.buffer
    if stream is None and sys.stdin.isatty():
        raise InputError(
            "there is no table on standard input", field="data", fix="pipe one into the command"
        )
    digest, size, most = hashlib.blake2b(digest_size=6), 0, limit()
    with tempfile.TemporaryFile() as file:
        for block in iter(partial(source.read, _BLOCK), b""):
            size += len(block)
            if size > most:
                raise InputError(
                    f"standard input holds more than {gigabytes(most)}",
                    fix="save it as a file and give its path",
                )
            digest.update(block)
            file.write(block)
        if not size:
            raise InputError("standard input is empty: expected a table", field="data")
        file.seek(0)
        suffix = find_suffix(file.read(1 << 16))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
        path = folder / f"{_PREFIX}{digest.hexdigest()}{suffix}"
        file.seek(0)
        if not path.exists():
            with whole_file(path) as out:
                for block in iter(partial(file.read, _BLOCK), b""):
                    out.write(block)
    return path


def find_suffix(begin: bytes) -> str:
    """Return the suffix of a table by the bytes that it begins with.

    >>> find_suffix(b'{"a": 1}'), find_suffix(b"a\\tb"), find_suffix(b"a,b")
    ('.jsonl', '.tsv', '.csv')
    """
    if begin.startswith(b"\x1f\x8b"):
        try:
            inner = zlib.decompressobj(wbits=31).decompress(begin, _BLOCK)
        except zlib.error:
            inner = b""
        return find_suffix(inner) + ".gz" if not inner.startswith(b"\x1f\x8b") else ".gz"
    if begin[:4] in _MAGIC:
        return _MAGIC[begin[:4]]
    if begin.lstrip()[:1] == b"{":
        return ".jsonl"
    first = begin.partition(b"\n")[0]
    return ".tsv" if b"\t" in first and b"," not in first and b";" not in first else ".csv"
