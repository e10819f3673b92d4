"""Loss correction by a transition matrix (Patrini et al. 2017): forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from proselflc.correction.criteria import BackwardCorrection, CrossEntropy, ForwardCorrection
from proselflc.correction.criterion import Criterion
from proselflc.data.labels.class_matrix import (
    check_room_for_transition,
    checked_transition,
    read_transition,
)
from proselflc.errors import InputError, unknown
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import (
    RunContext,
    Snapshot,
    Stage,
    Strategy,
    all_probabilities,
    check_probabilities,
)
from proselflc.training.transition_estimate import ESTIMATES, invertible

# Of all epochs. A network trained longer memorises the labels, and T would be the identity.
FIRST = 0.25


def _estimate(value: str, name: str) -> str:
    if value not in ESTIMATES:
        raise ValueError(unknown(name, str(value), ESTIMATES))
    return value


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of forward and backward correction.

    Attributes:
        transition: a .npy, .npz or .csv file of the transition matrix, row = true class; estimated
            if omitted.
        estimate: the way to estimate it: "percentile", "anchor" or "confident".
    """

    transition: Path | None = None
    estimate: str = checked("percentile", _estimate)


class LossCorrection(Strategy):
    """Cross entropy until T can be estimated, then a fresh network with the corrected loss.

    With T given there is one stage. The backward correction inverts T, so an ill-conditioned
    estimate is mixed with the identity; see `transition_estimate.invertible`. Its loss has no lower
    bound: a network that can fit single examples drives it towards −∞, so the forward correction is
    better wherever labels can be memorised.

    Args:
        backward: whether the loss is Σ_j (T⁻¹)_yj (−log p_j) instead of −log (Tᵀp)_y.
        transition: [C, C] T, row = true class; None to estimate it.
        estimate: a name in `ESTIMATES`.
    """

    T: Tensor

    def __init__(
        self,
        context: RunContext,
        *,
        backward: bool,
        transition: Tensor | None = None,
        estimate: str = "percentile",
    ) -> None:
        if transition is not None and not backward:
            _check_possible(transition, context)
        # T, its copy in the criterion, in checkpoints and in a step; an inverse needs float64.
        n = 0 if transition is not None else context.num_examples
        check_probabilities(n, context.num_classes, 80 if backward else 40)
        corrected: Callable[[Tensor], Criterion]
        corrected = BackwardCorrection if backward else ForwardCorrection
        super().__init__(CrossEntropy() if transition is None else corrected(transition.float()))
        self.corrected, self.backward, self.estimate = corrected, backward, estimate
        self.is_given = transition is not None
        self.names = context.names
        if transition is None:
            self.stages = (
                Stage("cross entropy, to estimate T", FIRST),
                Stage("corrected loss", 1 - FIRST, fresh=True),
            )
            self.processes = 1
        T = torch.eye(context.num_classes) if transition is None else transition.float()
        self.register_buffer("T", T)

    def arrange(self, stage: int, model: nn.Module) -> None:
        if stage > 0:
            self.criterion = self.corrected(self.T)

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        if stage == 0:
            return
        given = torch.from_numpy(snapshot.given)
        T, notes = ESTIMATES[self.estimate](all_probabilities(snapshot), given, self.names)
        if self.backward:
            T, more = invertible(T)
            notes += more
        for note in notes:
            snapshot.note(note)
        self.T.copy_(T)
        self.criterion = self.corrected(self.T)

    def transition(self) -> Tensor | None:
        return self.T

    def facts(self) -> dict[str, object]:
        return {"transition": "given" if self.is_given else f"estimated by {self.estimate}"}


def _check_possible(T: Tensor, context: RunContext) -> None:
    """Refuse a matrix that rules out a label in the data, whose loss would be infinite."""
    there = torch.bincount(torch.from_numpy(context.given), minlength=len(T))
    wrong = (there > 0) & (T == 0).all(0)
    if bool(wrong.any()):
        k = int(wrong.nonzero()[0])
        raise InputError(
            f"{int(there[k]):,} examples are labelled {context.names[k]}, but its column of the "
            "transition matrix is zero",
            field="method.transition",
            fix="mix some identity into the matrix",
        )


def _strategy(p: Parameters, context: RunContext, *, backward: bool) -> Strategy:
    T = None
    if p.transition is not None:
        check_room_for_transition(context.num_classes)
        matrix = read_transition(p.transition)
        try:
            T = torch.from_numpy(checked_transition(matrix, context.num_classes))
        except InputError as error:
            raise InputError(
                f"{p.transition}: {error.reason}", field="method.transition", fix=error.fix
            ) from None
    return LossCorrection(context, backward=backward, transition=T, estimate=p.estimate)


FORWARD = Method(
    title="Forward correction",
    loss="−log (Tᵀp)_y",
    where="Table 4",
    when="When you know which classes are confused and can give the matrix; an estimated one "
    "helped on digits and harmed on photos.",
    parameters=Parameters,
    grid={"estimate": ("percentile", "anchor", "confident")},
    strategy=partial(_strategy, backward=False),
    criterion="ForwardCorrection",
)
BACKWARD = Method(
    title="Backward correction",
    loss="Σ_j (T⁻¹)_yj (−log p_j)",
    where="beside Forward",
    when="To compare with forward correction, and for nothing else: its loss has no lower bound, "
    "and it was the worst here.",
    parameters=Parameters,
    grid={"estimate": ("percentile", "anchor", "confident")},
    strategy=partial(_strategy, backward=True),
    criterion="BackwardCorrection",
)
