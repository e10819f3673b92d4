"""A study: its plan, its directory, and its outcome as JSON and as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from proselflc import __version__, methods
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, must_be_own, must_be_own_folder, whole_file
from proselflc.files.typed import convert
from proselflc.queue import run_store
from proselflc.run.config import MAY_CHANGE, Config, OutputOptions, differences, versions
from proselflc.searching.search_space import Chosen, Space
from proselflc.training.run_directory import FORMAT, RunDirectory, check_format, read_toml
from proselflc.wording import option

NOISY = (
    "the true labels are unknown, so the parameters are chosen on held-out examples with their "
    "given labels; if many of those are wrong, the choice is less reliable"
)
_CHOSEN = re.compile(r"chosen(-[a-z0-9_]+)?\.toml")
_RUN = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}")
_LOCK = re.compile(rf"\.({_RUN.pattern}|claim-[0-9a-f]{{16}})\.lock")


@dataclass(frozen=True)
class StudyPlan:
    """Everything that the result of a study depends on."""

    data: str
    config: Config  # resolved options of a trial; each method uses the parameters that it takes
    methods: tuple[str, ...]
    space: Space
    trials: int
    prune: bool
    labels: str  # the fingerprint of the labels that train
    trusted_labels: str  # and of those that choose
    knows_truth: bool  # whether the labels that choose are trusted

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the search, as TOML holds them."""
        table = replace(self.config, method=",".join(self.methods)).table()
        return {**table, "space": self.space.words(), "trials": self.trials, "prune": self.prune}

    @property
    def fingerprints(self) -> dict[str, str]:
        return {"labels": self.labels, "trusted_labels": self.trusted_labels}

    @property
    def key(self) -> str:
        """Return a hash that is the same for equal searches on any machine."""
        known = {key: value for key, value in self.options.items() if key not in MAY_CHANGE}
        return run_store.hash_options({**known, **self.fingerprints, "version": __version__})


@dataclass(frozen=True)
class StudyFacts:
    """The table [study] of study.toml."""

    version: str = ""  # of proselflc, that began the study
    key: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")] | None = None
    labels: str = ""  # the fingerprint of the labels that train
    trusted_labels: str = ""  # and of those that choose
    storage: str = ""  # "journal", or the address of a database without its password


