"""Methods that remember the predictions for every example.

Early-learning regularisation (Liu et al. 2020), ELR, and self-adaptive training (Huang et al.
2020), SAT.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.evidence import Evidence
from proselflc.correction.information import expected_surprise
from proselflc.correction.parameter import kept_share, loss_weight, share_of_training
from proselflc.data.batches import Batch
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import RunContext, Snapshot, Strategy, check_memory, one_hot

CLAMP = 1e-4


class Remembering(Strategy):
    """Cross entropy, with a memory t [n, C] of predictions: t ← β t + (1 − β) p, a constant.

    The memory is renewed before it is used and kept after the step: a step that diverges is skipped
    and must change nothing.
    """

    processes = 1
    memory: Tensor

    def __init__(self, context: RunContext, momentum: float, what: str) -> None:
        super().__init__(CrossEntropy())
        n, C = context.num_examples, context.num_classes
        check_memory(4 * n * C, f"{what} of {n:,} examples of {C:,} classes")
        self.momentum = momentum

    @torch.no_grad()
    def renewed(self, p: Tensor, batch: Batch) -> Tensor:
        """Return the updated t [N, C]."""
        return self.momentum * self.memory[batch.index] + (1 - self.momentum) * p


@dataclass(frozen=True)
class ELRParameters(method.Parameters):
    """The parameters of ELR.

    Attributes:
        momentum: β, the share of an example's average prediction that an update keeps.
        weight: λ, the weight of the regulariser.
    """

    momentum: float = checked(0.7, kept_share)
    weight: float = checked(3.0, loss_weight("the regulariser"))


class EarlyLearningRegularization(Remembering):
    """Cross entropy, regularised by the network's earlier predictions for the example.

        H(q, p) + λ log(1 − ⟨t, p⟩)        t ← β t + (1 − β) p/Σ_j p_j, a constant

    with p clamped to [1e-4, 1 − 1e-4] and t of every example 0 at first.
    Where p agrees with t, the second term pulls it further there, and the gradient of a label that
    disagrees is outweighed. The loss is negative when the network agrees with itself, as intended.
    The recorded target is t/Σ_j t_j.
    """

    def __init__(self, context: RunContext, *, momentum: float, weight: float) -> None:
        super().__init__(context, momentum, "a mean prediction")
        self.weight = weight
        self.register_buffer("memory", torch.zeros(context.num_examples, context.num_classes))

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        p = _clamped(logits)
        return self.weight * torch.log1p(-(self.renewed(_normed(p), batch) * p).sum(1)).mean()

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        self.memory[batch.index] = self.renewed(_normed(_clamped(logits)), batch)

    def taught(self, e: Evidence, batch: Batch) -> tuple[Tensor, Tensor]:
        t = self.memory[batch.index.to(self.memory.device)]
        return _normed(t), torch.zeros_like(e.entropy)


def _clamped(logits: Tensor) -> Tensor:
    return torch.softmax(logits.float(), 1).clamp(CLAMP, 1 - CLAMP)


def _normed(rows: Tensor) -> Tensor:
    return rows / rows.sum(1, keepdim=True)


@dataclass(frozen=True)
class SATParameters(method.Parameters):
    """The parameters of self-adaptive training.

    Attributes:
        momentum: α, the share of an example's label that an update keeps.
        begin: the share of training before labels move.
    """

    momentum: float = checked(0.9, kept_share)
    begin: float = checked(0.3, share_of_training)


class SelfAdaptiveTraining(Remembering):
    """Cross entropy with targets that start as the labels and follow the predictions.

        Σ_i w_i H(t_i, p_i) / Σ_i w_i        t ← α t + (1 − α) p, a constant;  w = max_j t_j

    Until a share of training is over the loss is cross entropy and t stays the given label; from
    then on t is renewed before it is used. A label that the network contradicts is first
    outweighed, because its largest t is small, and then replaced. With gradient accumulation, the
    sums are over a micro-batch.
    """

    epochs: Tensor

    def __init__(self, context: RunContext, *, momentum: float, begin: float) -> None:
        super().__init__(context, momentum, "a label")
        self.begin = round(begin * context.epochs)
        given = torch.from_numpy(context.given)
        self.register_buffer("memory", one_hot(given, context.num_classes, torch.float32))  # t
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))  # completed

    def targets(self, batch: Batch) -> Tensor:
        return self.memory[batch.index] if self._moves else batch.y

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        if not self._moves:
            return super().loss(logits, batch, progress)
        log_p = torch.log_softmax(logits.float(), 1)
        t = self.renewed(torch.softmax(logits.float(), 1), batch)
        w = t.amax(1)
        return (w * expected_surprise(t, log_p)).sum() / w.sum()

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self._moves:
            self.memory[batch.index] = self.renewed(torch.softmax(logits.float(), 1), batch)

    @property
    def _moves(self) -> bool:
        """Return whether labels move already."""
        return int(self.epochs) >= self.begin

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        self.epochs += 1


ELR = Method(
    title="ELR",
    loss="H(q, p) + λ log(1 − ⟨t, p⟩)",
    where="later (2020)",
    entropy="rewards",
    semantic_class="annotated and remembered",
    when="When a network would memorise every wrong label: the best on digits under symmetric "
    "noise; on photos, with the published λ, it was behind cross entropy.",
    parameters=ELRParameters,
    grid={"momentum": (0.7, 0.9), "weight": (1.0, 3.0, 7.0)},
    strategy=EarlyLearningRegularization,
    criterion="CrossEntropy",
)
SAT = Method(
    title="Self-adaptive training",
    loss="Σ w H(t, p)/Σ w",
    where="later (2020)",
    entropy="rewards",
    semantic_class="annotated and remembered",
    when="When training is long enough for labels to move; here it gained something on digits and "
    "nothing on photos.",
    parameters=SATParameters,
    grid={"begin": (0.15, 0.3, 0.5)},
    strategy=SelfAdaptiveTraining,
    criterion="CrossEntropy",
)
