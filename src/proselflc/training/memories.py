"""Memories in a state: a process has those of its own examples, a state those of all."""

from __future__ import annotations

import math

from torch import Tensor

from proselflc.correction.memory import Memory
from proselflc.correction.memory_storage import Kind, bytes_per_example
from proselflc.training import checkpoint
from proselflc.training.prediction_memory import COPIES
from proselflc.training.strategy import Strategy

PREFIX = "strategy"  # of the tensors of a strategy in a state


def memories(strategy: Strategy) -> dict[str, Memory]:
    """Return what a strategy remembers of its own examples, by the prefix of its tensors."""
    every = strategy.named_modules(prefix=PREFIX)
    return {name: module for name, module in every if isinstance(module, Memory)}


def check_shards(strategy: Strategy) -> None:
    """Assert that memories are of the examples that this process learns."""
    for name, memory in memories(strategy).items():
        assert memory.shard == strategy.group.shard, f"{name} is of {memory.shard}"


def with_all_examples(tensors: dict[str, Tensor], strategy: Strategy) -> dict[str, Tensor]:
    """Return the tensors of a state with the memories of all processes, which must call this.

    They are in the order of the examples, in the first process alone.
    """
    result = dict(tensors)
    for name, memory in memories(strategy).items():
        for key, own in checkpoint.named(name, memory.per_example()).items():
            result[key] = strategy.group.whole(own, memory.num_examples)
    return result


def gigabytes_for(strategy: Strategy, storage: Kind) -> float:
    """Return the limit with which a strategy chooses a storage more exact than the present one."""
    needed = sum(
        COPIES * one.num_examples * bytes_per_example(storage, one.num_classes)
        for one in memories(strategy).values()
    )
    return math.ceil(needed / 10**6) / 1000
