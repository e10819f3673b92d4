"""Robust losses outside the algebra: same evidence in, same [N] losses out; they teach q."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import number


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
        what = "near 0 the loss is cross entropy, at 1 the mean absolute error"
        q = number(self.q, "q", "above 0 and at most 1", what, fits=lambda x: 0 < x <= 1)
        object.__setattr__(self, "q", q)

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
        for name, factor, of in (
            ("alpha", self.alpha, "H(q, p)"),
            ("beta", self.beta, "H(p, q)"),
        ):
            what = f"it is the factor of {of}"
            checked = number(factor, name, "≥ 0 and finite", what, fits=lambda x: 0 <= x < math.inf)
            object.__setattr__(self, name, checked)
        what = "it stands for log 0, −4 in the paper"
        A = number(self.A, "A", "below 0 and finite", what, fits=lambda x: -math.inf < x < 0)
        object.__setattr__(self, "A", A)

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        return annotation(e)

    def losses(self, e: Evidence) -> Tensor:
        if e.has_class_ids:
            reverse = e.expect(lambda log_p: self.A * torch.expm1(log_p))
        else:
            reverse = -e.omega * (e.p * e.target.log().clamp(min=self.A)).sum(-1)
        return self.alpha * e.expect(lambda log_p: -log_p) + self.beta * reverse
