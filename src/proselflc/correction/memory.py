"""A remembered average of every training example's predictions."""

import torch
from torch import Tensor, nn


class Memory(nn.Module):
    """Exponential average of p per training example, keyed by its index.

    The buffers are in `state_dict()`, so that a resumed run remembers.

    Args:
        num_examples: n, the size of the training set.
        num_classes: C.
        momentum: share of the old average that an update keeps; an example's first prediction is
            taken whole.
    """

    average: Tensor  # [n, C]
    seen: Tensor  # [n] bool

    def __init__(self, num_examples: int, num_classes: int, momentum: float = 0.9) -> None:
        super().__init__()
        if num_examples < 1 or num_classes < 1:
            raise ValueError(
                f"a memory needs at least one example and one class, "
                f"got {num_examples} and {num_classes}"
            )
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}")
        self.momentum = momentum
        self.register_buffer("average", torch.zeros(num_examples, num_classes))
        self.register_buffer("seen", torch.zeros(num_examples, dtype=torch.bool))

    def extra_repr(self) -> str:
        n, c = self.average.shape
        return f"{n}, {c}, momentum={self.momentum}"

    def recall(self, index: Tensor, p: Tensor) -> Tensor:
        """[N, C] the averages of these examples; p [N, C] itself where none was seen yet."""
        p = p.detach()
        return torch.where(self.seen[index][:, None], self.average[index].to(p.dtype), p)

    @torch.no_grad()
    def update(self, index: Tensor, p: Tensor) -> None:
        """average ← momentum · average + (1 − momentum) · p for the examples at index [N]."""
        p = p.detach().to(self.average.dtype)
        old = torch.where(self.seen[index][:, None], self.average[index], p)
        self.average[index] = self.momentum * old + (1 - self.momentum) * p
        self.seen[index] = True

    def check(self, index: Tensor | None, num_examples: int) -> Tensor:
        """The index of a batch of N examples, or a sentence on what is wrong with it."""
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
        if index.device.type == "cpu" and num_examples:
            low, high = int(index.min()), int(index.max())
            if low < 0 or high >= len(self.seen):
                raise ValueError(
                    f"index runs from {low} to {high}, but the memory holds {len(self.seen)} "
                    f"examples, 0 … {len(self.seen) - 1}"
                )
        return index
