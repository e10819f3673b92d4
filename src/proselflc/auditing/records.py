"""What training recorded about every example, and the mean prediction that follows from it.

An epoch records p of the given label and of the strongest other class, so a mean over E epochs has
a probability of its own for at most E + 1 classes, and one common probability for all the others.
`SparsePredictions` holds exactly that, so that many classes need no array [n, C].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.inputs import Floats, Ints
from proselflc.data.labels import Labels
from proselflc.data.memory_budget import is_dense
from proselflc.errors import InputError
from proselflc.training.observations import NO_CLASS, TOP, Rows

Doubles = npt.NDArray[np.float64]

KEPT_CLASSES = 20  # besides the given one, of which a held-out prediction keeps p
_LEAST = np.float32(1e-6)  # chance that counts, so that neither of two opinions can be a veto
_ELEMENTS = 1 << 21  # of [rows, classes] that are processed at once


@dataclass(frozen=True)
class SparsePredictions:
    """Predictions for N examples, equivalent to [N, C].

    Attributes:
        rest: [N] p of every class that is not listed; NaN for an example without a prediction.
        row: [K] example that a listed p belongs to, ascending; examples without a prediction have
            none.
        classes: [K] its class; the classes of an example are distinct and include the given one.
        p: [K] its probability.
    """

    rest: Doubles
    row: Ints
    classes: Ints
    p: Doubles


@dataclass(frozen=True)
class HeldOut:
    """Predictions for examples by models that were not trained on them.

    Attributes:
        folds: number of parts that the examples were divided into; each part was predicted by a
            model trained on the others.
        p: [n, C], or [n, 1 + k] from `largest_probabilities`; NaN for an example without a
            prediction.
        is_calibrated: whether p are chances as they stand, as those of trees and of a forest are;
            a network is too sure of large classes.
    """

    folds: int
    p: npt.NDArray[np.floating] | npt.NDArray[np.void]
    is_calibrated: bool = False

    @property
    def is_whole(self) -> bool:
        """Return whether p holds every class."""
        return self.p.dtype != TOP


@dataclass(frozen=True)
class Witness:
    """A second opinion on labels, as `witness.witness` computes it.

    Attributes:
        p: [n, C] chance of each class for each example, without its own label.
        kind: the features that it is computed from, for a sentence.
    """

    p: npt.NDArray[np.floating]
    kind: str


@dataclass(frozen=True)
class Records:
    """The records of n examples.

    Attributes:
        observed: [n] for every epoch, in order; may be memory-mapped.
        held_out: held-out predictions, which replace the mean over the epochs, or None.
        witness: a second opinion by a model that did not see the labels, or None.
    """

    observed: Sequence[Rows]
    held_out: HeldOut | None = None
    witness: Witness | None = None

    @property
    def blind_kind(self) -> str | None:
        """Return what the predictions are that did not see the labels; None if there are none."""
        if self.witness is not None:
            return self.witness.kind
        return None if self.held_out is None else f"{self.held_out.folds} folds"

    def check(self, labels: Labels) -> None:
        """Refuse records of other examples or classes."""
        n, C = len(labels.given), len(labels.names)
        if not self.observed:
            raise InputError(
                "the run has no dynamics, the records of every epoch that an audit is computed "
                "from",
                fix="train it again",
            )
        for e, epoch in enumerate(self.observed):
            if epoch.shape != (n,):
                raise InputError(
                    f"the record of epoch {e} has the shape {list(epoch.shape)}, but there are {n} "
                    "labels: it belongs to another run"
                )
        if self.witness is not None and self.witness.p.shape != (n, C):
            raise InputError(
                f"the second opinion has the shape {list(self.witness.p.shape)}, but there are {n} "
                f"labels of {C} classes: it belongs to another run"
            )
        if self.held_out is None:
            return
        width = C if self.held_out.is_whole else 1 + min(KEPT_CLASSES, C - 1)
        if self.held_out.p.shape != (n, width):
            raise InputError(
                f"the predictions of the folds have the shape {list(self.held_out.p.shape)}, but "
                f"there are {n} labels of {C} classes: they belong to another run"
            )

    def mean_prediction(
        self, rows: slice, given: Ints, num_classes: int, *, epochs: int | None = None
    ) -> Floats:
        """Return the mean of p over the epochs that saw an example, or its held-out prediction.

        A record holds p of the given label and of the strongest other class. The rest of the
        probability is spread evenly over the other C − 2 classes.

        Args:
            rows: the examples.
            given: [n] labels of all examples.
            num_classes: C.
            epochs: number of epochs from the first; None for all.

        Returns:
            [rows, C]; NaN where the example was not seen.
        """
        if self.held_out is not None:
            assert self.held_out.is_whole
            return self.held_out.p[rows].astype(np.float32).clip(0, 1)
        y, C = given[rows], num_classes
        m = np.zeros((len(y), C), np.float32)
        count, rest = np.zeros(len(y), np.float32), np.zeros(len(y), np.float32)
        for epoch in self.observed[:epochs]:
            recorded = np.flatnonzero(~np.isnan(epoch["p_given"][rows]))
            facts = epoch[rows][recorded]
            # A file can hold anything: a value that is not a probability must not spoil the others.
            p_given, p_other = (
                facts[name].astype(np.float32).clip(0, 1) for name in ("p_given", "p_other")
            )
            each = (1 - p_given - p_other).clip(0) / max(C - 2, 1)
            count[recorded] += 1
            rest[recorded] += each
            m[recorded, y[recorded]] += p_given - each
            m[recorded, np.minimum(facts["other"], C - 1)] += p_other - each
        with np.errstate(invalid="ignore"):
            mean: Floats = (m + rest[:, None]) / count[:, None]
        return mean

    def judgement(
        self, rows: slice, given: Ints, num_classes: int, *, epochs: int | None = None
    ) -> Floats:
        """Return what network and witness say together: √(m h), scaled to sum to 1.

        m is the `mean_prediction` and h the witness; without a witness it is m alone.
        """
        m = self.mean_prediction(rows, given, num_classes, epochs=epochs)
        if self.witness is None:
            return m
        return together(m, self.witness.p[rows].astype(np.float32))

    def sparse_mean_prediction(
        self, rows: slice, given: Ints, num_classes: int, *, epochs: int | None = None
    ) -> SparsePredictions:
        """Return `mean_prediction` without an array [rows, C]; the arguments are the same.

        Of held-out predictions only the largest are used; the other classes share the remainder.
        """
        if self.held_out is None:
            return _mean_of_epochs(self.observed[:epochs], rows, given, num_classes)
        p: npt.NDArray[Any] = self.held_out.p[rows]
        kept = largest_probabilities(p, given[rows]) if self.held_out.is_whole else p
        return _from_largest(kept, given[rows], num_classes)

    def slices(self, num_examples: int, num_classes: int) -> Iterator[slice]:
        """Return slices of the examples that each need a few million numbers at most."""
        width = num_classes
        if not is_dense(num_classes):
            # The number of listed classes, and what is computed from each.
            width = 4 * (KEPT_CLASSES + 1 if self.held_out else 2 * len(self.observed) + 6)
        return slices(num_examples, width)


def together(one: Floats, other: Floats) -> Floats:
    """Return √(one · other), scaled to sum to 1, for two opinions [N, C]; neither can be a veto."""
    h = np.maximum(other, _LEAST)
    both: Floats = np.sqrt(np.maximum(one, _LEAST) * h)
    both /= both.sum(1, keepdims=True)
    return both


def slices(n: int, width: int) -> Iterator[slice]:
    """Return slices of n rows that each need a few million numbers at most."""
    step = max(1, _ELEMENTS // width)
    # Without examples there is one empty slice, so that there is always a result.
    for begin in range(0, max(n, 1), step):
        yield slice(begin, min(begin + step, n))


def _mean_of_epochs(
    observed: Sequence[Rows], rows: slice, given: Ints, num_classes: int
) -> SparsePredictions:
    """Return the mean over the epochs; see `Records.mean_prediction`."""
    y, C = given[rows], num_classes
    count, rest = np.zeros(len(y)), np.zeros(len(y))
    keys, values = [], []  # of row·C + class
    for epoch in observed:
        facts = epoch[rows]
        recorded = np.flatnonzero(~np.isnan(facts["p_given"]))
        facts = facts[recorded]
        p_given, p_other = (
            facts[name].astype(np.float64).clip(0, 1) for name in ("p_given", "p_other")
        )
        each = (1 - p_given - p_other).clip(0) / max(C - 2, 1)
        count[recorded] += 1
        rest[recorded] += each
        other = np.minimum(facts["other"].astype(np.int64), C - 1)
        keys += [recorded * C + y[recorded], recorded * C + other]
        values += [p_given - each, p_other - each]
    found, place = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]), return_inverse=True)
    total = np.bincount(place.reshape(-1), np.concatenate([np.zeros(0), *values]), len(found))
    row, classes = found // C, found % C
    with np.errstate(invalid="ignore"):
        mean = rest / count
    return SparsePredictions(mean, row, classes, (total + rest[row]) / count[row])


def _from_largest(kept: npt.NDArray[np.void], given: Ints, num_classes: int) -> SparsePredictions:
    """Return the predictions of which `largest_probabilities` kept [N, 1 + k]."""
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
    return SparsePredictions(rest, row, classes[row, column], p[row, column])


def largest_probabilities(p: npt.NDArray[np.floating], given: Ints) -> npt.NDArray[np.void]:
    """Return [N, 1 + k] of `TOP`: p of the given label, then the largest of other classes.

    Args:
        p: [N, C]; NaN for an example without a prediction.
        given: [N] labels.
    """
    N, C = p.shape
    k = min(KEPT_CLASSES, C - 1)
    kept = np.zeros((N, 1 + k), TOP)
    for rows in slices(N, C):
        y, values = given[rows], p[rows].astype(np.float32)
        own = np.arange(len(y)), y
        kept["class"][rows, 0], kept["value"][rows, 0] = y, values[own]
        values[own] = -1
        top = np.argpartition(-values, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(values, top, 1)
        order = np.lexsort((top, -found), axis=1)
        kept["class"][rows, 1:] = np.take_along_axis(top, order, 1)
        kept["value"][rows, 1:] = np.take_along_axis(found, order, 1)
    unknown = np.isnan(kept["value"]).any(1)
    kept["value"][unknown], kept["class"][unknown, 1:] = np.nan, NO_CLASS
    return kept


def first_in_each_row(row: Ints, keys: tuple[npt.NDArray[np.generic], ...], many: int) -> Ints:
    """Return the positions of the first entries of each row, in the order of the keys.

    Args:
        row: [K] row of each entry.
        keys: [K] each, the most significant first, ascending.
        many: largest number of entries of a row.
    """
    order = np.lexsort((*keys[::-1], row))
    ordered = row[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(row) else order
    rank = np.arange(len(row)) - np.repeat(starts, np.diff(np.r_[starts, len(row)]))
    kept: Ints = order[rank < many]
    return kept
