"""Files are written whole or not at all, and never through a link."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from proselflc.errors import InputError
from proselflc.files.regular import kind_of_file

_lasting = ContextVar("lasting", default=True)


@contextmanager
def fleeting() -> Iterator[None]:
    """Do not wait for the disk: what is written here is gone before long, power cut or not."""
    before = _lasting.set(False)
    try:
        yield
    finally:
        _lasting.reset(before)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its name only when it is complete.

    A link in its place is replaced, and what it leads to stays as it is.

    Raises:
        InputError: it cannot be written; nothing is left behind then.
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
        with suppress(OSError):  # what cannot be written to has nothing to remove
            temporary.unlink(missing_ok=True)


def _must_be_replaceable(path: Path) -> None:
    """Refuse a name that a device, a pipe or a folder has: it would be gone afterwards."""
    with suppress(OSError):
        mode = os.lstat(path).st_mode
        kind = None if stat.S_ISLNK(mode) else kind_of_file(mode)
        if kind is not None:
            raise InputError(
                f"cannot write {path}: it is {kind}; remove it, or choose another name"
            )


def open_own(path: Path) -> BinaryIO:
    """A regular file to read and to add to, made if it is not there; never through a link.

    Raises:
        InputError: there is a link, or something else that is no regular file.
        OSError: it cannot be opened.
    """
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
    """Refuse a file that is elsewhere: writing to it would change what is not the run's.

    Raises:
        InputError: it is a link, or no regular file.
    """
    with suppress(FileNotFoundError):
        _refuse(path, os.lstat(path).st_mode)


def must_be_own_folder(folder: Path) -> None:
    """Refuse a folder that is elsewhere: nothing is written or deleted through a link.

    Raises:
        InputError: it is a link.
    """
    if folder.is_symlink():
        raise InputError(
            f"{folder} is a link, and nothing is written or deleted through a link: replace it by "
            "a folder, or remove it"
        )


def _refuse(path: Path, mode: int) -> None:
    kind = kind_of_file(mode)
    if kind == "a link":
        raise InputError(
            f"{path} is a link, and nothing is written through a link: replace it by the file "
            "itself, or remove it"
        )
    if kind is not None:
        raise InputError(f"{path} is {kind}, where a regular file is expected: remove it")


def sync_folder(folder: Path) -> None:
    """Have a new name survive a power cut, where the system can be asked to."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
