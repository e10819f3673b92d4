"""`proselflc search`: the paper's protocol for choosing what a method cannot know.

Corrupt once. Most of the training data trains, and examples with trusted labels choose: by default
a fifth of the training data, class by class, with its true labels back. First Γ and the optimiser's
options are chosen with cross entropy, then they are fixed for all methods, and of each method its
own parameters are chosen (ε, B). Then the method learns from all the training data, with the same
noisy labels, and its last state is what is measured on the test set, which has chosen nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proselflc.app import kept_runs, search_space, search_workers, trials
from proselflc.app.config import Config
from proselflc.app.display import Display, Silent
from proselflc.app.interruption import Interrupted
from proselflc.app.search_space import Chosen
from proselflc.app.setting import Setting, prepare
from proselflc.app.start import Start
from proselflc.app.study import NOISY, Choice, Outcome, Plan, Stage, in_words, write
from proselflc.app.study_directory import StudyDirectory
from proselflc.app.trials import Queue, Record, Taken
from proselflc.correction.catalogue import METHODS
from proselflc.data import noise
from proselflc.data.dataset import Dataset
from proselflc.data.labels import Labels
from proselflc.errors import InputError, shown, unknown
from proselflc.training.fit import DivergenceError
from proselflc.training.methods import TRAINABLE, Parameters
from proselflc.training.run_directory import RunDirectory, read_toml

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

TRUSTED = "0.2"  # of the training data, where the user names no trusted examples
FIRST = "cce"  # the method that Γ and the optimiser are chosen with
POLL = 0.5  # seconds between two looks at what other processes do


class SearchError(Exception):
    """A search could not come to its end, by no mistake in the input. One sentence."""


@dataclass(frozen=True)
class Options:
    """How to search.

    Attributes:
        space: what may be chosen; see `search_space.read`.
        trials: how many in a stage of which not all can be tried.
        prune: end a trial from half of its training on where it is behind the median of others.
        storage: address of a database for the trials, or None for a journal in the study.
        jobs: processes on this machine.
        retrain: learn from all the training data at the end.
        quiet: say nothing about the trials.
    """

    space: tuple[str, ...] = ()
    trials: int = 20
    prune: bool = False
    storage: str | None = None
    jobs: int = 1
    retrain: bool = True
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("trials", "jobs"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} must be at least 1, got {getattr(self, name)}")


def search(
    config: Config,
    options: Options,
    start: Start,
    display: Display,
    *,
    dataset: Dataset | None = None,
    runs: Path | None = None,
) -> Outcome:
    """Search as the paper does, or go on with a search; others may be at it as well.

    Args:
        config: the data, its noise, and what is fixed; its method is a name, or several with
            commas between them. Left-out trusted data is the data's own validation part, or a
            fifth of the training data.
        options: how to search.
        start: where the study is.
        display: who is told how the run at hand goes.
        dataset: instead of what the config names.
        runs: a folder of runs to share with others; left out, the study's own.

    Raises:
        InputError: something in the input, the data, the study or the storage is not as it must be.
        SearchError: no trial of a stage came to its end.
        Interrupted: somebody wanted it to stop; the message says how to go on.
    """
    trials.check_installed()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError(
            "a search is not started by torchrun: start it once, with --jobs for more processes"
        )
    directory = StudyDirectory(_place(config, start))
    directory.check_start(start)
    with trials.storage_errors(options.storage), search_workers.stopping_on_signals():
        plan, validation, notes = _planned(config, options, dataset)
        storage = _begun(plan, directory, options, start, display)
        for note in notes:
            display.note(note)
        if directory.is_finished:
            display.note(f"the study {directory.path} is finished: no trial is done again")
        part = Part(
            plan,
            directory,
            storage,
            runs or directory.runs,
            display if options.jobs == 1 else Silent(notes=False),
            dataset,
            options.quiet,
        )
        try:
            with search_workers.helping(part, options.storage, options.jobs):
                recipe, stages, choices = part.take()
            choices = tuple(
                part.retrained(one) if options.retrain or part.is_retrained(one) else one
                for one in choices
            )
        except KeyboardInterrupt:
            raise Interrupted(_advice(directory, config, options)) from None
        weighed = tuple(
            replace(one, importance=part.queue(None if one.is_first else one.method).importance())
            for one in stages
        )
        outcome = Outcome(directory, plan, recipe, weighed, choices, validation)
        write(outcome)
    return outcome


@dataclass(frozen=True)
class _Job:
    """A stage that is under way: whose trials, with which recipe."""

    method: str
    recipe: Chosen
    queue: Queue
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
            stages += self._worked([_Job(FIRST, {}, self.queue(None), is_first=True)])
            recipe = _best(stages[0]).values
        own = self._worked([_Job(name, recipe, self.queue(name)) for name in plan.methods])
        choices = []
        for stage in own:
            winner = _best(stage)
            assert winner.accuracy is not None
            config = self._on_everything(stage.method, recipe, winner.values)
            choices.append(Choice(stage.method, winner.values, winner.accuracy, config))
        return recipe, (*stages, *own), tuple(choices)

    def queue(self, method: str | None) -> Queue:
        """The trials of a method; of None, those of Γ and the optimiser."""
        plan = self.plan
        return Queue(
            self.storage,
            trials.name_of(plan.key, "recipe" if method is None else method),
            plan.space.recipe if method is None else plan.space.methods[method],
            plan.trials,
            plan.config.recipe.seed,
            plan.prune,
        )

    def is_retrained(self, choice: Choice) -> bool:
        """Whether the run on all the training data is there."""
        return kept_runs.place(choice.config, self.runs, self.dataset).is_finished

    def retrained(self, choice: Choice) -> Choice:
        """The choice with a run that has learned from all the training data.

        Raises:
            InputError: the labels of the run are not those that the trials learned from.
            SearchError: its loss is no number any more.
        """
        title = METHODS[choice.method].title
        if not self.is_retrained(choice):
            self._say(f"{title}: learning from all the training data")
        try:
            run = kept_runs.once(choice.config, self.runs, _Bar(self.display), dataset=self.dataset)
        except DivergenceError as error:
            raise SearchError(f"{title} on all the training data: {error}") from None
        _check_same_labels(
            run, [self.runs / one.run for one in self.queue(choice.method).records()]
        )
        return replace(choice, run=run.path, summary=run.read_json(run.summary))

    def _worked(self, jobs: Sequence[_Job]) -> list[Stage]:
        """Do the trials of some stages until all of them, whoever has them, are over."""
        for job in jobs:
            with self.directory.locked():
                job.queue.fill()
        is_told = False
        while True:
            for job in jobs:
                while (taken := job.queue.take()) is not None:
                    self._try(taken, job)
            records = [tuple(job.queue.records()) for job in jobs]
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

    def _try(self, taken: Taken, job: _Job) -> None:
        """Train one trial to its end, or have it if it is there."""
        values: tuple[Chosen, Chosen] = (job.recipe, taken.values)
        config = self._config(job.method, *((taken.values, {}) if job.is_first else values))
        run = kept_runs.place(config, self.runs, self.dataset)
        began = time.monotonic()
        try:
            with taken.living():
                kept_runs.once(config, self.runs, _Watch(self.display, taken), dataset=self.dataset)
        except _BehindError:
            run.clear_checkpoints()
            taken.prune(run.path.name)
            came = "ended early"
        except DivergenceError as error:
            run.clear_checkpoints()
            taken.diverged(str(error), run.path.name)
            came = "diverged"
        else:
            accuracy = _validation_accuracy(run, self.plan.labels)
            taken.complete(accuracy, run.path.name)
            came = f"validation {accuracy:.2%}"
        words = (f"trial {taken.number + 1} of {job.queue.size}", in_words(taken.values), came)
        said = "  ".join(word for word in words if word)
        self._say(f"{job.title}: {said}  ({time.monotonic() - began:.0f} s)")

    def _say(self, text: str) -> None:
        if not self.quiet:
            sys.stderr.write(shown(text) + "\n")
            sys.stderr.flush()

    def _config(self, method: str, recipe: Chosen, parameters: Chosen) -> Config:
        return search_space.applied(self.plan.config, method, recipe, parameters)

    def _on_everything(self, method: str, recipe: Chosen, parameters: Chosen) -> Config:
        """The config of the run on all the training data: nothing is cut out of it any more."""
        config = self._config(method, recipe, parameters)
        return replace(config, trusted=None) if _is_share(config.trusted) else config


class _BehindError(Exception):
    """A trial need not go on."""


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


class _Watch(_Bar):
    """Looks at every evaluation point of a trial, and ends it where it is behind.

    A method with several stages is not ended: each of them has a Γ of its own.
    """

    def __init__(self, display: Display, taken: Taken) -> None:
        super().__init__(display)
        self._taken = taken

    def point(self, line: Mapping[str, Any]) -> None:
        accuracy, progress = line.get("val_accuracy"), float(line["progress"])
        if accuracy is None or line.get("stage") is not None or progress >= 1:
            return
        if self._taken.is_behind(progress, float(accuracy)):
            raise _BehindError


def _place(config: Config, start: Start) -> Path:
    if start.out is not None:
        return start.out
    if start.resume:
        raise InputError("--resume needs --out, the directory of the study to go on with")
    stem = f"{Path(config.request.data).stem.replace(':', '-') or 'data'}-search"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"


def _planned(
    config: Config, options: Options, dataset: Dataset | None
) -> tuple[Plan, int, list[str]]:
    """What is to be searched, how many examples choose, and what the user may not expect.

    What can be wrong with the input is found here.
    """
    names = _methods(config)
    setting, notes = _prepared(replace(config, method=FIRST, parameters=Parameters()), dataset)
    validation = setting.dataset.validation
    assert validation is not None
    knows_truth = not _is_share(setting.config.trusted) or setting.labels.clean is not None
    if not knows_truth:
        notes.append(NOISY)
    resolved = replace(setting.config, parameters=config.parameters, tracker=None)
    space = search_space.read(options.space, names, config, resolved)
    search_space.check(space, resolved, setting.situation)
    plan = Plan(
        data=setting.dataset.name,
        config=resolved,
        methods=names,
        space=space,
        trials=options.trials,
        prune=options.prune,
        labels=setting.labels.fingerprint,
        trusted_labels=noise.fingerprint(validation.labels, setting.dataset.num_classes),
        knows_truth=knows_truth,
    )
    return plan, len(validation), notes


def _methods(config: Config) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in config.method.split(",")))
    for name in names:
        if name not in TRAINABLE:
            raise InputError(unknown("method", name, TRAINABLE))
        if TRAINABLE[name].learns_trusted:
            raise InputError(
                f"method {name} learns from trusted examples, so none are left to choose its "
                "parameters by: search another method"
            )
    for given in config.parameters.given():
        if not any(given in TRAINABLE[name].defaults for name in names):
            raise InputError(
                f"--method.{given} is no parameter of {', '.join(names)}: leave it out"
            )
    return names


def _prepared(config: Config, dataset: Dataset | None) -> tuple[Setting, list[str]]:
    """What a trial learns from and is chosen by, and what the user may not expect of it."""
    notes: list[str] = []
    if config.trusted is None:
        setting = prepare(config, dataset, report=notes.append)
        if setting.dataset.validation is not None:  # the data has its own
            return setting, notes
        notes.clear()
    wanted = replace(config, trusted=config.trusted or TRUSTED)
    return prepare(wanted, dataset, report=notes.append), notes


def _is_share(trusted: str | None) -> bool:
    """Whether trusted examples are cut out of the training data."""
    return trusted is not None and not Path(trusted).exists()


def _begun(
    plan: Plan, directory: StudyDirectory, options: Options, start: Start, display: Display
) -> BaseStorage:
    """The storage of a study that is new now, or is the one that was asked for."""
    url = options.storage
    about = {**plan.about, "storage": "journal" if url is None else trials.redacted(url)}
    directory.make()
    try:
        with directory.locked():
            if directory.is_begun and not start.overwrite:
                directory.check_same(plan.options, about)
            if start.overwrite and url is None:
                directory.clear()  # with the journal, which may be damaged
            storage = trials.opened(directory, url, display.note)
            if start.overwrite and url is not None:  # it can be reached, so that nothing is lost
                for key in filter(None, (directory.key, plan.key)):
                    trials.delete(storage, key)
                directory.clear()
            if not directory.is_begun:
                directory.write(plan.options, {**about, "key": plan.key})
            return storage
    except InputError:
        directory.remove_unused()  # a mistyped option leaves nothing behind
        raise


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
    own = Labels.load(run.labels)
    position = {name: k for k, name in enumerate(own.ids)}
    for trial in (RunDirectory(path) for path in of_trials):
        if not trial.labels.is_file():  # it was trained on another machine
            continue
        before = Labels.load(trial.labels)
        rows = [position.get(name, -1) for name in before.ids]
        if -1 in rows or not np.array_equal(own.given[rows], before.given):
            raise InputError(
                f"the labels in {run.path} are not those that {trial.path} learned from: has the "
                "data changed?"
            )


def _advice(directory: StudyDirectory, config: Config, options: Options) -> str:
    command = f"proselflc search --out {shlex.quote(str(directory.path))} --resume"
    if options.jobs > 1:
        command += f" --jobs {options.jobs}"
    missing = []
    if options.storage is not None:
        url = trials.redacted(options.storage)
        command += f" --storage {shlex.quote(url)}"
        if "***" in url:
            missing.append("the password in place of ***")
        if "?" in options.storage and "?" not in url:
            missing.append("what was after the ?")
    if config.model is not None and ":" in config.model:
        command += f" --model {shlex.quote(config.model)}"
    hint = f" (with {' and '.join(missing)}, which is not repeated here)" if missing else ""
    return f"stopped, what is done is kept; go on with{hint}: {command}"
