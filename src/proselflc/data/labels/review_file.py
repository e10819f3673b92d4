"""The file of a review: several processes append lines to it, never through a link."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proselflc.errors import InputError
from proselflc.files.regular import open_regular
from proselflc.files.whole import file_lock, must_be_own, open_own, whole_file

PATIENCE = 30.0  # seconds to wait for another writer


def size_of(path: Path) -> int | None:
    """Return the number of bytes; None if there is no file."""
    must_be_own(path)
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def read_from(path: Path, offset: int) -> bytes:
    """Return the bytes from an offset on; none if there is no file."""
    if size_of(path) is None:
        if offset:
            raise InputError(f"{path} is gone: restore it")
        return b""
    try:
        with open_regular(path, follow=False) as file:
            if file.seek(0, os.SEEK_END) < offset:
                raise InputError(f"{path} has lost lines: restore them")
            file.seek(offset)
            return file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def append(path: Path, offset: int, text: bytes) -> None:
    """Append to a file of `offset` bytes; the text is on disk when this returns."""
    with _explain_failure(path):
        if offset == 0:
            with whole_file(path) as file:  # the first line is never incomplete
                file.write(text)
            return
        _separate(path)
        with open_own(path) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(offset)  # no incomplete line stays
                raise


def truncate(path: Path, offset: int) -> None:
    """Cut the file to a number of bytes."""
    with _explain_failure(path):
        _separate(path)
        with open_own(path) as file:
            file.truncate(offset)
            os.fsync(file.fileno())


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be appended to."""
    is_new = size_of(path) is None
    with _explain_failure(path):
        with open_own(path):
            pass
        if is_new:
            path.unlink()


@contextmanager
def locked(path: Path, *, needed: bool) -> Iterator[None]:
    """Keep other processes from writing; without `needed`, continue if locking is impossible."""
    from filelock import Timeout

    lock = file_lock(path.with_name(".review.lock"), timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{path} is being written by another process: try again") from None
    except (OSError, NotImplementedError) as error:
        if needed:
            raise _unwritable(path, getattr(error, "strerror", None) or str(error)) from None
        yield
        return
    try:
        yield
    finally:
        lock.release()


def encode_line(line: Mapping[str, object]) -> bytes:
    """Return the text of a line without its line break."""
    return json.dumps(line, ensure_ascii=True).encode()


def parse_line(line: bytes) -> object:
    """Return the value of a line, or None if it is not JSON."""
    try:
        return json.loads(line.decode())  # given bytes, it would guess at their encoding
    except (ValueError, RecursionError):
        return None


def digest(line: bytes) -> str:
    """Return the sixteen hexadecimal digits that the next line has as "previous".

    Surrounding white space does not count: some editors change line breaks.
    """
    return hashlib.blake2b(line.strip(), digest_size=8).hexdigest()


def _separate(path: Path) -> None:
    """Give the file its own copy if it is a hard link, so that the other name is unchanged."""
    if os.lstat(path).st_nlink > 1:
        with open_regular(path, follow=False) as old, whole_file(path) as file:
            file.write(old.read())


@contextmanager
def _explain_failure(path: Path) -> Iterator[None]:
    """Say in errors of writing that the file keeps decisions."""
    try:
        yield
    except InputError as error:
        raise _unwritable(path, str(error).removeprefix(f"cannot write {path}: ")) from None
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def _unwritable(path: Path, reason: str) -> InputError:
    return InputError(
        f"cannot write {path}: {reason}; it keeps the decisions",
        fix="make the run directory writable or copy the run elsewhere",
    )
