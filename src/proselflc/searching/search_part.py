"""One process's part in a search: take trials until all are over, then choose, then retrain."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proselflc import methods
from proselflc.data.dataset import Dataset
from proselflc.data.labels.labels import Labels
from proselflc.errors import InputError, printable
from proselflc.queue import run_store
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Claim, Queue
from proselflc.run.config import Config
from proselflc.searching import search_space
from proselflc.searching.search_space import Chosen
from proselflc.searching.study import Choice, Plan, Stage, in_words
from proselflc.searching.study_directory import StudyDirectory
from proselflc.searching.trials import Record, Trials
from proselflc.terminal.display import Display, Silent
from proselflc.training.loop import DivergenceError, Observer
from proselflc.training.run_directory import RunDirectory, read_toml

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

FIRST = "cce"  # the method that Γ and the optimiser are chosen with
POLL = 0.5  # seconds between two looks at what other processes do


class SearchError(Exception):
    """A search could not come to its end, by no mistake in the input. One sentence."""


@dataclass(frozen=True)
class _Job:
    """A stage that is under way: whose trials, with which recipe."""

    method: str
    recipe: Chosen
    trials: Trials
    is_first: bool = False

    @property
    def title(self) -> str:
        return Stage(self.method, self.is_first, ()).title


@dataclass(frozen=True)
class Part:
    """One process's part in a search; all do the same, and each trial is done by one of them.

    Attributes:
        plan: what is searched.
        directory: of the study.
        storage: Optuna's.
        runs: where runs are.
        display: who is told how the run at hand goes.
        dataset: instead of what the config names.
        quiet: say nothing about the trials.
    """

    plan: Plan
    directory: StudyDirectory
    storage: BaseStorage
    runs: Path
    display: Display
    dataset: Dataset | None
    quiet: bool

    def take(self) -> tuple[Chosen, tuple[Stage, ...], tuple[Choice, ...]]:
        """Do trials until there are none left: what is chosen for all methods, how, and for each.

        Raises:
            SearchError: no trial of a stage came to its end.
        """
        plan, stages = self.plan, []
        recipe: Chosen = {}
        if plan.space.recipe:
            stages += self._worked([_Job(FIRST, {}, self.trials(None), is_first=True)])
            recipe = _best(stages[0]).values
        own = self._worked([_Job(name, recipe, self.trials(name)) for name in plan.methods])
        choices = []
        for stage in own:
            winner = _best(stage)
            assert winner.accuracy is not None
            config = self._on_everything(stage.method, recipe, winner.values)
            choices.append(Choice(stage.method, winner.values, winner.accuracy, config))
        return recipe, (*stages, *own), tuple(choices)

    def trials(self, method: str | None) -> Trials:
        """Return the trials of a method; of None, those of Γ and the optimiser."""
        plan = self.plan
        stage = queue_storage.name_of(plan.key, "recipe" if method is None else method)
        return Trials(
            Queue(self.storage, stage, self.directory.runs),
            plan.space.recipe if method is None else plan.space.methods[method],
            plan.trials,
            plan.config.recipe.seed,
            plan.prune,
        )

    def is_retrained(self, choice: Choice) -> bool:
        """Whether the run on all the training data is there."""
        return run_store.stored_run(choice.config, self.runs, self.dataset).is_finished

    def retrained(self, choice: Choice) -> Choice:
        """The choice with a run that has learned from all the training data.

        Raises:
            InputError: the labels of the run are not those that the trials learned from.
            SearchError: its loss is no number any more.
        """
        title = methods.find(choice.method).title
        if not self.is_retrained(choice):
            self._say(f"{title}: learning from all the training data")
        try:
            run = run_store.train_once(
                choice.config, self.runs, _Bar(self.display), dataset=self.dataset
            )
        except DivergenceError as error:
            raise SearchError(f"{title} on all the training data: {error}") from None
        _check_same_labels(
            run, [self.runs / one.run for one in self.trials(choice.method).records()]
        )
        return replace(choice, run=run.path, summary=run.read_json(run.summary))

    def _worked(self, jobs: Sequence[_Job]) -> list[Stage]:
        """Do the trials of some stages until all of them, whoever has them, are over."""
        is_told = False
        while True:
            for job in jobs:
                while (claim := job.trials.claim()) is not None:
                    with claim:
                        self._try(claim, job)
            records = [tuple(job.trials.records()) for job in jobs]
            others = sum(not one.is_over for some in records for one in some)
            if not others:
                break
            if not is_told:
                self._say(f"waiting for {others} trial{'s' * (others > 1)} of other processes")
                is_told = True
            time.sleep(POLL)
        return [
            Stage(job.method, job.is_first, some) for job, some in zip(jobs, records, strict=True)
        ]

    def _try(self, claim: Claim, job: _Job) -> None:
        """Train one trial to its end, or have it if it is there."""
        values: tuple[Chosen, Chosen] = (job.recipe, claim.values)
        config = self._config(job.method, *((claim.values, {}) if job.is_first else values))
        run = run_store.stored_run(config, self.runs, self.dataset)
        began = time.monotonic()
        pruner = _Pruner(job.trials, claim)
        try:
            display = _Bar(self.display)
            run_store.train_once(
                config, self.runs, display, dataset=self.dataset, observers=(pruner,)
            )
        except DivergenceError as error:
            run.clear_checkpoints()
            claim.diverge(str(error), run.path.name)
            came = "diverged"
        else:
            if pruner.stop_reason is not None and not run.is_finished:
                claim.prune(run.path.name)
                came = pruner.stop_reason
            else:
                accuracy = _validation_accuracy(run, self.plan.labels)
                claim.complete(accuracy, run.path.name)
                came = f"validation {accuracy:.2%}"
        words = (f"trial {int(claim.name) + 1} of {job.trials.size}", in_words(claim.values), came)
        said = "  ".join(word for word in words if word)
        self._say(f"{job.title}: {said}  ({time.monotonic() - began:.0f} s)")

    def _say(self, text: str) -> None:
        if not self.quiet:
            sys.stderr.write(printable(text) + "\n")
            sys.stderr.flush()

    def _config(self, method: str, recipe: Chosen, parameters: Chosen) -> Config:
        return search_space.applied(self.plan.config, method, recipe, parameters)

    def _on_everything(self, method: str, recipe: Chosen, parameters: Chosen) -> Config:
        """The config of the run on all the training data: nothing is cut out of it any more."""
        config = self._config(method, recipe, parameters)
        return replace(config, trusted=None) if is_share(config.trusted) else config


class _Bar(Silent):
    """Shows how far the run at hand is, and nothing else of it."""

    def __init__(self, display: Display) -> None:
        super().__init__(notes=False)
        self._display = display

    def begin(self, titles: Sequence[str], step: int, total: int) -> None:
        self._display.begin((), step, total)

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        self._display.step(step, numbers)

    def end(self) -> None:
        super().end()
        self._display.end()


class _Pruner(Observer):
    """Stops a trial that is behind the others.

    A method with several stages is never stopped, since each stage has a Γ of its own.
    """

    def __init__(self, trials: Trials, claim: Claim) -> None:
        self._trials = trials
        self._claim = claim

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        accuracy, progress = line.get("val_accuracy"), float(line["progress"])
        if accuracy is None or line.get("stage") is not None or progress >= 1:
            return
        if self.stop_reason is None and self._trials.is_behind(
            self._claim, progress, float(accuracy)
        ):
            self.stop_reason = "ended early"


def is_share(trusted: str | None) -> bool:
    """Whether trusted examples are cut out of the training data."""
    return trusted is not None and not Path(trusted).exists()


def _best(stage: Stage) -> Record:
    found = stage.best
    if found is None:
        raise SearchError(
            f"no trial of {stage.title} came to its end, the loss of all of them was no number any "
            "more: search lower learning rates with --space lr=…, or pass --clip 1"
        )
    return found


def _validation_accuracy(run: RunDirectory, labels: str) -> float:
    """At the end of training, as it is the last state that counts.

    Args:
        run: of a trial.
        labels: the fingerprint of what it must have learned from.
    """
    if read_toml(run.config).get("fingerprint") != labels:
        raise InputError(
            f"{run.path} has learned other labels than this study's: remove it, and go on with "
            "--resume"
        )
    part = run.read_json(run.evaluation).get("validation")
    accuracy = part.get("accuracy") if isinstance(part, dict) else None
    if not isinstance(accuracy, int | float):
        raise InputError(
            f"{run.path} has no validation accuracy: remove it and go on with --resume"
        )
    return float(accuracy)


def _check_same_labels(run: RunDirectory, of_trials: Sequence[Path]) -> None:
    """Refuse a run whose examples have other labels than they had in the trials."""
    own = Labels.load(run.checked(run.labels))
    position = {name: k for k, name in enumerate(own.ids)}
    for trial in (RunDirectory(path) for path in of_trials):
        if not trial.labels.is_file():  # it was trained on another machine
            continue
        before = Labels.load(trial.checked(trial.labels))
        rows = [position.get(name, -1) for name in before.ids]
        if -1 in rows or not np.array_equal(own.given[rows], before.given):
            raise InputError(
                f"the labels in {run.path} are not those that {trial.path} learned from: has the "
                "data changed?"
            )


@dataclass(frozen=True)
class Task:
    """All that another process needs for its part, and that can be sent.

    Attributes:
        plan, directory, runs, dataset, quiet: as of a part.
        storage: address of the database, or None.
    """

    plan: Plan
    directory: StudyDirectory
    runs: Path
    dataset: Dataset | None
    storage: str | None
    quiet: bool


def work(task: Task) -> None:
    """What one more process does; what goes wrong with the trials the first one says as well."""
    try:
        with queue_storage.storage_errors(task.storage):
            storage = queue_storage.opened(task.directory.journal, task.storage)
            display = Silent(notes=False)
            rest = (task.runs, display, task.dataset, task.quiet)
            Part(task.plan, task.directory, storage, *rest).take()
    except SearchError:
        sys.exit(2)
