"""Tar archives, read into memory: nothing is ever extracted."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from proselflc.errors import InputError
from proselflc.files.regular import open_regular

SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar")

_BLOCK = 4 << 20
_OTHER_FILES = 64 << 20  # bytes allowed beside the wanted files, such as a readme

# What tarfile and the decoders raise for damaged bytes; RuntimeError is unbounded nesting.
_DAMAGE = (
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    MemoryError,
)


@dataclass(frozen=True)
class Member:
    """One file of an archive."""

    name: str
    data: bytes

    @property
    def md5(self) -> str:
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


def read_members(path: Path, wanted: Mapping[str, int]) -> Iterator[Member]:
    """Yield the wanted files of an archive in its order.

    Args:
        path: a `.tar`, `.tar.gz` or `.tar.xz`, recognised by its first bytes.
        wanted: the largest size in bytes that each file may declare, by its path in the archive.

    Raises:
        InputError: the archive is damaged or lacks a wanted file; or it is hostile: it has a path
            that leads out of it, a link, a device, a wanted file twice, or unpacks to far more
            than the wanted files.
    """
    missing = dict(wanted)
    try:
        with open_regular(path) as raw, _decompress(raw) as decompressed:
            limit = sum(wanted.values()) + _OTHER_FILES
            stream = cast("IO[bytes]", _LimitedReader(decompressed, limit))
            with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as tar:
                for info in tar:
                    name = _check_member(info)
                    if name not in wanted or info.isdir():
                        continue
                    if name not in missing:
                        raise _RefusedError(f'it holds "{name}" twice')
                    if info.size > (most := missing.pop(name)):
                        raise _RefusedError(
                            f'its "{name}" declares {info.size:,} bytes, but at most {most:,} '
                            "were expected"
                        )
                    content = tar.extractfile(info)
                    assert content is not None  # a regular file
                    data = content.read()
                    if len(data) != info.size:
                        raise tarfile.ReadError(f"{name} ends after {len(data)} bytes")
                    yield Member(name, data)
    except _RefusedError as error:
        raise InputError(
            f"{path.name} is refused: {error}",
            fix="do not use this copy, download it again from its official page",
        ) from None
    except InputError:
        raise
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{path} is not a tar archive or is damaged ({reason})",
            fix="download it again from its official page",
        ) from error
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(sorted(missing))}",
            fix="download it again from its official page",
        )


class _RefusedError(Exception):
    """An archive looks hostile; the message says why."""


def _check_member(info: tarfile.TarInfo) -> str:
    """Return the normalised path of a plain file or folder inside the archive.

    This is stricter than `tarfile.data_filter`, which Python 3.10 and 3.11 lack in early releases.
    """
    name = PurePosixPath(info.name.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts:
        raise _RefusedError(f'its member "{info.name}" leads out of the archive')
    if not (info.isdir() or info.isreg()) or info.issparse():
        kind = "a link" if info.issym() or info.islnk() else "a device or other special file"
        raise _RefusedError(f'its member "{info.name}" is {kind}')
    return str(name)


def _decompress(raw: IO[bytes]) -> IO[bytes]:
    """Return the content of a file that may be compressed, as its first bytes say."""
    start = raw.read(6)
    raw.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    if start == b"\xfd7zXZ\x00":
        return cast("IO[bytes]", lzma.LZMAFile(raw, format=lzma.FORMAT_XZ))
    return raw


class _LimitedReader:
    """A stream that refuses to give more than `limit` bytes: an archive may be a bomb."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int) -> bytes:
        block = self._stream.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise _RefusedError("it unpacks to far more than the files that are wanted from it")
        return block
