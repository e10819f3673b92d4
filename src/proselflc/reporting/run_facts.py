"""The facts about a run that a page shows, and a note for each file that cannot be read.

A run may come from an untrusted source, so that values of the wrong type are treated as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from proselflc import methods
from proselflc.auditing.audit import Audit
from proselflc.errors import InputError
from proselflc.pages.values import distinct_names, finite, in_unit, number, share, shorten, text
from proselflc.reporting.onset import Onset
from proselflc.reporting.onset import read as read_onset
from proselflc.run.reader import Run, load_run
from proselflc.training.run_directory import Json

POINTS = 400  # evaluation points per run
MOST_RUNS = 24  # on a page

T = TypeVar("T")


@dataclass(frozen=True)
class RunFacts:
    """The facts about a run."""

    run: Run
    name: str  # short, and different from that of any other run on the page
    summary: Json
    config: Json
    history: tuple[Json, ...]  # at most `POINTS` evaluations; unknown values are None
    test: Json  # numbers measured on that part; empty if there are none
    validation: Json
    audit: Audit | None
    stages: tuple[Json, ...]
    notes: tuple[str, ...]  # a sentence for each file that cannot be read

    @property
    def method(self) -> str:
        """Return the title of the method."""
        name = text(self.summary, "method")
        return methods.find(name).title if name in methods.names() else shorten(name) or "A method"

    @property
    def data(self) -> str:
        """Return the name of the data."""
        return shorten(text(self.summary, "data"), 80) or "the data"

    @property
    def noise_rate(self) -> float | None:
        """Return the share of labels that the audit takes to be wrong."""
        return None if self.audit is None else finite(self.audit.estimated_noise_rate)

    @property
    def onset(self) -> Onset | None:
        """Return when the method began to trust the network's predictions, if it says so."""
        return read_onset(self.summary)

    @property
    def accuracy(self) -> float | None:
        """Return the accuracy on the test set."""
        return share(self.summary, "test_accuracy")


def read_runs(paths: Sequence[Path]) -> list[RunFacts]:
    """Return the facts about finished runs."""
    if not paths:
        raise InputError("a report needs at least one run", field="run")
    if len(paths) > MOST_RUNS:
        raise InputError(
            f"{len(paths)} runs do not fit on one page",
            field="run",
            fix=f"report at most {MOST_RUNS} at once",
        )
    names = distinct_names([path.name or path.resolve().name for path in paths])
    return [_read_run(load_run(path), name) for path, name in zip(paths, names, strict=True)]


def _read_run(run: Run, name: str) -> RunFacts:
    notes = list(run.notes)
    directory = run.directory

    def measured() -> Json:
        return run.evaluation if directory.checked(directory.evaluation).exists() else {}

    evaluation = or_note(measured, notes) or {}
    return RunFacts(
        run=run,
        name=name,
        summary=run.summary,
        config=run.config,
        history=_points(or_note(lambda: run.history, notes) or []),
        test=_measures(evaluation.get("test")),
        validation=_measures(evaluation.get("validation")),
        audit=or_note(lambda: run.audit, notes),
        stages=tuple(or_note(lambda: run.stages, notes) or []),
        notes=tuple(notes),
    )


def or_note(read: Callable[[], T], notes: list[str]) -> T | None:
    """Return what is read, or None with a note on why it cannot be."""
    try:
        return read()
    except InputError as error:
        notes.append(str(error))
        return None


def _points(history: Sequence[Json]) -> tuple[Json, ...]:
    """Return the numbers of evenly spread lines of a history, including the last one."""
    last, many = len(history) - 1, min(len(history), POINTS)
    kept = [history[k * last // max(many - 1, 1)] for k in range(many)]
    return tuple({name: number(line, name) for name in line} for line in kept)


def _measures(part: object) -> Json:
    """Return the measures of a part of `evaluation.json` that a page shows, if they are valid."""
    if not isinstance(part, dict):
        return {}
    found: Json = {name: number(part, name) for name in ("n", "accuracy")}
    classes = part.get("per_class")
    if isinstance(classes, list):
        found["per_class"] = [in_unit(one) for one in classes]
    bins = part.get("reliability")
    if isinstance(bins, dict) and _are_bins(bins):
        found["reliability"] = bins
    rows = part.get("calibration")
    if isinstance(rows, list):
        found["calibration"] = [
            {
                "T": number(row, "T"),
                "ece": share(row, "ece"),
                "reading": text(row, "reading"),
                "measure": text(row, "measure"),
            }
            for row in rows[:100]
            if isinstance(row, dict)
            and number(row, "T") is not None
            and share(row, "ece") is not None
        ]
    return found


def _are_bins(bins: Mapping[str, Any]) -> bool:
    edges, counts = bins.get("edges"), bins.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list) or not 1 <= len(counts) <= 100:
        return False
    if len(edges) != len(counts) + 1 or any(finite(one) is None for one in edges):
        return False
    if any(not isinstance(one, int) or one < 0 for one in counts):
        return False
    return all(
        isinstance(values := bins.get(name), list)
        and len(values) == len(counts)
        and all(one is None or in_unit(one) is not None for one in values)
        for name in ("confidence", "accuracy")
    )
