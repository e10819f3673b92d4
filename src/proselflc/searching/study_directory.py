"""A study is a directory: where its files are, and what it was begun for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proselflc import __version__
from proselflc.errors import InputError
from proselflc.files.locking import file_lock
from proselflc.files.regular import is_regular
from proselflc.files.whole import must_be_own, must_be_own_folder, whole_file
from proselflc.run.config import differences, versions
from proselflc.run.output_options import OutputOptions
from proselflc.training.run_directory import FORMAT, RunDirectory, check_format, read_toml

# What study.toml holds beside the options of its runs, as the command line names it.
OPTIONS = ("space", "trials", "prune")
_CHOSEN = re.compile(r"chosen(-[a-z0-9_]+)?\.toml")
_RUN = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}")
_LOCK = re.compile(rf"\.({_RUN.pattern}|claim-[0-9a-f]{{16}})\.lock")
_KEY = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class StudyDirectory:
    """The files of a study."""

    path: Path

    @property
    def study(self) -> Path:
        """What it was begun for: options, space, version, the labels' fingerprints."""
        return self.path / "study.toml"

    @property
    def journal(self) -> Path:
        """Optuna's record of the trials, unless they are in a database."""
        return self.path / "journal.log"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def chosen(self) -> Path:
        """The options of the best run, for `train --config`."""
        return self.path / "chosen.toml"

    def chosen_of(self, method: str) -> Path:
        """The options of a method's best run, where several methods were searched."""
        return self.path / f"chosen-{method}.toml"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def is_begun(self) -> bool:
        return is_regular(self.study)

    @property
    def is_finished(self) -> bool:
        return is_regular(self.summary)

    def make(self) -> None:
        """Create it.

        Raises:
            InputError: it cannot be written to.
        """
        RunDirectory(self.path).make()
        must_be_own_folder(self.runs)
        self.runs.mkdir(exist_ok=True)

    def remove_unused(self) -> None:
        """Remove the directory if nothing of a study came into it.

        The lock of one that is a study stays: others may have it.
        """
        with suppress(OSError):  # somebody's files are in it, or it is not there
            if {one.name for one in self.path.iterdir()} <= {".lock", self.runs.name}:
                if self.runs.exists():
                    self.runs.rmdir()
                (self.path / ".lock").unlink(missing_ok=True)
                self.path.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else begins the study meanwhile; another process is waited for.

        Raises:
            InputError: it cannot be locked, or what it would write to is a link.
        """
        must_be_own_folder(self.runs)
        must_be_own(self.journal)
        lock = file_lock(self.path / ".lock")
        try:
            lock.acquire()
        except OSError as error:
            raise InputError(f"cannot lock {self.path}: {error.strerror or error}") from None
        try:
            yield
        finally:
            lock.release()

    def check_start(self, start: OutputOptions) -> None:
        """Refuse to touch a study, or something else, that nobody said to touch.

        Raises:
            InputError: so it is.
        """
        if start.resume and start.overwrite:
            raise InputError("--resume goes on with a study and --overwrite replaces it: give one")
        if self.is_begun and not start.resume and not start.overwrite:
            state = "a finished" if self.is_finished else "an unfinished"
            raise InputError(
                f"{self.path} holds {state} study: pass --resume to go on, --overwrite to replace "
                "it, or another --out"
            )
        if not self.is_begun and not start.overwrite:
            files = (self.journal, self.chosen, self.summary, self.report, self.runs)
            taken = [one.name for one in (*files, self.path / "config.toml") if one.exists()]
            if taken:
                raise InputError(
                    f"{self.path} holds {taken[0]} and is no study: choose another --out, or pass "
                    "--overwrite to replace it"
                )
        if start.resume and not self.is_begun:
            raise InputError(
                f"there is no study in {self.path} to go on with: leave --resume out to begin one"
            )

    def read(self) -> dict[str, Any]:
        """What the study was begun for.

        Raises:
            InputError: it cannot be read, or another version has made it.
        """
        table = read_toml(self.study)
        check_format(table, self.path)
        about = table.get("study")
        if not isinstance(about, dict):
            raise InputError(f"{self.study} is damaged: it should have a table [study]")
        version = about.get("version")
        if version != __version__:
            raise InputError(
                f"the study {self.path} was made by proselflc {version} and this is "
                f"{__version__}: go on with that version, or begin another with another --out"
            )
        return table

    @property
    def key(self) -> str | None:
        """Of its plan, by which a storage knows its trials; None where there is none to read."""
        try:
            about = read_toml(self.study).get("study")
        except InputError:
            return None
        key = about.get("key") if isinstance(about, dict) else None
        return key if isinstance(key, str) and _KEY.fullmatch(key) else None

    def write(self, options: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Write what the study is begun for.

        Args:
            options: as TOML holds them, those of the runs and of the search.
            about: what else it depends on.
        """
        import tomli_w

        said = {"version": __version__, **about}
        tables = {key: value for key, value in options.items() if isinstance(value, dict)}
        plain = {key: value for key, value in options.items() if key not in tables}
        content = {"format": FORMAT, **plain, **tables, "study": said, "versions": versions()}
        with whole_file(self.study) as file:
            tomli_w.dump(content, file)

    def check_same(self, options: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Refuse to go on with another search.

        Args:
            options, about: as `write` takes them, of the search that is asked for now.

        Raises:
            InputError: the study was begun for another one.
        """
        stored = self.read()
        for name in OPTIONS:
            if stored.get(name) != options.get(name):
                raise InputError(
                    f"the study {self.path} was begun with another {_WORDS[name]} "
                    f"({_shown(stored.get(name))} there, {_shown(options.get(name))} now): use "
                    "that, or begin another study with another --out"
                )
        own = {key: value for key, value in stored.items() if key not in (*OPTIONS, "study")}
        asked = {key: value for key, value in options.items() if key not in OPTIONS}
        different = differences(own, asked)
        if different:
            raise InputError(
                f"the study {self.path} was begun with other options: {', '.join(different)}; use "
                "those, or begin another study with another --out"
            )
        for name, value in about.items():
            if stored["study"].get(name) != value:
                raise InputError(
                    f"the {_WORDS.get(name, name)} of the study {self.path} is not what it was "
                    f"begun with ({_shown(stored['study'].get(name))} there, {_shown(value)} now)"
                    f"{_ADVICE.get(name, '')}"
                )

    def clear(self) -> None:
        """Remove what a study has written, and nothing else."""
        self.summary.unlink(missing_ok=True)
        for path in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            if _CHOSEN.fullmatch(path.name):
                path.unlink()
        own = self.runs.is_dir() and not self.runs.is_symlink()
        for run in self.runs.iterdir() if own else ():
            if _RUN.fullmatch(run.name) and run.is_dir() and not run.is_symlink():
                RunDirectory(run).remove()
            elif _LOCK.fullmatch(run.name):
                run.unlink()
        for file in (self.journal, self.report, self.study):
            file.unlink(missing_ok=True)


_WORDS = {
    "space": "search space",
    "trials": "number of trials",
    "prune": "--prune",
    "labels": "labels",
    "trusted_labels": "trusted labels",
    "storage": "storage",
}
_OTHER_EXAMPLES = (
    ": has the data changed? If not, the study was begun by a version of proselflc that drew "
    "trusted examples in another way, and this version cannot continue it: begin anew with "
    "--overwrite, or with another --out"
)
_ADVICE = {
    "labels": _OTHER_EXAMPLES,
    "trusted_labels": _OTHER_EXAMPLES,
    "storage": ": give --storage as it was, or leave it out where it was the journal",
}


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "nothing"
    if value is None:
        return "none"
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)
