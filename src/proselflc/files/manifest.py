"""`manifest.json`: the size and the SHA-256 digest of every file that a run has written.

It is written last and whole, and every reader of a run compares the files that it reads with it.
That detects damage: a failing disk, a truncated copy, a file of another run. It is not a signature:
anyone who changes a file can write a manifest to match, so runs from elsewhere stay untrusted.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from proselflc.errors import InputError
from proselflc.files import typed
from proselflc.files.regular import is_regular, open_regular, whole_file
from proselflc.wording import command

NAME = "manifest.json"
_VERSION = 1
_BLOCK = 1 << 20  # bytes that are hashed at a time
_LARGEST = 1 << 26  # bytes of a manifest, which holds about 120 for each file
_SETTLED = 2 * 10**9  # nanoseconds after which a change to a file has changed its times too
_OF_AUDIT = ("examples.parquet", "audit.json", "audit.npz", "witness.npz")
_OF_NEIGHBOURS = ("neighbours.npz", "map.npz")
_FileName: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"\A(?:dynamics/|folds/)?[a-z_]+(?:-[0-9]{5})?\.[a-z]{3,11}\Z")
]


class Checksum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size and the digest of a file."""

    size: typed.Count
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


# By name below the folder of the run; None for a file that a command was about to replace.
Files: TypeAlias = dict[_FileName, Checksum | None]
_Identity: TypeAlias = tuple[str, int, int, int, int]


class _Manifest(msgspec.Struct):
    files: Files


def run_config(folder: Path) -> dict[str, Any] | None:
    """Return the options of the run that a folder holds; None if no run has written its config."""
    path = folder / "config.toml"
    if not is_regular(path):
        return None
    table = typed.read_toml(path, dict[str, Any])
    return table if "fingerprint" in table and "versions" in table else None


