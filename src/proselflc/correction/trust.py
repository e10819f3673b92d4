"""How much a prediction is trusted instead of its annotation: ε in [0, 1].

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
from proselflc.correction.parameter import (
    MIDPOINT,
    halfway,
    one_of,
    share_of_target,
    share_of_training,
    steepness,
)


class Trust(ABC):
    """ε of every example of a batch."""

    @property
    @abstractmethod
    def symbol(self) -> str:
        """Return the letters of the paper for it."""

    @abstractmethod
    def __call__(self, e: Evidence) -> Tensor | float:
        """Return ε: [N], one per example, or a number (or 0-d tensor) for all of them."""

    def __mul__(self, other: Trust) -> Trust:
        return Product(self, other)


@dataclass(frozen=True)
class Fixed(Trust):
    """The same trust for every example at all times."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", share_of_target(self.epsilon, "epsilon"))

    symbol = "ε"

    def __call__(self, e: Evidence) -> float:
        return self.epsilon


@dataclass(frozen=True)
class Growth(Trust):
    """Global trust g(t) = 1 / (1 + exp(−B (t/Γ − m))) in the learner, by training time.

    Args:
        sharpness: B ≥ 0, how abruptly trust rises; 0 is ½ throughout.
        midpoint: m, the share of training after which trust is ½; 0.5 in the paper, whose code
            calls it the transit time ratio.
    """

    sharpness: float
    midpoint: float = MIDPOINT

    def __post_init__(self) -> None:
        object.__setattr__(self, "sharpness", steepness(self.sharpness, "sharpness"))
        object.__setattr__(self, "midpoint", halfway(self.midpoint, "midpoint"))

    symbol = "g(t)"

    def at(self, progress: float) -> float:
        """Return g at t/Γ = progress."""
        x = self.sharpness * (progress - self.midpoint)
        # Two forms of one function, because exp() of a large number overflows.
        return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))

    def __call__(self, e: Evidence) -> Tensor | float:
        if type(e.progress) is float and not torch.compiler.is_compiling():
            return self.at(e.progress)
        return torch.sigmoid(self.sharpness * (_progress(e) - self.midpoint))


@dataclass(frozen=True)
class Ramp(Trust):
    """ε(t) = ε_f (t/Γ − T1)/(T2 − T1), clamped to [0, ε_f]: by training time, linearly.

    Args:
        epsilon: ε_f, the trust from T2 on.
        begin: T1, the share of training at which trust begins to rise from 0.
        end: T2, the share at which it has risen; if equal to T1, trust jumps just after T1.
    """

    epsilon: float
    begin: float
    end: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", share_of_target(self.epsilon, "epsilon"))
        object.__setattr__(self, "begin", share_of_training(self.begin, "begin"))
        object.__setattr__(self, "end", share_of_training(self.end, "end"))
        if self.begin > self.end:
            raise ValueError(
                f"begin must not be after end, got {self.begin} and {self.end}: they are the "
                "shares of training between which the weight of predictions rises"
            )

    symbol = "ε(t)"

    def at(self, progress: float) -> float:
        """Return ε at t/Γ = progress."""
        if progress <= self.begin:
            return 0.0
        if progress >= self.end:
            return self.epsilon
        return self.epsilon * (progress - self.begin) / (self.end - self.begin)

    def __call__(self, e: Evidence) -> Tensor | float:
        if type(e.progress) is float and not torch.compiler.is_compiling():
            return self.at(e.progress)
        width = max(self.end - self.begin, 1e-12)
        return self.epsilon * ((_progress(e) - self.begin) / width).clamp(0, 1)


@dataclass(frozen=True)
class Confidence(Trust):
    """Local trust l(p) = 1 − H(p)/H(u), clamped to [0, 1], in one prediction by its entropy."""

    symbol = "l(p)"

    def __call__(self, e: Evidence) -> Tensor:
        # Rounding can push l(u) below 0. One class is certain whatever happens: l = 1.
        scale = 1 / max(math.log(e.num_classes), 1e-12)
        return torch.rsub(e.entropy, 1, alpha=scale).clamp(0, 1)


@dataclass(frozen=True)
class MaxProbability(Trust):
    """Local trust max_j p_j in one prediction, by its largest probability."""

    symbol = "max p"

    def __call__(self, e: Evidence) -> Tensor:
        return e.p.max(-1).values


@dataclass(frozen=True)
class Sharpened(Trust):
    """Another trust, computed from p_T = softmax(z/T) instead of p."""

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


def _progress(e: Evidence) -> Tensor:
    """Return t/Γ as a 0-d tensor; refuse evidence that does not have it."""
    if e.progress is None:
        raise ValueError(
            "this trust depends on the progress of training, which is unknown: pass total_steps to "
            "the criterion or progress= to the call"
        )
    # Added to a tensor, not made into one: that would recompile for every progress.
    return e.logits.new_zeros(()) + e.progress


def named(trust: str | Trust, sharpness: float, midpoint: float) -> Trust:
    """Return the trust of a name in the paper's ablation, with B and m of its global part.

    A trust object is returned as it is.
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
    return known[one_of(known)(trust, "trust")]


def global_part(trust: Trust) -> Growth | None:
    """Return the g(t) in a trust, or None: local and fixed trusts do not depend on time.

    >>> global_part(Growth(8.0) * Confidence())
    Growth(sharpness=8.0, midpoint=0.5)
    """
    if isinstance(trust, Growth):
        return trust
    if isinstance(trust, Product):
        return global_part(trust.first) or global_part(trust.second)
    return global_part(trust.trust) if isinstance(trust, Sharpened) else None
