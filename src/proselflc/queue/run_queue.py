"""One queue of runs for searches and reproductions, kept by Optuna's storages.

An entry of the queue is a run that is to be done once. A worker claims it by adding an attempt, one
of Optuna's trials, and owns the entry if no earlier attempt is alive. Storages number the trials
in order, so all workers agree on which is the first: in a journal file, in a database and behind
Optuna's gRPC proxy. A worker that was killed leaves a running trial behind. The next worker fails
that trial and adds another attempt, which keeps the values and reports of the last.

A worker is known to be dead in two ways. In the same directory, the lock of its claim is free: the
system releases it. Elsewhere, its last heartbeat is older than `DEAD_AFTER` seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from proselflc.errors import InputError
from proselflc.files.regular import file_lock
from proselflc.terminal import handling, stopping_on_signals
from proselflc.wording import is_command_line, on_command_line, option

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

ALIVE_EVERY = 20.0  # seconds between two heartbeats of a worker
DEAD_AFTER = 300.0  # seconds without one, after which a worker on another machine is dead
GRACE = 30.0  # seconds for a worker process to save its state and end
_NAME = "place"  # the attribute that names a trial's entry, as version 0.1.0 called it
_TOKEN = re.compile(r"[0-9a-f]{16}")

Name: TypeAlias = int | str


@dataclass(frozen=True)
class Entry:
    """A run that is to be done once: Optuna's trials for it, the oldest first."""

    attempts: tuple[FrozenTrial, ...] = ()

    @property
    def current(self) -> FrozenTrial | None:
        """Return the attempt that counts, the first that was not released; None without one."""
        return next((one for one in self.attempts if not _is_released(one)), None)

    @property
    def is_over(self) -> bool:
        current = self.current
        return current is not None and current.state.is_finished()

    @property
    def fixed(self) -> FrozenTrial | None:
        """Return an attempt whose parameters are fixed; None without one."""
        return next((one for one in self.attempts if one.params), None)

    @property
    def values(self) -> dict[str, Any]:
        """Return the parameters that an attempt has fixed; empty without one."""
        return {} if self.fixed is None else dict(self.fixed.params)


@dataclass(frozen=True)
class Queue:
    """A queue of entries, each with a name."""

    storage: BaseStorage
    name: str  # of Optuna's study, the same for all workers on all machines
    folder: Path  # for the locks of claims, which workers on a machine share

    def entries(self) -> dict[Name, Entry]:
        """Return the entries that some worker has claimed, by name."""
        return self._entries(self._study())

    def claim(self, names: Iterable[Name]) -> Claim | None:
        """Claim the first of some entries that is not over and that no living worker has, if any.

        Use the claim as a context.
        """
        study = self._study()
        entries = self._entries(study)
        for name in names:
            entry = entries.get(name, Entry())
            if entry.is_over or self._is_claimed(study, entry.current):
                continue
            claim = self._attempt(study, name, entry)
            if claim is not None:
                return claim
            entries = self._entries(study)
        return None

    def _attempt(self, study: int, name: Name, entry: Entry) -> Claim | None:
        """Add an attempt; return None if another worker's was earlier."""
        from optuna.trial import TrialState, create_trial

        token = secrets.token_hex(8)
        lock = _try_lock(self._lock(token))
        assert lock is not None
        running = create_trial(
            state=TrialState.RUNNING,
            params=entry.values,
            distributions={} if entry.fixed is None else entry.fixed.distributions,
            user_attrs={_NAME: name, "claim": token, "alive": time.time()},
            intermediate_values={
                step: value
                for one in entry.attempts
                for step, value in one.intermediate_values.items()
            },
        )
        trial = self.storage.create_new_trial(study, running)
        first = self._entries(study)[name].current
        if first is not None and first.user_attrs.get("claim") == token:
            return Claim(self.storage, trial, name, running, lock)
        _release(self.storage, trial)
        _unlock(lock)
        return None

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
        from optuna.trial import TrialState

        found: dict[Name, list[FrozenTrial]] = {}
        trials = self.storage.get_all_trials(study, deepcopy=False)
        for one in sorted(trials, key=lambda one: one.number):
            name = one.user_attrs.get(_NAME)
            # Version 0.1.0 added all entries as waiting trials.
            if isinstance(name, int | str) and one.state != TrialState.WAITING:
                found.setdefault(name, []).append(one)
        return {name: Entry(tuple(attempts)) for name, attempts in found.items()}

    def _is_claimed(self, study: int, attempt: FrozenTrial | None) -> bool:
        """Return whether the worker of an attempt is alive; release the attempt of a dead one."""
        if attempt is None:
            return False
        token, alive = (attempt.user_attrs.get(name) for name in ("claim", "alive"))
        lock = None
        if isinstance(token, str) and _TOKEN.fullmatch(token) and self._lock(token).exists():
            lock = _try_lock(self._lock(token))
            if lock is None:
                return True
        elif isinstance(alive, int | float) and time.time() - alive < DEAD_AFTER:
            return True
        trial = self.storage.get_trial_id_from_study_id_trial_number(study, attempt.number)
        _release(self.storage, trial)
        if lock is not None:
            _unlock(lock)
        return False

    def _lock(self, token: str) -> Path:
        return self.folder / f".claim-{token}.lock"