def checksum(path: Path) -> Checksum:
    """Return the checksum of a file, which is read again only if it has changed."""
    try:
        identity, is_settled = _identity(path)
        return _cached_checksum(identity) if is_settled else _hashed(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def write(folder: Path, files: Mapping[str, Checksum | None]) -> None:
    """Write the manifest of a run, whole or not at all."""
    with whole_file(folder / NAME) as file:
        text = json.dumps({"manifest": _VERSION, "files": to_json(files)}, indent=1)
        file.write(text.encode() + b"\n")


def read(folder: Path) -> Files | None:
    """Return the manifest of a run, or None if it has none."""
    path = folder / NAME
    try:
        identity, is_settled = _identity(path)
        files = _cached_files(identity) if is_settled else _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return dict(files)


def to_json(files: Mapping[str, Checksum | None]) -> dict[str, object]:
    """Return checksums as plain values for JSON."""
    return {name: msgspec.to_builtins(one) for name, one in sorted(files.items())}


def from_json(value: object, source: Path) -> Files:
    """Return the checksums that `to_json` made plain; `source` names their file in errors."""
    with _naming_the_cure():
        return typed.convert(value, Files, source)


def checked(folder: Path, path: Path, *, or_replaced: bool = False) -> Path:
    """Return the path of a file of a run after checking that the file is what the run wrote.

    Every file passes in a folder without a manifest, and a file need not exist that the manifest
    does not list. With `or_replaced`, one passes that an interrupted command was about to replace.
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
    """Refuse a file that does not match its entry in `files`; see `checked`."""
    name = _name(folder, path)
    if name not in files:
        if path.exists():
            raise InputError(
                f"{path} was not written by the run, {NAME} does not list it", fix="remove it"
            )
        return
    expected = files[name]
    if expected is None:
        if or_replaced:
            return
        raise InputError(
            f"{path} was being replaced when an audit of the run was interrupted, or is being "
            "replaced now",
            fix=f"wait for that audit, or run {command('audit', folder)} again",
        )
    if not is_regular(path):
        raise _missing(folder, name)
    size = path.stat().st_size  # a file of another size need not be read, however large it is
    found = checksum(path) if size == expected.size else Checksum(size, "")
    if found != expected:
        difference = f"sha256 {found.sha256[:12]}… instead of {expected.sha256[:12]}…"
        if found.size != expected.size:
            difference = f"{found.size:,} bytes instead of {expected.size:,}"
        raise InputError(
            f"{path} differs from what the run wrote ({difference})", fix=_cure(folder, name)
        )


def lists(folder: Path, path: Path) -> bool:
    """Return whether a manifest lists a file or, without a manifest, whether the file exists."""
    files = read(folder)
    return is_regular(path) if files is None else files.get(_name(folder, path)) is not None


def check_none_gone(folder: Path, below: str) -> None:
    """Refuse a run that has lost a file of its folder `below`."""
    for name in read(folder) or ():
        if name.startswith(f"{below}/") and not is_regular(folder / name):
            raise _missing(folder, name)


class Written:
    """The checksums of the files that an unfinished run has written, taken as they are written."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self._folder = folder
        self.files: Files = {} if files is None else files

    def add(self, path: Path) -> None:
        """Take the checksum of a file that has just been written."""
        self.files[_name(self._folder, path)] = checksum(path)

    def checked(self, path: Path) -> Path:
        """Return the path of a file, unless its checksum is known and the file does not match."""
        if _name(self._folder, path) in self.files:
            check(self._folder, path, self.files)
        return path

    def check_all(self) -> None:
        """Refuse files that are missing or differ; see `checked`."""
        for name in self.files:
            self.checked(self._folder / name)

    def seal(self, paths: Iterable[Path]) -> None:
        """Write the manifest of all the run's files, which finishes the run."""
        found = {
            name: path for path in paths if (name := _name(self._folder, path)) not in self.files
        }
        write(self._folder, {**{n: checksum(path) for n, path in found.items()}, **self.files})


@contextmanager
def replacing(folder: Path, paths: Iterable[Path]) -> Iterator[None]:
    """Allow files of a finished run to be replaced in this context; the caller has locked the run.

    The manifest marks them first and gets their new checksums last. If the process is killed in
    between, they stay marked, and readers ask for the command to be repeated. If the command fails,
    files that it has not touched keep their checksums. A run without a manifest gets none.
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
            kept = {n: one for n, one in old.items() if one == _existing(folder / n)}
            left = {n: one for n, one in files.items() if n not in old or n in kept}
            touched = [n for n in old if n not in kept]
            write(folder, {**left, **dict.fromkeys(touched)})
        raise
    new = {name: _existing(folder / name) for name in names}
    left = {name: one for name, one in files.items() if name not in new}
    write(folder, {**left, **{name: one for name, one in new.items() if one is not None}})


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _existing(path: Path) -> Checksum | None:
    return checksum(path) if is_regular(path) else None


def _identity(path: Path) -> tuple[_Identity, bool]:
    """Return what changes with a file, and whether the file is old enough for that to be certain.

    The clock of a file system is coarse: two changes at nearly the same time look like one.
    """
    status = path.stat()
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    identity = (str(path.absolute()), status.st_dev, status.st_ino, status.st_size, changed)
    return identity, time.time_ns() - changed > _SETTLED


@functools.lru_cache(maxsize=1 << 14)
def _cached_checksum(identity: _Identity) -> Checksum:
    return _hashed(Path(identity[0]))


@functools.lru_cache(maxsize=16)
def _cached_files(identity: _Identity) -> Files:
    return _read(Path(identity[0]))


def _read(path: Path) -> Files:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, _LARGEST + 1))
    with _naming_the_cure():
        if size > _LARGEST:
            raise typed.damaged(path, ValueError("it is larger than a manifest can be"))
        return typed.decode_json(content, _Manifest, path).files


def _hashed(path: Path) -> Checksum:
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return Checksum(size, digest.hexdigest())


def _missing(folder: Path, name: str) -> InputError:
    return InputError(
        f"{folder / name} is missing, though the run wrote it", fix=_cure(folder, name)
    )


def _cure(folder: Path, name: str) -> str:
    if name in _OF_AUDIT:
        return f"restore it from a copy, or write it again with {command('audit', folder)}"
    if name in _OF_NEIGHBOURS:
        again = command("export", folder, what="duplicates")
        return f"restore it from a copy, or write it again with {again}"
    return "restore it from a copy, or train the run again"


@contextmanager
def _naming_the_cure() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(error.reason, fix="restore it from a copy of the run") from None
