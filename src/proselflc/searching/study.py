"""What a search is for and what it has found: in words, in JSON and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proselflc import __version__, methods
from proselflc.files.whole import whole_file
from proselflc.queue import run_store
from proselflc.run.config import MAY_CHANGE, Config
from proselflc.searching import search_space, study_page, trials
from proselflc.searching.search_space import Chosen, Range, Space
from proselflc.searching.study_directory import StudyDirectory
from proselflc.searching.trials import Record
from proselflc.training.run_directory import RunDirectory

NOISY = (
    "the true labels are not known, so the setting is chosen by held-out examples with the labels "
    "that they were given: where many of those are wrong, trust the choice less"
)


@dataclass(frozen=True)
class Plan:
    """All that a study's result depends on.

    Attributes:
        data: what it is called.
        config: of a trial, resolved; its method and parameters are for each method to take from.
        methods: whose parameters are chosen.
        space: what may be chosen.
        trials, prune: as `Options` has them.
        labels, trusted_labels: fingerprints of what is learned from, and of what chooses.
        knows_truth: whether the labels that choose are trusted.
    """

    data: str
    config: Config
    methods: tuple[str, ...]
    space: Space
    trials: int
    prune: bool
    labels: str
    trusted_labels: str
    knows_truth: bool

    @property
    def options(self) -> dict[str, Any]:
        """What the command line would be told, as TOML holds it."""
        table = replace(self.config, method=",".join(self.methods)).table()
        own = {"space": self.space.words(), "trials": self.trials, "prune": self.prune}
        return {**table, **own}

    @property
    def about(self) -> dict[str, Any]:
        """What else it depends on."""
        return {"labels": self.labels, "trusted_labels": self.trusted_labels}

    @property
    def key(self) -> str:
        """The same for all who search the same, on any machine."""
        known = {key: value for key, value in self.options.items() if key not in MAY_CHANGE}
        return run_store.hash_options({**known, **self.about, "version": __version__})


@dataclass(frozen=True)
class Stage:
    """What came of one stage.

    Attributes:
        method: that was trained.
        is_first: whether Γ and the optimiser were chosen, for all methods.
        records: the trials.
        importance: as `Trials.importance` has it.
    """

    method: str
    is_first: bool
    records: tuple[Record, ...]
    importance: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return "Γ and optimiser" if self.is_first else methods.find(self.method).title

    @property
    def best(self) -> Record | None:
        return trials.best(self.records)


@dataclass(frozen=True)
class Choice:
    """What was chosen for a method.

    Attributes:
        method: its name.
        values: of its own parameters.
        accuracy: on the validation examples, of the trial that was best.
        config: of the run that learns from all the training data.
        run: where that run is; None where nobody wanted it.
        summary: of that run.
    """

    method: str
    values: Chosen
    accuracy: float
    config: Config
    run: Path | None = None
    summary: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """What a search has found.

    Attributes:
        directory: of the study.
        plan: what it was for.
        recipe: what was chosen for all methods.
        stages: in their order.
        choices: by method.
        validation: how many examples have chosen.
    """

    directory: StudyDirectory
    plan: Plan
    recipe: Chosen
    stages: tuple[Stage, ...]
    choices: tuple[Choice, ...]
    validation: int

    @property
    def best(self) -> Choice:
        """The method whose choice has the highest validation accuracy, of equals the first."""
        return max(self.choices, key=lambda one: one.accuracy)


def in_words(values: Chosen) -> str:
    """What was chosen, on a line.

    >>> in_words({"epochs": 30, "lr": 0.05})
    'epochs 30  lr 0.05'
    """
    return "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The study in a few numbers, and all its trials."""
    plan, best = outcome.plan, outcome.best
    return {
        "study": str(outcome.directory.path),
        "version": __version__,
        "best": best.method,
        "chosen_by": "trusted labels" if plan.knows_truth else "held-out noisy labels",
        "validation_examples": outcome.validation,
        "recipe": dict(outcome.recipe),
        "chosen": {
            one.method: {
                "parameters": dict(one.values),
                "val_accuracy": one.accuracy,
                "run": None if one.run is None else str(one.run),
                "test_accuracy": None if one.summary is None else one.summary["test_accuracy"],
                "fingerprint": None if one.summary is None else one.summary["fingerprint"],
                "config": str(
                    outcome.directory.chosen_of(one.method)
                    if len(outcome.choices) > 1
                    else outcome.directory.chosen
                ),
            }
            for one in outcome.choices
        },
        "config": str(outcome.directory.chosen),
        "report": str(outcome.directory.report),
        "space": plan.space.words(),
        "labels": plan.labels,
        "trusted_labels": plan.trusted_labels,
        "notes": [] if plan.knows_truth else [NOISY],
        "stages": [
            {
                "method": stage.method,
                "chooses": "recipe" if stage.is_first else "parameters",
                "importance": dict(stage.importance),
                "trials": [
                    {
                        "number": one.number,
                        "state": one.state,
                        "values": dict(one.values),
                        "val_accuracy": one.accuracy,
                        "seconds": one.seconds,
                        "run": one.run or None,
                        "is_chosen": one is stage.best,
                    }
                    for one in stage.records
                ],
            }
            for stage in outcome.stages
        ],
    }


