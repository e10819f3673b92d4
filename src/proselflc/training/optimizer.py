"""The optimiser: its learning rate as a function of the step, its parameters and its state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from proselflc.errors import InputError
from proselflc.training.recipe import Recipe, Schedule


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
    """
    value = SCHEDULES[schedule](step / total)
    return value * (step + 1) / warmup if step < warmup else value


def make(
    parameters: list[nn.Parameter], of_strategy: list[nn.Parameter], recipe: Recipe
) -> torch.optim.Optimizer:
    """Return the optimiser of the model's parameters and the strategy's, which do not decay."""
    assert recipe.lr is not None
    assert recipe.weight_decay is not None
    groups: list[dict[str, Any]] = [{"params": parameters}]
    if of_strategy:
        groups.append({"params": of_strategy, "weight_decay": 0.0})
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(
        groups, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )


def tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser, by the number of a parameter and the name of a value."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def restore(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore a state that `tensors` returned; refuse one of other parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    values: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        k = int(number) if number.isdecimal() else len(parameters)
        fits = k < len(parameters) and value.shape in (torch.Size(), parameters[k].shape)
        if not fits or not value.is_floating_point():
            raise InputError(
                f"the checkpoint does not fit this optimiser: {name} has another shape or type"
            )
        values.setdefault(k, {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": values})
