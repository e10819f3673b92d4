"""A run is a directory: the names of its files, the lock for writing them, and its state."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from proselflc.data import decisions
from proselflc.errors import InputError
from proselflc.files import manifest, typed
from proselflc.files.regular import decoded, file_lock, is_regular, must_be_own_folder, whole_file
from proselflc.files.typed import finite
from proselflc.wording import option

T = TypeVar("T")
Json: TypeAlias = dict[str, object]
FORMAT = 2  # of a run, as config.toml says; a reader refuses a higher one; 1 had no manifest
RECORDED = "recorded"  # the key in config.toml of a run that `record` made
_PART = re.compile(r"\.[0-9a-f]{16}\.part")  # the name of a file until `whole_file` completes it
# The files that a run writes into its folders of checkpoints and dynamics.
_OWN = re.compile(r"[0-9]{10}-[0-9a-f]{32}\.safetensors|epoch-[0-9]{5}\.npy|recent_(p|target)\.npy")
_FOLD = re.compile(r"[0-9]+-[0-9]+")


class _Below:
    """A path below the directory of a run, as an attribute of `RunDirectory`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Any, owner: type | None = None) -> Path:
        path: Path = run.path / self.name
        return path


class _File(_Below):
    """A file that is removed with the run."""


class _Folder(_Below):
    """A folder that is removed with the run."""


