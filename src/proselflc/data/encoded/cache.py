"""Features on disk, by the content that they were computed from and by what computed them.

An SQLite file for each encoding holds a row per content, so that changed files are computed again,
moved ones are not, and several processes may write at once. What an interrupted process has
computed stays. A damaged file is replaced by an empty one. A file that cannot be used, for example
because the disk is full, is no reason to stop: features are then computed without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from proselflc.data.encoded.inputs import Halves

_WAIT = 20.0  # seconds for another process that is writing
_AT_ONCE = 500  # keys in a query
_DAMAGED = ("not a database", "malformed")  # in what SQLite says of a damaged file


def key_of(content: bytes) -> bytes:
    """Return the key of some content: 16 bytes of its BLAKE2b hash."""
    return hashlib.blake2b(content, digest_size=16).digest()


class FeatureCache:
    """Features [D] float16 by the key of their content.

    Args:
        folder: of all caches, made if needed; None for no cache.
        source: what identifies how the features are computed.
        width: D.
    """

    def __init__(self, folder: Path | None, source: str, width: int) -> None:
        self.width = width
        self._connection: sqlite3.Connection | None = None
        if folder is None:
            return
        name = hashlib.blake2b(source.encode(), digest_size=12).hexdigest()
        self._path = folder / "features" / f"{name}.sqlite"
        with self._usable():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open()

    def _open(self) -> None:
        self._connection = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
        )

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Halves]:
        """Return the features that are known, by their keys."""
        found: dict[bytes, Halves] = {}
        if self._connection is None:
            return found
        with self._usable():
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                marks = ", ".join("?" * len(some))
                query = f"SELECT key, value FROM features WHERE key IN ({marks})"
                for key, value in self._connection.execute(query, some):
                    if isinstance(value, bytes) and len(value) == 2 * self.width:
                        row = np.frombuffer(value, "<f2")
                        if np.isfinite(row).all():
                            found[key] = row
        return found

    def put(self, keys: Sequence[bytes], values: Halves) -> None:
        """Keep features [N, D], all of them or none."""
        if self._connection is None:
            return
        with self._usable():
            self._connection.execute("BEGIN IMMEDIATE")
            rows = zip(keys, (row.astype("<f2").tobytes() for row in values), strict=True)
            self._connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Replace a damaged file by an empty one; do without a file that fails in another way."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            with contextlib.suppress(sqlite3.Error):
                self.close()
            self._connection = None
            if any(word in str(error) for word in _DAMAGED):
                with contextlib.suppress(OSError, sqlite3.Error):
                    os.unlink(self._path)
                    self._open()
