"""Robust losses outside the algebra: same evidence in, same [N] losses out; they teach q.

`Forward` and `Backward` correct the loss by a transition matrix T_ij = P(given = j | clean = i)
(Patrini et al. 2017).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proselflc.correction.evidence import Evidence, cross_entropy
from proselflc.correction.parameter import log_of_zero, loss_weight, power

EXACT = 2**24  # largest [N, C, C] that is made, 64 MiB of float32


class _UncorrectedLabels:
    """A loss that corrects no labels: its target is q [N, C], its trust 0 [N]."""

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        return e.q, torch.zeros_like(e.logits[:, 0])


@dataclass(frozen=True)
class Generalized(_UncorrectedLabels):
    """L_q = (1 − p_y^q)/q; for probabilities Σ_j q_j (1 − p_j^q)/q (Zhang & Sabuncu 2018).

    q → 0 is cross entropy, q = 1 the mean absolute error 1 − p_y.
    """

    q: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", power(self.q, "q"))

    def losses(self, e: Evidence) -> Tensor:
        # expm1 keeps the digits that 1 − p^q loses when q is small.
        return e.expect(lambda log_p: -torch.expm1(self.q * log_p) / self.q)


@dataclass(frozen=True)
class Symmetric(_UncorrectedLabels):
    """α H(q, p) + β RCE with RCE = −Σ_j p_j log q_j and log 0 := A (Wang et al. 2019).

    For a class id RCE is −A (1 − p_y). For probabilities log q_j is bounded below by A, which is
    what clipping q at exp(A) does.
    """

    alpha: float
    beta: float
    A: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", loss_weight("H(q, p)")(self.alpha, "alpha"))
        object.__setattr__(self, "beta", loss_weight("H(p, q)")(self.beta, "beta"))
        object.__setattr__(self, "A", log_of_zero(self.A, "A"))

    def losses(self, e: Evidence) -> Tensor:
        if e.has_class_ids:
            reverse = e.expect(lambda log_p: self.A * torch.expm1(log_p))
        else:
            reverse = -e.omega * (e.p * e.target.log().clamp(min=self.A)).sum(-1)
        return self.alpha * e.expect(lambda log_p: -log_p) + self.beta * reverse


class Forward(_UncorrectedLabels, nn.Module):
    """−log (Tᵀp)_y; for probabilities Σ_j q_j (−log (Tᵀp)_j)."""

    transition: Tensor  # [C, C]

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        self.register_buffer("transition", checked_transition(transition))

    def losses(self, e: Evidence) -> Tensor:
        T = _fitting(self.transition, e)
        # Bounded, so that a label that T rules out has a finite gradient where it cannot be seen.
        log_T = T.log().clamp(min=torch.finfo(T.dtype).min)
        if e.has_class_ids:
            self._check_possible(e)
            # Σ_i p_i T_iy by logsumexp over one column per example: exact where p underflows.
            return -e.omega * torch.logsumexp(e.log_p + log_T.T[e.y], -1)
        if len(e.logits) * e.num_classes**2 <= EXACT:
            log_noisy = torch.logsumexp(e.log_p.unsqueeze(2) + log_T, 1)  # [N, C]
        else:
            # A matrix product is all one can afford: exact until p_j/max p underflows.
            top = e.log_p.detach().max(-1, keepdim=True).values
            scaled = _product((e.log_p - top).exp(), T)
            log_noisy = scaled.clamp(min=torch.finfo(scaled.dtype).tiny).log() + top
        return -(e.weighted_q * log_noisy).sum(-1)

    def _check_possible(self, e: Evidence) -> None:
        """Refuse a label whose column of T is zero, if looking does not wait for the device."""
        if torch.compiler.is_compiling() or not (e.target.is_cpu and self.transition.is_cpu):
            return
        never = (self.transition == 0).all(0)
        wrong = never[e.y] & e.valid
        if bool(wrong.any()):
            raise ValueError(
                f"class {int(e.target[wrong][0])} is given as a label, but its column of "
                "transition is zero, so it never is: correct transition, or the label"
            )


class Backward(_UncorrectedLabels, nn.Module):
    """Σ_j (T⁻¹)_yj (−log p_j); for probabilities the same, averaged over q."""

    inverse: Tensor  # [C, C]

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        T = checked_transition(transition)
        exact = T.cpu().double()  # not every device has float64
        if float(torch.linalg.cond(exact)) > 1e12:
            raise ValueError(
                "transition is singular to working precision, so it cannot be inverted: use the "
                "forward correction, or mix some identity into transition"
            )
        self.register_buffer("inverse", torch.linalg.inv(exact).to(T))

    def losses(self, e: Evidence) -> Tensor:
        inverse = _fitting(self.inverse, e)
        if e.has_class_ids:
            return e.omega * cross_entropy(inverse[e.y], e.log_p)
        return cross_entropy(_product(e.weighted_q, inverse), e.log_p)


def checked_transition(transition: Tensor) -> Tensor:
    """Return a floating-point copy of T; refuse one whose rows are not distributions."""
    if not isinstance(transition, Tensor):
        raise TypeError(f"transition must be a torch.Tensor, got {type(transition).__name__}")
    if transition.dim() != 2 or transition.shape[0] != transition.shape[1]:
        raise ValueError(
            f"transition must be square, [C, C] with row = clean class, "
            f"got {list(transition.shape)}"
        )
    dtype = torch.float64 if transition.dtype == torch.float64 else torch.float32
    T = transition.detach().to(dtype, copy=True)
    rows = T.sum(1)
    if not bool((T >= 0).all()) or not bool(((rows - 1).abs() <= 1e-3).all()):
        worst = int((rows - 1).abs().nan_to_num(torch.inf).argmax())
        raise ValueError(
            f"each row of transition must be ≥ 0 and sum to 1: P(given | clean class). Row {worst} "
            f"sums to {float(rows[worst]):.4g} and the smallest entry is {float(T.min()):.4g}; "
            "transpose it if its columns are the clean classes"
        )
    return T


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return rows @ matrix in their own precision, also under autocast."""
    with torch.autocast(rows.device.type, enabled=False):
        return rows @ matrix


def _fitting(matrix: Tensor, e: Evidence) -> Tensor:
    """Return a matrix like the logits; refuse one for another number of classes."""
    if len(matrix) != e.num_classes:
        raise ValueError(
            f"transition is for {len(matrix)} classes, but the logits have {e.num_classes}"
        )
    return matrix.to(e.logits)