@dataclass(frozen=True)
class RunDirectory:
    """The files of a run, by their names in the interface."""

    path: Path

    # In the order of removal. Checkpoints go first: a state without its records could be resumed.
    # The config goes last: files without one would not be recognised as a run's.
    checkpoints = _Folder("checkpoints")
    dynamics = _Folder("dynamics")
    tracking = _Folder("tracking")
    folds = _Folder("folds")  # of `audit(folds=…)`: a run per fold and their joint predictions
    labels = _File("labels.npz")
    history = _File("history.jsonl")
    stages = _File("stages.json")  # where the stages begin, if there are several
    weights = _File("model.safetensors")
    model = _File("model.json")
    examples = _File("examples.parquet")
    audit = _File("audit.json")
    audit_arrays = _File("audit.npz")
    evaluation = _File("evaluation.json")
    witness = _File("witness.npz")  # [n, C] a second opinion on the labels, if there is one
    unlabelled = _File("unlabelled.npy")  # [m, C] the prediction for each row without a label
    transition = _File("transition.npy")  # [C, C] the method's transition matrix, if it has one
    neighbours = _File("neighbours.npz")  # of the examples, where their inputs can be compared
    map = _File("map.npz")  # a point in a plane for each of these examples
    inputs_table = _File("inputs.parquet")  # texts or paths of the examples, if they are kept
    inputs_arrays = _File("inputs.npz")  # images or numbers of the examples, if they are kept
    summary = _File("summary.json")
    report = _File("report.html")
    held_out = _File("held_out.npy")  # in the run of a fold: its predictions for the fold
    manifest = _File(manifest.NAME)  # the checksums of the other files; written last
    config = _File("config.toml")
    # Decisions of people; they stay when a run is replaced.
    review = _Below(decisions.NAME)
    folds_done = _Below("folds/folds.json")  # which folds were predicted; written last
    folds_p = _Below("folds/p.npy")  # [n, C] the prediction for each example while held out
    _lock = _Below(".lock")

    def fold(self, k: int, folds: int) -> RunDirectory:
        """Return the run of fold k, counted from 1."""
        return RunDirectory(self.folds / f"{folds}-{k}")

    def check_folds(self, folds: int = 0) -> None:
        """Refuse folders of folds that are links: their content is not this run's."""
        for path in (self.folds, *(self.fold(k, folds).path for k in range(1, folds + 1))):
            if path.is_symlink():
                raise InputError(
                    f"{path} is a link, but a run keeps its folds inside its own directory",
                    field="folds",
                    fix=f"remove the link, or audit without folds, with {option('folds', 0)}",
                )

    def runs_of_folds(self) -> list[RunDirectory]:
        """Return the runs of folds that exist, whatever their number.

        Links are skipped: they could form a circle.
        """
        if not self.folds.is_dir() or self.folds.is_symlink():
            return []
        found = (path for path in self.folds.iterdir() if _FOLD.fullmatch(path.name))
        return [RunDirectory(p) for p in sorted(found) if p.is_dir() and not p.is_symlink()]

    @property
    def is_begun(self) -> bool:
        """Whether the directory holds a run: a config.toml that a run has written."""
        return manifest.run_config(self.path) is not None

    @property
    def is_recorded(self) -> bool:
        """Whether `record` made the run from another training loop."""
        return is_regular(self.config) and is_recorded(read_toml(self.config))

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete: the summary and then the manifest are written last."""
        return is_regular(self.summary) and (is_regular(self.manifest) or self.is_of_old_format)

    @property
    def is_of_old_format(self) -> bool:
        """Whether the run was written by a version without manifests."""
        return is_regular(self.config) and read_toml(self.config).get("format", 1) == 1

    def checked(self, path: Path, *, or_replaced: bool = False) -> Path:
        """Return the path of a file after checking it against the manifest: see there."""
        return manifest.checked(self.path, path, or_replaced=or_replaced)

    def replacing(self, *paths: Path) -> AbstractContextManager[None]:
        """Allow files of the finished run to be replaced: see `manifest.replacing`."""
        return manifest.replacing(self.path, paths)

    def listed(self) -> list[Path]:
        """Return the files for the manifest: all but itself and the report, which is not read."""
        unlisted = self.manifest, self.report
        files = [path for path in self._all(_File) if path.is_file() and path not in unlisted]
        files += [path for path in (self.folds_done, self.folds_p) if path.is_file()]
        return files + [path for path in self.dynamics.glob("*.npy") if _OWN.fullmatch(path.name)]

    def reopen(self) -> None:
        """Make the run unfinished again."""
        self.manifest.unlink(missing_ok=True)  # first: a manifest implies a summary
        self.summary.unlink(missing_ok=True)

    def check_format(self) -> None:
        """Refuse a run that a later version has written."""
        check_format(read_toml(self.config), self.path)

    def make(self) -> bool:
        """Create the directory and return whether it is new."""
        try:
            is_new = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another "
                f"{option('out')}",
                field="out",
            ) from None
        return is_new

    def remove_unused(self) -> None:
        """Remove the directory if it holds nothing but the lock."""
        if not self.is_begun:
            self._remove_path()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock, so that no other process writes to the run."""
        from filelock import Timeout

        self.check_links()
        lock = file_lock(self._lock, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise InputError(
                f"the run {self.path} is in use by another process",
                field="out",
                fix=f"wait for it, or choose another {option('out')}",
            ) from None
        except OSError as error:
            raise InputError(f"cannot lock {self.path}: {error.strerror or error}") from None
        try:
            yield
        finally:
            lock.release()

    def check_links(self) -> None:
        """Refuse to write to a run whose folders are links to elsewhere.

        The folder of folds may be a link as long as no folds are used: see `check_folds`.
        """
        for folder in (self.checkpoints, self.dynamics, self.tracking):
            must_be_own_folder(folder)

    def present(self) -> tuple[str, ...]:
        """Return the names a run would use that exist already."""
        paths = (*self._all(_Folder), *self._all(_File))
        return tuple(path.name for path in paths if path.exists())

    def sweep(self) -> None:
        """Remove files that a killed process has left half written; do not follow links."""
        own = (folder for folder in self._all(_Folder) if not folder.is_symlink())
        for folder in (self.path, *own):
            for path in folder.glob(".*.part"):
                if _PART.fullmatch(path.name):
                    path.unlink(missing_ok=True)
        for fold in self.runs_of_folds():
            fold.sweep()

    def clear(self) -> None:
        """Remove what a run has written, and nothing else; do not follow links."""
        self.reopen()  # first: a half removed run must not look finished
        self.sweep()
        if self.is_begun and self.tracking.is_dir() and not self.tracking.is_symlink():
            shutil.rmtree(self.tracking)  # trackers choose their own file names
        self.clear_checkpoints()
        _empty(self.dynamics)
        self.clear_folds()
        for file in self._all(_File):
            file.unlink(missing_ok=True)

    def clear_checkpoints(self) -> None:
        """Remove the states from which the run could be resumed."""
        _empty(self.checkpoints)

    def clear_folds(self) -> None:
        """Remove the predictions and the runs of folds; leave a link alone."""
        if self.folds.is_symlink():
            return
        for file in (self.folds_done, self.folds_p):
            file.unlink(missing_ok=True)
        for fold in self.runs_of_folds():
            fold.remove()
        _remove_if_empty(self.folds)

    def remove(self) -> None:
        """Remove what a run has written, and the directory if it is empty then."""
        self.clear()
        self._remove_path()

    def _remove_path(self) -> None:
        self._lock.unlink(missing_ok=True)
        _remove_if_empty(self.path)

    def _all(self, kind: type[_Below]) -> list[Path]:
        """Return all paths of a kind, in the order in which they are removed."""
        return [self.path / one.name for one in vars(type(self)).values() if type(one) is kind]

    def write_json(self, path: Path, value: object) -> None:
        """Write a JSON file, whole or not at all."""
        with whole_file(path) as file:
            file.write(json.dumps(finite(value), indent=2, ensure_ascii=False).encode() + b"\n")

    def history_of(self, lines: Sequence[Json]) -> bytes:
        """Return the content of `history.jsonl`: a line per evaluation point."""
        return b"".join(json.dumps(finite(line)).encode() + b"\n" for line in lines)

    def write_history(self, lines: Sequence[Json]) -> None:
        """Write the history, whole or not at all."""
        with whole_file(self.history) as file:
            file.write(self.history_of(lines))

    def read_history(self) -> list[Json]:
        """Return the evaluation points; empty if there are none yet."""
        if not is_regular(self.checked(self.history)):
            return []
        lines = decoded(self.history, typed.LARGEST).splitlines()
        return [
            typed.decode_json(line, dict[str, Any], self.history) for line in lines if line.strip()
        ]

    def read_json(self, path: Path, *, or_replaced: bool = False) -> Json:
        """Return the object in a JSON file of the run; see `manifest.checked`."""
        return typed.read_json(self.checked(path, or_replaced=or_replaced), dict[str, Any])

    def read(self, path: Path, kind: type[T]) -> T:
        """Return a JSON file of the run as the given type."""
        return typed.read_json(self.checked(path), kind)


def read_toml(path: Path) -> Json:
    """Return the table in a TOML file, a run's or a user's."""
    return typed.read_toml(path, dict[str, Any])


def check_format(table: Mapping[str, object], what: Path) -> None:
    """Refuse the config of a later version; a table without a format is of the first."""
    number = table.get("format", 1)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InputError(f"{what} is damaged: its format should be a number, got {number!r}")
    if number > FORMAT:
        raise InputError(
            f"{what} was written by a newer version of proselflc (format {number}, this one reads "
            f"{FORMAT})",
            fix="update proselflc",
        )


def is_recorded(table: Mapping[str, object]) -> bool:
    """Return whether a config.toml is of a run that `record` made."""
    return table.get(RECORDED) is True


def _empty(folder: Path) -> None:
    """Remove a run's files from a folder that is not a link, and then the folder if it is empty."""
    for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        if _OWN.fullmatch(path.name):
            path.unlink()
    _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    if not folder.is_symlink():
        with suppress(OSError):  # it holds other files, or does not exist
            folder.rmdir()
