"""The display of training: a progress bar in a terminal, lines elsewhere.

Everything goes to stderr; stdout is for results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from proselflc.errors import printable


class Display(Protocol):
    """Shows how training goes."""

    def note(self, text: str) -> None:
        """Show a note, which is a sentence."""

    def begin(self, titles: Sequence[str], step: int, total: int) -> None:
        """Begin to show a training of `total` steps, of which `step` are done."""

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        """Show the number of steps done, and numbers by their short names."""

    def point(self, line: Mapping[str, Any]) -> None:
        """Show an evaluation, which is a line of the history."""

    def end(self) -> None:
        """End the display of a training."""


class Silent:
    """Shows notes, if they are wanted, and nothing else."""

    def __init__(self, notes: bool = True) -> None:
        self.notes = notes
        self._stage: str | None = None

    def note(self, text: str) -> None:
        if self.notes:
            sys.stderr.write(f"note: {printable(text)}\n")

    def begin(self, titles: Sequence[str], step: int, total: int) -> None:
        pass

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        pass

    def point(self, line: Mapping[str, Any]) -> None:
        pass

    def end(self) -> None:
        self._stage = None  # another training may follow

    def _describe(self, line: Mapping[str, Any]) -> str:
        """Describe a line of the history, with its stage if that is new."""
        before, self._stage = self._stage, line.get("stage")
        return describe_line(line if self._stage != before else {**line, "stage": None})


class Lines(Silent):
    """Writes a line per evaluation, for files and pipes."""

    def begin(self, titles: Sequence[str], step: int, total: int) -> None:
        for title in titles:
            sys.stderr.write(f"{printable(title)}\n")
        if step:
            sys.stderr.write(f"resuming after step {step} of {total}\n")

    def point(self, line: Mapping[str, Any]) -> None:
        sys.stderr.write(self._describe(line) + "\n")
        sys.stderr.flush()


class Terminal(Silent):
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

    def begin(self, titles: Sequence[str], step: int, total: int) -> None:
        for title in titles:
            self._print(printable(title))
        self._progress.start()
        self._task = self._progress.add_task("training", total=total, completed=step, numbers="")

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        words = "  ".join(f"{name} {_number(name, value)}" for name, value in numbers.items())
        self._progress.update(self._task, completed=step, numbers=words)

    def point(self, line: Mapping[str, Any]) -> None:
        self._print(self._describe(line))

    def end(self) -> None:
        super().end()
        self._progress.stop()
        if self._task is not None:  # another training may follow
            self._progress.remove_task(self._task)
            self._task = None

    def _print(self, text: str) -> None:
        self._progress.console.print(text, markup=False, soft_wrap=True)


def chosen(quiet: bool) -> Display:
    """Return the display that suits stderr; `quiet` leaves errors and notes only."""
    if quiet:
        return Silent()
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
    return f"{value:.1%}" if name not in ("epoch", "step") else f"{value:g}"
