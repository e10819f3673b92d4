"""The outcome of a command on a damaged file."""

from __future__ import annotations

import contextlib
import io
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "refused", "noted", "correct", "accepted", "different", "traceback", "hang", "escaped"
]
FAILURES: tuple[Kind, ...] = ("different", "traceback", "hang", "escaped")
SECONDS = 30  # that a command may take
MEMORY = 3 << 30  # bytes that it may take beyond what the process has


class Hang(BaseException):
    """A command exceeded its time limit."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code, or None where it raised.
        result: what it printed or wrote, as far as that can be compared.
        said: the lines of stderr.
        error: the traceback, or what else went wrong.
        hung: whether it was ended because it took too long.
    """

    code: int | None
    result: str
    said: tuple[str, ...]
    error: str = ""
    hung: bool = False


def ended(action: Callable[[io.TextIOWrapper], tuple[int, str]]) -> Ended:
    """Run a command with limits on its time and memory.

    Args:
        action: is given what stands for stdout; returns an exit code and a result.
    """
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    stderr = io.StringIO()
    code, result, error, hung = None, "", "", False
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        _bounds(),
    ):
        warnings.simplefilter("always")
        try:
            code, result = action(stdout)
        except Hang:
            error, hung = traceback.format_exc(), True
        except BaseException:
            error = traceback.format_exc()
    # A warning of Python's would reach the user as lines of source code.
    said = [
        *stderr.getvalue().splitlines(),
        *(f"{one.category.__name__}: {one.message}" for one in warned),
    ]
    return Ended(code, result, tuple(said), error, hung)


def judged(found: Ended, expected: Ended, checked: str | None) -> tuple[Kind, str]:
    """Return the kind of an outcome, and a description of what is wrong with it.

    Args:
        found: with the damaged file.
        expected: without damage.
        checked: the name of the file if a checksum of it is kept. A note then counts only if it
            names the file, or if the result is right all the same.
    """
    if found.hung:
        return "hang", found.error
    text = "\n".join(found.said)
    if found.code is None or "Traceback (most recent call last)" in text or "Warning: " in text:
        return "traceback", found.error or text
    new = [line for line in found.said if line not in expected.said]
    notes = [line for line in new if line.startswith("note: ")]
    if found.code != 0:
        others = len(new) - len(notes)
        if others == 1:
            return "refused", text
        return "traceback", f"exit code {found.code} with {others} sentences: {text[:2000]}"
    is_right = found.result == expected.result
    if notes and (is_right or checked is None or any(checked in line for line in notes)):
        return "noted", text
    if is_right:
        return "correct", ""
    return ("different" if checked else "accepted"), _difference(found.result, expected.result)


def _difference(found: str, expected: str) -> str:
    lines = zip(found.splitlines(), expected.splitlines(), strict=False)
    return next(
        (f"{one[:200]} instead of {two[:200]}" for one, two in lines if one != two), "length"
    )


@contextlib.contextmanager
def _bounds() -> Iterator[None]:
    """Limit time and memory within a block."""

    ticks = 0

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal ticks
        ticks += 1  # one at most for all the time that this process was stopped
        if ticks >= SECONDS:
            raise Hang(f"longer than {SECONDS} seconds")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGALRM, ring)
    began = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, 1, 1)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # of an outer time limit of this process
            rest = max(0.001, left - (time.monotonic() - began))
            signal.setitimer(signal.ITIMER_REAL, rest, interval)
