"""Joint optimisation of labels and weights (Tanaka et al. 2018): Joint-soft and Joint-hard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.evidence import entropy
from proselflc.correction.parameter import loss_weight
from proselflc.data.batches import Batch
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import (
    RunContext,
    Snapshot,
    Stage,
    Strategy,
    check_memory,
    one_hot,
    spans,
)

RING = 10  # epochs whose predictions make a label
BEGIN = 0.35  # of the first stage, before labels are first replaced: epoch 70 of 200
FIRST = 0.625  # of all epochs: 200 of 320
ROWS = 4096
NUMBERS = 1 << 22


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of Joint-soft and Joint-hard.

    Attributes:
        alpha: α, the weight of the class prior.
        beta: β, the weight of the entropy of predictions.
    """

    alpha: float = checked(1.0, loss_weight("the class prior"))
    beta: float = checked(0.5, loss_weight("the entropy of predictions"))


class Joint(Strategy):
    """First labels and weights are learned together, then a new network learns the labels.

    In the first stage the loss is

        H(ỹ, p) + α L_p + β H(p)        L_p = −Σ_j π_j log s̄_j

    with s̄ the mean of p over the batch (over a micro-batch with gradient accumulation). The labels
    ỹ start as the given ones. From 35 % of the stage on, every epoch replaces them by the mean of p
    over the last ten epochs, as computed in training, or by its largest class if `hard`. The second
    stage starts from the network's initial weights and learns ỹ by cross entropy alone.

    π are the classes' shares of the given labels. The publication has balanced data and uniform π,
    which is the same there; for a rare class, uniform π would invent labels.

    The first stage has the recipe's learning rate throughout, because a high rate keeps a network
    from memorising wrong labels. The published rates, 0.03 to 0.1 for the first stage and 0.2 for
    the second, are close to the defaults of our models. The stages have the proportions of the 200
    and 120 published epochs.
    """

    stages = (
        Stage("labels and weights", FIRST, schedule="constant"),
        Stage("weights from scratch", 1 - FIRST, fresh=True),
    )
    remembers = True
    labels: Tensor
    ring: Tensor
    prior: Tensor
    epochs: Tensor

    def __init__(self, context: RunContext, *, hard: bool, alpha: float, beta: float) -> None:
        super().__init__(CrossEntropy())
        n, C = context.num_examples, context.num_classes
        check_memory(
            2 * n * C * (RING + 1),
            f"{RING} predictions and a label of {n:,} examples of {C:,} classes",
        )
        self.hard = hard
        self.alpha, self.beta = alpha, beta
        first, _ = spans(self.stages, context.total_steps, context.batches)
        self.begin = int(BEGIN * (first.steps // context.batches))
        self.stage = 0
        given = torch.from_numpy(context.given)
        self.register_buffer("labels", one_hot(given, C, torch.float16))  # ỹ, [n, C]
        self.register_buffer("ring", torch.zeros(RING, n, C, dtype=torch.float16))
        self.register_buffer("prior", torch.bincount(given, minlength=C) / n)  # π, [C]
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))  # of the first stage

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.stage = stage
        if stage > 0:
            self.ring = self.ring[:0].clone()  # not needed again

    def targets(self, batch: Batch) -> Tensor:
        return _distributions(self.labels[batch.index].float())

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        if self.stage > 0:
            return None
        log_p = torch.log_softmax(logits.float(), 1)
        balance = -(self.prior * self.group.log_mean(log_p)).sum()
        return self.alpha * balance + self.beta * entropy(log_p).mean()

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self.stage == 0:
            slot = int(self.epochs) % RING
            self.ring[slot, batch.index] = torch.softmax(logits.float(), 1).half()

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        if stage > 0:
            return
        if epoch >= self.begin:
            # Some rows at a time, for memory; the label of an example that no epoch had is kept.
            step = max(1, min(ROWS, NUMBERS // self.labels.size(1)))
            for start in range(0, len(self.labels), step):
                rows = slice(start, start + step)
                total = self.ring[:, rows].float().sum(0)
                known = total.sum(1, keepdim=True) > 0
                if self.hard:
                    total = F.one_hot(total.argmax(1), total.size(1)).float()
                self.labels[rows] = torch.where(
                    known, _distributions(total).half(), self.labels[rows]
                )
        self.epochs += 1
        self.ring[int(self.epochs) % RING] = 0  # unknown until seen in the next epoch


def _distributions(weights: Tensor) -> Tensor:
    """Return [N, C] rows that sum to 1, which half precision alone does not ensure."""
    return weights / weights.sum(1, keepdim=True).clamp_min(1e-6)


SOFT = Method(
    title="Joint-soft",
    loss="H(ỹ, p) + α L_p + β H(p), then H(ỹ, p)",
    where="Section 1, Table 6",
    entropy="rewards",
    semantic_class="learned",
    when="Use it if a network would memorise every wrong label and there are enough epochs "
    "for two trainings; 60 were not enough on photos.",
    parameters=Parameters,
    grid={"alpha": (0.4, 1.0), "beta": (0.1, 0.5)},
    strategy=partial(Joint, hard=False),
    criterion="CrossEntropy",
)
HARD = replace(
    SOFT,
    title="Joint-hard",
    where="Section 1",
    when="Use it like Joint-soft, from which it differs by its hard labels. It was strong on "
    "digits; on photos it had too few epochs.",
    strategy=partial(Joint, hard=True),
)
