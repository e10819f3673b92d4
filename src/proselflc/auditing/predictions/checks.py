"""Labels and out-of-sample probabilities as they come from outside, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.auditing.records import Doubles, slices
from proselflc.data import class_matrix
from proselflc.data.inputs import Bools, Ints
from proselflc.data.memory_budget import is_dense
from proselflc.errors import InputError

Probabilities: TypeAlias = npt.NDArray[np.floating[Any]]  # [n, C]

_ROUNDING = 1e-2  # allowed error of the sum of a row: half precision of many classes
_MIXED_UP = 0.1  # more agreement by another order of the columns is worth a warning
_EXAMPLES_PER_CLASS = 10  # that show an order of the columns


def probabilities(pred_probs: npt.ArrayLike) -> Probabilities:
    """Return [n, C] distributions, not copied if they are float32 or float64; refuse others."""
    p = np.asarray(pred_probs)
    if p.dtype.kind not in "fiu" or p.ndim != 2 or p.shape[0] < 1 or p.shape[1] < 2:
        raise InputError(
            f"pred_probs is {p.dtype} of shape {list(p.shape)}: expected probabilities [n, C] of "
            "at least one example and two classes",
            field="pred_probs",
        )
    n, C = p.shape
    for rows in slices(n, C):
        block = p[rows].astype(np.float64)
        with np.errstate(invalid="ignore"):
            good = (block >= 0).all(1) & (np.abs(block.sum(1) - 1) < _ROUNDING)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            came, fix = _what_is_wrong(block[row])
            raise InputError(
                f"row {rows.start + row} of pred_probs is not a distribution: expected {C} numbers "
                f"from 0 to 1 that sum to 1, got {came}",
                field="pred_probs",
                fix=fix,
            )
    return p if p.dtype in (np.float32, np.float64) else p.astype(np.float32)


def _what_is_wrong(row: Doubles) -> tuple[str, str]:
    """Return what is wrong with a row, and what to do."""
    if not np.isfinite(row).all():
        return "NaN or infinity", "predict these examples again, or drop them"
    fix = "give probabilities instead of logits or scores"
    if (row < 0).any():
        return f"a negative number, {row.min():.4g}", fix
    return f"a sum of {row.sum():.4g}", fix


def class_ids(labels: npt.ArrayLike, n: int, C: int) -> Ints:
    """Return [n] class ids; refuse anything else."""
    y = np.asarray(labels)
    if y.shape != (n,) or y.dtype.kind not in "iu":
        raise InputError(
            f"labels is {y.dtype} of shape {list(y.shape)}: expected {n} class ids, one for each "
            "row of pred_probs",
            field="labels",
        )
    if not 0 <= y.min() <= y.max() < C:
        raise InputError(
            f"labels range from {y.min()} to {y.max()}, but pred_probs has {C} columns: expected "
            f"class ids 0 … {C - 1}, a column for each",
            field="labels",
        )
    return y.astype(np.int64)


def class_names(names: Sequence[str] | None, C: int) -> tuple[str, ...]:
    words = tuple(map(str, range(C) if names is None else names))
    if len(words) != C or len(set(words)) != C:
        raise InputError(
            f"names has {len(words)} class names, {len(set(words))} of them distinct: expected "
            f"{C}, one for each column of pred_probs",
            field="names",
        )
    return words


def trusted_labels(trusted: npt.ArrayLike | None, n: int) -> Bools | None:
    if trusted is None:
        return None
    known = np.asarray(trusted)
    if known.shape != (n,) or known.dtype != bool:
        raise InputError(
            f"trusted is {known.dtype} of shape {list(known.shape)}: expected {n} booleans, one "
            "for each label",
            field="trusted",
        )
    return known


def check_class_order(
    given: Ints, predicted: Ints, names: tuple[str, ...]
) -> Iterator[dict[str, str]]:
    """Refuse columns in another order than the class ids; warn where only some seem swapped.

    The order with the most agreement of labels and predictions is an assignment of columns to
    classes. A few examples agree with some order by chance, so they are not checked.
    """
    from scipy.optimize import linear_sum_assignment

    C, n = len(names), len(given)
    if not is_dense(C) or n < _EXAMPLES_PER_CLASS * C:
        return
    counts = class_matrix.counted(given, predicted, C)
    classes, columns = linear_sum_assignment(counts, maximize=True)
    agreement, best = float(counts.trace() / n), float(counts[classes, columns].sum() / n)
    if best - agreement <= _MIXED_UP:
        return
    moved = sorted(classes[classes != columns], key=lambda k: -counts[k, columns[k]])
    pairs = ", ".join(f'class "{names[k]}" in column {columns[k]}' for k in moved[:3])
    if best >= 0.5 and agreement < best / 2:
        raise InputError(
            "the columns of pred_probs are in another order than the class ids: the labels agree "
            f"with {agreement:.0%} of the predictions, and with {best:.0%} in another order, with "
            f"{pairs}",
            field="pred_probs",
            fix="give column k the probability of class k",
        )
    yield {
        "code": "class_order",
        "message": "some columns of pred_probs may be in another order: the labels agree with "
        f"{agreement:.0%} of the predictions, and with {best:.0%} with {pairs}",
    }
