"""Predictions over many classes, of which only a few of each example have numbers of their own.

A record of an epoch holds p of the given label and of the strongest other class, so a mean over E
epochs has at most E + 1 classes of its own and one number for all the others. That is exact: no
[n, C] is needed. Predictions out of sample are kept in the same form beyond a number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from proselflc.data.inputs import Ints
from proselflc.training.observations import NO_CLASS, TOP, Rows

Doubles = npt.NDArray[np.float64]

KEPT = 20  # classes beside the given one of which a prediction out of sample keeps p
_AT_ONCE = 1 << 21  # numbers of dense predictions that are worked on at once


@dataclass(frozen=True)
class FewClasses:
    """Predictions for N examples, [N, C] in effect.

    Attributes:
        rest: [N] p of every class without a number of its own; NaN for an example that is unknown.
        row: [K] which example each number is about, ascending; none of an unknown one.
        classes: [K] which class; distinct for an example, the given one among them.
        p: [K] the number.
    """

    rest: Doubles
    row: Ints
    classes: Ints
    p: Doubles


def of_epochs(observed: Sequence[Rows], rows: slice, given: Ints, num_classes: int) -> FewClasses:
    """Return the mean of what epochs have recorded; see `Records.mean_prediction`."""
    y, C = given[rows], num_classes
    count, rest = np.zeros(len(y)), np.zeros(len(y))
    keys, values = [], []  # of row·C + class
    for epoch in observed:
        facts = epoch[rows]
        seen = np.flatnonzero(~np.isnan(facts["p_given"]))
        facts = facts[seen]
        p_given, p_other = (
            facts[name].astype(np.float64).clip(0, 1) for name in ("p_given", "p_other")
        )
        each = (1 - p_given - p_other).clip(0) / max(C - 2, 1)
        count[seen] += 1
        rest[seen] += each
        keys += [seen * C + y[seen], seen * C + np.minimum(facts["other"].astype(np.int64), C - 1)]
        values += [p_given - each, p_other - each]
    found, place = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]), return_inverse=True)
    total = np.bincount(place.reshape(-1), np.concatenate([np.zeros(0), *values]), len(found))
    row, classes = found // C, found % C
    with np.errstate(invalid="ignore"):
        mean = rest / count
    return FewClasses(mean, row, classes, (total + rest[row]) / count[row])


def of_largest(kept: npt.NDArray[np.void], given: Ints, num_classes: int) -> FewClasses:
    """Return what `largest` has kept [N, 1 + k] of predictions for examples with labels [N]."""
    p = kept["value"].astype(np.float64).clip(0, 1)
    classes = np.minimum(kept["class"].astype(np.int64), num_classes - 1)
    classes[:, 0] = given
    known = ~np.isnan(p).any(1)
    others = num_classes - classes.shape[1]
    rest = (1 - p.sum(1)).clip(0) / max(others, 1)
    # A file can hold a class twice; the first number counts.
    order = np.argsort(classes, axis=1, kind="stable")
    ordered = np.take_along_axis(classes, order, 1)
    new = np.ones(classes.shape, np.bool_)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty_like(new)
    np.put_along_axis(first, order, new, 1)
    row, column = np.nonzero(first & known[:, None])
    return FewClasses(rest, row, classes[row, column], p[row, column])


def largest(p: npt.NDArray[np.floating], given: Ints) -> npt.NDArray[np.void]:
    """Return [N, 1 + k] of `TOP`: p of the given label, then the largest of other classes.

    Args:
        p: [N, C]; NaN for an example that is unknown.
        given: [N] labels.
    """
    N, C = p.shape
    k = min(KEPT, C - 1)
    kept = np.zeros((N, 1 + k), TOP)
    step = max(1, _AT_ONCE // C)
    for begin in range(0, N, step):
        some = slice(begin, min(begin + step, N))
        y, values = given[some], p[some].astype(np.float32)
        own = np.arange(len(y)), y
        kept["class"][some, 0], kept["value"][some, 0] = y, values[own]
        values[own] = -1
        top = np.argpartition(-values, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(values, top, 1)
        order = np.lexsort((top, -found), axis=1)
        kept["class"][some, 1:] = np.take_along_axis(top, order, 1)
        kept["value"][some, 1:] = np.take_along_axis(found, order, 1)
    unknown = np.isnan(kept["value"]).any(1)
    kept["value"][unknown], kept["class"][unknown, 1:] = np.nan, NO_CLASS
    return kept


def first_of_rows(row: Ints, keys: tuple[npt.NDArray[np.generic], ...], many: int) -> Ints:
    """Return the places of the first entries of each row, in the order of the keys.

    Args:
        row: [K] which row an entry is of.
        keys: [K] each, the most significant first, ascending.
        many: how many of a row at most.
    """
    order = np.lexsort((*keys[::-1], row))
    ordered = row[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(row) else order
    rank = np.arange(len(row)) - np.repeat(starts, np.diff(np.r_[starts, len(row)]))
    kept: Ints = order[rank < many]
    return kept
