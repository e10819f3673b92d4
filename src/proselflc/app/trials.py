"""Trials in a queue that processes and machines share; Optuna keeps it and proposes.

A stage of a search is a study of Optuna's with as many waiting trials as there are to be: those of
a grid with their values, others without. Each has its place in the queue, and whoever takes one
makes it run. A trial whose process is gone keeps its number and its values and is taken again, so
that a stop, a kill and a crash are all the same. A trial that failed has diverged; nothing else
fails.
"""

from __future__ import annotations

import hashlib
import os
import platform
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proselflc.app import search_space
from proselflc.app.search_space import Choice, Chosen, Values

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage


ALIVE_EVERY = 20.0  # seconds between two signs of life of a trial that runs
DEAD_AFTER = 300.0  # seconds without one, after which its process on another machine is gone
DECILES = 10  # points of a trial at which it is compared with others
FIRST_DECILE = 5  # of them that may end it: Γ/2
STARTUP = 4  # trials that come to their end before any is ended
BOOT = Path("/proc/sys/kernel/random/boot_id")
PROCESSES = Path("/proc/self/ns/pid")  # a link that names what the numbers of processes count in
ENOUGH = 8  # trials for saying which parameters matter

State = Literal["waiting", "running", "complete", "pruned", "diverged"]


@dataclass(frozen=True)
class Record:
    """A trial as it stands.

    Attributes:
        number: its place in the queue, from 0.
        state: what became of it.
        values: that were tried, as far as they are known yet.
        accuracy: on the validation examples at the end of its training; None without one.
        seconds: from when it was first taken to its end.
        run: the name of its run.
    """

    number: int
    state: State
    values: Chosen
    accuracy: float | None = None
    seconds: float | None = None
    run: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


def best(records: Sequence[Record]) -> Record | None:
    """The trial with the highest validation accuracy, of equal ones the first; None without one."""
    done = [one for one in records if one.state == "complete" and one.accuracy is not None]
    return max(done, key=lambda one: (one.accuracy or 0.0, -one.number), default=None)


