"""One queue of runs for searches and reproductions, kept by Optuna's storages.

An entry of the queue is a run that is to be done once. Each attempt at it is one of Optuna's
trials, so that a journal file, a database and Optuna's gRPC proxy serve alike. Workers claim
entries: a storage lets only one of them turn a waiting trial into a running one. A worker that was
killed leaves a running trial behind. The next worker that looks fails that trial, which again only
one can do, and makes another attempt, which keeps the values and reports of the one before.

A worker is known to be dead in two ways. In the same directory, the lock of its claim is free: the
system sees to that. Anywhere else, it has shown no sign of life for `DEAD_AFTER` seconds.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from proselflc.errors import InputError

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, TrialState

ALIVE_EVERY = 20.0  # seconds between two signs of life of a worker
DEAD_AFTER = 300.0  # seconds without one, after which a worker elsewhere counts as dead
_NAME = "place"  # the attribute that names a trial's entry, as version 0.1.0 called it

Name: TypeAlias = int | str


@dataclass(frozen=True)
class Entry:
    """A run that is to be done once.

    Attributes:
        attempts: Optuna's trials for it, the oldest first.
    """

    attempts: tuple[FrozenTrial, ...] = ()

    @property
    def current(self) -> FrozenTrial | None:
        """Return the attempt that counts: the first that its worker has not left, or None.

        Where two machines have added the entry at the same moment, the second attempt is a spare.
        """
        return next((one for one in self.attempts if not _is_left(one)), None)

    @property
    def is_over(self) -> bool:
        current = self.current
        return current is not None and current.state.is_finished()

    @property
    def values(self) -> dict[str, Any]:
        """Return the parameters that some attempt has fixed; empty if none has."""
        return next((dict(one.params) for one in self.attempts if one.params), {})

    @property
    def reports(self) -> dict[int, float]:
        """Return what all attempts have reported, by step."""
        return {step: v for one in self.attempts for step, v in one.intermediate_values.items()}


@dataclass(frozen=True)
class Queue:
    """A queue of entries, each with a name.

    Attributes:
        storage: one of Optuna's.
        name: of Optuna's study, the same for all workers on all machines.
        folder: the directory for the locks of claims; workers on a machine share it.
    """

    storage: BaseStorage
    name: str
    folder: Path

    def entries(self) -> dict[Name, Entry]:
        """Return what the queue holds, by name."""
        return self._entries(self._study())

    def claim(self, names: Iterable[Name]) -> Claim | None:
        """Claim the first of some entries that is to be done and that no living worker has.

        Entries that the queue does not hold are added. Use the claim as a context.

        Returns:
            The claim, or None if all entries are over or belong to other workers.

        Raises:
            InputError: the folder cannot be written to.
        """
        study, wanted = self._study(), list(names)
        entries = self._entries(study)
        for name in wanted:
            if entries.get(name, Entry()).current is None:
                self._attempt(study, name)
        entries = self._entries(study)
        for name in wanted:
            claim = self._claim(study, name, entries[name])
            if claim is not None:
                return claim
        return None

    def _claim(self, study: int, name: Name, entry: Entry) -> Claim | None:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        current = entry.current
        if current is None or current.state.is_finished():
            return None
        is_running = current.state == TrialState.RUNNING
        path = self._lock(current)
        was_here = path.exists()
        if is_running and not was_here and not _is_silent(current):
            return None  # it belongs to a worker in another directory
        lock = _locked(path)
        if lock is None:
            return None
        number = self.storage.get_trial_id_from_study_id_trial_number(study, current.number)
        try:
            if is_running:
                self.storage.set_trial_state_values(number, TrialState.FAIL)
            elif self.storage.set_trial_state_values(number, TrialState.RUNNING):
                return Claim(self.storage, number, name, entry, lock)
        except UpdateFinishedTrialError:  # another worker was quicker
            is_running = False
        _unlocked(lock)
        if not is_running:
            return None
        self._attempt(study, name)
        return self._claim(study, name, self._entries(study)[name])

    def _study(self) -> int:
        """Return the number of Optuna's study, which is made if it is not there."""
        from optuna.exceptions import DuplicatedStudyError
        from optuna.study import StudyDirection

        with suppress(KeyError):
            return self.storage.get_study_id_from_name(self.name)
        try:
            return self.storage.create_new_study([StudyDirection.MAXIMIZE], self.name)
        except DuplicatedStudyError:
            return self.storage.get_study_id_from_name(self.name)

    def _entries(self, study: int) -> dict[Name, Entry]:
        found: dict[Name, list[FrozenTrial]] = {}
        trials = self.storage.get_all_trials(study, deepcopy=False)
        for one in sorted(trials, key=lambda one: one.number):
            name = one.user_attrs.get(_NAME)
            if isinstance(name, int | str):
                found.setdefault(name, []).append(one)
        return {name: Entry(tuple(attempts)) for name, attempts in found.items()}

    def _attempt(self, study: int, name: Name) -> None:
        from optuna.trial import TrialState, create_trial

        waiting = create_trial(state=TrialState.WAITING, user_attrs={_NAME: name})
        self.storage.create_new_trial(study, waiting)

    def _lock(self, attempt: FrozenTrial) -> Path:
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:16]
        return self.folder / f".claim-{digest}-{attempt.number}.lock"


