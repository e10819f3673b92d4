"""What is remembered of every training example's predictions: the one memory of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor, nn

from proselflc.correction import memory_storage
from proselflc.correction.memory_rule import ExponentialAverage, MemoryRule
from proselflc.correction.memory_storage import (
    KINDS,
    MARK,
    WHAT,
    Dense,
    Kind,
    Storage,
    TopClasses,
    thresholds,
)
from proselflc.correction.parameter import one_of, whole_number
from proselflc.correction.torch_internals import materialize

Shard = tuple[int, int]  # rank and number of processes

# Bytes. With the two copies that are made while a checkpoint is written, it is 4 GB.
BUDGET = 4 * 10**9 // 3


class OtherExamplesError(RuntimeError):
    """A state was saved by a memory of another number of examples."""


class OtherStorageError(RuntimeError):
    """A state was saved by a memory with another storage.

    Attributes:
        saved: that storage.
    """

    def __init__(self, message: str, saved: Kind) -> None:
        super().__init__(message)
        self.saved = saved


class Remembered(NamedTuple):
    """What is remembered of the examples of a batch."""

    average: Tensor  # [N, C]
    updates: Tensor  # [N] int32, their number; 0 for an example that was not seen

    @property
    def seen(self) -> Tensor:
        """Return [N] whether each example was seen."""
        return self.updates > 0


class Memory(nn.Module):
    """A row of C numbers per training example, keyed by its index, that follows its predictions.

    The buffers are in `state_dict()`, so that a resumed run remembers. A memory of one of several
    processes loads its own rows, or takes them from those of all examples. See `renewed` for an
    example that a batch holds twice, and for a prediction of NaN.

    Args:
        num_examples: n, the size of the training set.
        momentum: the share of the old average that an update keeps; an example's first prediction
            is taken whole. It is the momentum of the default rule and is ignored with another.
        rule: how a row is updated; `ExponentialAverage(momentum)` if None.
        given: [n] the given classes. A rule that begins at the label needs them, and top-class
            storage then keeps the given class's number exactly.
        shard: rank and number of processes. This memory holds the examples with
            index ≡ rank (mod world) only: example i is its row i // world.
        storage: "dense" is float32; "half" is float16; "top" keeps the five largest classes, the
            given class and the sum of the others; None takes the first that fits into the budget.
        budget: bytes, for all processes together.
    """

    rows: Storage
    updates: Tensor  # [own] int32, the number of updates of every row

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        momentum: float = 0.9,
        *,
        rule: MemoryRule | None = None,
        given: Tensor | None = None,
        shard: Shard = (0, 1),
        storage: Kind | None = None,
        budget: int = BUDGET,
    ) -> None:
        super().__init__()
        n = whole_number(num_examples, "num_examples", "the size of the training set", least=1)
        C = whole_number(num_classes, "num_classes", "the number of logits per example", least=1)
        self.rule = ExponentialAverage(momentum) if rule is None else rule
        self.num_examples, self.num_classes = n, C
        self.shard = _checked_shard(shard)
        storage = chosen(n, C, budget) if storage is None else storage
        one_of(KINDS)(storage, "storage")
        own = len(range(self.shard[0], n, self.shard[1]))
        if given is not None:
            given = Memory.own(_checked_given(given, n, C), self.shard)
        elif self.rule.begins_at_label:
            raise ValueError(f"{self.rule} begins at the label: pass given=, the classes [{n}]")
        if storage == "top":
            self.rows = TopClasses(own, C, given)
        else:
            self.rows = Dense("half" if storage == "half" else "dense", own, C, given)
        self.register_buffer("updates", torch.zeros(own, dtype=torch.int32))
        if self.rule.begins_at_label:
            self.rows.reset(to_labels=True)

    def extra_repr(self) -> str:
        return f"{self.num_examples}, {self.num_classes}, rule={self.rule}, {self.storage}"

    @property
    def storage(self) -> Kind:
        """Return how rows are stored."""
        return self.rows.kind

    @property
    def average(self) -> Tensor:
        """Return the rows [own, C]: the buffer itself if storage is dense, else a copy."""
        if isinstance(self.rows, Dense) and self.storage == "dense":
            return self.rows.all_rows
        return self.at(self.indices).average

    @property
    def seen(self) -> Tensor:
        """Return [own] whether each example was seen."""
        return self.updates > 0

    @property
    def indices(self) -> Tensor:
        """Return [own] the examples of this memory, in the order of its rows."""
        rank, world = self.shard
        return torch.arange(rank, self.num_examples, world, device=self.updates.device)

    def at(self, index: Tensor) -> Remembered:
        """Return what is remembered of the examples at index [N]."""
        rows = self._rows_of(index.to(self.updates.device))
        return Remembered(materialize(self.rows.read(rows)), materialize(self.updates[rows]))

    @torch.no_grad()
    def renewed(self, index: Tensor, p: Tensor, *, plain: bool = False) -> Remembered:
        """Return what `at` would return after an update by predictions p [N, C]; change nothing.

        An example that the batch holds several times counts once, with the mean of its p. A p that
        is not finite does not count: one broken batch must not be remembered for ever. `plain` says
        that neither occurs, which saves looking for it.
        """
        index = index.to(self.updates.device)
        old, count = self.at(index)
        p = p.detach().to(old.dtype)
        if plain:
            return Remembered(self.rule.updated(old, p, count), count + 1)
        finite = p.isfinite().all(-1)
        same = torch.searchsorted(index.sort().values, index)  # [N] equal for equal index
        copies = torch.zeros_like(old[:, 0]).index_add_(0, same, finite.to(old.dtype))[same]
        total = torch.zeros_like(old).index_add_(0, same, p.where(finite[:, None], 0.0))[same]
        mean = total / copies.clamp(min=1)[:, None]
        counts = copies > 0
        new = torch.where(counts[:, None], self.rule.updated(old, mean, count), old)
        return Remembered(new, count + counts.to(count.dtype))

    def keep(self, index: Tensor, renewed: Remembered) -> None:
        """Store what `renewed` returned for the same index [N]."""
        index = index.to(self.updates.device)
        rows = self._rows_of(index)
        even = self.rule.averages and self.storage != "dense"
        threshold = thresholds(index, renewed.updates) if even else None
        self.rows.write(rows, renewed.average, threshold)
        self.updates[rows] = renewed.updates  # where an index repeats, so does what is stored

    def update(self, index: Tensor, p: Tensor) -> None:
        """Update the rows of the examples at index [N] by their predictions p [N, C]."""
        self.keep(index, self.renewed(index, p))

    def restart(self) -> None:
        """Forget every prediction: the next one of an example is its first."""
        self.updates.zero_()
        self.rows.reset(to_labels=self.rule.begins_at_label)

    def per_example(self) -> dict[str, Tensor]:
        """Return all that must be saved, by its name in `state_dict()`; first axis = own rows."""
        return dict(self.state_dict(keep_vars=True))

    @staticmethod
    def own(whole: Tensor, shard: Shard) -> Tensor:
        """Return the part [own, …] of a tensor [n, …] in the order of examples."""
        rank, world = shard
        return whole[rank::world]

    @staticmethod
    def interleaved(parts: Sequence[Tensor], n: int) -> Tensor:
        """Return the tensor [n, …] in the order of examples from the parts of all ranks."""
        whole = parts[0].new_empty(n, *parts[0].shape[1:])
        for rank, part in enumerate(parts):
            whole[rank :: len(parts)] = part
        return whole

    def check(self, index: Tensor | None, shape: Size) -> Tensor:
        """Return the index of a batch of logits shaped [N, C]; refuse one that cannot be used."""
        num_examples, num_classes = shape
        n, C = self.num_examples, self.num_classes
        if num_classes != C:
            raise ValueError(
                f"the memory is for {C} classes, but the logits have {num_classes}: "
                f"make it with Memory({n}, {num_classes})"
            )
        if index is None:
            raise ValueError(
                "this method remembers predictions per example: pass index=, the [N] positions of "
                "the batch's examples in the training set"
            )
        if not isinstance(index, Tensor):
            raise TypeError(f"index must be an int64 tensor, got {type(index).__name__}")
        if index.shape != (num_examples,) or index.dtype != torch.int64:
            raise ValueError(
                f"index must be int64 shaped [{num_examples}], one position per example, got "
                f"{index.dtype} shaped {list(index.shape)}"
            )
        if index.is_cpu and num_examples and not torch.compiler.is_compiling():
            low, high = int(index.min()), int(index.max())
            if low < 0 or high >= n:
                raise ValueError(
                    f"index runs from {low} to {high}, but the memory holds {n} examples, "
                    f"0 … {n - 1}"
                )
        return index

    def _rows_of(self, index: Tensor) -> Tensor:
        """Return the rows [N] of examples at index [N], which must be this process's."""
        rank, world = self.shard
        if world == 1:
            return index
        if index.is_cpu and not torch.compiler.is_compiling():
            foreign = index[index % world != rank]
            if len(foreign):
                raise ValueError(
                    f"example {int(foreign[0])} belongs to process {int(foreign[0]) % world}, but "
                    f"this memory is of process {rank} of {world}: give every process the examples "
                    f"with index ≡ its rank (mod {world})"
                )
        return index // world

    def _own_rows(self, saved: Tensor) -> Tensor:
        """Return this process's part of what was saved of its own examples or of all."""
        own = len(self.updates)
        if saved.dim() and len(saved) == own:
            return saved
        if saved.dim() and len(saved) == self.num_examples:
            return Memory.own(saved, self.shard)
        raise OtherExamplesError(
            f"the state remembers {len(saved) if saved.dim() else 'no'} examples, and this memory "
            f"{self.num_examples}"
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # An earlier version saved the rows as `average`, and `seen` for the number of updates.
        average = state_dict.pop(f"{prefix}average", None)
        if average is not None:
            seen = state_dict.pop(f"{prefix}seen", None)
            state_dict[f"{prefix}updates"] = (average.any(1) if seen is None else seen).int()
            saved: Kind = "half" if average.dtype == torch.half else "dense"
            state_dict[f"{prefix}rows.{MARK[saved]}"] = average
        for kind in KINDS:
            if kind != self.storage and f"{prefix}rows.{MARK[kind]}" in state_dict:
                raise OtherStorageError(
                    f"the state remembers {WHAT[kind]} of every example, and this memory "
                    f'{WHAT[self.storage]}; Memory(…, storage="{kind}") can load it',
                    kind,
                )
        for name in self.per_example():
            rows = state_dict.get(prefix + name)
            if rows is not None:
                state_dict[prefix + name] = self._own_rows(rows)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def chosen(num_examples: int, num_classes: int, budget: int = BUDGET, best: Kind = "dense") -> Kind:
    """Return the first storage from `best` on that fits into the budget, or else the smallest."""
    kinds = KINDS[KINDS.index(best) :]
    sizes = {k: num_examples * memory_storage.bytes_per_example(k, num_classes) for k in kinds}
    fitting = [kind for kind in kinds if sizes[kind] <= budget]
    return fitting[0] if fitting else min(kinds, key=sizes.__getitem__)


def _checked_shard(shard: Shard) -> Shard:
    rank, world = shard
    if not 0 <= rank < world:
        raise ValueError(f"shard must be (rank, world) with 0 ≤ rank < world, got {shard}")
    return shard


def _checked_given(given: Tensor, n: int, C: int) -> Tensor:
    if given.shape != (n,) or given.is_floating_point():
        raise ValueError(
            f"given must be the classes of all {n} examples, int64 shaped [{n}], got "
            f"{given.dtype} shaped {list(given.shape)}"
        )
    if n and not 0 <= int(given.min()) <= int(given.max()) < C:
        raise ValueError(
            f"given must hold classes from 0 to {C - 1}, got {int(given.min())} to "
            f"{int(given.max())}"
        )
    return given
