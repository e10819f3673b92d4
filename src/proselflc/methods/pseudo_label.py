"""Pseudo-Label (Lee 2013): trusted examples teach, and the others learn their own prediction.

Without trusted examples there is `pseudo_label_ramped` in the catalogue, an adaptation of ours: one
target whose trust in argmax p rises with time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from proselflc.correction.criterion import Criterion
from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import factor
from proselflc.correction.reference import HardPrediction
from proselflc.correction.target import Target
from proselflc.correction.trust import Ramp, Trust
from proselflc.data.batches import Batch
from proselflc.errors import InputError
from proselflc.training.strategy import Situation, Strategy


@dataclass(frozen=True)
class Unlabelled(Trust):
    """ε = 1 where the annotation names no class, and 0 where it names one for certain."""

    @property
    def symbol(self) -> str:
        return "1 if unlabelled"

    def __call__(self, e: Evidence) -> Tensor:
        return (e.q.amax(-1) < 1).to(e.logits.dtype)


class PseudoLabel(Strategy):
    """Trusted examples are labelled, and of all others the label is not looked at.

    The loss is the mean over trusted examples of H(q, p), and α(t) times the mean over the others
    of −log max_j p_j, whose target onehot(argmax p) is a constant. α rises in a straight line from
    0 at T1 to α_f at T2. The publication draws labelled and unlabelled batches apart; here a batch
    has both, and an example of it counts by what one of its kind is of the whole, so that

        (n/n_l) Σ_{labelled} H(q, p)/N + α(t) (n/n_u) Σ_{unlabelled} −log max_j p_j / N

    is expected to be that loss, however the batch is cut into parts.

    The publication has T1 = 100 and T2 = 600 epochs and does not say out of how many; they are read
    as shares of 1,000.

    Args:
        situation: of the run, which has trusted examples.
        weight: α_f.
        begin: T1, a share of training.
        end: T2, a share of training.

    Raises:
        InputError: there are no trusted examples, or no others.
    """

    trusted: Tensor

    def __init__(self, situation: Situation, *, weight: float, begin: float, end: float) -> None:
        super().__init__(Criterion(Target(HardPrediction(), Unlabelled()), reduction="none"))
        trusted = situation.trusted
        if trusted is None:
            raise InputError(
                "method pseudo_label learns from the labels of trusted examples alone, and none "
                "were named: give --trusted with a share such as 0.1, a folder or a file, or take "
                "--method pseudo_label_ramped, which needs none"
            )
        n, labelled = len(trusted), int(trusted.sum())
        if labelled == n:
            raise InputError(
                "method pseudo_label found nothing but trusted examples: it needs others too, "
                "so lower --trusted"
            )
        self.weight = factor(weight, "alpha", "examples without a trusted label at the end")
        self.ramp = Ramp(1.0, begin, end)
        self.shares = n / labelled, n / (n - labelled)
        self.num_classes = situation.num_classes
        self.register_buffer("trusted", torch.from_numpy(trusted))

    def targets(self, batch: Batch) -> Tensor:
        """One-hot where the label is trusted, uniform where it says nothing."""
        q = F.one_hot(batch.y, self.num_classes).float()
        return torch.where(self.trusted[batch.index, None], q, 1 / self.num_classes)

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        labelled, unlabelled = self.shares
        alpha = self.weight * self.ramp.at(progress)
        weights = torch.where(self.trusted[batch.index], labelled, alpha * unlabelled)
        return (weights * super().loss(logits, batch, progress)).mean()
