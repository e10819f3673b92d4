"""How much a prediction is trusted over its annotation: ε in [0, 1].

A trust is a constant for backprop; `Target` detaches it. Trusts multiply: ProSelfLC's is
`Growth(sharpness) * Confidence()`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import halfway, number, share_of_target, steepness
from proselflc.errors import unknown


class Trust(ABC):
    """ε of every example of a batch."""

    @property
    @abstractmethod
    def symbol(self) -> str:
        """How the paper writes it."""

    @abstractmethod
    def __call__(self, e: Evidence) -> Tensor | float:
        """ε: [N] for each example its own, or a number (or 0-d tensor) that is everybody's."""

    def __mul__(self, other: Trust) -> Trust:
        return Product(self, other)


@dataclass(frozen=True)
class Fixed(Trust):
    """The same trust for every example at all times."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", share_of_target(self.epsilon, "epsilon"))

    @property
    def symbol(self) -> str:
        return "ε"

    def __call__(self, e: Evidence) -> float:
        return self.epsilon


@dataclass(frozen=True)
class Growth(Trust):
    """Global trust g(t) = 1 / (1 + exp(−B (t/Γ − m))): in the learner, by training time.

    Args:
        sharpness: B ≥ 0, how abruptly trust rises; 0 is ½ throughout.
        midpoint: m, the share of training after which trust is ½; the paper's is 0.5 (its
            published code calls it the transit time ratio).
    """

    sharpness: float
    midpoint: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "sharpness", steepness(self.sharpness, "sharpness"))
        object.__setattr__(self, "midpoint", halfway(self.midpoint, "midpoint"))

    @property
    def symbol(self) -> str:
        return "g(t)"

    def at(self, progress: float) -> float:
        """g at one moment, t/Γ = progress."""
        x = self.sharpness * (progress - self.midpoint)
        # Two forms of one function, because exp() of a large number overflows.
        return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))

    def __call__(self, e: Evidence) -> Tensor | float:
        if type(e.progress) is float and not torch.compiler.is_compiling():
            return self.at(e.progress)
        if e.progress is None:
            raise ValueError(
                "this trust grows with training time, and nobody said how far training is: "
                "give total_steps to the criterion, or progress= to the call"
            )
        # Added to a tensor, not made into one: that would compile anew for every progress.
        progress = e.logits.new_zeros(()) + e.progress
        return torch.sigmoid(self.sharpness * (progress - self.midpoint))


@dataclass(frozen=True)
class Ramp(Trust):
    """ε(t) = ε_f (t/Γ − T1)/(T2 − T1), held within [0, ε_f]: by training time, in a straight line.

    Args:
        epsilon: ε_f, the trust from T2 on.
        begin: T1, the share of training at which trust begins to rise from 0.
        end: T2, the share at which it has risen; equal to T1 it rises at once, just after T1.
    """

    epsilon: float
    begin: float
    end: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", Fixed(self.epsilon).epsilon)
        for name in ("begin", "end"):
            what = "it is a share of training, between whose two the weight of predictions rises"
            value = number(
                getattr(self, name), name, "between 0 and 1", what, fits=lambda x: 0 <= x <= 1
            )
            object.__setattr__(self, name, value)
        if self.begin > self.end:
            raise ValueError(
                f"begin must not be after end, got {self.begin} and {self.end}: they are the "
                "shares of training between which the weight of predictions rises"
            )

    @property
    def symbol(self) -> str:
        return "ε(t)"

    def at(self, progress: float) -> float:
        """ε at one moment, t/Γ = progress."""
        if progress <= self.begin:
            return 0.0
        if progress >= self.end:
            return self.epsilon
        return self.epsilon * (progress - self.begin) / (self.end - self.begin)

    def __call__(self, e: Evidence) -> Tensor | float:
        if type(e.progress) is float and not torch.compiler.is_compiling():
            return self.at(e.progress)
        if e.progress is None:
            raise ValueError(
                "this trust rises with training time, and nobody said how far training is: "
                "give total_steps to the criterion, or progress= to the call"
            )
        progress = e.logits.new_zeros(()) + e.progress  # as `Growth` does
        width = max(self.end - self.begin, 1e-12)
        return self.epsilon * ((progress - self.begin) / width).clamp(0, 1)


@dataclass(frozen=True)
class Confidence(Trust):
    """Local trust l(p) = 1 − H(p)/H(u), clamped to [0, 1]: in one prediction, by its entropy."""

    @property
    def symbol(self) -> str:
        return "l(p)"

    def __call__(self, e: Evidence) -> Tensor:
        # Rounding can push l(u) below 0. One class is certain whatever happens: l = 1.
        scale = 1 / max(math.log(e.num_classes), 1e-12)
        return torch.rsub(e.entropy, 1, alpha=scale).clamp(0, 1)


@dataclass(frozen=True)
class MaxProbability(Trust):
    """Local trust max_j p_j: in one prediction, by its largest probability."""

    @property
    def symbol(self) -> str:
        return "max p"

    def __call__(self, e: Evidence) -> Tensor:
        return e.p.max(-1).values


@dataclass(frozen=True)
class Sharpened(Trust):
    """Another trust, looking at p_T = softmax(z/T) instead of p."""

    trust: Trust
    temperature: float

    @property
    def symbol(self) -> str:
        return self.trust.symbol.replace("p", "p_T")

    def __call__(self, e: Evidence) -> Tensor | float:
        return self.trust(e.with_logits(e.logits.detach() / self.temperature))


@dataclass(frozen=True)
class Product(Trust):
    """ε = first · second."""

    first: Trust
    second: Trust

    @property
    def symbol(self) -> str:
        return f"{self.first.symbol}·{self.second.symbol}"

    def __call__(self, e: Evidence) -> Tensor | float:
        return self.first(e) * self.second(e)


def named(trust: str | Trust, sharpness: float, midpoint: float) -> Trust:
    """The trust that a name stands for in the paper's ablation; a trust object is itself.

    Args:
        trust: "global*local" (the paper's), "global", "local", "global*max_p", or an object.
        sharpness: B of the global part.
        midpoint: m of the global part.
    """
    if isinstance(trust, Trust):
        return trust
    growth = Growth(sharpness, midpoint)
    known: dict[str, Trust] = {
        "global": growth,
        "local": Confidence(),
        "global*local": growth * Confidence(),
        "global*max_p": growth * MaxProbability(),
    }
    if not isinstance(trust, str):
        raise TypeError(
            f"trust must be a name or a Trust, got {type(trust).__name__}; "
            f"names: {', '.join(known)}"
        )
    if trust not in known:
        raise ValueError(unknown("trust", trust, known))
    return known[trust]


def global_part(trust: Trust) -> Growth | None:
    """The g(t) that a trust is made of, or None: local and fixed trusts do not look at time.

    >>> global_part(Growth(8.0) * Confidence())
    Growth(sharpness=8.0, midpoint=0.5)
    """
    if isinstance(trust, Growth):
        return trust
    if isinstance(trust, Product):
        return global_part(trust.first) or global_part(trust.second)
    return global_part(trust.trust) if isinstance(trust, Sharpened) else None
