"""Regular files: anything else is refused by name, and files are written whole and under a lock.

Opening a named pipe waits for a writer that may never come; reading a device may never end or may
have an effect. Nothing is written through a link, and a file is complete or not there.
"""

from __future__ import annotations

import codecs
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from proselflc.errors import InputError

if TYPE_CHECKING:
    from filelock import BaseFileLock

# A named pipe opens at once instead of waiting; on regular files the flag has no effect.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BLOCK = 1 << 20  # bytes of text that are checked at a time
_UTF16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}

_lasting = ContextVar("lasting", default=True)


class NotRegularError(InputError):
    """Something other than a regular file is where a file should be."""

    def __init__(self, path: str | Path, kind: str, advice: str = "") -> None:
        self.kind = kind
        super().__init__(
            f"{path} is {kind}, and only regular files are read",
            fix=advice or "put the file itself there",
        )


def kind_of_file(mode: int) -> str | None:
    """Return what a file is by its mode, such as "a named pipe"; None for a regular file."""
    kind = stat.S_IFMT(mode)
    return None if kind == stat.S_IFREG else _KINDS.get(kind, "a special file")


def open_regular(path: str | Path, *, follow: bool = True) -> BufferedReader:
    """Open a regular file for reading bytes; refuse anything else at once."""
    _refuse(path, os.stat(path, follow_symlinks=follow))  # a device is not even opened
    descriptor = os.open(path, _READ | (0 if follow else _NOFOLLOW))
    try:
        _refuse(path, os.fstat(descriptor))  # it may have been replaced in between
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_regular(path: str | Path) -> bool:
    """Return whether a path is a regular file or a link to one; False if it does not exist."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):  # a name that holds NUL
        return False
    _refuse(path, about)
    return True


def check_regular(path: str | Path) -> None:
    """Refuse anything but a regular file; for libraries that open paths themselves."""
    _refuse(path, os.stat(path))


def _refuse(path: str | Path, about: os.stat_result) -> None:
    kind = kind_of_file(about.st_mode)
    if kind is not None:
        raise NotRegularError(path, kind)


def content_of(path: str | Path) -> bytes:
    """Return the bytes of a regular file."""
    with open_regular(path) as file:
        return file.read()


def must_be_file(path: Path, what: str) -> None:
    """Refuse a path that is not a regular file; `what` says what the file should hold."""
    try:
        kind = kind_of_file(path.stat().st_mode)
    except (OSError, ValueError):
        raise InputError(f"{path} does not exist: expected a file with {what}") from None
    if kind is not None:
        raise NotRegularError(path, kind, f"expected a file with {what}")


def decoded(path: Path, largest: int | None = None) -> str:
    """Return the text of a UTF-8 file without its byte order mark."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if largest is not None and size > largest:
                raise InputError(
                    f"{path} has {size:,} bytes, but such a file has at most {largest:,}",
                    fix="check that it is the right file, or restore it from a copy",
                )
            content = b"".join(_checked_blocks(file, path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return content.decode("utf-8-sig")


def text_blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a UTF-8 file block by block; refuse it at the first byte that is wrong.

    So a file that is not text is refused without reading the rest of it, however large it is.
    """
    try:
        with open_regular(path) as file:
            yield from _checked_blocks(file, path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _checked_blocks(file: BufferedReader, path: Path) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1  # on which the block begins
    for block in iter(partial(file.read, _BLOCK), b""):
        if file.tell() == len(block) and block.startswith(_UTF16):
            raise InputError(f"{path} is written in UTF-16: save it as UTF-8{_in_excel(path)}")
        _decode(decoder, block, path, line)
        if b"\0" in block:
            line += block.count(b"\n", 0, block.index(b"\0"))
            raise InputError(
                f"line {line} of {path} holds a NUL byte, so it is not text: save the file again"
            )
        yield block
        line += block.count(b"\n")
    _decode(decoder, b"", path, line)


def _decode(decoder: codecs.IncrementalDecoder, block: bytes, path: Path, line: int) -> None:
    """Refuse a block that is not UTF-8; an empty one ends the text."""
    try:
        decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        raise InputError(
            f"line {line} of {path} is not UTF-8 text: save it as UTF-8{_in_excel(path)}"
        ) from None


def _in_excel(path: Path) -> str:
    return ", in Excel: Save as → CSV UTF-8" if path.suffix.lower() == ".csv" else ""


def lines(path: Path) -> list[str]:
    """Return the lines of a text file, stripped of white space.

    Empty lines stay as "", so that positions remain line numbers; empty lines at the end go.
    """
    found = [line.strip() for line in decoded(path).split("\n")]
    while found and not found[-1]:
        found.pop()
    return found


@contextmanager
def fleeting() -> Iterator[None]:
    """Do not wait for the disk in this context: its files are temporary."""
    before = _lasting.set(False)
    try:
        yield
    finally:
        _lasting.reset(before)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when it is complete.

    A link with that name is replaced; its target stays as it is.
    """
    _must_be_replaceable(path)
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            if _lasting.get():
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if _lasting.get():
            sync_folder(path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # a folder that cannot be written to has no such file
            temporary.unlink(missing_ok=True)


def _must_be_replaceable(path: Path) -> None:
    """Refuse to replace a device, a pipe or a folder."""
    with suppress(OSError):
        mode = os.lstat(path).st_mode
        kind = None if stat.S_ISLNK(mode) else kind_of_file(mode)
        if kind is not None:
            raise InputError(
                f"cannot write {path}, which is {kind}", fix="remove it, or choose another name"
            )


def open_own(path: Path) -> BinaryIO:
    """Open a regular file, made if needed, to read and append; never through a link."""
    must_be_own(path)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        _refuse_to_write(path, os.fstat(descriptor).st_mode)
        return open(descriptor, "r+b")
    except BaseException:
        os.close(descriptor)
        raise


def must_be_own(path: Path) -> None:
    """Refuse a link, or what is not a regular file: writing to it could change other files."""
    with suppress(FileNotFoundError):
        _refuse_to_write(path, os.lstat(path).st_mode)


def must_be_own_folder(folder: Path) -> None:
    """Refuse a folder that is a link: nothing is written or deleted through a link."""
    if folder.is_symlink():
        raise InputError(
            f"{folder} is a link, and nothing is written or deleted through a link",
            fix="replace it by a folder, or remove it",
        )


def _refuse_to_write(path: Path, mode: int) -> None:
    kind = kind_of_file(mode)
    if kind == "a link":
        raise InputError(
            f"{path} is a link, and nothing is written through a link",
            fix="replace it by the file itself, or remove it",
        )
    if kind is not None:
        raise InputError(f"{path} is {kind}, expected a regular file", fix="remove it")


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, if the system allows it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_lock(path: Path, timeout: float = -1) -> BaseFileLock:
    """Return a lock, not acquired yet, which is released when the process that holds it ends.

    Some versions of filelock follow links and empty the file that they lock, so a link or a file
    with a second name is refused. The lock file is created and stays empty; a negative timeout in
    seconds waits for ever.
    """
    from filelock import FileLock

    must_be_own(path)
    with suppress(OSError):
        if os.lstat(path).st_nlink > 1:
            raise InputError(
                f"{path} is a second name of another file (a hard link), so it cannot be a lock",
                fix="remove it",
            )
    return FileLock(path, timeout=timeout)
