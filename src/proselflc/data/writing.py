"""Files are written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from proselflc.errors import InputError

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

    Raises:
        InputError: it cannot be written; nothing is left behind then.
    """
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
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Have a new name survive a power cut, where the system can be asked to."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
