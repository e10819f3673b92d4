"""The trials of a search, and the workers that train them until all are over.

Values, proposals and pruning are computed from the entries of the queue in their order, which
Optuna's sampler, pruner and evaluator see as a study in memory. So nothing depends on when a worker
was killed.
"""

from __future__ import annotations

import hashlib
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proselflc import methods
from proselflc.data.dataset import Dataset
from proselflc.data.labels import Labels
from proselflc.errors import InputError, RunError, printable
from proselflc.queue import run_store
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Claim, Entry, Queue
from proselflc.searching import search_space
from proselflc.searching.search_space import Candidates, Chosen
from proselflc.searching.study import (
    MethodChoice,
    SearchStage,
    StudyDirectory,
    StudyPlan,
    TrialRecord,
    format_values,
)
from proselflc.terminal import Display, Silent
from proselflc.training.loop import DivergenceError, Observer
from proselflc.training.run_directory import RunDirectory, read_toml
from proselflc.wording import option

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage
    from optuna.trial import TrialState

FIRST = "cce"  # the method with which Γ and the optimiser are chosen
POLL = 0.5  # seconds between two checks of other workers' trials
DECILES = 10  # points at which a trial is compared with the others
FIRST_DECILE = 5  # the first at which it may be pruned: Γ/2
STARTUP = 4  # complete trials before any is pruned
ENOUGH = 8  # complete trials before importance is computed


@dataclass(frozen=True)
class Trials:
    """The trials of one stage."""

    queue: Queue
    candidates: Mapping[str, Candidates]
    count: int  # of trials, if there is a range among the candidates
    seed: int
    prune: bool  # whether a trial that is behind is ended early

    @property
    def planned(self) -> Sequence[Chosen]:
        """Return the values of every trial; empty for trials whose values will be proposed."""
        return search_space.grid(self.candidates) or [{}] * self.count

    def records(self) -> list[TrialRecord]:
        """Return all trials, in their order."""
        entries = self.queue.entries()
        planned = enumerate(self.planned)
        return [_record(k, entries.get(k, Entry()), values) for k, values in planned]

    def claim(self) -> Claim | None:
        """Claim the next trial and fix its values; return None if there is none at the moment."""
        planned = self.planned
        claim = self.queue.claim(range(len(planned)))
        if claim is not None:
            known = {**claim.values, **planned[int(claim.name)]}
            if known.keys() != self.candidates.keys():
                known = self._proposed(int(claim.name), known)
            if claim.values != known:
                claim.fix(known, self.candidates)
        return claim

    def is_behind(self, claim: Claim, progress: float, accuracy: float) -> bool:
        """Return whether to prune a trial: it is past Γ/2 and behind the median of the others.

        `progress` is t/Γ, and `accuracy` the validation accuracy at that point.
        """
        import optuna

        decile = min(int(progress * DECILES + 1e-9), DECILES)
        if not self.prune or decile in claim.reports:
            return False
        claim.report(decile, accuracy)
        if decile < FIRST_DECILE:
            return False
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=FIRST_DECILE)
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING, intermediate_values=claim.reports
        )
        return pruner.prune(self._study(optuna.trial.TrialState.COMPLETE), trial)

    def importance(self) -> dict[str, float]:
        """Return the share of the variance between trials that each parameter explains.

        The shares sum to 1; without enough trials or parameters there are none.
        """
        import optuna

        study = self._study(optuna.trial.TrialState.COMPLETE)
        done = study.get_trials(deepcopy=False)
        if len(self.candidates) < 2 or len(done) < ENOUGH or len({t.value for t in done}) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def _proposed(self, number: int, known: Chosen) -> dict[str, Any]:
        """Return values by TPE, which depend on the seed, the number and the other trials."""
        import optuna
        from optuna.trial import TrialState

        states = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
        study = self._study(*states, exclude=number)
        text = f"{self.seed} {number}".encode()
        seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True
            )
        return {**study.ask(dict(self.candidates)).params, **known}

    def _study(self, *states: TrialState, exclude: int | None = None) -> optuna.Study:
        """Return a study in memory of the trials in these states, in their order."""
        import optuna

        study = optuna.create_study(direction="maximize")
        entries = self.queue.entries()
        for number in range(len(self.planned)):
            current = entries.get(number, Entry()).current
            if current is not None and current.state in states and number != exclude:
                study.add_trial(current)
        return study


