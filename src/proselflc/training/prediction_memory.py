"""The memory of a method in a run: how much of it fits, and the strategies that learn with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.memory import Memory, Remembered, chosen
from proselflc.correction.memory_rule import MemoryRule
from proselflc.correction.memory_storage import WHAT, Kind, bytes_per_example
from proselflc.data import memory_budget
from proselflc.data.batches import Batch
from proselflc.training.strategy import RunContext, Strategy
from proselflc.wording import option

COPIES = 3  # a checkpoint makes two more while it is written


def storage_for(context: RunContext, kept: str, rows: int = 1, best: Kind = "dense") -> Kind:
    """Return how a method stores `rows` rows of C numbers per example; refuse what does not fit.

    It depends on the limit and not on how much memory is free now or on the number of processes, so
    that a resumed run chooses the same. `kept` says what is kept, such as "a label", and `best` is
    the most exact storage that the method needs.
    """
    n, C = context.num_examples, context.num_classes
    kind = chosen(rows * n, C, memory_budget.limit() // COPIES, best)
    instead = f"use fewer examples or classes, or another {option('method')}"
    if kind != chosen(rows * n, C, 0, best):
        instead += f", or lower {memory_budget.VARIABLE}, so that less is kept"
    memory_budget.require(
        COPIES * rows * n * bytes_per_example(kind, C),
        f"the method keeps {kept} of {n:,} examples of {C:,} classes as {WHAT[kind]}, which with "
        "the copies for a checkpoint",
        instead,
    )
    return kind


def storage_notes(memory: Memory, kept: str, rows: int = 1, best: Kind = "dense") -> list[str]:
    """Return a sentence about what is kept, unless that is the best storage."""
    kind, n, C = memory.storage, memory.num_examples, memory.num_classes
    if kind == best:
        return []
    ours, whole = (rows * n * bytes_per_example(one, C) for one in (kind, best))
    return [
        f"the method keeps {kept} of every example as {WHAT[kind]}, in "
        f"{memory_budget.gigabytes(ours)} instead of {memory_budget.gigabytes(whole)} of memory: "
        f"{memory_budget.VARIABLE}={-(-COPIES * whole // 10**9)} keeps all in {WHAT[best]}"
    ]


def make_memory(context: RunContext, rule: MemoryRule, storage: Kind) -> Memory:
    """Return the memory of this process's examples."""
    return Memory(
        context.num_examples,
        context.num_classes,
        rule=rule,
        given=torch.from_numpy(context.given),
        shard=context.shard,
        storage=storage,
    )


class PredictionMemory(Strategy):
    """Cross entropy, with a memory t of every example's predictions, a constant.

    The memory is renewed before it is used and kept after the step: a step that diverges is skipped
    and must change nothing. What the loss computed is kept until then.
    """

    remembers = True

    def __init__(self, context: RunContext, rule: MemoryRule, kept: str) -> None:
        super().__init__(CrossEntropy())
        self.kept = kept
        self.memory = make_memory(context, rule, storage_for(context, kept))
        self._renewed: tuple[Tensor, Remembered] | None = None  # with the logits it is from

    def notes(self) -> list[str]:
        return storage_notes(self.memory, self.kept)

    def remembered(self, batch: Batch) -> Tensor:
        """Return t [N, C] as it is."""
        return self.memory.at(batch.index).average

    def prediction(self, logits: Tensor) -> Tensor:
        """Return what is remembered [N, C] of logits [N, C]."""
        return torch.softmax(logits.float(), 1)

    def renewed(self, logits: Tensor, batch: Batch, p: Tensor) -> Tensor:
        """Return the t [N, C] that `after_step` will keep; p is `prediction(logits)`."""
        # A batch of the loop holds no example twice, and a loss that is not finite ends training.
        renewed = self.memory.renewed(batch.index, p, plain=True)
        self._renewed = logits.detach(), renewed
        return renewed.average

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        last, self._renewed = self._renewed, None
        if last is not None and _is_same(last[0], logits):
            renewed = last[1]
        else:  # the batch was learned in several parts
            renewed = self.memory.renewed(batch.index, self.prediction(logits), plain=True)
        self.memory.keep(batch.index, renewed)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # An earlier version saved the rows alone.
        if f"{prefix}memory" in state_dict:
            state_dict[f"{prefix}memory.average"] = state_dict.pop(f"{prefix}memory")
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Return whether two detached tensors are the same numbers in memory."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape
