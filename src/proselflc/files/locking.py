"""Locks between processes: a file that is locked as long as a process holds it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc.errors import InputError
from proselflc.files.whole import must_be_own

if TYPE_CHECKING:
    from filelock import BaseFileLock


def file_lock(path: Path, timeout: float = -1) -> BaseFileLock:
    """A lock that is not acquired yet; it goes with the process that holds it.

    Some versions of filelock empty the file that they lock, and follow a link to it. So a file that
    is a link, or that has another name, is refused.

    Args:
        path: of the file, which is made and stays empty.
        timeout: seconds to wait for another process; for ever if negative.

    Raises:
        InputError: the file is a link, has another name, or is no regular file.
    """
    from filelock import FileLock

    must_be_own(path)
    with suppress(OSError):
        if os.lstat(path).st_nlink > 1:
            raise InputError(
                f"{path} is a second name of another file (a hard link), so it is not used as a "
                "lock: remove it"
            )
    return FileLock(path, timeout=timeout)
