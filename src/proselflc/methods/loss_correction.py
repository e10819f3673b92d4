"""Loss correction by a transition matrix (Patrini et al. 2017): forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from proselflc.correction.criteria import BackwardCorrection, CrossEntropy, ForwardCorrection
from proselflc.correction.criterion import Criterion
from proselflc.errors import InputError, unknown
from proselflc.training.strategy import Scene, Situation, Stage, Strategy, all_probabilities
from proselflc.training.transition_estimate import ESTIMATES, invertible

# Of all epochs. A network that goes on learns the labels by heart, and T would be the identity.
FIRST = 0.25


class LossCorrection(Strategy):
    """Cross entropy until T can be estimated, then a fresh network with the corrected loss.

    With T given there is one stage. The backward correction inverts T, so an estimate that can
    hardly be inverted is mixed with the identity; see `transition_estimate.invertible`. Its loss
    has no lower bound: a network that can fit single examples makes it as negative as it likes, so
    the forward correction is the better one wherever labels can be learned by heart.

    Args:
        situation: of the run.
        backward: whether the loss is Σ_j (T⁻¹)_yj (−log p_j) instead of −log (Tᵀp)_y.
        transition: [C, C] T, row = true class; None to estimate it.
        estimate: how, a name in `ESTIMATES`.

    Raises:
        InputError: there is no such estimate, or T rules out labels that are given.
    """

    T: Tensor

    def __init__(
        self,
        situation: Situation,
        *,
        backward: bool,
        transition: Tensor | None = None,
        estimate: str = "percentile",
    ) -> None:
        if estimate not in ESTIMATES:
            raise InputError(unknown("--method.estimate", estimate, ESTIMATES))
        if transition is not None and not backward:
            _check_possible(transition, situation)
        corrected: Callable[[Tensor], Criterion]
        corrected = BackwardCorrection if backward else ForwardCorrection
        super().__init__(CrossEntropy() if transition is None else corrected(transition.float()))
        self.corrected, self.backward, self.estimate = corrected, backward, estimate
        self.is_given = transition is not None
        self.names = situation.names
        if transition is None:
            self.stages = (
                Stage("cross entropy, to estimate T", FIRST),
                Stage("corrected loss", 1 - FIRST, fresh=True),
            )
            self.processes = 1
        T = torch.eye(situation.num_classes) if transition is None else transition.float()
        self.register_buffer("T", T)

    def arrange(self, stage: int, model: nn.Module) -> None:
        if stage > 0:
            self.criterion = self.corrected(self.T)

    def enter(self, stage: int, scene: Scene) -> None:
        if stage == 0:
            return
        given = torch.from_numpy(scene.given)
        T, notes = ESTIMATES[self.estimate](all_probabilities(scene), given, self.names)
        if self.backward:
            T, more = invertible(T)
            notes += more
        for note in notes:
            scene.note(note)
        self.T.copy_(T)
        self.criterion = self.corrected(self.T)

    def transition(self) -> Tensor | None:
        return self.T

    def facts(self) -> dict[str, object]:
        return {"transition": "given" if self.is_given else f"estimated by {self.estimate}"}


def _check_possible(T: Tensor, situation: Situation) -> None:
    """Refuse a matrix by which labels cannot be that are there: their loss would be infinite."""
    there = torch.bincount(torch.from_numpy(situation.given), minlength=len(T))
    wrong = (there > 0) & (T == 0).all(0)
    if bool(wrong.any()):
        k = int(wrong.nonzero()[0])
        raise InputError(
            f"the transition matrix says that nothing is ever labelled {situation.names[k]}, its "
            f"column is zero, but {int(there[k]):,} examples are: mix some identity into it"
        )
