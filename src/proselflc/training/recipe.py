"""The training recipe, everything the paper fixes before it compares methods: its optimiser too.

Nothing here imports torch until an optimiser is made, so that the command line can show options.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from proselflc.errors import InputError, invalid_option
from proselflc.options import Whole, check_least, make_plain
from proselflc.wording import option

if TYPE_CHECKING:
    import torch
    from torch import nn

Precision: TypeAlias = Literal["no", "bf16", "fp16"]
Schedule: TypeAlias = Literal["multistep", "poly", "cosine", "constant"]
LARGEST = 1e30  # of a rate: what a step makes of it must fit into float32
EPOCHS = 30  # the default length of training

# The factor of the learning rate by t/Γ.
SCHEDULES: dict[Schedule, Callable[[float], float]] = {
    # The paper's for CIFAR-100: 1, 1/10 from 1/2 of training, 1/100 from 22/30.
    "multistep": lambda done: 1.0 if done < 1 / 2 else 0.1 if done < 22 / 30 else 0.01,
    "poly": lambda done: (1 - done) ** 2,  # the paper's for ImageNet and Clothing1M
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda done: 1.0,
}


def factor(schedule: Schedule, step: int, total: int, warmup: int = 0) -> float:
    """Return the factor of the learning rate at a step.

    The schedule is a function of t/Γ with t completed steps. During the first `warmup` steps its
    value is also multiplied by (t + 1)/warmup, so that the last of them has the full rate.
    """
    value = SCHEDULES[schedule](step / total)
    return value * (step + 1) / warmup if step < warmup else value


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        epochs: number of passes over the training data (default: 30).
        steps: number of optimiser steps, instead of epochs.
        batch_size: examples per optimiser step, summed over all processes (default: 128, or fewer
            for small data).
        optimizer: optimiser (the default depends on the model).
        lr: learning rate (the default depends on the model).
        momentum: momentum of SGD.
        weight_decay: weight decay (the default depends on the model).
        schedule: learning rate schedule; multistep is the paper's for CIFAR-100 (÷10 at 1/2 and
            22/30 of training), poly its schedule for ImageNet and Clothing1M (power 2).
        warmup: number of steps over which the learning rate rises linearly at the start.
        precision: mixed precision; the loss is always computed in float32.
        accumulate: number of parts that a batch is split into to save memory.
        clip: maximum norm of the gradient (default: unlimited).
        ema: decay of a moving average of the weights, such as 0.999; the average is evaluated and
            saved instead of the last weights.
        channels_last: store images in channels-last order, which speeds up convolutions on many
            devices.
        compile: use torch.compile, which needs a C++ compiler.
        deterministic: use only deterministic algorithms, even if they are slower.
        seed: seed of initialisation, data order, augmentation, dropout and noise.
    """

    epochs: Whole | None = None
    steps: Whole | None = None
    batch_size: Whole | None = None
    optimizer: Literal["sgd", "adamw"] | None = None
    lr: float | None = None
    momentum: float = 0.9
    weight_decay: float | None = None
    schedule: Schedule = "multistep"
    warmup: Whole = 0
    precision: Precision = "no"
    accumulate: Whole = 1
    clip: float | None = None
    ema: float | None = None
    channels_last: bool = False
    compile: bool = False
    deterministic: bool = False
    seed: Whole = 0

    def __post_init__(self) -> None:
        make_plain(self)
        if self.epochs is not None and self.steps is not None:
            raise InputError(
                f"both {self.epochs} epochs and {self.steps} steps were asked for",
                field="steps",
                fix=f"give one of {option('epochs')} and {option('steps')}",
            )
        least = {"epochs": 1, "steps": 1, "batch_size": 1, "warmup": 0, "accumulate": 1, "seed": 0}
        check_least(self, least)
        for name in ("lr", "clip"):
            self._check(name, lambda x: 0 < x < math.inf, "a positive number")
        self._check("weight_decay", lambda x: 0 <= x < math.inf, "0 or a positive number")
        for name in ("lr", "clip", "weight_decay"):
            self._check(name, lambda x: x <= LARGEST, f"at most {LARGEST:g}")
        if (self.lr or 0) * (self.weight_decay or 0) > LARGEST:
            raise invalid_option(
                "lr",
                f"times {option('weight_decay')} must be at most {LARGEST:g}, got {self.lr:g} "
                f"times {self.weight_decay:g}",
                fix="lower one of them",
            )
        self._check_name("optimizer", ("sgd", "adamw", None))
        self._check_name("schedule", get_args(Schedule))
        for name in ("momentum", "ema"):
            self._check(name, lambda x: 0 <= x < 1, "at least 0 and below 1")
        if self.batch_size is not None and self.accumulate > self.batch_size:
            raise InputError(
                f"a batch of {self.batch_size} cannot be split into {self.accumulate} parts",
                field="accumulate",
                fix=f"lower {option('accumulate')} or raise {option('batch_size')}",
            )

    def _check(self, name: str, fits: Callable[[float], bool], what: str) -> None:
        value = getattr(self, name)
        if value is not None and not (isinstance(value, Real) and fits(float(value))):
            raise invalid_option(name, f"must be {what}, got {value!r}")

    def _check_name(self, name: str, known: Sequence[str | None]) -> None:
        """Refuse an unknown name, which the command line has refused before."""
        value = getattr(self, name)
        if value not in known:
            names = ", ".join(choice for choice in known if choice is not None)
            raise invalid_option(name, f"must be one of {names}, got {value!r}")

    def total_steps(self, batches: int) -> int:
        """Return Γ for the number of batches per epoch."""
        return self.steps if self.steps is not None else (self.epochs or EPOCHS) * batches

    def make_optimizer(
        self, parameters: list[nn.Parameter], of_strategy: list[nn.Parameter]
    ) -> torch.optim.Optimizer:
        """Return the optimiser of the model's parameters and the strategy's, which do not decay."""
        from torch.optim import SGD, AdamW

        assert self.lr is not None
        assert self.weight_decay is not None
        groups: list[dict[str, Any]] = [{"params": parameters}]
        if of_strategy:
            groups.append({"params": of_strategy, "weight_decay": 0.0})
        if self.optimizer == "adamw":
            return AdamW(groups, lr=self.lr, weight_decay=self.weight_decay)
        return SGD(groups, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
