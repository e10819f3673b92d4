"""What a command shows in a terminal, and how a signal stops it.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from proselflc.errors import printable

if TYPE_CHECKING:
    from proselflc.training.loop import Training


PATIENCE = 0.5  # seconds that a step may take after a stop was asked for
TURN = 10.0  # seconds in which the first process of a machine says an error that all have
_AGAIN = 0.1  # seconds until what may not be interrupted is asked again


def is_main() -> bool:
    """Return whether this is the first of the processes that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Write a line that is not a result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_notes(notes: Iterable[str]) -> None:
    """Write notes, a line each."""
    for note in notes:
        say(f"note: {printable(note)}")


def complain(text: str, *, is_of_all: bool = False) -> None:
    """Write an error, in one line.

    Once on every machine, since an error may occur on one of them alone. `is_of_all` says that the
    first process of the machine is likely to have the same error. A launcher ends all processes as
    soon as one has ended, so the others leave it the time to say so; one that is not ended then is
    the only one with the error.
    """
    if os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) != "0":
        if not is_of_all or "TORCHELASTIC_RUN_ID" not in os.environ:
            return
        time.sleep(TURN)
    sys.stderr.write(printable(" ".join(text.split())) + "\n")


def print_json(value: object) -> None:
    """Print a result as JSON."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a result as a table of aligned columns."""
    sys.stdout.write("".join(f"{line}\n" for line in aligned((heading, *rows))))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of aligned columns.

    >>> aligned([("class", "3"), ("id", "12")])
    ['class  3', 'id     12']
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


class Display:
    """Shows notes and nothing else; subclasses show the progress of training too, or nothing."""

    def __init__(self) -> None:
        self._stage: str | None = None

    def note(self, text: str) -> None:
        """Show a note, which is a sentence."""
        sys.stderr.write(f"note: {printable(text)}\n")

    def begin(self, titles: Sequence[str], step: int, total: int, what: str = "training") -> None:
        """Begin to show a work of `total` steps, of which `step` are done."""

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        """Show the number of steps done, and numbers by their short names."""

    def point(self, line: Mapping[str, Any]) -> None:
        """Show an evaluation, which is a line of the history."""

    def end(self) -> None:
        """End the display of a training; another one may follow."""
        self._stage = None

    def _describe(self, line: Mapping[str, Any]) -> str:
        """Describe a line of the history, with its stage if that is new."""
        before, self._stage = self._stage, line.get("stage")
        return describe_line(line if self._stage != before else {**line, "stage": None})


class Silent(Display):
    """Shows nothing."""

    def note(self, text: str) -> None:
        pass


class Lines(Display):
    """Writes a line per evaluation, for files and pipes."""

    def begin(self, titles: Sequence[str], step: int, total: int, what: str = "training") -> None:
        for title in titles:
            sys.stderr.write(f"{printable(title)}\n")
        if step:
            sys.stderr.write(f"resuming after step {step} of {total}\n")

    def point(self, line: Mapping[str, Any]) -> None:
        sys.stderr.write(self._describe(line) + "\n")
        sys.stderr.flush()


class Terminal(Display):
    """Shows a progress bar, and a line per evaluation above it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            console=Console(file=stream or sys.stderr, highlight=False),
            transient=True,
        )
        self._task: Any = None

    def note(self, text: str) -> None:
        self._print(f"note: {printable(text)}")

    def begin(self, titles: Sequence[str], step: int, total: int, what: str = "training") -> None:
        for title in titles:
            self._print(printable(title))
        self._progress.start()
        self._task = self._progress.add_task(what, total=total, completed=step, numbers="")

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        words = "  ".join(f"{name} {_number(name, value)}" for name, value in numbers.items())
        self._progress.update(self._task, completed=step, numbers=words)

    def point(self, line: Mapping[str, Any]) -> None:
        self._print(self._describe(line))

    def end(self) -> None:
        super().end()
        self._progress.stop()
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None

    def _print(self, text: str) -> None:
        self._progress.console.print(text, markup=False, soft_wrap=True)


def chosen(quiet: bool) -> Display:
    """Return the display that suits stderr; `quiet` leaves errors and notes only."""
    if quiet:
        return Display()
    return Terminal() if sys.stderr.isatty() else Lines()


@contextmanager
def showing(display: Display) -> Iterator[Display]:
    """End a display when the block ends, with or without an error."""
    try:
        yield display
    finally:
        display.end()


def describe_line(line: Mapping[str, Any]) -> str:
    """Describe a line of the history in words; what is unknown is left out."""
    names = {
        "train_loss": "loss",
        "train_accuracy": "fits given",
        "wrong_fitting": "fits wrong",
        "semantic_correction": "corrected",
        "val_accuracy": "validation",
        "test_accuracy": "test",
        "g": "g",
        "epsilon": "ε",
        "images_per_second": "examples/s",
    }
    words = [f"epoch {round(line['epoch'], 2):g}", f"step {line['step']}"]
    if line.get("stage") is not None:
        words.append(f"stage {printable(line['stage'])}")
    words += [
        f"{word} {_number(word, line[name])}"
        for name, word in names.items()
        if line.get(name) is not None
    ]
    return "  ".join(words)


def _number(name: str, value: float) -> str:
    if name == "examples/s":
        return f"{value:,.0f}"
    if name in ("loss", "g", "ε"):
        return f"{value:.3f}"
    return f"{value:.1%}" if name not in ("epoch", "step", "round") else f"{value:g}"


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run: `where`, as a clause, and advice on how to resume it."""

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


@contextmanager
def stop_signals(training: Training, is_saving: Callable[[], bool] | None = None) -> Iterator[None]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP request a stop; the second acts as usual.

    What has not stopped after `PATIENCE` is interrupted by a KeyboardInterrupt, unless `is_saving`
    is true at that moment, or is None.

    A process that a launcher started goes on to the step: batch systems signal all processes of a
    job, and the launcher then passes the signal on once more. It also kills those that stay.
    """
    has_launcher = os.environ.get("WORLD_SIZE", "1") != "1"
    # Windows has no timer, so that the stop comes when the step ends.
    no_timer = is_saving is None or has_launcher
    alarm = None if no_timer else getattr(signal, "SIGALRM", None)

    def ask(number: int, frame: object) -> None:
        training.wants_stop = training.is_interrupted = True
        if not has_launcher:
            signal.signal(number, before[number])
        if alarm is not None:
            before[alarm] = signal.signal(alarm, interrupt)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE, _AGAIN)

    def interrupt(number: int, frame: object) -> None:
        assert is_saving is not None
        if not is_saving():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    numbers: tuple[int, ...] = (signal.SIGINT, *ending_signals())
    before = {number: signal.getsignal(number) for number in numbers}
    with handling(numbers, ask):
        try:
            yield
        finally:
            if alarm in before:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(alarm, before[alarm])


def stopping_on_signals() -> AbstractContextManager[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    return handling(ending_signals(), stop)


@contextmanager
def handling(numbers: Iterable[int], handler: Any) -> Iterator[None]:
    """Handle some signals within the context; only the main thread can."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
