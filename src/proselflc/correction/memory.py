"""A remembered average of every training example's predictions."""

import torch
from torch import Size, Tensor, nn

from proselflc.correction.parameter import kept_share, whole_number
from proselflc.correction.torch_internals import materialize


class Memory(nn.Module):
    """Exponential average of p per training example, keyed by its index.

    The buffers are in `state_dict()`, so that a resumed run remembers. See `renewed` for an example
    that a batch holds twice, and for a prediction of NaN.

    Args:
        num_examples: n, the size of the training set.
        momentum: the share of the old average that an update keeps; an example's first prediction
            is taken whole.
    """

    average: Tensor  # [n, C]
    seen: Tensor  # [n] bool

    def __init__(self, num_examples: int, num_classes: int, momentum: float = 0.9) -> None:
        super().__init__()
        n = whole_number(num_examples, "num_examples", "the size of the training set", least=1)
        C = whole_number(num_classes, "num_classes", "the number of logits per example", least=1)
        self.momentum = kept_share(momentum, "momentum")
        self.register_buffer("average", torch.zeros(n, C))
        self.register_buffer("seen", torch.zeros(n, dtype=torch.bool))

    def extra_repr(self) -> str:
        n, c = self.average.shape
        return f"{n}, {c}, momentum={self.momentum}"

    def at(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the averages [N, C] of the examples at index [N], and whether each was seen."""
        return materialize(self.average[index]), materialize(self.seen[index])

    @torch.no_grad()
    def renewed(self, index: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `at` would return after an update; change nothing.

            average ← momentum · average + (1 − momentum) · p

        An example that the batch holds several times counts once, with the mean of its p. A p that
        is not finite does not count: one broken batch must not be remembered for ever.
        """
        old, seen = self.at(index)
        p = p.detach().to(old.dtype)
        finite = p.isfinite().all(-1)
        same = torch.searchsorted(index.sort().values, index)  # [N] equal for equal index
        copies = torch.zeros_like(old[:, 0]).index_add_(0, same, finite.to(old.dtype))[same]
        total = torch.zeros_like(old).index_add_(0, same, p.where(finite[:, None], 0.0))[same]
        mean = total / copies.clamp(min=1)[:, None]
        new = torch.where(seen[:, None], self.momentum * old + (1 - self.momentum) * mean, mean)
        counts = copies > 0
        return torch.where(counts[:, None], new, old), seen | counts

    def keep(self, index: Tensor, average: Tensor, seen: Tensor) -> None:
        """Replace the averages [N, C] of the examples at index [N]."""
        self.average[index] = average  # where an index repeats, so does its average
        self.seen[index] = seen

    def update(self, index: Tensor, p: Tensor) -> None:
        """Update the averages of the examples at index [N] by their predictions p [N, C]."""
        self.keep(index, *self.renewed(index, p))

    def check(self, index: Tensor | None, shape: Size) -> Tensor:
        """Return the index of a batch of logits shaped [N, C]; refuse one that cannot be used."""
        num_examples, num_classes = shape
        n, C = self.average.shape
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
