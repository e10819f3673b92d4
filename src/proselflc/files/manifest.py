"""`manifest.json`: the size and the SHA-256 digest of every file that a run has written.

It is written last and whole, and every reader of a run compares the files that it reads with it.
That detects damage: a disk that failed, a copy that was cut short, a file of another run. It is not
a signature: anybody who changes a file can write a manifest to match, so a run from somebody else
is still read as hostile.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from proselflc.errors import InputError
from proselflc.files.regular import is_regular, open_regular
from proselflc.files.whole import whole_file

NAME = "manifest.json"
_VERSION = 1
_BLOCK = 1 << 20  # bytes that are hashed at a time
_LARGEST = 1 << 26  # bytes of a manifest, which holds about 120 for each file
_SETTLED = 2 * 10**9  # nanoseconds after which a change to a file has changed its times too
_FILE = re.compile(r"(?:dynamics/|folds/)?[a-z_]+(?:-[0-9]{5})?\.[a-z]{3,11}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OF_AUDIT = ("examples.parquet", "audit.json", "audit.npz")


class Checksum(NamedTuple):
    """What a file holds, in short."""

    size: int
    sha256: str


# By name below the folder of the run; None for a file that a command was about to replace.
Files: TypeAlias = dict[str, Checksum | None]
_Identity: TypeAlias = tuple[str, int, int, int, int]


def checksum(path: Path) -> Checksum:
    """The checksum of a file; one that has not changed since is not read again.

    Raises:
        InputError: it cannot be read.
    """
    try:
        identity, is_settled = _identity(path)
        return _kept_checksum(identity) if is_settled else _hashed(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def write(folder: Path, files: Mapping[str, Checksum | None]) -> None:
    """Write the manifest of a run, whole or not at all."""
    with whole_file(folder / NAME) as file:
        text = json.dumps({"manifest": _VERSION, "files": to_json(files)}, indent=1)
        file.write(text.encode() + b"\n")


def read(folder: Path) -> Files | None:
    """The manifest of a run; None where there is none.

    Raises:
        InputError: it is damaged.
    """
    path = folder / NAME
    try:
        identity, is_settled = _identity(path)
        files = _kept_files(identity) if is_settled else _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return dict(files)


def to_json(files: Mapping[str, Checksum | None]) -> dict[str, object]:
    """Checksums as JSON holds them."""
    return {name: None if one is None else one._asdict() for name, one in sorted(files.items())}


def from_json(value: object, source: Path) -> Files:
    """What `to_json` gave.

    Args:
        value: as read from a file.
        source: that file, for the message.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(value, dict):
        raise _damaged(source, "it lists no files")
    files: Files = {}
    for name, one in value.items():
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise _damaged(source, f"it lists {str(name)[:80]!r}, which is no file of a run")
        files[name] = None if one is None else _checksum_in(one, name, source)
    return files


def checked(folder: Path, path: Path, *, or_replaced: bool = False) -> Path:
    """The path of a file of a run, if the file is what the run wrote.

    Args:
        folder: of the run; without a manifest every file passes.
        path: of the file, which need not be there where the manifest does not list it.
        or_replaced: whether a file passes that an interrupted command was about to replace.

    Raises:
        InputError: it is gone, or differs, or the run did not write it.
    """
    files = read(folder)
    if files is None:
        return path
    try:
        check(folder, path, files, or_replaced=or_replaced)
    except InputError:
        now = read(folder)
        if now is None or now == files:
            raise
        check(folder, path, now, or_replaced=or_replaced)  # an audit has replaced it meanwhile
    return path


def check(folder: Path, path: Path, files: Files, *, or_replaced: bool = False) -> None:
    """Refuse a file that is not as `files` has it; see `checked`."""
    name = _name(folder, path)
    if name not in files:
        if path.exists():
            raise InputError(
                f"{path} is not a file that the run wrote, {NAME} does not list it: remove it"
            )
        return
    expected = files[name]
    if expected is None:
        if or_replaced:
            return
        raise InputError(
            f"{path} was being replaced when an audit of the run was interrupted, or is being "
            f"replaced now: wait for that audit, or run proselflc audit {folder} again"
        )
    if not is_regular(path):
        raise InputError(f"{path} is gone, and the run wrote it: {_cure(folder, name)}")
    size = path.stat().st_size  # a file of another size need not be read, however large it is
    found = checksum(path) if size == expected.size else Checksum(size, "")
    if found != expected:
        raise InputError(
            f"{path} differs from what the run wrote {_how(found, expected)}: {_cure(folder, name)}"
        )


def lists(folder: Path, path: Path) -> bool:
    """Whether a run says that it has written a file; without a manifest, whether it is there."""
    files = read(folder)
    return is_regular(path) if files is None else files.get(_name(folder, path)) is not None


