"""Locks between processes."""

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
    """Return a lock, not acquired yet, which is released when the process that holds it ends.

    Some versions of filelock follow links and empty the file that they lock, so a link or a file
    with a second name is refused.

    Args:
        path: the lock file, which is created and stays empty.
        timeout: seconds to wait for another process; for ever if negative.

    Raises:
        InputError: the file is a link, has a second name, or is not a regular file.
    """
    from filelock import FileLock

    must_be_own(path)
    with suppress(OSError):
        if os.lstat(path).st_nlink > 1:
            raise InputError(
                f"{path} is a second name of another file (a hard link), so it cannot be a lock",
                fix="remove it",
            )
    return FileLock(path, timeout=timeout)
