"""A run as a page needs it: what its files say, and a sentence for each that cannot be read.

A run may come from a stranger, so a number is believed to be one only where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from proselflc import methods
from proselflc.auditing.audit import Audit
from proselflc.errors import InputError
from proselflc.pages.names import distinct, on_page
from proselflc.pages.values import finite, in_unit, number, share, text
from proselflc.run.reader import Run, load_run
from proselflc.training.run_directory import Json

POINTS = 400  # evaluation points of a run that are drawn
MOST_RUNS = 24  # on a page

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """What is known of a run.

    Attributes:
        run: where it comes from.
        name: short, and different from that of the other runs on the page.
        summary, config: as the files hold them.
        history: evaluation points, at most `POINTS`; None is what is not known.
        test, validation: what was measured there, without what is no number; empty if nothing was.
        audit: None where there is none.
        stages: as `Run.stages` has them.
        notes: a sentence for each part that cannot be read.
    """

    run: Run
    name: str
    summary: Json
    config: Json
    history: tuple[Json, ...]
    test: Json
    validation: Json
    audit: Audit | None
    stages: tuple[Json, ...]
    notes: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method as people call it."""
        name = text(self.summary, "method")
        return methods.find(name).title if name in methods.names() else on_page(name) or "A method"

    @property
    def data(self) -> str:
        """What was learned from, as people call it."""
        return on_page(text(self.summary, "data"), 80) or "the data"

    def number(self, name: str) -> float | None:
        """A number of the summary."""
        return number(self.summary, name)

    @property
    def accuracy(self) -> float | None:
        """On the test set."""
        return share(self.summary, "test_accuracy")


def readings(paths: Sequence[Path]) -> list[Reading]:
    """Read finished runs.

    Raises:
        InputError: one is missing or unfinished, there are too many, or its summary or its
            configuration cannot be read.
    """
    if not paths:
        raise InputError("say which run to report: proselflc report RUN")
    if len(paths) > MOST_RUNS:
        raise InputError(
            f"{len(paths)} runs do not fit on one page: report at most {MOST_RUNS} at once"
        )
    return [
        _reading(load_run(path), name)
        for path, name in zip(paths, distinct([_own_name(path) for path in paths]), strict=True)
    ]


def _own_name(path: Path) -> str:
    return path.name or path.resolve().name


def _reading(run: Run, name: str) -> Reading:
    notes = list(run.notes)
    none: list[Json] = []
    directory = run.directory

    def part(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except InputError as error:
            notes.append(str(error))
            return otherwise

    def measured() -> Json:
        return run.evaluation if directory.checked(directory.evaluation).exists() else {}

    nothing: Json = {}
    evaluation = part(measured, nothing)
    return Reading(
        run=run,
        name=name,
        summary=run.summary,
        config=run.config,
        history=_points(part(lambda: run.history, none)),
        test=_measures(evaluation.get("test")),
        validation=_measures(evaluation.get("validation")),
        audit=part(lambda: run.audit, None),
        stages=tuple(part(lambda: run.stages, none)),
        notes=tuple(notes),
    )


def _points(history: Sequence[Json]) -> tuple[Json, ...]:
    """Evenly spread lines of a history, the last one among them, their numbers alone."""
    last, many = len(history) - 1, min(len(history), POINTS)
    kept = [history[k * last // max(many - 1, 1)] for k in range(many)]
    return tuple({name: number(line, name) for name in line} for line in kept)


def _measures(part: object) -> Json:
    """What was measured on a part, as far as it has the form that `Evaluation` gives it."""
    if not isinstance(part, dict):
        return {}
    found: Json = {
        name: number(part, name)
        for name in ("n", "accuracy", "top5", "nll", "brier", "ece", "ece_entropy", "temperature")
    }
    classes = part.get("per_class")
    if isinstance(classes, list):
        found["per_class"] = [in_unit(one) for one in classes]
    for name in ("reliability", "reliability_entropy"):
        bins = part.get(name)
        if isinstance(bins, dict) and _are_bins(bins):
            found[name] = bins
    rows = part.get("calibration")
    if isinstance(rows, list):
        found["calibration"] = [
            {"T": number(row, "T"), "ece": share(row, "ece"), **_words(row)}
            for row in rows[:100]
            if isinstance(row, dict)
            and number(row, "T") is not None
            and share(row, "ece") is not None
        ]
    return found


def _words(row: Mapping[str, Any]) -> Json:
    return {name: text(row, name) for name in ("reading", "measure")}


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