def check_none_gone(folder: Path, below: str) -> None:
    """Refuse a folder of a run from which a file is gone.

    Args:
        folder: of the run.
        below: the name of the folder inside it.

    Raises:
        InputError: one is.
    """
    for name in read(folder) or ():
        if name.startswith(f"{below}/") and not is_regular(folder / name):
            raise InputError(
                f"{folder / name} is gone, and the run wrote it: {_cure(folder, name)}"
            )


class Written:
    """The checksums of the files that an unfinished run has written, taken as they are written.

    Args:
        folder: of the run.
        files: what is known of them already.
    """

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self._folder = folder
        self.files: Files = {} if files is None else files

    def add(self, path: Path) -> None:
        """Take the checksum of a file that has just been written."""
        self.files[_name(self._folder, path)] = checksum(path)

    def checked(self, path: Path) -> Path:
        """The path of a file, if the file is as it was written or nothing is known of it.

        Raises:
            InputError: it is gone, or differs.
        """
        if _name(self._folder, path) in self.files:
            check(self._folder, path, self.files)
        return path

    def check_all(self) -> None:
        """Refuse files that are gone or differ; see `checked`."""
        for name in self.files:
            self.checked(self._folder / name)

    def seal(self, paths: Iterable[Path]) -> None:
        """Write the manifest of the run, which is finished then; the paths are of all its files."""
        found = {
            name: path for path in paths if (name := _name(self._folder, path)) not in self.files
        }
        write(self._folder, {**{n: checksum(path) for n, path in found.items()}, **self.files})


@contextmanager
def replacing(folder: Path, paths: Iterable[Path]) -> Iterator[None]:
    """Files of a finished run may be replaced meanwhile; the caller has locked the run.

    The manifest marks them first and has their new checksums last. A process that is killed in
    between leaves them marked, so that a reader asks for the command to be repeated. If it fails
    instead, what it has not touched counts as before. A run without a manifest gets none.
    """
    files, names = read(folder), [_name(folder, path) for path in paths]
    if files is None:
        yield
        return
    write(folder, {**files, **dict.fromkeys(names)})
    try:
        yield
    except BaseException:
        with suppress(InputError):
            old = {name: files.get(name) for name in names}
            kept = {n: one for n, one in old.items() if one == _there(folder / n)}
            left = {n: one for n, one in files.items() if n not in old or n in kept}
            touched = [n for n in old if n not in kept]
            write(folder, {**left, **dict.fromkeys(touched)})
        raise
    new = {name: _there(folder / name) for name in names}
    left = {name: one for name, one in files.items() if name not in new}
    write(folder, {**left, **{name: one for name, one in new.items() if one is not None}})


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _there(path: Path) -> Checksum | None:
    return checksum(path) if is_regular(path) else None


def _identity(path: Path) -> tuple[_Identity, bool]:
    """What changes with a file, and whether the file is old enough for that to be certain.

    The clock of a file system is coarse: two changes at nearly the same time look like one.
    """
    status = path.stat()
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    identity = (str(path.absolute()), status.st_dev, status.st_ino, status.st_size, changed)
    return identity, time.time_ns() - changed > _SETTLED


@functools.lru_cache(maxsize=1 << 14)
def _kept_checksum(identity: _Identity) -> Checksum:
    return _hashed(Path(identity[0]))


@functools.lru_cache(maxsize=16)
def _kept_files(identity: _Identity) -> Files:
    return _read(Path(identity[0]))


def _read(path: Path) -> Files:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _LARGEST:
            raise _damaged(path, "it is larger than a manifest can be")
        content = file.read(size)
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, " ".join(str(error).split())[:200]) from None
    return from_json(found.get("files") if isinstance(found, dict) else None, path)


def _hashed(path: Path) -> Checksum:
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return Checksum(size, digest.hexdigest())


def _checksum_in(value: object, name: str, source: Path) -> Checksum:
    if isinstance(value, dict) and set(value) == {"size", "sha256"}:
        size, sha256 = value["size"], value["sha256"]
        if type(size) is int and isinstance(sha256, str) and _SHA256.fullmatch(sha256):
            return Checksum(size, sha256)
    raise _damaged(source, f"what it says of {name} is not a size and a SHA-256 digest")


def _how(found: Checksum, expected: Checksum) -> str:
    if found.size != expected.size:
        return f"({found.size:,} bytes instead of {expected.size:,})"
    return f"(sha256 {found.sha256[:12]}… instead of {expected.sha256[:12]}…)"


def _cure(folder: Path, name: str) -> str:
    if name in _OF_AUDIT:
        return f"restore it from a copy, or make it anew with proselflc audit {folder}"
    return "restore it from a copy, or train the run again"


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged: {why}; restore it from a copy of the run")
