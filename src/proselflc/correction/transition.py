"""Losses corrected by a transition matrix T_ij = P(given = j | clean = i) (Patrini et al. 2017)."""

import torch
from torch import Tensor, nn

from proselflc.correction.evidence import Evidence
from proselflc.correction.information import cross_entropy
from proselflc.correction.robust import annotation

EXACT = 2**24  # largest [N, C, C] that is made, 64 MiB of float32


class Forward(nn.Module):
    """−log (Tᵀp)_y; for probabilities Σ_j q_j (−log (Tᵀp)_j).

    Args:
        transition: [C, C], row = clean class, column = given class.
    """

    transition: Tensor  # [C, C]

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        self.register_buffer("transition", checked(transition))

    def forward(self, e: Evidence) -> tuple[Tensor, Tensor]:
        return annotation(e)

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
        """Refuse a label that T says nobody ever gives; looks only where that costs no waiting."""
        if torch.compiler.is_compiling() or not (e.target.is_cpu and self.transition.is_cpu):
            return
        never = (self.transition == 0).all(0)
        wrong = never[e.y] & e.valid
        if bool(wrong.any()):
            raise ValueError(
                f"class {int(e.target[wrong][0])} is given as a label, but its column of "
                "transition is zero: according to it no class is ever labelled so"
            )


class Backward(nn.Module):
    """Σ_j (T⁻¹)_yj (−log p_j); for probabilities the same, averaged over q.

    Args:
        transition: [C, C], row = clean class, column = given class; invertible.
    """

    inverse: Tensor  # [C, C]

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        T = checked(transition)
        exact = T.cpu().double()  # not every device has float64
        if float(torch.linalg.cond(exact)) > 1e12:
            raise ValueError(
                "transition is singular to working precision, so the backward correction does not "
                "exist: use the forward one, or mix some identity into it"
            )
        self.register_buffer("inverse", torch.linalg.inv(exact).to(T))

    def forward(self, e: Evidence) -> tuple[Tensor, Tensor]:
        return annotation(e)

    def losses(self, e: Evidence) -> Tensor:
        inverse = _fitting(self.inverse, e)
        if e.has_class_ids:
            return e.omega * cross_entropy(inverse[e.y], e.log_p)
        return cross_entropy(_product(e.weighted_q, inverse), e.log_p)


def checked(transition: Tensor) -> Tensor:
    """A floating-point copy of T, if it is one: square, rows that sum to 1, nothing negative."""
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
    """rows @ matrix in their own precision, also under autocast."""
    with torch.autocast(rows.device.type, enabled=False):
        return rows @ matrix


def _fitting(matrix: Tensor, e: Evidence) -> Tensor:
    if len(matrix) != e.num_classes:
        raise ValueError(
            f"transition is for {len(matrix)} classes, but the logits have {e.num_classes}"
        )
    return matrix.to(e.logits)
