"""Joint optimisation of labels and weights (Tanaka et al. 2018): Joint-soft and Joint-hard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.evidence import entropy
from proselflc.correction.memory import Memory, Remembered
from proselflc.correction.memory_rule import LabelThenLast, LastValue
from proselflc.correction.parameter import loss_weight
from proselflc.data.batches import Batch
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.prediction_memory import make_memory, storage_for, storage_notes
from proselflc.training.strategy import (
    RunContext,
    Snapshot,
    Stage,
    Strategy,
    spans,
)

RING = 10  # epochs whose predictions make a label
BEGIN = 0.35  # of the first stage, before labels are first replaced: epoch 70 of 200
KEPT = f"{RING} predictions and a label"
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
    prior: Tensor
    epochs: Tensor

    def __init__(self, context: RunContext, *, hard: bool, alpha: float, beta: float) -> None:
        super().__init__(CrossEntropy())
        self.hard = hard
        self.alpha, self.beta = alpha, beta
        first, _ = spans(self.stages, context.total_steps, context.batches)
        self.begin = int(BEGIN * (first.steps // context.batches))
        self.stage = 0
        storage = storage_for(context, KEPT, RING + 1, "half")
        self.labels = make_memory(context, LabelThenLast(), storage)  # ỹ
        self.ring = nn.ModuleList(
            make_memory(context, LastValue(), storage) for _ in range(RING)
        )  # p of the last epochs, of which a new one replaces the oldest
        given = torch.from_numpy(context.given)
        prior = torch.bincount(given, minlength=context.num_classes) / context.num_examples
        self.register_buffer("prior", prior)  # π, [C]
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))  # of the first stage

    def notes(self) -> list[str]:
        return storage_notes(self.labels, KEPT, RING + 1, "half")

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.stage = stage
        if stage > 0:
            self.ring = nn.ModuleList()  # not needed again

    @property
    def slots(self) -> list[Memory]:
        """Return the predictions of the last epochs, in no order."""
        return [one for one in self.ring if isinstance(one, Memory)]

    @property
    def slot(self) -> Memory:
        """Return the predictions of this epoch."""
        return self.slots[int(self.epochs) % RING]

    def targets(self, batch: Batch) -> Tensor:
        return _distributions(self.labels.at(batch.index).average)

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        if self.stage > 0:
            return None
        log_p = torch.log_softmax(logits.float(), 1)
        balance = -(self.prior * self.group.log_mean(log_p)).sum()
        return self.alpha * balance + self.beta * entropy(log_p).mean()

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self.stage == 0:
            p = torch.softmax(logits.float(), 1)
            self.slot.keep(batch.index, self.slot.renewed(batch.index, p, plain=True))

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        if stage > 0:
            return
        if epoch >= self.begin:
            # Some rows at a time, for memory; the label of an example that no epoch had is kept.
            step = max(1, min(ROWS, NUMBERS // self.labels.num_classes))
            for index in torch.split(self.labels.indices, step):
                total = torch.stack([one.at(index).average for one in self.slots]).sum(0)
                known = total.sum(1, keepdim=True) > 0
                if self.hard:
                    total = F.one_hot(total.argmax(1), total.size(1)).float()
                old = self.labels.at(index)
                labels = torch.where(known, _distributions(total), old.average)
                self.labels.keep(index, Remembered(labels, old.updates + known[:, 0]))
        self.epochs += 1
        self.slot.restart()  # unknown until seen in the next epoch

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # An earlier version saved tensors [n, C] and [10, n, C], or [0, n, C] in the second stage.
        if f"{prefix}ring" in state_dict:
            state_dict[f"{prefix}labels.average"] = state_dict.pop(f"{prefix}labels")
            for k, slot in enumerate(state_dict.pop(f"{prefix}ring")):
                state_dict[f"{prefix}ring.{k}.average"] = slot
        super()._load_from_state_dict(state_dict, prefix, *rest)


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
