"""Reading of regular files only, as bytes or as text; anything else is refused by name.

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
            content = file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path} is written in UTF-16: save it as UTF-8{_in_excel(path)}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"line {line} of {path} is not UTF-8 text: save it as UTF-8{_in_excel(path)}"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(
            f"line {line} of {path} holds a NUL byte, so it is not text: save the file again"
        )
    return text


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
