"""How fast a run goes and what its loss was, since the last evaluation point."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from proselflc.errors import InputError
from proselflc.training.fit import StepResult
from proselflc.training.observations import ROW
from proselflc.training.run_directory import Json


class Meter:
    """Sums since the last evaluation point, and the time that training took in all."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._before = 0.0  # seconds of training up to the last pause
        self._at_point = 0.0  # of these, up to the last evaluation point
        self.examples = 0
        self.loss_sum = 0.0
        self._facts = torch.full((1, len(ROW.names or ())), math.nan)  # of the last step

    @property
    def seconds(self) -> float:
        """Of training, evaluations left out."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self._before + running

    @property
    def loss(self) -> float | None:
        return self.loss_sum / self.examples if self.examples else None

    @property
    def speed(self) -> float | None:
        """Examples per second since the last evaluation point."""
        seconds = self.seconds - self._at_point
        return self.examples / seconds if seconds > 0 else None

    def add(self, lesson: StepResult) -> None:
        self.examples += lesson.size
        self.loss_sum += lesson.loss * lesson.size

    def see(self, facts: Tensor) -> None:
        """Facts [N, 7] of a step, for the display alone."""
        self._facts = facts

    def numbers(self, g: float | None) -> dict[str, float]:
        """What the display shows."""
        _, p_given, _, p_other, _, trust, _ = self._facts.unbind(1)
        result = {"loss": math.nan if self.loss is None else self.loss}
        result["fits given"] = float((p_given >= p_other).float().mean())
        if g is not None:
            result["g"] = g
        return {**result, "ε": float(trust.mean()), "examples/s": self.speed or 0.0}

    def pause(self) -> None:
        self._before, self._since = self.seconds, None

    def start(self) -> None:
        """Let the time run, at the beginning of a part of the run."""
        self._since = time.monotonic()

    def start_anew(self) -> None:
        """Begin a new count, after an evaluation."""
        self.examples, self.loss_sum = 0, 0.0
        self._at_point = self._before
        self.start()

    def facts(self) -> Json:
        return {
            "seconds": self.seconds,
            "at_point": self._at_point,
            "examples": self.examples,
            "loss_sum": self.loss_sum,
        }

    def restore(self, facts: Any) -> None:
        """Go on from what `facts` gave.

        Raises:
            InputError: it is nothing of the kind.
        """
        try:
            self._before, self._at_point = float(facts["seconds"]), float(facts["at_point"])
            self.examples, self.loss_sum = int(facts["examples"]), float(facts["loss_sum"])
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(f"the checkpoint's counts are damaged: {error!r}") from None
