"""The plan and the outcome of a search, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proselflc import __version__, methods
from proselflc.queue import run_store
from proselflc.run.config import MAY_CHANGE, Config
from proselflc.searching import trials
from proselflc.searching.search_space import Chosen, Space
from proselflc.searching.study_directory import StudyDirectory
from proselflc.searching.trials import TrialRecord

NOISY = (
    "the true labels are unknown, so the parameters are chosen on held-out examples with their "
    "given labels; if many of those are wrong, the choice is less reliable"
)


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
        """Return the fingerprints of the labels."""
        return {"labels": self.labels, "trusted_labels": self.trusted_labels}

    @property
    def key(self) -> str:
        """Return a hash that is the same for equal searches on any machine."""
        known = {key: value for key, value in self.options.items() if key not in MAY_CHANGE}
        return run_store.hash_options({**known, **self.fingerprints, "version": __version__})


@dataclass(frozen=True)
class SearchStage:
    """The trials among which one choice is made."""

    method: str
    is_first: bool  # whether Γ and the optimiser are chosen, for all methods
    records: tuple[TrialRecord, ...]
    importance: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the title of the stage."""
        return "Γ and optimiser" if self.is_first else methods.find(self.method).title

    @property
    def best(self) -> TrialRecord | None:
        """Return the chosen trial, if any is complete."""
        return trials.best(self.records)


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
        """Return the title of the method."""
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
                    {
                        "number": trial.number,
                        "state": trial.state,
                        "values": dict(trial.values),
                        "val_accuracy": trial.accuracy,
                        "seconds": trial.seconds,
                        "run": trial.run or None,
                        "is_chosen": trial is stage.best,
                    }
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
