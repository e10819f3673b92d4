"""Early-learning regularisation (Liu et al. 2020): ELR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import factor, kept_share
from proselflc.data.batches import Batch
from proselflc.training.strategy import Situation, Strategy, check_memory

CLAMP = 1e-4


class EarlyLearningRegularization(Strategy):
    """Cross entropy, held back by what the network said of the example before.

        H(q, p) + λ log(1 − ⟨t, p⟩)        t ← β t + (1 − β) p/Σ_j p_j, a constant

    with p clamped to [1e-4, 1 − 1e-4] and t of every example 0 at first, renewed before it is used.
    Where p agrees with t, the second term pulls it further there, and the gradient of a label that
    disagrees is outweighed. The loss is negative when the network agrees with itself; that is no
    mistake. What is recorded as the target is t/Σ_j t_j.

    Args:
        situation: of the run.
        momentum: β.
        weight: λ.
    """

    processes = 1
    memory: Tensor

    def __init__(self, situation: Situation, *, momentum: float, weight: float) -> None:
        super().__init__(CrossEntropy())
        n, C = situation.num_examples, situation.num_classes
        check_memory(4 * n * C, f"a mean prediction of {n:,} examples of {C:,} classes")
        self.momentum = kept_share(momentum)
        self.weight = factor(weight, "weight", "what was said before")
        self.register_buffer("memory", torch.zeros(n, C))  # t

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        p = _clamped(logits)
        return self.weight * torch.log1p(-(self._renewed(p, batch) * p).sum(1)).mean()

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        # Not while the loss is computed: a step that diverges is not taken and leaves no trace.
        self.memory[batch.index] = self._renewed(_clamped(logits), batch)

    @torch.no_grad()
    def _renewed(self, p: Tensor, batch: Batch) -> Tensor:
        """[N, C] t."""
        normed = p / p.sum(1, keepdim=True)
        return self.momentum * self.memory[batch.index] + (1 - self.momentum) * normed

    def taught(self, e: Evidence, batch: Batch) -> tuple[Tensor, Tensor]:
        t = self.memory[batch.index.to(self.memory.device)]
        return t / t.sum(1, keepdim=True), torch.zeros_like(e.entropy)


def _clamped(logits: Tensor) -> Tensor:
    return torch.softmax(logits.float(), 1).clamp(CLAMP, 1 - CLAMP)


def make(p: Mapping[str, Any], situation: Situation) -> Strategy:
    return EarlyLearningRegularization(situation, momentum=p["momentum"], weight=p["weight"])