def _record(number: int, entry: Entry, planned: Chosen) -> TrialRecord:
    from optuna.trial import TrialState

    trial = entry.current
    values = {**planned, **entry.values}
    if trial is None:
        return TrialRecord(number, "waiting", values)
    state = "diverged" if trial.state == TrialState.FAIL else trial.state.name.lower()
    began = next((one.datetime_start for one in entry.attempts if one.datetime_start), None)
    ended = trial.datetime_complete
    return TrialRecord(
        number,
        state,
        values,
        trial.value if trial.state == TrialState.COMPLETE else None,
        None if began is None or ended is None else (ended - began).total_seconds(),
        str(trial.user_attrs.get("run", "")),
    )


class SearchError(RunError):
    """A search could not be completed although its input was valid."""


@dataclass(frozen=True)
class SearchWorker:
    """A worker of a search; all do the same, and each trial is trained by one of them."""

    plan: StudyPlan
    directory: StudyDirectory
    storage: BaseStorage
    runs: Path
    display: Display  # of the progress of the current run
    dataset: Dataset | None  # replaces the data that the config names
    quiet: bool  # whether to print no line for each trial

    def work(self) -> tuple[Chosen, tuple[SearchStage, ...], tuple[MethodChoice, ...]]:
        """Train trials until none is left; return the recipe, the stages and the choices."""
        stages: list[SearchStage] = []
        recipe: Chosen = {}
        if self.plan.space.recipe:
            stages = self._complete([None], {})
            recipe = _best(stages[0]).values
        own = self._complete(self.plan.methods, recipe)
        choices = []
        for stage in own:
            winner = _best(stage)
            assert winner.val_accuracy is not None
            config = search_space.applied(self.plan.config, stage.method, recipe, winner.values)
            if is_share(config.trusted):  # the final run holds nothing out
                config = replace(config, trusted=None)
            choices.append(MethodChoice(stage.method, winner.values, winner.val_accuracy, config))
        return recipe, (*stages, *own), tuple(choices)

    def trials(self, method: str | None) -> Trials:
        """Return the trials of a method; for None, those of Γ and the optimiser."""
        plan = self.plan
        stage = queue_storage.name_of(plan.key, "recipe" if method is None else method)
        return Trials(
            Queue(self.storage, stage, self.directory.runs),
            plan.space.recipe if method is None else plan.space.methods[method],
            plan.trials,
            plan.config.recipe.seed,
            plan.prune,
        )

    def is_retrained(self, choice: MethodChoice) -> bool:
        """Return whether the run on all the training data is finished."""
        return run_store.stored_run(choice.config, self.runs, self.dataset).is_finished

    def retrained(self, choice: MethodChoice) -> MethodChoice:
        """Return the choice with its run on all the training data, which is trained if needed."""
        title = methods.find(choice.method).title
        if not self.is_retrained(choice):
            self._print(f"{title}: training on all the training data")
        try:
            run = run_store.train_once(
                choice.config, self.runs, _ProgressBar(self.display), dataset=self.dataset
            )
        except DivergenceError as error:
            raise SearchError(f"{title}, trained on all the training data: {error}") from None
        _check_same_labels(
            run,
            [self.runs / trial.run for trial in self.trials(choice.method).records()],
        )
        return replace(choice, run=run.path, summary=run.read_json(run.summary))

    def _complete(self, names: Sequence[str | None], recipe: Chosen) -> list[SearchStage]:
        """Train the trials of methods until all, including other workers', are over.

        The name None stands for Γ and the optimiser.
        """
        trials = [self.trials(name) for name in names]
        is_waiting = False
        while True:
            for name, own in zip(names, trials, strict=True):
                while (claim := own.claim()) is not None:
                    with claim:
                        self._run_trial(claim, name, own, recipe)
            stages = [
                SearchStage(name or FIRST, name is None, tuple(own.records()))
                for name, own in zip(names, trials, strict=True)
            ]
            others = sum(not trial.is_over for stage in stages for trial in stage.records)
            if not others:
                return stages
            if not is_waiting:
                self._print(f"waiting for {others} trial{'s' * (others > 1)} of other processes")
                is_waiting = True
            time.sleep(POLL)

    def _run_trial(self, claim: Claim, name: str | None, trials: Trials, recipe: Chosen) -> None:
        """Train a claimed trial to its end, unless its run exists already."""
        chosen = (claim.values, {}) if name is None else (recipe, claim.values)
        config = search_space.applied(self.plan.config, name or FIRST, *chosen)
        run = run_store.stored_run(config, self.runs, self.dataset)
        began = time.monotonic()
        pruner, display = _Pruner(trials, claim), _ProgressBar(self.display)
        try:
            run_store.train_once(
                config, self.runs, display, dataset=self.dataset, observers=(pruner,)
            )
        except DivergenceError as error:
            run.clear_checkpoints()
            if pruner.stop_reason is not None:  # one more step is taken after a stop
                claim.prune(run.path.name)
                result = pruner.stop_reason
            else:
                claim.diverge(str(error), run.path.name)
                result = "diverged"
        else:
            if pruner.stop_reason is not None and not run.is_finished:
                claim.prune(run.path.name)
                result = pruner.stop_reason
            else:
                accuracy = _validation_accuracy(run, self.plan.labels)
                claim.complete(accuracy, run.path.name)
                result = f"validation {accuracy:.2%}"
        number = f"trial {int(claim.name) + 1} of {len(trials.planned)}"
        parts = [part for part in (number, format_values(claim.values), result) if part]
        title = SearchStage(name or FIRST, name is None, ()).title
        self._print(f"{title}: {'  '.join(parts)}  ({time.monotonic() - began:.0f} s)")

    def _print(self, text: str) -> None:
        if not self.quiet:
            sys.stderr.write(printable(text) + "\n")
            sys.stderr.flush()


