"""Writing of files: whole or not at all, never through a link, and under a lock."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from proselflc.errors import InputError
from proselflc.files.regular import kind_of_file

if TYPE_CHECKING:
    from filelock import BaseFileLock

_lasting = ContextVar("lasting", default=True)


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
        _refuse(path, os.fstat(descriptor).st_mode)
        return open(descriptor, "r+b")
    except BaseException:
        os.close(descriptor)
        raise


def must_be_own(path: Path) -> None:
    """Refuse a link, or what is not a regular file: writing to it could change other files."""
    with suppress(FileNotFoundError):
        _refuse(path, os.lstat(path).st_mode)


def must_be_own_folder(folder: Path) -> None:
    """Refuse a folder that is a link: nothing is written or deleted through a link."""
    if folder.is_symlink():
        raise InputError(
            f"{folder} is a link, and nothing is written or deleted through a link",
            fix="replace it by a folder, or remove it",
        )


def _refuse(path: Path, mode: int) -> None:
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
