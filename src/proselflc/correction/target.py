"""What a criterion minimises: a target, which is a reference and a trust, or a loss outside.

    q̃ = (1 − ε) q ± ε r

Each reference has r itself and its cross-entropy term, its part of the loss. The term is computed
without r where making r would be wasteful. The methods of the family are a line each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Size, Tensor, nn
from torch.nn import functional as F

from proselflc.correction import boundary, parameter
from proselflc.correction.evidence import (
    Evidence,
    cross_entropy,
    expected_surprise,
    kl_divergence,
)
from proselflc.correction.trust import Fixed, Ramp, Sharpened, Trust, named

NO_TRUST = Fixed(0.0)


@runtime_checkable
class Objective(Protocol):
    """A `Target` of the algebra, or a loss outside it."""

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        """Return what is taught, q̃ [N, C] and ε [N]; outside the algebra the annotation and 0."""

    def losses(self, e: Evidence) -> Tensor:
        """Return the [N] losses of the examples, class weight included."""


class Correction(NamedTuple):
    """What a method teaches about each example.

    Attributes:
        loss: [N] its loss, class weight included, 0 where ignored.
        target: [N, C] the signed q̃; zeros where ignored.
        trust: [N] ε; 0 where ignored.
    """

    loss: Tensor
    target: Tensor
    trust: Tensor


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


@dataclass(frozen=True)
class Target:
    """q̃ = (1 − ε) q ± ε r, where r is the reference: u, p, argmax p, p_t, …; without one, q̃ = q."""

    reference: Reference | None = None
    trust: Trust = NO_TRUST
    sign: Literal[1, -1] = 1

    @property
    def formula(self) -> str:
        """Return the target in the paper's letters.

        >>> Target(Prediction(), Fixed(0.2), sign=-1).formula
        '(1 − ε) q − ε p'
        """
        if self.reference is None:
            return "q"
        return f"(1 − ε) q {'+' if self.sign > 0 else '−'} ε {self.reference.symbol}"

    @property
    def is_neutral(self) -> bool:
        """Return whether nothing is ever mixed in, so that this is cross entropy."""
        return self.reference is None or self.trust == NO_TRUST

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        """Return the corrected distribution q̃ [N, C] and the trust ε [N]."""
        trust = self._trust(e)
        if self.reference is None:
            return e.q, trust
        eps = trust[:, None]
        q_tilde = (1 - eps) * e.q + self.sign * eps * self.reference(e)
        return q_tilde if e.is_complete else torch.where(e.valid[:, None], q_tilde, 0.0), trust

    def losses(self, e: Evidence) -> Tensor:
        """Return [N] (1 − ε) H(q, p) ± ε H(r, p), which is H(q̃, p) by Proposition 1.

        With class weights w the annotation's part is Σ_j w_j q_j (−log p_j) and the reference's is
        scaled by ω = Σ_j w_j q_j. A teacher's part is a KL divergence, lower by a constant.
        """
        annotation = e.expect(lambda log_p: -log_p)
        if self.reference is None or self.is_neutral:
            return annotation
        eps = self._trust(e)
        return (1 - eps) * annotation + self.sign * eps * self.reference.term(e)

    def _trust(self, e: Evidence) -> Tensor:
        # A constant. Not no_grad(), which would leave a detached p in the evidence for the target.
        trust = torch.as_tensor(self.trust(e), dtype=e.logits.dtype, device=e.logits.device)
        trust = trust.detach().expand(len(e.logits))
        return trust if e.is_complete else torch.where(e.valid, trust, 0.0)


def checked_objective(method: Objective) -> Objective:
    """Return the objective; refuse anything else, such as the name of a method."""
    if isinstance(method, Target):
        return method
    if isinstance(method, type) or not isinstance(method, Objective):
        got = type(method).__name__ if isinstance(method, nn.Module) else repr(method)
        raise TypeError(
            f"method must be a Target, or an Objective with a method losses(evidence), got {got}: "
            "give a Target, or use a criterion by its name, such as proselflc.ProSelfLC"
        )
    return method


def correction(method: Objective, e: Evidence, shape: Size) -> Correction:
    """Return what the method teaches, in the shape of the logits that the evidence came from."""
    losses = boundary.reduce(method.losses(e), e, "none")
    q_tilde, trust = method(e)
    batch = boundary.without_classes(shape)
    if len(shape) > 2:
        q_tilde = q_tilde.reshape(*batch, shape[1]).movedim(-1, 1)
    return Correction(losses.reshape(batch), q_tilde.reshape(shape), trust.reshape(batch))


def cce() -> Target:
    return Target()


def label_smoothing(epsilon: float) -> Target:
    return Target(Uniform(), Fixed(epsilon))


def confidence_penalty(epsilon: float) -> Target:
    return Target(Prediction(), Fixed(epsilon), sign=-1)


def boot_soft(epsilon: float) -> Target:
    return Target(Prediction(), Fixed(epsilon))


def boot_hard(epsilon: float) -> Target:
    return Target(HardPrediction(), Fixed(epsilon))


def distillation(epsilon: float, temperature: float = parameter.TEMPERATURE) -> Target:
    tau = parameter.softmax_temperature(temperature, "temperature")
    return Target(Teacher(tau), Fixed(epsilon))


def pseudo_label_ramped(epsilon: float, begin: float, end: float) -> Target:
    return Target(HardPrediction(), Ramp(epsilon, begin, end))


def proselflc(
    sharpness: float = parameter.SHARPNESS,
    midpoint: float = parameter.MIDPOINT,
    trust: str | Trust = parameter.TRUST,
) -> Target:
    return Target(Prediction(), named(trust, sharpness, midpoint))


def low_temperature_proselflc(
    sharpness: float = parameter.LOW_TEMPERATURE_SHARPNESS,
    midpoint: float = parameter.MIDPOINT,
    temperature: float = parameter.LOW_TEMPERATURE,
    trust: str | Trust = parameter.LOW_TEMPERATURE_TRUST,
) -> Target:
    T = parameter.softmax_temperature(temperature, "temperature")
    return Target(SharpenedPrediction(T), Sharpened(named(trust, sharpness, midpoint), T))
