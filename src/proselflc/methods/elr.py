"""Early-learning regularisation (Liu et al. 2020), ELR."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.evidence import Evidence
from proselflc.correction.memory_rule import AverageFromZero
from proselflc.correction.parameter import kept_share, loss_weight
from proselflc.data.batches import Batch
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.prediction_memory import PredictionMemory
from proselflc.training.strategy import RunContext

CLAMP = 1e-4


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of ELR.

    Attributes:
        momentum: β, the share of an example's average prediction that an update keeps.
        weight: λ, the weight of the regulariser.
    """

    momentum: float = checked(0.7, kept_share)
    weight: float = checked(3.0, loss_weight("the regulariser"))


class EarlyLearningRegularization(PredictionMemory):
    """Cross entropy, regularised by the network's earlier predictions for the example.

        H(q, p) + λ log(1 − ⟨t, p⟩)        t ← β t + (1 − β) p/Σ_j p_j, a constant

    with p clamped to [1e-4, 1 − 1e-4] and t of every example 0 at first.
    Where p agrees with t, the second term pulls it further there, and the gradient of a label that
    disagrees is outweighed. The loss is negative when the network agrees with itself, as intended.
    The recorded target is t/Σ_j t_j.
    """

    def __init__(self, context: RunContext, *, momentum: float, weight: float) -> None:
        super().__init__(context, AverageFromZero(momentum), "a mean prediction")
        self.weight = weight

    def prediction(self, logits: Tensor) -> Tensor:
        return _normed(_clamped(logits))

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        p = _clamped(logits)
        t = self.renewed(logits, batch, _normed(p.detach()))
        return self.weight * torch.log1p(-(t * p).sum(1)).mean()

    def taught(self, e: Evidence, batch: Batch) -> tuple[Tensor, Tensor]:
        return _normed(self.remembered(batch)), torch.zeros_like(e.entropy)


def _clamped(logits: Tensor) -> Tensor:
    return torch.softmax(logits.float(), 1).clamp(CLAMP, 1 - CLAMP)


def _normed(rows: Tensor) -> Tensor:
    return rows / rows.sum(1, keepdim=True)


METHOD = Method(
    title="ELR",
    loss="H(q, p) + λ log(1 − ⟨t, p⟩)",
    where="later (2020)",
    entropy="rewards",
    semantic_class="annotated and remembered",
    when="Use it if a network would memorise every wrong label. It was the best on digits "
    "under symmetric noise; on photos, with the published λ, it was behind cross "
    "entropy.",
    parameters=Parameters,
    grid={"momentum": (0.7, 0.9), "weight": (1.0, 3.0, 7.0)},
    strategy=EarlyLearningRegularization,
    criterion="CrossEntropy",
)