class Taken:
    """A trial that this process runs."""

    def __init__(self, trial: optuna.Trial, number: int, values: Chosen, prune: bool) -> None:
        self.number = number
        self.values = values
        self._trial = trial
        self._prune = prune
        self._deciles: set[int] = set()

    def is_behind(self, progress: float, accuracy: float) -> bool:
        """Whether the trial may end here: it is past Γ/2 and behind the median of the others.

        Args:
            progress: t/Γ.
            accuracy: on the validation examples.
        """
        decile = min(int(progress * DECILES + 1e-9), DECILES)
        if not self._prune or decile in self._deciles:
            return False
        self._deciles.add(decile)
        with suppress(_finished()):
            self._trial.report(accuracy, decile)
        return decile >= FIRST_DECILE and self._trial.should_prune()

    def complete(self, accuracy: float, run: str) -> None:
        """It came to its end."""
        self._note("run", run)
        self._trial.study.tell(self._trial, accuracy, skip_if_finished=True)

    def prune(self, run: str) -> None:
        """It was ended early."""
        from optuna.trial import TrialState

        self._note("run", run)
        self._trial.study.tell(self._trial, state=TrialState.PRUNED, skip_if_finished=True)

    def diverged(self, reason: str, run: str) -> None:
        """Its loss was no number any more."""
        from optuna.trial import TrialState

        self._note("run", run)
        self._note("reason", reason)
        self._trial.study.tell(self._trial, state=TrialState.FAIL, skip_if_finished=True)

    @contextmanager
    def living(self) -> Iterator[None]:
        """Give signs of life meanwhile."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(ALIVE_EVERY):
                with suppress(Exception):  # a storage that is away for a moment
                    self._note("alive", time.time())

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _note(self, name: str, value: object) -> None:
        with suppress(_finished()):  # somebody has taken us for dead and was quicker
            self._trial.set_user_attr(name, value)


@dataclass(frozen=True)
class Queue:
    """The trials of one stage.

    Attributes:
        storage: where they are kept.
        name: of Optuna's study, the same in every process and on every machine.
        choices: what may be chosen.
        trials: how many, where not all of it can be tried.
        seed: of what is proposed.
        prune: whether a trial that is behind is ended early.
    """

    storage: BaseStorage
    name: str
    choices: Mapping[str, Choice]
    trials: int
    seed: int
    prune: bool

    @property
    def size(self) -> int:
        """How many trials there are to be."""
        return len(self._wanted())

    def fill(self) -> None:
        """Put the trials in that are missing; the first time all of them."""
        study = self._study()
        there = set(self._counted(study))
        for place, values in enumerate(self._wanted()):
            if place not in there:
                study.enqueue_trial(dict(values), user_attrs={"place": place})

    def records(self) -> list[Record]:
        """All trials, in their order."""
        study = self._study()
        return [_record(place, one) for place, one in sorted(self._counted(study).items())]

    def take(self) -> Taken | None:
        """The next trial to run, now this process's; None if there is none at the moment.

        Those that were left by a process that is gone come first.
        """
        import optuna
        from optuna.trial import TrialState

        study = self._study()
        counted = sorted(self._counted(study).items())
        left = [(k, t) for k, t in counted if t.state == TrialState.RUNNING and _is_left(t)]
        waiting = [(k, t) for k, t in counted if t.state == TrialState.WAITING]
        for place, found in (*left, *waiting):
            if found.state == TrialState.WAITING:
                try:
                    if not self.storage.set_trial_state_values(found._trial_id, TrialState.RUNNING):
                        continue
                except _finished():
                    continue
            study.sampler = self._sampler(place)
            trial = optuna.trial.Trial(study, found._trial_id)
            with suppress(_finished()):
                for name, value in _self().items():
                    trial.set_user_attr(name, value)
                return Taken(trial, place, self._values(trial), self.prune)
        return None

    def importance(self) -> dict[str, float]:
        """How much of the difference between trials each parameter makes, its shares adding to 1.

        Empty where there are too few trials, or parameters, to say so.
        """
        import optuna
        from optuna.trial import TrialState

        study = self._study()
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(self.choices) < 2 or len(done) < ENOUGH or len({t.value for t in done}) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def _study(self) -> optuna.Study:
        import optuna

        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=FIRST_DECILE)
        sampler = self._sampler(0)
        try:
            return optuna.load_study(
                study_name=self.name, storage=self.storage, sampler=sampler, pruner=pruner
            )
        except KeyError:
            return optuna.create_study(
                study_name=self.name,
                storage=self.storage,
                direction="maximize",
                load_if_exists=True,
                sampler=sampler,
                pruner=pruner,
            )

    def _sampler(self, place: int) -> optuna.samplers.BaseSampler:
        """What proposes a trial: a function of the seed, its place and the trials that are over."""
        import optuna

        text = f"{self.seed} {place}".encode()
        seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def _wanted(self) -> list[Mapping[str, Any]]:
        if search_space.is_grid(self.choices):
            return list(search_space.grid(self.choices))
        return [{}] * self.trials

    def _counted(self, study: optuna.Study) -> dict[int, optuna.trial.FrozenTrial]:
        """The trials by their place; where two machines have filled one at once, the first."""
        found: dict[int, optuna.trial.FrozenTrial] = {}
        for one in study.get_trials(deepcopy=False):
            place = one.user_attrs.get("place")
            if isinstance(place, int):
                found.setdefault(place, one)
        return found

    def _values(self, trial: optuna.Trial) -> dict[str, Any]:
        return {name: _suggested(trial, name, choice) for name, choice in self.choices.items()}


def _suggested(trial: optuna.Trial, name: str, choice: Choice) -> Any:
    if isinstance(choice, Values):
        return trial.suggest_categorical(name, list(choice.values))
    if choice.is_whole:
        return trial.suggest_int(name, int(choice.low), int(choice.high), log=choice.is_log)
    return trial.suggest_float(name, choice.low, choice.high, log=choice.is_log)


def _record(place: int, trial: optuna.trial.FrozenTrial) -> Record:
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.WAITING: "waiting",
        TrialState.RUNNING: "running",
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "diverged",
    }
    state = states[trial.state]
    values = trial.params or trial.system_attrs.get("fixed_params", {})
    return Record(
        place,
        state,
        dict(values),
        trial.value if state == "complete" else None,
        None if trial.duration is None else trial.duration.total_seconds(),
        str(trial.user_attrs.get("run", "")),
    )


def _self() -> dict[str, Any]:
    """Who runs a trial."""
    return {"host": machine(), "process": os.getpid(), "alive": time.time()}


def machine() -> str:
    """Where a process number means a process: a host, since it was booted, or a container on it.

    A name alone is not enough, for several machines may be called localhost.
    """
    words = [platform.node()]
    with suppress(OSError):  # not on every system
        words.append(BOOT.read_text().strip())
    with suppress(OSError):
        words.append(os.readlink(PROCESSES))
    return " ".join(words)


def _is_left(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether the process that ran a trial is gone.

    On this machine the system says so; a sign of life that is too old says so everywhere, also
    where another process has that number now, or the machine was booted again.
    """
    attributes = trial.user_attrs
    alive = attributes.get("alive")
    if not isinstance(alive, int | float):  # killed before it could say who it is
        began = trial.datetime_start
        alive = began.timestamp() if began is not None else 0.0
    if time.time() - alive > DEAD_AFTER:
        return True
    if attributes.get("host") != machine():
        return False
    process = attributes.get("process")
    if process == os.getpid():
        return True  # a process runs one trial at a time
    try:
        os.kill(int(str(process)), 0)
    except (ProcessLookupError, ValueError):
        return True
    except PermissionError:
        return False
    return False


def _finished() -> type[Exception]:
    """What Optuna raises when a trial that is over is changed."""
    from optuna.exceptions import UpdateFinishedTrialError

    return UpdateFinishedTrialError