class Claim:
    """An entry that this worker does; to be used as a context.

    The worker shows signs of life within the context. An entry that is not finished at its end is
    left to other workers.

    Attributes:
        name: of the entry.
        values: the parameters that an earlier attempt has fixed.
        reports: what earlier attempts have reported, by step.
    """

    def __init__(
        self, storage: BaseStorage, number: int, name: Name, entry: Entry, lock: BaseFileLock
    ) -> None:
        self.name = name
        self.values = entry.values
        self.reports: dict[int, float] = {}
        self._storage = storage
        self._number = number
        self._lock = lock
        self._is_finished = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._show_life, daemon=True)
        self._note("alive", time.time())
        for step, value in entry.reports.items():
            self.report(step, value)

    def fix(self, values: Mapping[str, Any], ranges: Mapping[str, BaseDistribution]) -> None:
        """Fix the parameters of the run, for this attempt and those that may follow it."""
        self.values = dict(values)
        for name, one in ranges.items():
            with suppress(_finished()):
                internal = one.to_internal_repr(values[name])
                self._storage.set_trial_param(self._number, name, internal, one)

    def report(self, step: int, value: float) -> None:
        """Report a value on the way."""
        self.reports[step] = value
        with suppress(_finished()):
            self._storage.set_trial_intermediate_value(self._number, step, value)

    def complete(self, value: float, run: str) -> None:
        """Finish the entry with what the run came to."""
        from optuna.trial import TrialState

        self._finish(TrialState.COMPLETE, value, run=run)

    def prune(self, run: str) -> None:
        """Finish the entry with a run that was ended early, with its last report."""
        from optuna.trial import TrialState

        last = self.reports[max(self.reports)] if self.reports else None
        self._finish(TrialState.PRUNED, last, run=run)

    def diverge(self, reason: str, run: str) -> None:
        """Finish the entry with a run that diverged."""
        from optuna.trial import TrialState

        self._finish(TrialState.FAIL, None, run=run, reason=reason)

    def _finish(self, state: TrialState, value: float | None, **facts: str) -> None:
        for name, fact in facts.items():
            self._note(name, fact)
        with suppress(_finished()):
            values = None if value is None else [value]
            self._storage.set_trial_state_values(self._number, state, values)
        self._is_finished = True

    def _note(self, name: str, value: object) -> None:
        with suppress(_finished()):  # another worker took this one for dead
            self._storage.set_trial_user_attr(self._number, name, value)

    def _show_life(self) -> None:
        while not self._is_over.wait(ALIVE_EVERY):
            with suppress(Exception):  # the storage may be away for a moment
                self._note("alive", time.time())

    def __enter__(self) -> Claim:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from optuna.trial import TrialState

        self._is_over.set()
        self._thread.join()
        if not self._is_finished:
            with suppress(
                Exception
            ):  # another worker took this one for dead, or no storage is there
                self._storage.set_trial_state_values(self._number, TrialState.FAIL)
        _unlocked(self._lock)


def _is_left(attempt: FrozenTrial) -> bool:
    """Return whether a worker left an attempt unfinished; one that failed for a reason diverged."""
    from optuna.trial import TrialState

    return attempt.state == TrialState.FAIL and "reason" not in attempt.user_attrs


def _is_silent(attempt: FrozenTrial) -> bool:
    alive = attempt.user_attrs.get("alive")
    if not isinstance(alive, int | float):  # it was killed before its first sign of life
        began = attempt.datetime_start
        alive = began.timestamp() if began is not None else 0.0
    return time.time() - alive > DEAD_AFTER


def _locked(path: Path) -> BaseFileLock | None:
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except OSError as error:
        raise InputError(
            f"cannot write to {path.parent}: {error.strerror or error}; choose another --out"
        ) from None
    return lock


def _unlocked(lock: BaseFileLock) -> None:
    with suppress(OSError):  # some systems keep a file that is open
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def _finished() -> type[Exception]:
    """Return what Optuna raises when a trial that is over is changed."""
    from optuna.exceptions import UpdateFinishedTrialError

    return UpdateFinishedTrialError
