"""Text files that a user names."""

from __future__ import annotations

import os
from pathlib import Path

from proselflc.errors import InputError
from proselflc.files.regular import NotRegularError, kind_of_file, open_regular


def must_be_file(path: Path, what: str) -> None:
    """Refuse a path that is not a regular file; `what` says what the file should hold."""
    try:
        kind = kind_of_file(path.stat().st_mode)
    except (OSError, ValueError):
        raise InputError(f"{path} does not exist: expected a file with {what}") from None
    if kind is not None:
        raise NotRegularError(path, kind, f"expected a file with {what}")


def decoded(path: Path, largest: int | None = None) -> str:
    """Return the text of a UTF-8 file without its byte order mark.

    Args:
        path: the file.
        largest: the most bytes it may have; None for any number.
    """
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
