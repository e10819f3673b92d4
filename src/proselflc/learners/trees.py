"""An ensemble of decision trees as a module: arrays of numbers, which are saved without pickle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proselflc.data.inputs import Ints
from proselflc.errors import InputError

WORDS = 8  # of 32 bits, that hold which codes of a category go left
CODES = 32 * WORDS
LARGEST = 1e30  # of what a leaf adds
ABSENT = -60.0  # logit of a class that did not occur in training

# The arrays and their types: S trees with M nodes altogether, Q sets of codes, D columns.
_TYPES = {
    "roots": torch.int64,  # [rounds, K] the first node of each tree; K is 1 for two classes
    "feature": torch.int64,  # [M] column that a node asks about
    "threshold": torch.float64,  # [M] numbers up to this go left
    "missing_left": torch.bool,  # [M] whether a missing cell goes left
    "left": torch.int64,  # [M] node that follows, or the node itself at a leaf
    "right": torch.int64,
    "value": torch.float64,  # [M] what a leaf adds
    "codes": torch.int64,  # [M] set of codes that go left, or −1 for a question about a number
    "sets": torch.int64,  # [Q, 8] 32 bits each
    "known": torch.int64,  # [D, 8] codes that a column had in training; others count as missing
    "baseline": torch.float64,  # [K] what the sum begins with
}


class TreeEnsemble(nn.Module):
    """Sums of trees: logits [N, C] = baseline + Σ over rounds of the leaf that a row falls into.

    For two classes there is one tree per round, whose sum z gives the logits (0, z).
    """

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    codes: Tensor
    sets: Tensor
    known: Tensor
    baseline: Tensor

    def __init__(self, arrays: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, kind in _TYPES.items():
            self.register_buffer(name, arrays[name].to(kind))

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], columns: int, num_classes: int
    ) -> TreeEnsemble:
        """Return the ensemble in a file, which may hold anything: every number is checked.

        Raises:
            InputError: it is not an ensemble for that many columns and classes.
        """
        if set(state) != set(_TYPES):
            raise InputError(f"expected the arrays {', '.join(_TYPES)}, got {', '.join(state)}")
        for name, kind in _TYPES.items():
            if state[name].dtype != kind:
                raise InputError(f'the array "{name}" holds {state[name].dtype}, expected {kind}')
            if state[name].ndim == 0:
                raise InputError(f'the array "{name}" is a single number, expected an array')
        width = 1 if num_classes == 2 else num_classes
        M, Q = len(state["feature"]), len(state["sets"])
        shapes: dict[str, tuple[int, ...]] = {name: (M,) for name in _TYPES}
        shapes |= {"sets": (Q, WORDS), "known": (columns, WORDS), "baseline": (width,)}
        shapes["roots"] = (len(state["roots"]), width)
        for name, shape in shapes.items():
            if tuple(state[name].shape) != shape:
                raise InputError(
                    f'the array "{name}" has the shape {list(state[name].shape)}, expected '
                    f"{list(shape)}"
                )
        every = torch.arange(M)
        leaf = (state["left"] == every) & (state["right"] == every)
        # A node that follows comes later in the array, so that every path ends.
        both = torch.stack((state["left"], state["right"]))
        follows = ((both > every) & (both < M)).all(0)
        checks = {
            "roots": len(state["roots"]) > 0 and _within(state["roots"], 0, M),
            "feature": _within(state["feature"], 0, columns),
            "left": bool((leaf | follows).all()),
            "codes": _within(state["codes"], -1, Q),
            "sets": _within(state["sets"], 0, 1 << 32),
            "known": _within(state["known"], 0, 1 << 32),
            "threshold": not bool(state["threshold"].isnan().any()),
            "value": _is_moderate(state["value"]),
            "baseline": _is_moderate(state["baseline"]),
        }
        bad = [name for name, is_good in checks.items() if not is_good]
        if bad or M == 0:
            raise InputError(f'the array "{(bad or ["feature"])[0]}" is damaged')
        return cls(state)

    def staged(self, x: Tensor) -> Iterator[Tensor]:
        """Yield the logits [N, C] in float64 after each round."""
        leaves = self._leaves(x)
        total = self.baseline.expand(len(x), -1)
        for k in range(len(self.roots)):
            total = total + leaves[:, k]  # round by round, as scikit-learn adds
            yield _logits(total)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [N, C] in float64 of rows [N, D]; NaN is a missing cell."""
        leaves = self._leaves(x)
        total = self.baseline.expand(len(x), -1)
        for k in range(len(self.roots)):
            total = total + leaves[:, k]
        return _logits(total)

    def _leaves(self, x: Tensor) -> Tensor:
        """Return [N, rounds, K] what the leaves add that N rows fall into."""
        if x.ndim != 2 or x.shape[1] != len(self.known):
            raise InputError(
                f"the trees were made for rows of {len(self.known)} columns, got {list(x.shape)}"
            )
        x = x.double()
        rows = torch.arange(len(x), device=x.device)[:, None]
        node = self.roots.flatten().expand(len(x), -1)
        while True:
            follows = torch.where(
                self._goes_left(x[rows, self.feature[node]], node),
                self.left[node],
                self.right[node],
            )
            if bool((follows == node).all()):
                break
            node = follows
        return self.value[node].reshape(len(x), *self.roots.shape)

    def _goes_left(self, cell: Tensor, node: Tensor) -> Tensor:
        """Return [N, trees] whether the cells of rows go left at their nodes."""
        left = cell <= self.threshold[node]
        missing = cell.isnan()
        if len(self.sets):
            chosen = self.codes[node]
            asks = chosen >= 0
            code = cell.nan_to_num(-1).clamp(-1, CODES).long()
            outside = (code < 0) | (code >= CODES)
            code = code.clamp(0, CODES - 1)
            word, bit = code >> 5, code & 31
            is_known = (self.known[self.feature[node], word] >> bit) & 1
            is_left = (self.sets[chosen.clamp(min=0), word] >> bit) & 1
            left = torch.where(asks, is_left.bool(), left)
            missing = missing | (asks & (outside | ~is_known.bool()))
        return torch.where(missing, self.missing_left[node], left)


