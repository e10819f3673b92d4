"""Worker processes on this machine for a queue of runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.connection import wait
from typing import Any

from proselflc.errors import InputError
from proselflc.terminal import ending_signals
from proselflc.wording import is_command_line, on_command_line

GRACE = 30.0  # seconds for a process to save its state and end


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
            with _handling([signal.SIGINT], signal.SIG_IGN):
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


def stopping_on_signals() -> AbstractContextManager[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    return _handling(ending_signals(), stop)


@contextmanager
def _handling(numbers: Iterable[signal.Signals], handler: Any) -> Iterator[None]:
    """Handle some signals within the context; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
