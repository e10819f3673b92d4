"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

Schedule: TypeAlias = Literal["multistep", "poly", "cosine", "constant"]


def multistep(done: float) -> float:
    """Return the paper's factor for CIFAR-100: 1, 1/10 from 1/2 of training, 1/100 from 22/30."""
    return 1.0 if done < 1 / 2 else 0.1 if done < 22 / 30 else 0.01


def poly(done: float) -> float:
    """Return the paper's factor for ImageNet and Clothing1M: (1 − t/Γ)²."""
    return (1 - done) ** 2


def cosine(done: float) -> float:
    """Return ½ (1 + cos(π t/Γ))."""
    return (1 + math.cos(math.pi * done)) / 2


def constant(done: float) -> float:
    """Return 1."""
    return 1.0


SCHEDULES: dict[Schedule, Callable[[float], float]] = {
    "multistep": multistep,
    "poly": poly,
    "cosine": cosine,
    "constant": constant,
}


def factor(schedule: Schedule, step: int, total: int, warmup: int = 0) -> float:
    """Return the factor of the learning rate at a step.

    The schedule is a function of t/Γ with t completed steps. During the first `warmup` steps its
    value is also multiplied by (t + 1)/warmup, so that the last of them has the full rate.

    Args:
        schedule: a name in `SCHEDULES`.
        step: t, the number of completed steps, 0 … Γ − 1.
        total: Γ.
        warmup: steps.
    """
    value = SCHEDULES[schedule](step / total)
    return value * (step + 1) / warmup if step < warmup else value
