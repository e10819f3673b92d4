"""A run is a directory: where its files are, who may write them, and what became of it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from proselflc.data.labels import decisions
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.locking import file_lock
from proselflc.files.regular import content_of, is_regular
from proselflc.files.whole import must_be_own_folder, whole_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Json: TypeAlias = dict[str, object]
FORMAT = 2  # of a run, as config.toml says; a reader refuses a higher one; 1 had no manifest
RECORDED = "recorded"  # the key that says so of a run of somebody else's training loop
_PART = re.compile(r"\.[0-9a-f]{16}\.part")  # the name of a file until `whole_file` has it whole
# What a run writes into its folders of checkpoints and dynamics.
_OURS = re.compile(
    r"[0-9]{10}-[0-9a-f]{32}\.safetensors|epoch-[0-9]{5}\.npy|recent_(p|target)\.npy"
)
_LARGEST_TEXT = 1 << 28  # bytes of a TOML, JSON or JSON lines file
_FOLD = re.compile(r"[0-9]+-[0-9]+")


@dataclass(frozen=True)
class RunDirectory:
    """The files of a run, by their names in the interface."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def labels(self) -> Path:
        return self.path / "labels.npz"

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def stages(self) -> Path:
        """When the stages of a run begin that has more than one."""
        return self.path / "stages.json"

    @property
    def dynamics(self) -> Path:
        return self.path / "dynamics"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def model(self) -> Path:
        return self.path / "model.json"

    @property
    def examples(self) -> Path:
        return self.path / "examples.parquet"

    @property
    def audit(self) -> Path:
        return self.path / "audit.json"

    @property
    def audit_arrays(self) -> Path:
        return self.path / "audit.npz"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation.json"

    @property
    def transition(self) -> Path:
        """[C, C] the transition matrix that the method worked with, where it had one."""
        return self.path / "transition.npy"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def manifest(self) -> Path:
        """The checksums of the other files; written last."""
        return self.path / manifest.NAME

    @property
    def inputs_table(self) -> Path:
        """Texts or paths of the examples, where they were to be kept."""
        return self.path / "inputs.parquet"

    @property
    def inputs_arrays(self) -> Path:
        """Images or numbers of the examples, where they were to be kept."""
        return self.path / "inputs.npz"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def review(self) -> Path:
        """What people have decided. It is their work, so a run that is replaced leaves it there."""
        return self.path / decisions.NAME

    @property
    def tracking(self) -> Path:
        return self.path / "tracking"

    @property
    def folds(self) -> Path:
        """What `audit --folds` leaves: a run per fold, and what they predict together."""
        return self.path / "folds"

    @property
    def folds_done(self) -> Path:
        """Says which folds the predictions are of; written last."""
        return self.folds / "folds.json"

    @property
    def folds_p(self) -> Path:
        """[n, C] what was predicted for every example by the fold that has not seen it."""
        return self.folds / "p.npy"

    @property
    def held_out(self) -> Path:
        """Of the run of a fold: what it predicts for the examples that it has not seen."""
        return self.path / "held_out.npy"

    def fold(self, k: int, folds: int) -> RunDirectory:
        """The run of fold k, from 1 on, of so many."""
        return RunDirectory(self.folds / f"{folds}-{k}")

    def check_folds(self, folds: int = 0) -> None:
        """Refuse folds that are elsewhere: what is there is not of this run.

        Args:
            folds: how many there are to be.

        Raises:
            InputError: their folder, or that of one of them, is a link.
        """
        for path in (self.folds, *(self.fold(k, folds).path for k in range(1, folds + 1))):
            if path.is_symlink():
                raise InputError(
                    f"{path} is a link, and a run has its folds in itself: remove the link, or "
                    "audit with --folds 0, which does without"
                )

    def runs_of_folds(self) -> list[RunDirectory]:
        """The runs of folds that are there, whatever their number.

        Links are left alone: they could lead round in a circle.
        """
        if not self.folds.is_dir() or self.folds.is_symlink():
            return []
        there = (path for path in self.folds.iterdir() if _FOLD.fullmatch(path.name))
        return [RunDirectory(p) for p in sorted(there) if p.is_dir() and not p.is_symlink()]

    @property
    def is_begun(self) -> bool:
        """Whether there is a run: a config.toml that a run has written."""
        if not is_regular(self.config):
            return False
        table = read_toml(self.config)
        return "fingerprint" in table and "versions" in table

    @property
    def is_recorded(self) -> bool:
        """Whether the run is of a training loop that is not ours."""
        return is_regular(self.config) and is_recorded(read_toml(self.config))

    @property
    def is_finished(self) -> bool:
        """Whether the run went to its end: the summary and then the manifest are written last."""
        return is_regular(self.summary) and (is_regular(self.manifest) or self.is_of_old_format)

    @property
    def is_of_old_format(self) -> bool:
        """Whether a version wrote the run that knew no manifest."""
        return is_regular(self.config) and read_toml(self.config).get("format", 1) == 1

    def checked(self, path: Path, *, or_replaced: bool = False) -> Path:
        """The path of a file of the run, if it is what the run wrote: see `manifest.checked`."""
        return manifest.checked(self.path, path, or_replaced=or_replaced)

    def replacing(self, *paths: Path) -> AbstractContextManager[None]:
        """Files of the finished run may be replaced meanwhile: see `manifest.replacing`."""
        return manifest.replacing(self.path, paths)

    def listed(self) -> list[Path]:
        """The files that a manifest lists: all but itself and what no command reads."""
        aside = self.manifest, self.report
        files = [one for one in self._files if one.is_file() and one not in aside]
        return files + [one for one in self.dynamics.glob("*.npy") if _OURS.fullmatch(one.name)]

    def reopen(self) -> None:
        """Have the run be unfinished again."""
        self.manifest.unlink(missing_ok=True)  # first: with it there is a summary
        self.summary.unlink(missing_ok=True)

    def check_format(self) -> None:
        """Refuse a run that a later version has written.

        Raises:
            InputError: it is one.
        """
        check_format(read_toml(self.config), self.path)

    def make(self) -> bool:
        """Create the directory; whether it was not there.

        Raises:
            InputError: it cannot be written to.
        """
        try:
            is_new = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another --out"
            ) from None
        return is_new

    def remove_unused(self) -> None:
        """Remove the directory if nothing but the lock came into it."""
        if not self.is_begun:
            self._remove_path()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else may write to the run meanwhile. The lock goes with the process.

        Raises:
            InputError: another process has it, it cannot be made, or a folder of the run is a link.
        """
        from filelock import Timeout

        self.check_links()
        lock = file_lock(self._lock, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise InputError(
                f"the run {self.path} is in use by another process: wait for it, or choose another "
                "--out"
            ) from None
        except OSError as error:
            raise InputError(f"cannot lock {self.path}: {error.strerror or error}") from None
        try:
            yield
        finally:
            lock.release()

    def check_links(self) -> None:
        """Refuse to write to a run whose folders are links: what they lead to is not the run's.

        That of the folds may be one, as long as no folds are made or asked for: see `check_folds`.

        Raises:
            InputError: one is.
        """
        for folder in (self.checkpoints, self.dynamics, self.tracking):
            must_be_own_folder(folder)

    def present(self) -> tuple[str, ...]:
        """The names that a run would use and that are taken."""
        return tuple(path.name for path in (*self._folders, *self._files) if path.exists())

    def sweep(self) -> None:
        """Remove what a process that was killed has left half written; links are not followed."""
        own = (folder for folder in self._folders if not folder.is_symlink())
        for folder in (self.path, *own):
            for path in folder.glob(".*.part"):
                if _PART.fullmatch(path.name):
                    path.unlink(missing_ok=True)
        for fold in self.runs_of_folds():
            fold.sweep()

    def clear(self) -> None:
        """Remove what a run has written, and nothing else; links are not followed."""
        self.reopen()  # first: what is half removed must not look finished
        self.sweep()
        if self.is_begun and self.tracking.is_dir() and not self.tracking.is_symlink():
            shutil.rmtree(self.tracking)  # a tracker names its files as it likes
        self.clear_checkpoints()
        _empty(self.dynamics)
        self.clear_folds()
        for file in self._files:
            file.unlink(missing_ok=True)

    def clear_checkpoints(self) -> None:
        """Remove the states that a run could be resumed from."""
        _empty(self.checkpoints)

    def clear_folds(self) -> None:
        """Remove what folds have predicted, and their runs; a link is left alone."""
        if self.folds.is_symlink():
            return
        for file in (self.folds_done, self.folds_p):
            file.unlink(missing_ok=True)
        for fold in self.runs_of_folds():
            fold.remove()
        _remove_if_empty(self.folds)

    def remove(self) -> None:
        """Remove what a run has written, and the directory if nothing else is in it."""
        self.clear()
        self._remove_path()

    def _remove_path(self) -> None:
        self._lock.unlink(missing_ok=True)
        _remove_if_empty(self.path)

    @property
    def _lock(self) -> Path:
        return self.path / ".lock"

    @property
    def _folders(self) -> tuple[Path, ...]:
        """The checkpoints first: a state without its records could be resumed."""
        return self.checkpoints, self.dynamics, self.tracking, self.folds

    @property
    def _files(self) -> tuple[Path, ...]:
        """The config last: what has none is no run, and its files would be a stranger's."""
        return (
            self.labels,
            self.history,
            self.stages,
            self.weights,
            self.model,
            self.examples,
            self.audit,
            self.audit_arrays,
            self.evaluation,
            self.transition,
            self.inputs_table,
            self.inputs_arrays,
            self.summary,
            self.report,
            self.held_out,
            self.manifest,
            self.config,
        )

    def write_json(self, path: Path, value: object) -> None:
        """Write a JSON file, whole or not at all."""
        with whole_file(path) as file:
            file.write(json.dumps(_known(value), indent=2, ensure_ascii=False).encode() + b"\n")

    def history_of(self, lines: Sequence[Json]) -> bytes:
        """What `history.jsonl` holds: a line per evaluation point."""
        return b"".join(json.dumps(_known(line)).encode() + b"\n" for line in lines)

    def write_history(self, lines: Sequence[Json]) -> None:
        """Write the history, whole or not at all."""
        with whole_file(self.history) as file:
            file.write(self.history_of(lines))

    def read_history(self) -> list[Json]:
        """The history; empty if there is none yet."""
        if not is_regular(self.checked(self.history)):
            return []
        text = read_text(self.history)
        return [_object(self.history, line) for line in text.splitlines() if line.strip()]

    def read_json(self, path: Path, *, or_replaced: bool = False) -> Json:
        """A JSON file of the run; see `manifest.checked`."""
        return _object(path, read_text(self.checked(path, or_replaced=or_replaced)))


