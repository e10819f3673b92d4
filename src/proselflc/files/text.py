"""Files that a user names: whether they are there, and the text in them."""

from __future__ import annotations

from pathlib import Path

from proselflc.errors import InputError
from proselflc.files.regular import NotRegularError, content_of, kind_of_file


def must_be_file(path: Path, what: str) -> None:
    """Refuse what is no file; `what` says what it should hold."""
    try:
        kind = kind_of_file(path.stat().st_mode)
    except (OSError, ValueError):
        raise InputError(f"{path} does not exist: expected a file with {what}") from None
    if kind is not None:
        raise NotRegularError(path, kind, f"expected a file with {what}")


def decoded(path: Path) -> str:
    """The text of a file in UTF-8, a mark of byte order left out."""
    try:
        content = content_of(path)
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
        raise InputError(f"line {line} of {path} holds a NUL byte, so it is no text: save it anew")
    return text


def _in_excel(path: Path) -> str:
    return ", in Excel: Save as → CSV UTF-8" if path.suffix.lower() == ".csv" else ""


def lines(path: Path) -> list[str]:
    """The lines of a text file, without white space around them.

    Empty lines stay, as "", so that positions remain line numbers; those at the end go.
    """
    found = [line.strip() for line in decoded(path).split("\n")]
    while found and not found[-1]:
        found.pop()
    return found
