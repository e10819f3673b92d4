"""More processes on this machine for work that is taken run by run: a search, a reproduction."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from proselflc.errors import InputError
from proselflc.terminal.interruption import ending_signals

GRACE = 30.0  # seconds for a process to save its state and end
T = TypeVar("T")


@contextmanager
def helping(work: Callable[[T], None], task: T, jobs: int) -> Iterator[None]:
    """Have jobs − 1 more processes do the same work meanwhile, with one thread each, as this one.

    They end with this process, whatever ends it, and save the state of the runs at hand. When this
    process is done, it waits for them.

    Args:
        work: what each does, a function of a module; SIGTERM reaches it as KeyboardInterrupt. What
            InputError says this process is to meet as well: it is not told again.
        task: what it is called with; must be possible to send.
        jobs: how many processes there are to be, with this one.
    """
    if jobs == 1:
        yield
        return
    from proselflc.data.batches import one_thread

    context = multiprocessing.get_context("spawn")
    started: list[Any] = []
    try:
        with one_thread():
            with _ignoring_interrupts():  # as they then do: this process tells them to stop
                for k in range(1, jobs):
                    process = context.Process(target=_help, args=(work, task, _device(k)))
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


def _help(work: Callable[[T], None], task: T, device: str | None) -> None:
    """What one more process does."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    try:
        with stopping_on_signals():
            work(task)
    except KeyboardInterrupt:
        sys.exit(130)
    except InputError:
        sys.exit(2)


def _end_with_parent() -> None:
    """Ask this process to stop when the one that has started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end what is under way as Ctrl-C does."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, stop) for one in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
