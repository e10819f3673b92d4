"""The file below a review: bytes that are only added to, by several processes, never by a link."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proselflc.errors import InputError
from proselflc.files.locking import file_lock
from proselflc.files.regular import open_regular
from proselflc.files.whole import must_be_own, open_own, whole_file

PATIENCE = 30.0  # seconds to wait for another writer


def size_of(path: Path) -> int | None:
    """How many bytes there are; None where there is no file.

    Raises:
        InputError: it is a link or no regular file, or cannot be looked at.
    """
    must_be_own(path)
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def added(path: Path, offset: int) -> bytes:
    """The bytes behind those that have been read; none where there is no file.

    Raises:
        InputError: bytes that have been read are gone, or the file cannot be read.
    """
    if size_of(path) is None:
        if offset:
            raise InputError(f"{path} was there and is gone: put it back")
        return b""
    try:
        with open_regular(path, follow=False) as file:
            if file.seek(0, os.SEEK_END) < offset:
                raise InputError(f"{path} has lost lines that were there: put them back")
            file.seek(offset)
            return file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def append(path: Path, offset: int, text: bytes) -> None:
    """Append to a file of `offset` bytes; the text is on disk when this returns.

    Raises:
        InputError: it cannot be written; then nothing was.
    """
    with _said(path):
        if offset == 0:
            with whole_file(path) as file:  # so the first line is never half there
                file.write(text)
            return
        _separate(path)
        with open_own(path) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(offset)  # a line half written is none
                raise


def cut(path: Path, offset: int) -> None:
    """Drop what is behind so many bytes.

    Raises:
        InputError: it cannot be written.
    """
    with _said(path):
        _separate(path)
        with open_own(path) as file:
            file.truncate(offset)
            os.fsync(file.fileno())


def check_writable(path: Path) -> None:
    """Refuse a place where nothing could be added.

    Raises:
        InputError: it is one.
    """
    is_new = size_of(path) is None
    with _said(path):
        with open_own(path):
            pass
        if is_new:
            path.unlink()


@contextmanager
def locked(path: Path, *, needed: bool) -> Iterator[None]:
    """Nobody else writes meanwhile; a reader does without where a lock cannot be made.

    Raises:
        InputError: another process has it for long, or it cannot be made and is needed.
    """
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


def written(line: Mapping[str, object]) -> bytes:
    """A line as it is written, without its line break."""
    return json.dumps(line, ensure_ascii=True).encode()


def parsed(line: bytes) -> object:
    """What a line says, or None where it is no JSON."""
    try:
        return json.loads(line.decode())  # given bytes, it would guess at their encoding
    except (ValueError, RecursionError):
        return None


def digest(line: bytes) -> str:
    """Sixteen hexadecimal digits that the next line carries as "previous".

    White space around a line does not count: some editors write line breaks in their own way.
    """
    return hashlib.blake2b(line.strip(), digest_size=8).hexdigest()


def _separate(path: Path) -> None:
    """Have another name of the same file, a hard link, keep what it has."""
    if os.lstat(path).st_nlink > 1:
        with open_regular(path, follow=False) as old, whole_file(path) as file:
            file.write(old.read())


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Have it said what is kept in a file that cannot be written."""
    try:
        yield
    except InputError as error:
        raise _unwritable(path, str(error).removeprefix(f"cannot write {path}: ")) from None
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def _unwritable(path: Path, reason: str) -> InputError:
    return InputError(
        f"cannot write {path}: {reason}; decisions are kept there, so make the run's directory "
        "writable or copy the run elsewhere"
    )
