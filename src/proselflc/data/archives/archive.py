"""Files out of a tar archive, into memory and nowhere else."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, cast

from proselflc.errors import InputError
from proselflc.files.regular import open_regular

SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar")

_BLOCK = 4 << 20
_REST = 64 << 20  # what an archive may hold beside the wanted files: a read-me, not a bomb

# What tarfile and the decoders raise on damaged bytes; RuntimeError is endless nesting.
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
    md5: str


def members(path: Path, wanted: Mapping[str, int]) -> Iterator[Member]:
    """The wanted files of an archive, in its order, one at a time.

    Nothing is extracted. An archive with a path that leads out of it, a link, a device, a wanted
    file twice, or much else beside the wanted files is refused as a whole.

    Args:
        path: a `.tar`, `.tar.gz` or `.tar.xz`; told apart by their first bytes.
        wanted: the path inside the archive of each file, and the greatest size it may declare.

    Raises:
        InputError: the archive is refused, damaged, or lacks a wanted file.
    """
    missing = dict(wanted)
    try:
        with (
            open_regular(path) as raw,
            _decoded(raw) as stream,
            _Ahead(stream, limit=sum(wanted.values()) + _REST, what=path.name) as ahead,
            tarfile.open(fileobj=cast("IO[bytes]", ahead), mode="r|", bufsize=_BLOCK) as tar,
        ):
            for info in tar:
                name = _inside(info, path.name)
                if name not in wanted or info.isdir():
                    continue
                if name not in missing:
                    raise InputError(f'{path.name} is refused: it holds "{name}" twice')
                limit = missing.pop(name)
                if info.size > limit:
                    raise InputError(
                        f'{path.name} is refused: its "{name}" declares {info.size:,} bytes, but '
                        f"at most {limit:,} were expected"
                    )
                yield _member(tar, info, name)
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"{path} is not a tar archive or is damaged ({_first_line(error)}): get it again from "
            "its official page"
        ) from error
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(sorted(missing))}: get it again from its official page"
        )


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo, name: str) -> Member:
    stream = tar.extractfile(info)
    assert stream is not None  # a regular file
    digest = hashlib.md5(usedforsecurity=False)
    blocks = []
    while block := stream.read(_BLOCK):
        digest.update(block)
        blocks.append(block)
    data = b"".join(blocks)
    if len(data) != info.size:
        raise tarfile.ReadError(f"{name} ends after {len(data)} of {info.size} bytes")
    return Member(name, data, digest.hexdigest())


def _inside(info: tarfile.TarInfo, what: str) -> str:
    """The member's path, if it is a plain file or directory that stays in the archive."""
    shown = info.name if info.name.isprintable() else ascii(info.name)
    parts = PurePosixPath(info.name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise InputError(
            f'{what} is refused: its member "{shown}" leads out of the archive; do not use this '
            "copy, get it from its official page"
        )
    if not (info.isdir() or info.isreg()) or info.issparse():
        kind = "a link" if info.issym() or info.islnk() else "a device or other special file"
        raise InputError(
            f'{what} is refused: its member "{shown}" is {kind}; do not use this copy, get it '
            "from its official page"
        )
    return str(parts)


def _decoded(raw: IO[bytes]) -> IO[bytes]:
    """The bytes behind the compression that the first bytes tell of."""
    start = raw.read(6)
    raw.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    if start == b"\xfd7zXZ\x00":
        return cast("IO[bytes]", lzma.LZMAFile(raw, format=lzma.FORMAT_XZ))
    return cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", raw)))


class _Ahead:
    """Decodes the next block in a thread while the last one is used, and no more than `limit`.

    Decoding xz takes nearly all the time of reading an archive, and leaves the interpreter free.
    """

    def __init__(self, stream: IO[bytes], *, limit: int, what: str) -> None:
        self._stream = stream
        self._left = limit
        self._what = what
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._next: Future[bytes] = self._pool.submit(stream.read, _BLOCK)

    def read(self, size: int) -> bytes:
        assert size == _BLOCK
        block = self._next.result()
        self._left -= len(block)
        if self._left < 0:
            raise InputError(
                f"{self._what} is refused: it unpacks to far more than the files that are wanted "
                "from it; get it again from its official page"
            )
        self._next = self._pool.submit(self._stream.read, _BLOCK)
        return block

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
