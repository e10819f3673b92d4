"""Joint optimisation of labels and weights (Tanaka et al. 2018): Joint-soft and Joint-hard."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.information import entropy
from proselflc.data.batches import Batch
from proselflc.training.strategy import Situation, Stage, Strategy

RING = 10  # epochs whose predictions make a label
BEGIN = 0.35  # of the first stage, when labels begin to be replaced: epoch 70 of 200
FIRST = 0.625  # of all epochs: 200 of 320


class Joint(Strategy):
    """First labels and weights are learned together, then a new network learns the labels.

    In the first stage, at a constant learning rate, the loss is

        H(ỹ, p) + α L_p + β H(p)        L_p = −Σ_j π_j log s̄_j

    with s̄ the batch's mean of p and π the classes' shares of the given labels. From 35 % of the
    stage on, every epoch replaces the labels ỹ by the mean of p over the last ten epochs, or by its
    largest class if `hard`. The second stage begins with a fresh network and learns ỹ by cross
    entropy alone.

    Args:
        situation: of the run.
        hard: whether labels are classes or distributions.
        prior_weight: α.
        entropy_weight: β.
    """

    stages = (
        Stage("labels and weights", FIRST, schedule="constant"),
        Stage("weights from scratch", 1 - FIRST, fresh=True),
    )
    processes = 1
    labels: Tensor
    ring: Tensor
    prior: Tensor

    def __init__(
        self, situation: Situation, *, hard: bool, prior_weight: float, entropy_weight: float
    ) -> None:
        super().__init__(CrossEntropy())
        n, C = situation.num_examples, situation.num_classes
        self.hard = hard
        self.prior_weight, self.entropy_weight = prior_weight, entropy_weight
        epochs = -(-situation.total_steps // situation.batches)
        self.begin = int(BEGIN * FIRST * epochs)
        self.stage = 0
        given = torch.from_numpy(situation.given)
        self.register_buffer("labels", nn.functional.one_hot(given, C).half())
        self.register_buffer("ring", torch.zeros(RING, n, C, dtype=torch.float16))
        counts = torch.bincount(given, minlength=C).float()
        self.register_buffer("prior", counts / counts.sum())

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.stage = stage

    def targets(self, batch: Batch) -> Tensor:
        return self.labels[batch.index].float()

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        if self.stage > 0:
            return None
        log_p = torch.log_softmax(logits.float(), 1)
        mean = log_p.exp().mean(0).clamp_min(1e-12)
        balance = -(self.prior * mean.log()).sum()
        return self.prior_weight * balance + self.entropy_weight * entropy(log_p).mean()

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self.stage == 0:
            self.ring[0, batch.index] = torch.softmax(logits.float(), 1).half()

    def after_epoch(self, stage: int, epoch: int) -> None:
        if stage > 0:
            return
        if epoch >= max(self.begin, 1):
            seen = self.ring[: min(epoch + 1, RING)].float().mean(0)
            if self.hard:
                seen = nn.functional.one_hot(seen.argmax(1), seen.size(1)).float()
            self.labels.copy_(seen)
        self.ring.copy_(self.ring.roll(1, 0))
