"""More processes of a search on this machine: each takes trials from the same queue."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proselflc.app.search import Part
    from proselflc.app.study import Plan
    from proselflc.app.study_directory import StudyDirectory
    from proselflc.data.dataset import Dataset

GRACE = 30.0  # seconds for a process to save its state and end


@dataclass(frozen=True)
class _Task:
    """What a process is told: all that a part of a search needs and that can be sent."""

    plan: Plan
    directory: StudyDirectory
    runs: Path
    dataset: Dataset | None
    storage: str | None
    quiet: bool


@contextmanager
def helping(part: Part, storage: str | None, jobs: int) -> Iterator[None]:
    """Have jobs − 1 more processes take trials meanwhile, with one thread each, as this one.

    They end with this process, whatever ends it, and save the state of the trials at hand. What a
    process leaves undone that is killed is done by the others.

    Args:
        part: this process's.
        storage: address of the database, or None.
        jobs: how many processes there are to be.
    """
    if jobs == 1:
        yield
        return
    from proselflc.data.batches import one_thread

    task = _Task(part.plan, part.directory, part.runs, part.dataset, storage, part.quiet)
    context = multiprocessing.get_context("spawn")
    started: list[Any] = []
    try:
        with one_thread():
            with _ignoring_interrupts():  # as they then do: this process tells them to stop
                for k in range(1, jobs):
                    process = context.Process(target=_work, args=(task, _device(k)))
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


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _device(k: int) -> str | None:
    """Which GPU the k-th process sees, where there are several; the first is this process's."""
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(device) for device in range(count)]
    return names[k % count]


def _work(task: _Task, device: str | None) -> None:
    """What one more process does."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    threading.Thread(target=end_with_parent, daemon=True).start()
    import torch

    from proselflc.app import trials
    from proselflc.app.display import Silent
    from proselflc.app.search import Part, SearchError
    from proselflc.errors import InputError

    torch.set_num_threads(1)
    try:
        with trials.storage_errors(task.storage), stopping_on_signals():
            storage = trials.opened(task.directory, task.storage)
            display = Silent(notes=False)
            rest = (task.runs, display, task.dataset, task.quiet)
            Part(task.plan, task.directory, storage, *rest).take()
    except KeyboardInterrupt:
        sys.exit(130)
    except (InputError, SearchError):
        sys.exit(2)  # the process that has started this one meets it as well, and says so


def end_with_parent() -> None:
    """Ask this process to stop when the one that has started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """SIGTERM ends what is under way as Ctrl-C does."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
