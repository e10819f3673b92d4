"""Only regular files are opened: what is anything else is refused by what it is.

Opening a named pipe waits for a writer that may never come, and reading a device may never end or
do something.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from proselflc.errors import InputError

# A named pipe opens at once instead of waiting; on regular files the flag has no effect.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}


class NotRegularError(InputError):
    """Something other than a regular file is where a file should be.

    Attributes:
        kind: what it is, such as "a named pipe".
    """

    def __init__(self, path: str | Path, kind: str, advice: str = "") -> None:
        self.kind = kind
        super().__init__(
            f"{path} is {kind}, and only regular files are read: "
            f"{advice or 'put the file itself there'}"
        )


def kind_of_file(mode: int) -> str | None:
    """What a file is by its mode, such as "a named pipe"; None for a regular file."""
    kind = stat.S_IFMT(mode)
    return None if kind == stat.S_IFREG else _KINDS.get(kind, "a special file")


def open_regular(path: str | Path, *, follow: bool = True) -> BufferedReader:
    """A regular file, opened for reading bytes; anything else is refused at once.

    Args:
        path: where it is.
        follow: whether it may be a link to a regular file.

    Raises:
        NotRegularError: it is something else.
        OSError: there is nothing, or it cannot be opened.
    """
    _refuse(path, os.stat(path, follow_symlinks=follow))  # a device is not even opened
    descriptor = os.open(path, _READ | (0 if follow else _NOFOLLOW))
    try:
        _refuse(path, os.fstat(descriptor))  # it may have been replaced in between
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_regular(path: str | Path) -> bool:
    """Whether there is a regular file, or a link to one; False where there is nothing.

    Raises:
        NotRegularError: there is something else.
    """
    try:
        about = os.stat(path)
    except (OSError, ValueError):  # a name with NUL in it is none
        return False
    _refuse(path, about)
    return True


def check_regular(path: str | Path) -> None:
    """Refuse anything but a regular file; for libraries that open a path by themselves.

    Raises:
        NotRegularError: it is something else.
        OSError: there is nothing.
    """
    _refuse(path, os.stat(path))


def _refuse(path: str | Path, about: os.stat_result) -> None:
    kind = kind_of_file(about.st_mode)
    if kind is not None:
        raise NotRegularError(path, kind)


def content_of(path: str | Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        NotRegularError: it is something else.
        OSError: there is nothing, or it cannot be read.
    """
    with open_regular(path) as file:
        return file.read()