def told(outcome: Outcome) -> str:
    """What was found, in a few lines."""
    plan = outcome.plan
    by = "trusted labels" if plan.knows_truth else "the labels that they were given"
    lines = [f"chosen by {outcome.validation:,} examples with {by}"]
    if not plan.knows_truth:
        lines.append(f"note: {NOISY}")
    if outcome.recipe:
        lines.append(f"for all methods  {in_words(outcome.recipe)}")
    width = max(len(methods.find(one.method).title) for one in outcome.choices)
    for one in outcome.choices:
        line = f"{methods.find(one.method).title:{width}}  validation {one.accuracy:.2%}"
        accuracy = None if one.summary is None else one.summary["test_accuracy"]
        if accuracy is not None:
            line += f"  test, learned from all {accuracy:.2%}"
        lines.append(f"{line}  {in_words(one.values)}".rstrip())
    best = outcome.best
    lines += [f"options: {outcome.directory.chosen}", f"page: {outcome.directory.report}"]
    if best.run is not None:
        lines.append(f"run: {best.run}")
    return "\n".join(lines) + "\n"


def write(outcome: Outcome) -> None:
    """Write what was chosen, the page, and the summary last."""
    directory = outcome.directory
    for choice in outcome.choices:
        labels = outcome.plan.labels
        if choice.summary is not None:
            labels = str(choice.summary["fingerprint"])
        if len(outcome.choices) > 1:
            choice.config.write(directory.chosen_of(choice.method), labels)
        if choice is outcome.best:
            choice.config.write(directory.chosen, labels)
    with whole_file(directory.report) as file:
        file.write(study_page.make(_shown(outcome)).encode())
    RunDirectory(directory.path).write_json(directory.summary, to_json(outcome))


def _shown(outcome: Outcome) -> study_page.Study:
    """The study as a page shows it."""
    plan, config = outcome.plan, outcome.plan.config
    return study_page.Study(
        data=plan.data,
        noise=config.noise or "",
        knows_truth=plan.knows_truth,
        validation=outcome.validation,
        warning=_sentence(NOISY) if not plan.knows_truth else "",
        recipe=outcome.recipe,
        methods=tuple(
            study_page.Method(
                methods.find(one.method).title,
                one.values,
                one.accuracy,
                _accuracy(one),
                "" if one.run is None else str(one.run),
                one is outcome.best,
            )
            for one in outcome.choices
        ),
        stages=tuple(
            study_page.Stage(
                stage.title,
                methods.find(stage.method).title,
                stage.is_first,
                tuple(
                    study_page.Trial(
                        one.number + 1,
                        one.state,
                        one.values,
                        one.accuracy,
                        one.seconds,
                        one is stage.best,
                    )
                    for one in stage.records
                ),
                stage.importance,
                _ranges(plan.space.recipe if stage.is_first else plan.space.methods[stage.method]),
            )
            for stage in outcome.stages
        ),
        space=tuple(plan.space.words()),
        options=replace(config, method=",".join(plan.methods)).table(),
        chosen=str(outcome.directory.chosen),
        folder=str(outcome.directory.path),
    )


def _ranges(choices: Mapping[str, search_space.Choice]) -> tuple[str, ...]:
    return tuple(name for name, choice in choices.items() if isinstance(choice, Range))


def _accuracy(choice: Choice) -> float | None:
    found = None if choice.summary is None else choice.summary.get("test_accuracy")
    return found if isinstance(found, float) else None


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
