"""Ctrl-C, SIGTERM and SIGHUP stop a run after the step under way, with its state saved."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

from proselflc.training.loop import Training


class Interrupted(KeyboardInterrupt):
    """The user stopped the run; its state is saved. The message says how to go on.

    Args:
        where: it was stopped.
        advice: how to go on, as the rest of the sentence.
    """

    def __init__(self, where: str, advice: str = "") -> None:
        super().__init__(f"{where}, {advice}" if advice else where)
        self.where = where


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a program: SIGTERM, and SIGHUP when its terminal is closed.

    SIGHUP is left out where it is ignored, as it is under `nohup`, and where a system has none.
    """
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return signal.SIGTERM, hangup


@contextlib.contextmanager
def stop_signals(training: Training) -> Iterator[None]:
    """Have the first Ctrl-C, SIGTERM or SIGHUP ask for a stop; the second is as always."""

    def ask(number: int, frame: object) -> None:
        training.wants_stop = True
        signal.signal(number, before[number])

    before: dict[int, Any] = {}
    try:
        for one in (signal.SIGINT, *ending_signals()):
            before[one] = signal.signal(one, ask)
    except ValueError:  # not in the main thread, where signals do not come
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