def _logits(total: Tensor) -> Tensor:
    if total.shape[1] > 1:
        return total
    return torch.cat((torch.zeros_like(total), total), 1)


def _within(values: Tensor, least: int, end: int) -> bool:
    return bool(((values >= least) & (values < end)).all())


def _is_moderate(values: Tensor) -> bool:
    """Return whether all numbers are finite, and so small that no sum of them overflows."""
    return bool((values.abs() <= LARGEST).all())  # false for NaN too


def joined(trees: list[dict[str, Any]], rounds: int, extra: Mapping[str, Tensor]) -> TreeEnsemble:
    """Return the ensemble of trees, each with arrays whose node numbers begin at 0.

    Args:
        trees: rounds · K trees, round by round.
        rounds: number of rounds.
        extra: `known` and `baseline`.
    """
    roots, node, codes = [], 0, 0
    arrays: dict[str, list[Tensor]] = {
        name: [] for name in _TYPES if name not in ("roots", "known", "baseline")
    }
    for tree in trees:
        tensors = {name: torch.as_tensor(tree[name]).to(_TYPES[name]) for name in arrays}
        roots.append(node)
        tensors["left"], tensors["right"] = tensors["left"] + node, tensors["right"] + node
        asks = tensors["codes"] >= 0
        tensors["codes"] = torch.where(asks, tensors["codes"] + codes, tensors["codes"])
        node, codes = node + len(tensors["feature"]), codes + len(tensors["sets"])
        for name, tensor in tensors.items():
            arrays[name].append(tensor)
    merged = {name: torch.cat(parts) for name, parts in arrays.items()}
    merged["roots"] = torch.tensor(roots).reshape(rounds, -1)
    return TreeEnsemble({**merged, **extra})


def constant(only: int, columns: int, num_classes: int) -> TreeEnsemble:
    """Return an ensemble that predicts one class."""
    one = torch.zeros(1)
    leaf = {
        **dict.fromkeys(("feature", "threshold", "missing_left", "left", "right", "value"), one),
        "codes": one - 1,
        "sets": torch.zeros(0, WORDS),
    }
    extra = {"known": torch.zeros(columns, WORDS), "baseline": torch.zeros(1)}
    if num_classes == 2:
        extra["baseline"] += -ABSENT if only else ABSENT
        return joined([leaf], 1, extra)
    return widened(joined([leaf], 1, extra), np.array([only]), num_classes)


def widened(ensemble: TreeEnsemble, classes: Ints, num_classes: int) -> TreeEnsemble:
    """Return an ensemble for C classes from one for the K of them that occurred in training."""
    K, C = len(classes), num_classes
    if K == C:
        return ensemble
    arrays = dict(ensemble.named_buffers())
    # A leaf that adds nothing, for the trees of the other classes.
    node = len(arrays["feature"])
    for name in ("feature", "threshold", "missing_left", "value"):
        arrays[name] = torch.cat((arrays[name], arrays[name].new_zeros(1)))
    for name in ("left", "right"):
        arrays[name] = torch.cat((arrays[name], arrays[name].new_tensor([node])))
    arrays["codes"] = torch.cat((arrays["codes"], arrays["codes"].new_tensor([-1])))
    roots = torch.full((len(ensemble.roots), C), node)
    baseline = torch.full((C,), ABSENT, dtype=torch.float64)
    baseline[torch.from_numpy(classes)] = 0.0
    own = torch.from_numpy(classes[-ensemble.roots.shape[1] :])  # the second class of two
    roots[:, own], baseline[own] = ensemble.roots, ensemble.baseline
    return TreeEnsemble({**arrays, "roots": roots, "baseline": baseline})