class Claim:
    """An entry that this worker does; to be used as a context.

    The worker sends heartbeats within the context. An entry that is not finished at its end is
    released to other workers.
    """

    def __init__(
        self, storage: BaseStorage, trial: int, name: Name, start: FrozenTrial, lock: BaseFileLock
    ) -> None:
        self.name = name
        self.values = dict(start.params)  # fixed by an earlier attempt
        self.reports = dict(start.intermediate_values)  # by step, also of earlier attempts
        self._storage = storage
        self._trial = trial
        self._lock = lock
        self._is_finished = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, daemon=True)

    def fix(self, values: Mapping[str, Any], ranges: Mapping[str, BaseDistribution]) -> None:
        """Fix the parameters of the run, for this attempt and those that may follow it."""
        for name, one in ranges.items():
            with suppress(_finished()):
                internal = one.to_internal_repr(values[name])
                self._storage.set_trial_param(self._trial, name, internal, one)
        self.values = dict(values)

    def report(self, step: int, value: float) -> None:
        """Report an intermediate value."""
        self.reports[step] = value
        with suppress(_finished()):
            self._storage.set_trial_intermediate_value(self._trial, step, value)

    def complete(self, value: float, run: str) -> None:
        """Finish the entry with the value of its run."""
        self._finish("COMPLETE", value, run=run)

    def prune(self, run: str) -> None:
        """Finish the entry with a run that was ended early, and its last report."""
        last = self.reports[max(self.reports)] if self.reports else None
        self._finish("PRUNED", last, run=run)

    def diverge(self, reason: str, run: str) -> None:
        """Finish the entry with a run that diverged."""
        self._finish("FAIL", None, run=run, reason=reason)

    def _finish(self, state: str, value: float | None, **facts: str) -> None:
        from optuna.trial import TrialState

        for name, fact in facts.items():
            self._note(name, fact)
        with suppress(_finished()):
            values = None if value is None else [value]
            self._storage.set_trial_state_values(self._trial, TrialState[state], values)
        self._is_finished = True

    def _note(self, name: str, value: object) -> None:
        with suppress(_finished()):  # another worker declared this one dead
            self._storage.set_trial_user_attr(self._trial, name, value)

    def _send_heartbeats(self) -> None:
        while not self._is_over.wait(ALIVE_EVERY):
            with suppress(Exception):  # the storage may be unreachable for a moment
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
        self._is_over.set()
        self._thread.join()
        if not self._is_finished:
            with suppress(Exception):  # the storage may be unreachable
                _release(self._storage, self._trial)
        _unlock(self._lock)


def _is_released(attempt: FrozenTrial) -> bool:
    """Return whether an attempt was released; one that failed for a reason diverged."""
    from optuna.trial import TrialState

    return attempt.state == TrialState.FAIL and "reason" not in attempt.user_attrs


def _release(storage: BaseStorage, trial: int) -> None:
    """Mark an attempt as released, unless it is over."""
    from optuna.trial import TrialState

    with suppress(_finished()):
        storage.set_trial_state_values(trial, TrialState.FAIL)


def _try_lock(path: Path) -> BaseFileLock | None:
    """Return a lock that this process has now, or None if another process has it."""
    from filelock import Timeout

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = file_lock(path)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except OSError as error:
        raise InputError(
            f"cannot write to {path.parent}: {error.strerror or error}; choose another "
            f"{option('out')}",
            field="out",
        ) from None
    return lock


def _unlock(lock: BaseFileLock) -> None:
    with suppress(OSError):  # some systems cannot remove an open file
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def _finished() -> type[Exception]:
    """Return the exception of Optuna for changes to a finished trial."""
    from optuna.exceptions import UpdateFinishedTrialError

    return UpdateFinishedTrialError


@contextmanager
def worker_processes(work: Callable[[], None], jobs: int) -> Iterator[None]:
    """Run jobs − 1 more processes that do the same work as this one, with one thread each.

    They end with this process, whatever ends it, and save the state of their runs. At the end of
    the context, this process waits for them. The work must be picklable. SIGTERM reaches it as
    KeyboardInterrupt, and an `InputError` ends a worker silently, because this process meets the
    same error.
    """
    if jobs == 1:
        yield
        return
    from proselflc.data.batches import one_thread

    context = multiprocessing.get_context("spawn")
    started: list[Any] = []
    try:
        with one_thread():
            # Workers inherit that interrupts are ignored; they are stopped by this process.
            with handling([signal.SIGINT], signal.SIG_IGN):
                for k in range(1, jobs):
                    process = context.Process(
                        target=_work, args=(work, _device(k), is_command_line())
                    )
                    process.start()
                    started.append(process)
            yield
            for process in started:
                process.join()
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join(GRACE)
            if process.is_alive():
                process.kill()
                process.join()


def _device(k: int) -> str | None:
    """Return the GPU of the k-th process, if there are several; the first is this process's."""
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(device) for device in range(count)]
    return names[k % count]


def _work(work: Callable[[], None], device: str | None, with_flags: bool) -> None:
    """Do the work in a worker process, and write options in messages as its parent does."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    try:
        with stopping_on_signals(), on_command_line() if with_flags else nullcontext():
            work()
    except KeyboardInterrupt:
        sys.exit(130)
    except InputError:
        sys.exit(2)


def _end_with_parent() -> None:
    """Ask this process to stop when its parent has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
