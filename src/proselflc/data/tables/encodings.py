"""The bytes of a table's file: unpacked if it is compressed, and decoded as they are written."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from proselflc.errors import InputError
from proselflc.files.regular import open_regular

_BLOCK = 1 << 20
_RATIO, _HARMLESS = 200, 1 << 30  # bytes of content for each byte of a compressed file, and any
_CONTROLS = frozenset(range(32)) - {9, 10, 12, 13}
_UNDEFINED = frozenset(b"\x81\x8d\x8f\x90\x9d")  # in Windows-1252
NAMES = {"utf-8-sig": "UTF-8", "utf-16": "UTF-16", "cp1252": "Windows-1252", "latin-1": "Latin-1"}


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed with gzip, by its name."""
    return path.suffix.lower() == ".gz"


def open_bytes(path: Path) -> BinaryIO:
    """Open a regular file, unpacked if its name ends in .gz."""
    file = open_regular(path)
    if not is_packed(path):
        return cast(BinaryIO, file)
    most = max(_HARMLESS, _RATIO * os.fstat(file.fileno()).st_size)
    return cast(BinaryIO, io.BufferedReader(_Unpacked(file, path, most), _BLOCK))


class _Unpacked(io.RawIOBase):
    """Reads a gzip file up to a limit: a small file may unpack to any size."""

    def __init__(self, file: io.BufferedReader, path: Path, most: int) -> None:
        self._file, self._path, self._left, self._most = file, path, most, most
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        try:
            some = self._stream.read(min(len(view), _BLOCK))
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"cannot unpack {self._path} ({error}): compress it again with gzip"
            ) from None
        self._left -= len(some)
        if self._left < 0:
            raise InputError(
                f"{self._path} unpacks to more than {self._most:,} bytes, {_RATIO} times its size",
                fix="if these are your data, unpack it first",
            )
        view[: len(some)] = some
        return len(some)

    def close(self) -> None:
        self._stream.close()
        self._file.close()
        super().close()


def find_encoding(path: Path) -> tuple[str, bool]:
    """Return the encoding of a text file and whether it holds a quotation mark.

    It is UTF-8, UTF-16 if the file begins so, or else Windows-1252, in which every text of Western
    Europe is written that is neither. A file with other control characters is not text.
    """
    decoder, has_marks = codecs.getincrementaldecoder("utf-8")(), False
    line, wrong = 1, 0  # wrong: the line of the first byte that is not UTF-8
    controls, undefined, is_first = False, False, True
    try:
        with open_bytes(path) as file:
            for block in iter(partial(file.read, _BLOCK), b""):
                if is_first and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    _check_utf16(path)
                    return "utf-16", True
                is_first = False
                has_marks = has_marks or b'"' in block
                if b"\0" in block:
                    line += block.count(b"\n", 0, block.index(b"\0"))
                    raise InputError(
                        f"line {line} of {path} holds a NUL byte, so it is not text: save the file "
                        "again"
                    )
                if not wrong:
                    try:
                        decoder.decode(block)
                    except UnicodeDecodeError as error:
                        wrong = line + error.object.count(b"\n", 0, error.start)
                used = set(block)
                controls = controls or not used.isdisjoint(_CONTROLS)
                undefined = undefined or not used.isdisjoint(_UNDEFINED)
                if wrong and controls:
                    raise _not_text(path, wrong)
                line += block.count(b"\n")
            if not wrong:
                try:
                    decoder.decode(b"", final=True)
                except UnicodeDecodeError:
                    wrong = line
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if not wrong:
        return "utf-8-sig", has_marks
    if controls:
        raise _not_text(path, wrong)
    return "latin-1" if undefined else "cp1252", has_marks


def _check_utf16(path: Path) -> None:
    """Refuse a file that begins as UTF-16 and is not."""
    decoder, line = codecs.getincrementaldecoder("utf-16")(), 1
    try:
        with open_bytes(path) as file:
            for block in iter(partial(file.read, _BLOCK), b""):
                line += decoder.decode(block).count("\n")
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise InputError(
            f"{path} begins as UTF-16 text, but is damaged in line {line} or after it "
            f"({getattr(error, 'reason', error)}): save it again as UTF-8"
        ) from None


def _not_text(path: Path, line: int) -> InputError:
    hint = ", in Excel: Save as → CSV UTF-8" if path.suffix.lower() == ".csv" else ""
    return InputError(f"line {line} of {path} is not UTF-8 text: save it as UTF-8{hint}")


def open_text(path: Path, encoding: str) -> io.TextIOWrapper:
    """Open a table of text, without a byte order mark; line breaks stay as they are."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="", errors="strict")
