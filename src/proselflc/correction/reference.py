"""What is mixed into the annotation: r, one distribution per example.

Each reference has r itself and its cross-entropy term, its part of the loss. The term is computed
without r where making r would be wasteful.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from proselflc.correction.evidence import Evidence
from proselflc.correction.information import cross_entropy, expected_surprise, kl_divergence


class Reference(ABC):
    """r of every example of a batch."""

    @property
    @abstractmethod
    def symbol(self) -> str:
        """Return the letters of the paper for it."""

    @abstractmethod
    def __call__(self, e: Evidence) -> Tensor:
        """Return the distribution r [N, C]."""

    @abstractmethod
    def term(self, e: Evidence) -> Tensor:
        """Return [N] ω·H(r, p), with ω the weight of an example."""


@dataclass(frozen=True)
class Uniform(Reference):
    """u_j = 1/C. Its term weights every class, Σ_j w_j u_j (−log p_j), like `F.cross_entropy`."""

    symbol = "u"

    def __call__(self, e: Evidence) -> Tensor:
        return torch.full_like(e.logits, 1 / e.num_classes)

    def term(self, e: Evidence) -> Tensor:
        log_p = e.log_p if e.weight is None else e.log_p * e.weight
        return torch.where(e.valid, -log_p.mean(-1), 0.0)


@dataclass(frozen=True)
class Prediction(Reference):
    """p itself, attached: the gradient flows through it. Its term is ω·H(p)."""

    symbol = "p"

    def __call__(self, e: Evidence) -> Tensor:
        return e.p

    def term(self, e: Evidence) -> Tensor:
        return e.omega * e.entropy


@dataclass(frozen=True)
class HardPrediction(Reference):
    """The one-hot of argmax p, a constant. Its term is −ω·max_j log p_j."""

    symbol = "argmax p"

    def __call__(self, e: Evidence) -> Tensor:
        return F.one_hot(e.logits.argmax(-1), e.num_classes).to(e.logits.dtype)

    def term(self, e: Evidence) -> Tensor:
        return -e.omega * e.log_p.max(-1).values


@dataclass(frozen=True)
class SharpenedPrediction(Reference):
    """p_T = softmax(z/T), a constant. With T = 1 it is the detached p, which corrects nothing."""

    temperature: float

    symbol = "p_T"

    def __call__(self, e: Evidence) -> Tensor:
        return torch.softmax(e.logits.detach() / self.temperature, -1)

    def term(self, e: Evidence) -> Tensor:
        return e.omega * expected_surprise(self(e), e.log_p)


@dataclass(frozen=True)
class Teacher(Reference):
    """p_t = softmax(z_t/τ) of another model, a constant.

    Its term is the KL form, ω·τ² KL(p_t ‖ softmax(z/τ)), summed over classes: at τ = 1 that is
    H(p_t, p) up to a constant, so the gradient is that of the target.
    """

    temperature: float = 1.0

    symbol = "p_t"

    def __call__(self, e: Evidence) -> Tensor:
        return self._log_p(e).exp()

    def _log_p(self, e: Evidence) -> Tensor:
        if e.teacher_logits is None:
            raise ValueError(
                "this method learns from a teacher, but teacher_logits is missing: pass "
                "teacher_logits=, shaped like logits"
            )
        return torch.log_softmax(e.teacher_logits.detach() / self.temperature, -1)

    def term(self, e: Evidence) -> Tensor:
        tau = self.temperature
        log_p = e.log_p if tau == 1 else torch.log_softmax(e.logits / tau, -1)
        return e.omega * tau**2 * kl_divergence(self._log_p(e), log_p)


@dataclass(frozen=True)
class RememberedPrediction(Reference):
    """The average of an example's earlier predictions, a constant, kept by `memory.Memory`."""

    symbol = "mean p"

    def __call__(self, e: Evidence) -> Tensor:
        if e.remembered is None:
            raise ValueError(
                "this method remembers predictions per example: pass memory= to the criterion, and "
                "index=, the positions of the examples in the training set, to every call"
            )
        return e.remembered.detach()

    def term(self, e: Evidence) -> Tensor:
        return e.omega * cross_entropy(self(e), e.log_p)
