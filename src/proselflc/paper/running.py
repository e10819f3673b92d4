"""Doing the runs that a table or figure needs, in as many processes as there are."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proselflc.paper.artefacts import Artefact
from proselflc.paper.output import MISSING, Output
from proselflc.paper.plan import Study, Wanted
from proselflc.paper.records import Store
from proselflc.paper.scale import Scale, located
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Claim, Entry, Name
from proselflc.queue.run_store import key, stored_run, train_once
from proselflc.run.config import Config
from proselflc.terminal.display import Silent
from proselflc.training.loop import DivergenceError
from proselflc.training.run_directory import read_toml

MEASURED = ("n", "accuracy", "top5", "nll", "brier", "calibration")  # on test, and kept
_NOBODY = Silent(notes=False)
WAITING = 5.0  # seconds before a process looks again for what others have done


@dataclass(frozen=True)
class Reproduction:
    """What to reproduce, and where.

    Attributes:
        artefact: the table or figure.
        scale: at which size.
        seeds: of the runs that are measured.
        out: the directory that keeps records and results.
        data_root: where data is.
        keep_runs: whether run directories stay when they are recorded.
        weights, mask: files for Table 6, see `Study`.
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
    def store(self) -> Store:
        return Store(self.out)

    def study(self, *, presumes: bool = False) -> Study:
        """What there is of it, and what is wanted."""
        return Study(self.store, self.scale, self.seeds, presumes, self.weights, self.mask)

    def look(self) -> tuple[Output, Study]:
        """The table or figure as far as there are runs, and what it asked for."""
        study = self.study()
        output = self.artefact.make(study)
        if study.wanted:
            said = f'Not all runs are there: "{MISSING}" is not run yet.'
            output = replace(output, words=(*output.words, said))
        return output, study


def complete(one: Reproduction, say: Callable[[str], None]) -> None:
    """Do the runs that are wanted and that no other worker does, until none is left.

    Args:
        one: what to reproduce.
        say: is told what is done.

    Raises:
        InputError: data is missing, or the directory cannot be written to.
    """
    with queue_storage.storage_errors(None):
        queue = one.store.queue()
        waits = False
        while wanted := one.look()[1].wanted:
            entries = queue.entries()
            names = {_open(entries, key): run for key, run in wanted.items()}
            claim = queue.claim(names)
            if claim is not None:
                with claim:
                    _do(one, names[str(claim.name)], claim, say)
                waits = False
                continue
            if not waits:
                waits = True
                many = "a run" if len(wanted) == 1 else f"{len(wanted)} runs"
                say(f"waiting for {many} that other processes do")
            time.sleep(WAITING)


def _open(entries: Mapping[Name, Entry], key: str) -> str:
    """Return the entry for a run: another one where it is over and its record was removed."""
    names = itertools.chain([key], (f"{key}-{k}" for k in itertools.count(2)))
    return next(name for name in names if not entries.get(name, Entry()).is_over)


def _do(one: Reproduction, wanted: Wanted, claim: Claim, say: Callable[[str], None]) -> None:
    """Do a run that this worker has claimed, unless it was recorded meanwhile."""
    record = one.store.record(wanted.config)
    if record is None:
        left = len(planned(one))  # with those that only a choice will settle
        say(f"{wanted.title} ({left} to go)")
        config = located(wanted.config, one.data_root)
        if wanted.taught_by is not None:
            teacher = train_once(
                located(wanted.taught_by, one.data_root), one.store.runs, _NOBODY
            ).path
            config = replace(config, parameters={**config.parameters, "teacher": teacher})
        record = one.store.add(wanted.config, run(config, one.store.runs))
        if not one.keep_runs:
            shutil.rmtree(stored_run(config, one.store.runs).path, ignore_errors=True)
    accuracy = record.summary["test_accuracy"]
    if accuracy is None:
        claim.diverge(str(record.facts.get("diverged", "it has no accuracy")), key(wanted.config))
    else:
        claim.complete(accuracy, key(wanted.config))


def run(config: Config, folder: Path) -> dict[str, Any]:
    """Train, or go on where a stop has left a run, and say what it came to."""
    from proselflc.run.reader import load_run

    try:
        path = train_once(config, folder, _NOBODY).path
    except DivergenceError as error:
        return {
            "diverged": str(error),
            "fingerprint": read_toml(stored_run(config, folder).config)["fingerprint"],
            "summary": {"test_accuracy": None},
            "validation_accuracy": None,
            "test": {"calibration": []},
            "history": [],
        }
    found = load_run(path)
    validation = found.evaluation.get("validation")
    accuracy = validation.get("accuracy") if isinstance(validation, dict) else None
    test = found.evaluation.get("test")
    assert isinstance(test, dict)
    summary = {name: value for name, value in found.summary.items() if name != "seconds"}
    return {
        "fingerprint": found.summary["fingerprint"],
        "summary": summary,
        "seconds": found.summary["seconds"],
        "validation_accuracy": accuracy,
        "test": {name: test[name] for name in MEASURED if name in test},
        "history": [_rounded(line) for line in found.history],
    }


def _rounded(line: Mapping[str, Any]) -> dict[str, Any]:
    """Six decimals, which is more than anybody looks at, for the sake of small files."""
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}


def estimate(one: Reproduction, wanted: Sequence[Wanted]) -> str:
    """What the runs would take, in a sentence."""
    known = {recipe: data for data, recipe in one.scale.recipes.items()}
    seconds = 0.0
    for run in wanted:
        data = known.get(run.config.request.data, run.config.request.data)
        seconds += one.scale.seconds[data]
    hours = seconds / 3600
    took = f"{hours:.1f} hours" if hours >= 1 else f"{seconds / 60:.0f} minutes"
    return f"{len(wanted)} runs to do, about {took} of {one.scale.on}"


def planned(one: Reproduction) -> list[Wanted]:
    """Every run that is not there yet, also those that only a choice will settle.

    What depends on a choice that is still open is shown with the first value of its grid.
    """
    study = one.study(presumes=True)
    one.artefact.make(study)
    return [
        replace(run, config=located(run.config, one.data_root)) for run in study.wanted.values()
    ]
