"""Robust losses outside the algebra: same evidence in, same [N] losses out; they teach q."""

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import factor, log_of_zero, power


def annotation(e: Evidence) -> tuple[Tensor, Tensor]:
    """q [N, C] and 0 [N]: the target and trust of a loss that corrects no labels."""
    return e.q, torch.zeros_like(e.logits[:, 0])


@dataclass(frozen=True)
class Generalized:
    """L_q = (1 − p_y^q)/q; for probabilities Σ_j q_j (1 − p_j^q)/q (Zhang & Sabuncu 2018).

    q → 0 is cross entropy, q = 1 the mean absolute error 1 − p_y.
    """

    q: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", power(self.q, "q"))

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        return annotation(e)

    def losses(self, e: Evidence) -> Tensor:
        # expm1 keeps the digits that 1 − p^q loses when q is small.
        return e.expect(lambda log_p: -torch.expm1(self.q * log_p) / self.q)


@dataclass(frozen=True)
class Symmetric:
    """α H(q, p) + β RCE with RCE = −Σ_j p_j log q_j and log 0 := A (Wang et al. 2019).

    For a class id RCE is −A (1 − p_y). For probabilities log q_j is bounded below by A, which is
    what clipping q at exp(A) does.
    """

    alpha: float
    beta: float
    A: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", factor(self.alpha, "alpha", "H(q, p)"))
        object.__setattr__(self, "beta", factor(self.beta, "beta", "H(p, q)"))
        object.__setattr__(self, "A", log_of_zero(self.A, "A"))

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        return annotation(e)

    def losses(self, e: Evidence) -> Tensor:
        if e.has_class_ids:
            reverse = e.expect(lambda log_p: self.A * torch.expm1(log_p))
        else:
            reverse = -e.omega * (e.p * e.target.log().clamp(min=self.A)).sum(-1)
        return self.alpha * e.expect(lambda log_p: -log_p) + self.beta * reverse
