"""Self-adaptive training (Huang et al. 2020), SAT."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.evidence import expected_surprise
from proselflc.correction.memory_rule import AverageFromLabel
from proselflc.correction.parameter import kept_share, share_of_training
from proselflc.data.batches import Batch
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.prediction_memory import PredictionMemory
from proselflc.training.strategy import RunContext, Snapshot


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of self-adaptive training.

    Attributes:
        momentum: α, the share of an example's label that an update keeps.
        begin: the share of training before labels move.
    """

    momentum: float = checked(0.9, kept_share)
    begin: float = checked(0.3, share_of_training)


class SelfAdaptiveTraining(PredictionMemory):
    """Cross entropy with targets that start as the labels and follow the predictions.

        Σ_i w_i H(t_i, p_i) / Σ_i w_i        t ← α t + (1 − α) p, a constant;  w = max_j t_j

    Until a share of training is over the loss is cross entropy and t stays the given label; from
    then on t is renewed before it is used. A label that the network contradicts is first
    outweighed, because its largest t is small, and then replaced. With gradient accumulation, the
    sums are over a micro-batch.
    """

    epochs: Tensor

    def __init__(self, context: RunContext, *, momentum: float, begin: float) -> None:
        super().__init__(context, AverageFromLabel(momentum), "a label")
        self.begin = round(begin * context.epochs)
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))  # completed

    def targets(self, batch: Batch) -> Tensor:
        return self.remembered(batch) if self._moves else batch.y

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        if not self._moves:
            return super().loss(logits, batch, progress)
        log_p = torch.log_softmax(logits.float(), 1)
        t = self.renewed(logits, batch, self.prediction(logits.detach()))
        w = t.amax(1)
        # The loop weights the loss of a process by its share N_r/N of the batch.
        mass, number = self.group.total(torch.stack((w.sum(), w.new_tensor(float(len(w))))))
        loss: Tensor = (w * expected_surprise(t, log_p)).sum() / mass * (number / max(len(w), 1))
        return loss

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self._moves:
            super().after_step(logits, batch)

    @property
    def _moves(self) -> bool:
        """Return whether labels move already."""
        return int(self.epochs) >= self.begin

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        self.epochs += 1


METHOD = Method(
    title="Self-adaptive training",
    loss="Σ w H(t, p)/Σ w",
    where="later (2020)",
    entropy="rewards",
    semantic_class="annotated and remembered",
    when="Use it if training is long enough for labels to move; here it gained something on "
    "digits and nothing on photos.",
    parameters=Parameters,
    grid={"begin": (0.15, 0.3, 0.5)},
    strategy=SelfAdaptiveTraining,
    criterion="CrossEntropy",
)
