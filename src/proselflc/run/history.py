"""The history of a run: one line of numbers per evaluation point, in `history.jsonl`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from proselflc.auditing.fitting import FittingPoint
from proselflc.training.loop import Observer
from proselflc.training.run_directory import Json, RunDirectory


def history_line(
    fitting: FittingPoint,
    *,
    step: int,
    epoch: float,
    seconds: float,
    images_per_second: float | None,
    progress: float | None = None,
    stage: str | None = None,
    train_loss: float | None = None,
    test_accuracy: float | None = None,
    val_accuracy: float | None = None,
    lr: float | None = None,
    g: float | None = None,
) -> Json:
    """Return a line of the history, of a trained or a recorded run.

    A new measure of the training examples is a field of `FittingPoint`, and appears here by itself.

    Args:
        fitting: measures of the training examples.
        step: number of completed steps.
        epoch: number of completed epochs, which need not be whole.
        seconds: time spent training, without evaluations.
        images_per_second: examples per second since the last line.
        progress: t/Γ of the whole run; None if Γ is unknown.
        stage: name of the stage, for a method with several.
        train_loss: mean loss since the last line.
        test_accuracy: accuracy on the test part.
        val_accuracy: accuracy on the validation part.
        lr: learning rate.
        g: g(t), for a method with a global trust.
    """
    measures = asdict(fitting)
    return {
        "step": step,
        "epoch": epoch,
        "progress": progress,
        "stage": stage,
        "train_loss": train_loss,
        "train_accuracy": measures.pop("train_accuracy"),
        "test_accuracy": test_accuracy,
        "val_accuracy": val_accuracy,
        "lr": lr,
        "g": g,
        **measures,
        "seconds": round(seconds, 3),
        "images_per_second": images_per_second,
    }


class History(Observer):
    """Keeps the lines of a run and writes `history.jsonl` after every evaluation."""

    def __init__(self, directory: RunDirectory) -> None:
        self.lines: list[Json] = []
        self._directory = directory

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        self.lines.append(dict(line))
        self._directory.write_history(self.lines)

    def content(self) -> bytes:
        """Return what `history.jsonl` holds."""
        return self._directory.history_of(self.lines)

    def read(self, step: int) -> None:
        """Take the lines up to a step from the directory."""
        lines = self._directory.read_history()
        self.lines = [line for line in lines if _whole(line.get("step")) <= step]


def best_validation(history: list[Json]) -> float | None:
    """Return the test accuracy where validation accuracy was best, at the first of equals."""
    lines = [line for line in history if line.get("val_accuracy") is not None]
    if not lines:
        return None
    best = max(lines, key=lambda line: (float(str(line["val_accuracy"])), -int(str(line["step"]))))
    accuracy = best["test_accuracy"]
    return None if accuracy is None else float(str(accuracy))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else sys.maxsize
