"""What ELR and self-adaptive training share: a memory of the predictions for every example."""

from __future__ import annotations

import torch
from torch import Tensor

from proselflc.correction.criteria import CrossEntropy
from proselflc.data.batches import Batch
from proselflc.training.strategy import RunContext, Strategy, check_memory


class PredictionMemory(Strategy):
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