def read_text(path: Path) -> str:
    """A text file of a run.

    Raises:
        InputError: it cannot be read, is no text, or is larger than such a file can be.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST_TEXT:
            raise InputError(
                f"{path} has {size:,} bytes, and such a file has at most {_LARGEST_TEXT:,}: it is "
                "damaged, or is another file"
            )
        return content_of(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}") from None


def read_toml(path: Path) -> Json:
    """A TOML file, of a run or of a user."""
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no TOML file: {error}") from None


def check_format(table: Mapping[str, object], what: Path) -> None:
    """Refuse what a later version has written; a table that says nothing is of the first.

    Args:
        table: a run's config.toml.
        what: the run, for the message.

    Raises:
        InputError: it is of a later version, or the number is none.
    """
    number = table.get("format", 1)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InputError(f"{what} is damaged: its format should be a number, got {number!r}")
    if number > FORMAT:
        raise InputError(
            f"{what} was written by a newer version of proselflc (format {number}, this one reads "
            f"{FORMAT}): update it"
        )


def is_recorded(table: Mapping[str, object]) -> bool:
    """Whether a run's config.toml says that it is of a training loop that is not ours."""
    return table.get(RECORDED) is True


def _empty(folder: Path) -> None:
    """Remove a run's files from a folder that is no link, and the folder if it is empty then."""
    for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        if _OURS.fullmatch(path.name):
            path.unlink()
    _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    if not folder.is_symlink():
        with suppress(OSError):  # somebody else's files are in it, or it is not there
            folder.rmdir()


def _known(value: object) -> object:
    """The same with null for every number that is not finite, which JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return value


def _object(path: Path, text: str) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} is damaged: expected an object, got {type(value).__name__}")
    return value
