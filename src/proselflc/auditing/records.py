"""What a run has recorded of every example, and the mean prediction that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.auditing import few_classes
from proselflc.auditing.few_classes import FewClasses
from proselflc.data.inputs import Floats, Ints
from proselflc.data.labels.labels import Labels
from proselflc.data.memory_budget import is_dense
from proselflc.errors import InputError
from proselflc.training.observations import TOP, Rows

_ELEMENTS = 1 << 21  # of [rows, classes] that are worked on at once


@dataclass(frozen=True)
class HeldOut:
    """Predictions for examples by models that have not seen them.

    Attributes:
        folds: into how many parts the examples were cut; each was predicted by a model of the rest.
        p: [n, C], or [n, 1 + k] as `few_classes.largest` keeps it; NaN for an example that was not
            predicted.
    """

    folds: int
    p: npt.NDArray[np.floating] | npt.NDArray[np.void]

    @property
    def is_whole(self) -> bool:
        """Return whether p is known of every class."""
        return self.p.dtype != TOP


@dataclass(frozen=True)
class Records:
    """What was seen of n examples.

    Attributes:
        observed: [n] of every epoch, in order; may be memory-mapped.
        held_out: predictions out of sample, where there are any.
    """

    observed: Sequence[Rows]
    held_out: HeldOut | None = None

    def check(self, labels: Labels) -> None:
        """Refuse records of other examples or classes.

        Raises:
            InputError: they are not of these labels, or there are none.
        """
        n, C = len(labels.given), len(labels.names)
        if not self.observed:
            raise InputError(
                "the run has no dynamics: what was seen in every epoch is what an audit looks at, "
                "so train it again"
            )
        for e, epoch in enumerate(self.observed):
            if epoch.shape != (n,):
                raise InputError(
                    f"the record of epoch {e} is {list(epoch.shape)}, but there are {n} labels: "
                    "it belongs to another run"
                )
        if self.held_out is None:
            return
        whole = self.held_out.is_whole
        if self.held_out.p.shape != ((n, C) if whole else (n, 1 + min(few_classes.KEPT, C - 1))):
            raise InputError(
                f"the predictions of the folds are {list(self.held_out.p.shape)}, but there are "
                f"{n} labels of {C} classes: they belong to another run"
            )

    def mean_prediction(
        self, rows: slice, given: Ints, num_classes: int, *, epochs: int | None = None
    ) -> Floats:
        """The mean of p over the epochs that saw an example; out of sample where that is known.

        A record holds p of the given label and of the strongest other class. What these leave to 1
        is spread evenly over the other C − 2 classes.

        Args:
            rows: which examples.
            given: [n] their labels.
            num_classes: C.
            epochs: look at so many from the first; at all of them if None.

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
            seen = np.flatnonzero(~np.isnan(epoch["p_given"][rows]))
            facts = epoch[rows][seen]
            # A file can hold anything; what is no probability must not spoil the others.
            p_given, p_other = (
                facts[name].astype(np.float32).clip(0, 1) for name in ("p_given", "p_other")
            )
            each = (1 - p_given - p_other).clip(0) / max(C - 2, 1)
            count[seen] += 1
            rest[seen] += each
            m[seen, y[seen]] += p_given - each
            m[seen, np.minimum(facts["other"], C - 1)] += p_other - each
        with np.errstate(invalid="ignore"):
            mean: Floats = (m + rest[:, None]) / count[:, None]
        return mean

    def few(
        self, rows: slice, given: Ints, num_classes: int, *, epochs: int | None = None
    ) -> FewClasses:
        """Return `mean_prediction` without making [rows, C]; the arguments are the same.

        Of predictions out of sample the largest are looked at; the others share the remainder.
        """
        if self.held_out is None:
            return few_classes.of_epochs(self.observed[:epochs], rows, given, num_classes)
        p: npt.NDArray[Any] = self.held_out.p[rows]
        kept = few_classes.largest(p, given[rows]) if self.held_out.is_whole else p
        return few_classes.of_largest(kept, given[rows], num_classes)

    def slices(self, num_examples: int, num_classes: int) -> Iterator[slice]:
        """Cut the examples so that no more than a few million numbers are worked on at once."""
        width = num_classes
        if not is_dense(num_classes):
            # Numbers of classes of their own, and what is computed from each.
            width = 4 * (few_classes.KEPT + 1 if self.held_out else 2 * len(self.observed) + 6)
        return slices(num_examples, width)


def slices(n: int, width: int) -> Iterator[slice]:
    """Cut n rows so that no more than a few million numbers are worked on at once."""
    step = max(1, _ELEMENTS // width)
    # One slice without rows for no examples, so that what is made of them is there all the same.
    for begin in range(0, max(n, 1), step):
        yield slice(begin, min(begin + step, n))
