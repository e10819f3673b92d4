"""Training the runs that a table or figure needs, in any number of processes."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proselflc.paper.output import MISSING, Output
from proselflc.paper.plan import PendingRun, RunPlan, Scale
from proselflc.paper.records import RecordStore
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Claim, Entry, Name
from proselflc.queue.run_store import key, stored_run, train_once
from proselflc.run.config import Config
from proselflc.terminal import Silent
from proselflc.training.loop import DivergenceError
from proselflc.training.run_directory import read_toml

MEASURED = ("n", "accuracy", "top5", "nll", "brier", "calibration")  # recorded of the test part
WAITING = 5.0  # seconds between two checks for runs that other processes have finished
_SILENT = Silent(notes=False)


@dataclass(frozen=True)
class Artefact:
    """A table or figure of the paper.

    Attributes:
        make: requests the runs it needs and returns as much of the output as they allow.
        data: the paper's datasets on which it needs runs.
        seeds: the seeds of the committed results.
    """

    name: str
    title: str
    make: Callable[[RunPlan], Output]
    data: tuple[str, ...] = ("cifar100",)
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Reproduction:
    """A table or figure to reproduce, and where to keep it.

    Attributes:
        seeds: the seeds of the runs that are measured.
        out: the directory that keeps records and results.
        keep_runs: whether run directories are kept after they are recorded.
        weights, mask: files for Table 6, see `RunPlan`.
    """

    artefact: Artefact
    scale: Scale
    seeds: tuple[int, ...]
    out: Path
    data_root: Path | None = None
    keep_runs: bool = False
    weights: Path | None = None
    mask: Path | None = None

    @property
    def store(self) -> RecordStore:
        """Return the records of finished runs."""
        return RecordStore(self.out)

    def evaluate(self) -> tuple[Output, RunPlan]:
        """Return the table or figure from the runs that are done, and the runs it requested."""
        plan = self._plan()
        output = self.artefact.make(plan)
        if plan.pending:
            note = f'Some runs are not done yet; their cells show "{MISSING}".'
            output = replace(output, words=(*output.words, note))
        return output, plan

    def pending(self) -> list[PendingRun]:
        """Return every run that is not done, including those whose parameters are undecided.

        An undecided parameter takes the first value of its grid.
        """
        plan = self._plan(assume_first=True)
        self.artefact.make(plan)
        return [replace(run, config=self.located(run.config)) for run in plan.pending.values()]

    def estimate(self, runs: Sequence[PendingRun]) -> str:
        """Return a sentence that says how long the runs would take."""
        datasets = {recipe: data for data, recipe in self.scale.recipes.items()}
        seconds = 0.0
        for run in runs:
            data = run.config.request.data
            seconds += self.scale.seconds[datasets.get(data, data)]
        hours = seconds / 3600
        duration = f"{hours:.1f} hours" if hours >= 1 else f"{seconds / 60:.0f} minutes"
        return f"{len(runs)} runs to do, about {duration} of {self.scale.hardware}"

    def located(self, config: Config) -> Config:
        """Return the options with this reproduction's data folder."""
        return replace(config, request=replace(config.request, data_root=self.data_root))

    def _plan(self, *, assume_first: bool = False) -> RunPlan:
        return RunPlan(self.store, self.scale, self.seeds, assume_first, self.weights, self.mask)


def complete(reproduction: Reproduction, report: Callable[[str], None]) -> None:
    """Train the pending runs that no other worker has claimed, until none is left.

    `report` is called with a line about each run.
    """
    with queue_storage.storage_errors(None):
        queue = reproduction.store.queue()
        is_waiting = False
        while pending := reproduction.evaluate()[1].pending:
            entries = queue.entries()
            runs = {_open_entry(entries, key): run for key, run in pending.items()}
            claim = queue.claim(runs)
            if claim is not None:
                with claim:
                    _complete_run(reproduction, runs[str(claim.name)], claim, report)
                is_waiting = False
                continue
            if not is_waiting:
                is_waiting = True
                count = "a run" if len(pending) == 1 else f"{len(pending)} runs"
                report(f"waiting for {count} of other processes")
            time.sleep(WAITING)


def _open_entry(entries: Mapping[Name, Entry], key: str) -> str:
    """Return the queue's entry for a run: a new one if it is over and its record was removed."""
    names = itertools.chain([key], (f"{key}-{k}" for k in itertools.count(2)))
    return next(name for name in names if not entries.get(name, Entry()).is_over)


def _complete_run(
    reproduction: Reproduction, run: PendingRun, claim: Claim, report: Callable[[str], None]
) -> None:
    """Train and record a claimed run, unless it was recorded meanwhile."""
    store = reproduction.store
    record = store.record(run.config)
    if record is None:
        report(f"{run.title} ({len(reproduction.pending())} to go)")
        config = reproduction.located(run.config)
        if run.teacher is not None:
            teacher = train_once(reproduction.located(run.teacher), store.runs, _SILENT).path
            config = replace(config, parameters={**config.parameters, "teacher": teacher})
        store.add(run.config, train_and_measure(config, store.runs))
        record = store.record(run.config)
        assert record is not None
        if not reproduction.keep_runs:
            shutil.rmtree(stored_run(config, store.runs).path, ignore_errors=True)
    accuracy = record.summary["test_accuracy"]
    if accuracy is None:
        claim.diverge(str(record.facts.get("diverged", "it has no accuracy")), key(run.config))
    else:
        claim.complete(accuracy, key(run.config))


def train_and_measure(config: Config, folder: Path) -> dict[str, Any]:
    """Train a run, or resume a stopped one, and return what its record holds."""
    from proselflc.run.reader import load_run

    try:
        path = train_once(config, folder, _SILENT).path
    except DivergenceError as error:
        return {
            "diverged": str(error),
            "fingerprint": read_toml(stored_run(config, folder).config)["fingerprint"],
            "summary": {"test_accuracy": None},
            "validation_accuracy": None,
            "test": {"calibration": []},
            "history": [],
        }
    run = load_run(path)
    validation = run.evaluation.get("validation")
    accuracy = validation.get("accuracy") if isinstance(validation, dict) else None
    test = run.evaluation.get("test")
    assert isinstance(test, dict)
    summary = {name: value for name, value in run.summary.items() if name != "seconds"}
    return {
        "fingerprint": run.summary["fingerprint"],
        "summary": summary,
        "seconds": run.summary["seconds"],
        "validation_accuracy": accuracy,
        "test": {name: test[name] for name in MEASURED if name in test},
        "history": [_rounded(line) for line in run.history],
    }


def _rounded(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers with six decimals, which keeps files small."""
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}
