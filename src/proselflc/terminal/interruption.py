"""Stopping a run by Ctrl-C, SIGTERM or SIGHUP, with its state saved."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

from proselflc.training.loop import Training


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run. The message says how to resume it.

    Args:
        where: where it was stopped, as a clause.
        advice: how to resume it, as the rest of the sentence.
    """

    def __init__(self, where: str, advice: str = "") -> None:
        super().__init__(f"{where}, {advice}" if advice else where)
        self.where = where


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a program: SIGTERM, and SIGHUP when its terminal is closed.

    SIGHUP is left out if it is ignored, as under `nohup`, or if the system has none.
    """
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return signal.SIGTERM, hangup


@contextlib.contextmanager
def stop_signals(training: Training) -> Iterator[None]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP request a stop; the second acts as usual."""

    def ask(number: int, frame: object) -> None:
        training.wants_stop = training.is_interrupted = True
        signal.signal(number, before[number])

    before: dict[int, Any] = {}
    try:
        for stop in (signal.SIGINT, *ending_signals()):
            before[stop] = signal.signal(stop, ask)
    except ValueError:  # signals reach the main thread alone
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
