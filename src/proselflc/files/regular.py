"""Opening of regular files only; anything else is refused by name.

Opening a named pipe waits for a writer that may never come; reading a device may never end or may
have an effect.
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
        kind: what the path is, such as "a named pipe".
    """

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
    """Open a regular file for reading bytes; refuse anything else at once.

    Args:
        path: the file.
        follow: whether the path may be a link to a regular file.

    Raises:
        NotRegularError: the path is something else.
        OSError: the path does not exist or cannot be opened.
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
    """Return whether a path is a regular file or a link to one; False if it does not exist.

    Raises:
        NotRegularError: the path is something else.
    """
    try:
        about = os.stat(path)
    except (OSError, ValueError):  # a name that holds NUL
        return False
    _refuse(path, about)
    return True


def check_regular(path: str | Path) -> None:
    """Refuse anything but a regular file; for libraries that open paths themselves.

    Raises:
        NotRegularError: the path is something else.
        OSError: the path does not exist.
    """
    _refuse(path, os.stat(path))


def _refuse(path: str | Path, about: os.stat_result) -> None:
    kind = kind_of_file(about.st_mode)
    if kind is not None:
        raise NotRegularError(path, kind)


def content_of(path: str | Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        NotRegularError: the path is something else.
        OSError: the path does not exist or cannot be read.
    """
    with open_regular(path) as file:
        return file.read()
