"""How a remembered row changes when a new prediction of its example arrives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from proselflc.correction.parameter import kept_share


class MemoryRule(ABC):
    """Combines a remembered row m with a new prediction p; k counts the updates of a row so far."""

    begins_at_label: ClassVar[bool] = False  # whether m₀ is the given one-hot instead of 0
    averages: ClassVar[bool] = True  # whether m depends on more than one prediction

    @abstractmethod
    def updated(self, old: Tensor, p: Tensor, count: Tensor) -> Tensor:
        """Return the new rows [N, C] from the old ones, predictions [N, C] and k [N]."""


@dataclass(frozen=True)
class _Exponential(MemoryRule):
    """The rules that keep a share of the old row.

    Attributes:
        momentum: β, the share of the old row that an update keeps.
    """

    momentum: float = field(default=0.9)

    def __post_init__(self) -> None:
        object.__setattr__(self, "momentum", kept_share(self.momentum, "momentum"))

    def updated(self, old: Tensor, p: Tensor, count: Tensor) -> Tensor:
        return self.momentum * old + (1 - self.momentum) * p


class ExponentialAverage(_Exponential):
    """m ← β m + (1 − β) p; the first prediction is taken whole."""

    def updated(self, old: Tensor, p: Tensor, count: Tensor) -> Tensor:
        return torch.where((count > 0)[:, None], super().updated(old, p, count), p)


class AverageFromZero(_Exponential):
    """m ← β m + (1 − β) p from m₀ = 0, so that a row sums to 1 − βᵏ after k predictions: ELR."""


class AverageFromLabel(_Exponential):
    """m ← β m + (1 − β) p from m₀ = the given one-hot: self-adaptive training."""

    begins_at_label = True


class BiasCorrectedAverage(_Exponential):
    """The average from zero, divided by 1 − βᵏ: m ← m + (p − m)(1 − β)/(1 − βᵏ⁺¹).

    Early predictions weigh as much as their age says; the first is no more than one of two.
    """

    def updated(self, old: Tensor, p: Tensor, count: Tensor) -> Tensor:
        gain = (1 - self.momentum) / (1 - self.momentum ** (count[:, None] + 1).to(old.dtype))
        return (1 - gain) * old + gain * p


@dataclass(frozen=True)
class RunningMean(MemoryRule):
    """m ← m + (p − m)/(k + 1), the mean of all predictions since the memory was restarted.

    Attributes:
        span: the largest k + 1, so that older predictions fade; None for a mean of all.
    """

    span: int | None = None

    def updated(self, old: Tensor, p: Tensor, count: Tensor) -> Tensor:
        weight = (count[:, None] + 1).clamp(min=1, max=self.span)
        gain = 1 / weight.to(old.dtype)
        return (1 - gain) * old + gain * p


@dataclass(frozen=True)
class LastValue(MemoryRule):
    """m ← p."""

    averages = False

    def updated(self, old: Tensor, p: Tensor, count: Tensor) -> Tensor:
        return p


@dataclass(frozen=True)
class LabelThenLast(LastValue):
    """m ← p from m₀ = the given one-hot: labels that are replaced."""

    begins_at_label = True