class _ProgressBar(Silent):
    """Shows the progress of the current run, and nothing else about it."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def begin(self, titles: Sequence[str], step: int, total: int, what: str = "training") -> None:
        self._display.begin((), step, total, what)

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
    """Return whether the trusted examples are held out from the training data."""
    return trusted is not None and not Path(trusted).exists()


def _best(stage: SearchStage) -> TrialRecord:
    best = stage.best
    if best is None:
        raise SearchError(
            f"no trial of {stage.title} is complete, because the loss of every one became NaN: "
            f"search lower learning rates with {option('space')}, or pass {option('clip', 1)}"
        )
    return best


def _validation_accuracy(run: RunDirectory, labels: str) -> float:
    """Return the final validation accuracy of a trial, which was trained on the given labels."""
    if read_toml(run.config).get("fingerprint") != labels:
        raise InputError(f"{run.path} was trained on other labels than this study's", fix=_again())
    part = run.read_json(run.evaluation).get("validation")
    accuracy = part.get("accuracy") if isinstance(part, dict) else None
    if not isinstance(accuracy, int | float):
        raise InputError(f"{run.path} has no validation accuracy", fix=_again())
    return float(accuracy)


def _again() -> str:
    return f"remove it, and continue with {option('resume', True)}"


def _check_same_labels(run: RunDirectory, of_trials: Sequence[Path]) -> None:
    """Refuse a run whose examples have other labels than in the trials."""
    own = Labels.load(run.checked(run.labels))
    position = {name: k for k, name in enumerate(own.ids)}
    for trial in (RunDirectory(path) for path in of_trials):
        if not trial.labels.is_file():  # the trial was trained on another machine
            continue
        before = Labels.load(trial.checked(trial.labels))
        rows = [position.get(name, -1) for name in before.ids]
        if -1 in rows or not np.array_equal(own.given[rows], before.given):
            raise InputError(
                f"the labels in {run.path} differ from those that {trial.path} was trained on",
                fix="has the data changed?",
            )


def work(
    url: str | None,
    plan: StudyPlan,
    directory: StudyDirectory,
    runs: Path,
    dataset: Dataset | None,
    quiet: bool,
) -> None:
    """Train trials in a worker process; the first process reports what goes wrong."""
    try:
        with queue_storage.storage_errors(url):
            storage = queue_storage.opened(directory.journal, url)
            display = Silent()
            SearchWorker(plan, directory, storage, runs, display, dataset, quiet).work()
    except SearchError:
        sys.exit(2)
