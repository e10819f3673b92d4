"""Archives and pickles of published data sets, read without trust in their authors.

Tar archives are read into memory: nothing is ever extracted.

A pickle is a program that may import and call anything. The readers here resolve the five names
that numpy arrays need, and refuse every other by its name. They do not hand out numpy's own
functions either: `dtype.__setstate__` believes flags that turn bytes into pointers. Arrays are
built from their checked parts instead.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import math
import pickle
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError
from proselflc.files.regular import open_regular

SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar")

_BLOCK = 4 << 20
_OTHER_FILES = 64 << 20  # bytes allowed beside the wanted files, such as a readme


@dataclass(frozen=True)
class Member:
    """One file of an archive."""

    name: str
    data: bytes

    @property
    def md5(self) -> str:
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


def read_members(path: Path, wanted: Mapping[str, int]) -> Iterator[Member]:
    """Yield the wanted files of a `.tar`, `.tar.gz` or `.tar.xz` archive in its order.

    `wanted` is the largest size in bytes that each file may declare, by its path in the archive.
    Refused are archives that are damaged or lack a wanted file, and hostile ones: with a path that
    leads out of it, a link, a device, a wanted file twice, or that unpack to far more than the
    wanted files.
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
    except Exception as error:  # tarfile and the decoders raise nearly anything on damaged bytes
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


_KINDS = frozenset({"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"})


class PickledDtype:
    """The `numpy.dtype` of a pickle: the type of plain numbers only."""

    __slots__ = ("kind", "order")

    def __init__(self, kind: object, align: object = False, copy: object = True) -> None:
        text = kind.decode("latin1") if isinstance(kind, bytes) else kind
        if not isinstance(text, str) or text not in _KINDS:
            # Only text is shown: other values may be nested without end.
            shown = repr(text[:20]) if isinstance(text, str) else type(text).__name__
            raise ValueError(f"arrays of type {shown}")
        self.kind = text
        self.order = "="

    def __setstate__(self, state: object) -> None:
        """Take the byte order; the rest of the state describes types that are not read."""
        if not isinstance(state, tuple) or len(state) < 5 or any(x is not None for x in state[2:5]):
            raise ValueError("an array type with fields or subarrays")
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise ValueError("an array type of unknown byte order")
        self.order = "=" if order == "|" else order


class PickledArray:
    """The `numpy.ndarray` of a pickle."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: npt.NDArray[Any] | None = None

    def __setstate__(self, state: object) -> None:
        """Build the array from (version, shape, dtype, is_fortran, bytes) if these agree."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise ValueError("an array of unknown layout")
        _, shape, dtype, fortran, raw = state
        if not isinstance(shape, tuple) or not all(type(s) is int and s >= 0 for s in shape):
            raise ValueError("an array without a shape")
        if len(shape) > 8 or not isinstance(dtype, PickledDtype) or not isinstance(raw, bytes):
            raise ValueError("an array without type or bytes")
        kind = np.dtype(dtype.order + dtype.kind)
        if math.prod(shape) * kind.itemsize != len(raw):
            raise ValueError(f"an array of shape {shape} in {len(raw)} bytes")
        self.array = np.frombuffer(raw, kind).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: object) -> PickledArray:
    return PickledArray()


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """Return the bytes that Python 3 writes as latin-1 text in protocol 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes that are not latin-1 text")
    return text.encode("latin1")


ALLOWED: Mapping[str, Callable[..., object]] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy.ndarray": PickledArray,
    "numpy.dtype": PickledDtype,
    "_codecs.encode": _encode,
}
"""The only names a data pickle may use, and what they stand for."""


class _DataUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, source: str) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self._source = source

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in ALLOWED:
            raise forbidden_name(full, self._source)
        return ALLOWED[full]


def unpickle(data: bytes, source: str) -> object:
    """Return the value in a data pickle whose checksum was compared.

    No pickle can execute code here, but one made for it can exhaust memory. Text of Python 2 is
    bytes, and an array is a `PickledArray`.
    """
    try:
        return _DataUnpickler(data, source).load()
    except InputError:
        raise
    except Exception as error:  # pickle raises nearly anything for damaged bytes
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise InputError(
            f"{source} is not a data pickle or is damaged ({reason})",
            fix="download it again from its official page",
        ) from error


def to_array(value: object, source: str) -> npt.NDArray[Any]:
    """Return the array that a value of a pickle holds; a list of integers counts as one."""
    # A hostile pickle can make one without the attribute.
    if isinstance(value, PickledArray) and getattr(value, "array", None) is not None:
        return value.array  # type: ignore[return-value]
    if isinstance(value, list) and all(type(v) is int and abs(v) < 1 << 62 for v in value):
        return np.array(value, dtype=np.int64)
    raise InputError(
        f"{source} should be an array or a list of integers, got {type(value).__name__}",
        fix="download the file again from its official page",
    )


def forbidden_name(name: str, source: str) -> InputError:
    """Return the error for a pickle that uses a name it may not use."""
    return InputError(
        f'{source} is refused: this pickle asks for "{name[:200]}", but a data file needs only '
        "numbers, text and numpy arrays",
        fix="do not use this copy, download it from its official page",
    )