class StudyDirectory:
    """The files of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.study = path / "study.toml"  # options, search space, version and fingerprints
        self.journal = path / "journal.log"  # Optuna's, unless the trials are in a database
        self.runs = path / "runs"  # of the trials
        self.chosen = path / "chosen.toml"  # the best run's options, a config for training
        self.summary = path / "summary.json"  # the outcome
        self.report = path / "report.html"  # the page

    def chosen_of(self, method: str) -> Path:
        """Return the file of a method's best options, written if several methods were searched."""
        return self.path / f"chosen-{method}.toml"

    @property
    def is_begun(self) -> bool:
        return is_regular(self.study)

    @property
    def is_finished(self) -> bool:
        return is_regular(self.summary)

    def make(self) -> None:
        """Create the directory, or raise InputError if it cannot be written to."""
        RunDirectory(self.path).make()
        must_be_own_folder(self.runs)
        self.runs.mkdir(exist_ok=True)

    def remove_unused(self) -> None:
        """Remove a directory without a study; the lock of a study stays, as it may be held."""
        with suppress(OSError):  # there are other files in it, or there is no directory
            if {path.name for path in self.path.iterdir()} <= {".lock", self.runs.name}:
                if self.runs.exists():
                    self.runs.rmdir()
                (self.path / ".lock").unlink(missing_ok=True)
                self.path.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the study, waiting for other processes."""
        must_be_own_folder(self.runs)
        must_be_own(self.journal)
        with run_store.locked(self.path / ".lock", self.path):
            yield

    def check_start(self, start: OutputOptions) -> None:
        """Refuse to touch an existing study or other files without permission."""
        resume, overwrite = option("resume", True), option("overwrite", True)
        if self.is_begun and not start.resume and not start.overwrite:
            state = "a finished" if self.is_finished else "an unfinished"
            raise InputError(
                f"{self.path} holds {state} study",
                field="out",
                fix=f"pass {resume} to continue, {overwrite} to replace it, or {_another_out()}",
            )
        if not self.is_begun and not start.overwrite:
            files = (self.journal, self.chosen, self.summary, self.report, self.runs)
            existing = [path.name for path in (*files, self.path / "config.toml") if path.exists()]
            if existing:
                raise InputError(
                    f"{self.path} holds {existing[0]} and is not a study",
                    field="out",
                    fix=f"choose {_another_out()}, or pass {overwrite} to replace it",
                )
        if start.resume and not self.is_begun:
            raise InputError(
                f"there is no study in {self.path} to continue",
                field="resume",
                fix=f"leave {option('resume')} out to begin one",
            )

    def read(self) -> tuple[dict[str, Any], StudyFacts]:
        """Return the content of study.toml and its table [study]."""
        table = read_toml(self.study)
        check_format(table, self.path)
        facts = self._facts(table)
        if facts.version != __version__:
            raise InputError(
                f"the study {self.path} was made by proselflc {facts.version[:40] or 'unknown'}, "
                f"and this is {__version__}",
                field="out",
                fix=f"continue with that version, or begin a study with {_another_out()}",
            )
        return table, facts

    def _facts(self, table: Mapping[str, Any]) -> StudyFacts:
        return convert(table.get("study"), StudyFacts, f"{self.study}, table [study],")

    @property
    def key(self) -> str | None:
        """Return the key of its plan; None if it cannot be read."""
        try:
            return self._facts(read_toml(self.study)).key
        except InputError:
            return None

    def write(self, options: Mapping[str, Any], facts: StudyFacts) -> None:
        """Write study.toml: the options of the runs and of the search, and its table [study]."""
        import tomli_w

        study = {key: value for key, value in asdict(facts).items() if value}
        content = {"format": FORMAT, **options, "study": study, "versions": versions()}
        with whole_file(self.study) as file:
            tomli_w.dump(content, file)

    def check_same(self, options: Mapping[str, Any], facts: StudyFacts) -> None:
        """Refuse to continue the study with a different search."""
        stored, stored_facts = self.read()
        again = f"use that, or begin a study with {_another_out()}"
        stored.pop("study")
        different = differences(stored, options)
        if different:
            raise InputError(
                f"the study {self.path} was begun with other options: {', '.join(different)}",
                fix=again,
            )
        for name in ("labels", "trusted_labels", "storage"):
            there, now = getattr(stored_facts, name) or "none", getattr(facts, name)
            if there == now:
                continue
            if name == "storage":
                raise InputError(
                    f"the storage of the study {self.path} changed ({there} there, {now} now)",
                    field="storage",
                    fix=f"give {option('storage')} as before, or leave it out if the study has a "
                    "journal",
                )
            raise InputError(
                f"the {name.replace('_', ' ')} of the study {self.path} changed (fingerprint "
                f"{there[:12]}… there, {now[:12]}… now)",
                field="data",
                fix="has the data changed? If not, the study was begun by a version of proselflc "
                "that drew trusted examples differently, and this version cannot continue it: "
                f"begin again with {option('overwrite', True)}, or with {_another_out()}",
            )

    def clear(self) -> None:
        """Remove the files of the study, and nothing else."""
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


def _another_out() -> str:
    return f"another {option('out')}"


@dataclass(frozen=True)
class TrialRecord:
    """The current state of a trial."""

    number: int  # its place in the queue, from 0
    state: str  # "waiting", "running", "complete", "pruned" or "diverged"
    values: Chosen  # as far as they are fixed yet
    val_accuracy: float | None = None  # at the end of training, if it is complete
    seconds: float | None = None  # from its first claim to its end
    run: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


@dataclass(frozen=True)
class SearchStage:
    """The trials among which one choice is made."""

    method: str
    is_first: bool  # whether Γ and the optimiser are chosen, for all methods
    records: tuple[TrialRecord, ...]
    importance: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return "Γ and optimiser" if self.is_first else methods.find(self.method).title

    @property
    def best(self) -> TrialRecord | None:
        """Return the complete trial with the highest validation accuracy; ties go to the first."""
        done = [trial for trial in self.records if trial.val_accuracy is not None]
        return max(done, key=lambda trial: trial.val_accuracy or 0.0, default=None)


@dataclass(frozen=True)
class MethodChoice:
    """The parameters chosen for a method."""

    method: str
    values: Chosen
    accuracy: float  # validation accuracy of the best trial
    config: Config  # of the run on all the training data
    run: Path | None = None  # the directory of that run, if it was requested
    summary: Mapping[str, Any] | None = None

    @property
    def title(self) -> str:
        return methods.find(self.method).title

    @property
    def test_accuracy(self) -> float | None:
        """Return the test accuracy of the run on all the training data, if known."""
        accuracy = None if self.summary is None else self.summary.get("test_accuracy")
        return accuracy if isinstance(accuracy, float) else None


@dataclass(frozen=True)
class SearchOutcome:
    """The result of a search."""

    directory: StudyDirectory
    plan: StudyPlan
    recipe: Chosen  # the options chosen for all methods
    stages: tuple[SearchStage, ...]
    choices: tuple[MethodChoice, ...]
    validation: int  # the number of examples that chose

    @property
    def best(self) -> MethodChoice:
        """Return the choice with the highest validation accuracy; ties go to the first."""
        return max(self.choices, key=lambda choice: choice.accuracy)


def format_values(values: Chosen) -> str:
    """Return chosen values on one line.

    >>> format_values({"epochs": 30, "lr": 0.05})
    'epochs 30  lr 0.05'
    """
    return "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def to_json(outcome: SearchOutcome) -> dict[str, Any]:
    """Return the outcome and all its trials for JSON."""
    plan, directory = outcome.plan, outcome.directory
    return {
        "study": str(directory.path),
        "version": __version__,
        "best": outcome.best.method,
        "chosen_by": "trusted labels" if plan.knows_truth else "held-out noisy labels",
        "validation_examples": outcome.validation,
        "recipe": dict(outcome.recipe),
        "chosen": {
            choice.method: {
                "parameters": dict(choice.values),
                "val_accuracy": choice.accuracy,
                "run": None if choice.run is None else str(choice.run),
                "test_accuracy": (choice.summary or {}).get("test_accuracy"),
                "fingerprint": (choice.summary or {}).get("fingerprint"),
                "config": str(
                    directory.chosen_of(choice.method)
                    if len(outcome.choices) > 1
                    else directory.chosen
                ),
            }
            for choice in outcome.choices
        },
        "config": str(directory.chosen),
        "report": str(directory.report),
        "space": plan.space.words(),
        **plan.fingerprints,
        "notes": [] if plan.knows_truth else [NOISY],
        "stages": [
            {
                "method": stage.method,
                "chooses": "recipe" if stage.is_first else "parameters",
                "importance": dict(stage.importance),
                "trials": [
                    {**asdict(trial), "run": trial.run or None, "is_chosen": trial is stage.best}
                    for trial in stage.records
                ],
            }
            for stage in outcome.stages
        ],
    }


def describe(outcome: SearchOutcome) -> str:
    """Return the outcome as a few lines of text."""
    plan = outcome.plan
    labels = "trusted labels" if plan.knows_truth else "their given labels"
    lines = [f"chosen on {outcome.validation:,} examples with {labels}"]
    if not plan.knows_truth:
        lines.append(f"note: {NOISY}")
    if outcome.recipe:
        lines.append(f"for all methods  {format_values(outcome.recipe)}")
    width = max(len(choice.title) for choice in outcome.choices)
    for choice in outcome.choices:
        line = f"{choice.title:{width}}  validation {choice.accuracy:.2%}"
        if choice.test_accuracy is not None:
            line += f"  test, trained on all data {choice.test_accuracy:.2%}"
        lines.append(f"{line}  {format_values(choice.values)}".rstrip())
    lines += [f"options: {outcome.directory.chosen}", f"page: {outcome.directory.report}"]
    if outcome.best.run is not None:
        lines.append(f"run: {outcome.best.run}")
    return "\n".join(lines) + "\n"
