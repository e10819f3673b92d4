"""The protocol of what learns a table, and the table that it learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import nn

from proselflc.data.inputs import Bools, Floats, Ints

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LabelledTable:
    """The rows to learn from.

    Attributes:
        x: [n, D] numbers; NaN for a missing cell, and a code ≥ 0 for a category.
        y: [n] class ids in 0 … C−1; not every class needs to occur.
        num_classes: C.
        categorical: [D] whether a column holds codes of categories; None if none does.
        weight: [n] weights of the rows, above 0; None if all weigh the same.
    """

    x: Floats
    y: Ints
    num_classes: int
    categorical: Bools | None = None
    weight: Doubles | None = None

    def take(self, rows: Ints) -> LabelledTable:
        """Return the rows at these positions."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], weight=weight)

    def corrected(self, suggested: Ints, quality: Floats) -> LabelledTable:
        """Return the table with each doubtful row twice, weighted between its two labels.

        A row whose suggestion differs from its label has the given label with weight `quality` and
        the suggested one with weight 1 − `quality`, so that all rows keep their weight.

        Args:
            suggested: [n] class ids; the given label where there is no other suggestion.
            quality: [n] probability that the given label is right.
        """
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        right = np.where(suggested == self.y, 1.0, np.clip(quality.astype(np.float64), 0, 1))
        kept, other = np.flatnonzero(right > 0), np.flatnonzero(right < 1)
        rows = np.concatenate((kept, other))
        labels = np.concatenate((self.y[kept], suggested[other]))
        weights = np.concatenate(((weight * right)[kept], (weight * (1 - right))[other]))
        return replace(self, x=self.x[rows], y=labels, weight=weights)


class Fitted(Protocol):
    """What has learned a table."""

    def staged(self, x: Floats) -> Iterator[Doubles]:
        """Yield the probabilities [N, C] of N rows after each round; the last are the model's."""

    def module(self) -> nn.Module | None:
        """Return the model as a module that maps rows to logits [N, C]; None if it cannot be saved.

        Its state holds numbers alone, so that it can be saved and read without pickle.
        """


class Learner(Protocol):
    """Learns tables. It is a value: fitting twice gives the same result twice."""

    @property
    def rounds(self) -> int:
        """Return the number of rounds, which a run records as epochs."""

    @property
    def takes_codes(self) -> bool:
        """Return whether rows have codes and NaN; otherwise they are dense and standardised."""

    def fit(self, table: LabelledTable) -> Fitted:
        """Learn a table."""


def predictions(fitted: Fitted, x: Floats) -> Doubles:
    """Return the probabilities [N, C] of N rows after the last round."""
    last: Doubles | None = None
    for p in fitted.staged(x):
        last = p
    assert last is not None
    return last


def mean_over_rounds(fitted: Fitted, x: Floats) -> Doubles:
    """Return the mean [N, C] of the probabilities of N rows over the rounds.

    Early rounds know what most labels say and late ones what few say: the mean tells wrong labels
    better than the last round does.
    """
    total: Doubles | None = None
    count = 0
    for p in fitted.staged(x):
        total = p.copy() if total is None else total + p
        count += 1
    assert total is not None
    return total / count


def all_classes(p: Doubles, classes: Ints, num_classes: int) -> Doubles:
    """Return [N, C] from the probabilities [N, K] of the classes that an estimator has seen."""
    if len(classes) == num_classes:
        return p
    whole = np.zeros((len(p), num_classes))
    whole[:, classes] = p
    return whole
