"""How much speaks for every class of every example, where there are too many classes for [C, C].

The formulas are those of `suspects.judge` and `suspects.lift`. Of w_ki only the cells of the joint
that are not 0 differ from a number of class k alone, and of m only a few classes of each example,
so that sums over all classes are sums over these few and one product for all the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from proselflc.auditing.examples import Likeliest
from proselflc.auditing.few_classes import Doubles, first_of_rows
from proselflc.auditing.records import Records
from proselflc.data.inputs import Floats, Ints
from proselflc.data.labels import class_matrix
from proselflc.data.labels.class_matrix import ClassMatrix
from proselflc.training.observations import TOP_CLASSES

LEAST = 1e-7  # float16 knows no smaller p


class Supports(NamedTuple):
    """What speaks for N examples' labels and for other classes.

    Attributes:
        right: [N] support of the given label; NaN for an example of which nothing was seen.
        others: [N] sum of the supports of all other classes.
        classes: [N, 5] the other classes with the largest support, the largest first; −1 for none.
        supports: [N, 5] theirs; −∞ for none.
    """

    right: Doubles
    others: Doubles
    classes: Ints
    supports: Doubles


class SparseSupports:
    """Computes supports from the cells of a joint.

    Args:
        records: of n examples.
        given: [n] their labels.
        joint: [C, C] sparse, as `noise_estimate.joint` estimates it.
        even: share of the mean transition that every pair of classes is granted.
    """

    def __init__(self, records: Records, given: Ints, joint: ClassMatrix, even: float) -> None:
        self.records, self.given = records, given
        C = self.num_classes = joint.shape[0]
        total = joint.sum(1) + (C - 1)  # of counts that are one larger beside the diagonal
        mean = ((total - joint.diagonal()) / total).sum() / (C * (C - 1))
        granted = 1 / total + even * mean  # of a cell that is 0
        true, label, counts = class_matrix.cells(joint)
        beside = true != label
        true, label = true[beside], label[beside]
        more = counts[beside] / total[true]
        squares = (C - 1) * (granted**2).sum() + ((2 * granted[true] + more) * more).sum()
        rms = np.sqrt(squares / (C * (C - 1)))
        # s_k = m_k · w_ki / √n_k, where w_ki / √n_k = usual_k + more_ki
        self.root = np.sqrt(np.maximum(np.bincount(given, minlength=C), 1))
        self.usual: Doubles = granted / rms / self.root
        more = more / rms / self.root[true]
        order = np.argsort(label * C + true)
        self._keys, self._more = (label * C + true)[order], more[order]
        whole = np.bincount(label, more, minlength=C)
        self.whole: Doubles = self.usual.sum() - self.usual + whole  # of all classes but the label
        self._strongest()

    def of(self, rows: slice) -> Supports:
        """Return the supports of some examples."""
        y, C = self.given[rows], self.num_classes
        few = self.records.few(rows, self.given, C)
        own = few.classes == y[few.row]
        p, rest = np.maximum(few.p, LEAST), np.maximum(few.rest, LEAST)
        right = np.full(len(y), np.nan)
        right[few.row[own]] = p[own] / self.root[few.classes[own]]
        row, classes = few.row[~own], few.classes[~own]
        weight = self._weight(y[row], classes)
        support = p[~own] * weight
        others = rest * self.whole[y]
        others += np.bincount(row, support - rest[row] * weight, minlength=len(y))
        # The likeliest are among the example's own classes and the label's usual ones.
        many = self._classes.shape[1]
        usual_row, usual = np.repeat(np.arange(len(y)), many), self._classes[y].reshape(-1)
        usual_support = (rest[:, None] * self._weights[y]).reshape(-1)
        new = (usual >= 0) & ~np.isnan(usual_support)
        new &= ~np.isin(usual_row * C + usual, row * C + classes)
        row = np.concatenate((row, usual_row[new]))
        classes = np.concatenate((classes, usual[new]))
        support = np.concatenate((support, usual_support[new]))
        return Supports(right, others, *_table(row, classes, support, len(y)))

    def likeliest(self, rows: slice, wrong: Floats, suggested: Ints) -> Likeliest:
        """Return the five likeliest classes: 1 − P for the given label, the others share P.

        Args:
            rows: which examples.
            wrong: [n] P.
            suggested: [n] classes; the given one, or the other one with the largest support.
        """
        found, y, P = self.of(rows), self.given[rows], wrong[rows].astype(np.float64)
        with np.errstate(invalid="ignore"):
            chances = found.supports * (P / found.others)[:, None]
        classes = np.concatenate((y[:, None], found.classes), 1)
        chances = np.concatenate(((1 - P)[:, None], chances), 1)
        chances[classes < 0] = -np.inf
        order = np.lexsort((classes, -chances), axis=1)[:, :TOP_CLASSES]
        of_suggested = np.where(suggested[rows] == y, chances[:, 0], chances[:, 1])
        return Likeliest(
            np.take_along_axis(classes, order, 1),
            np.take_along_axis(chances, order, 1).astype(np.float32),
            of_suggested.astype(np.float32),
        )

    def _weight(self, label: Ints, classes: Ints) -> Doubles:
        """Return w_ki / √n_k for pairs of label i and another class k, [K] each."""
        keys = label * self.num_classes + classes
        place = np.searchsorted(self._keys, keys)
        there = place < len(self._keys)
        there[there] = self._keys[place[there]] == keys[there]
        weight: Doubles = self.usual[classes].copy()
        weight[there] += self._more[place[there]]
        return weight

    def _strongest(self) -> None:
        """Find the five other classes with the largest weight of each label, [C, 5]."""
        C = self.num_classes
        most = np.argsort(-self.usual, kind="stable")[: TOP_CLASSES + 1]
        label = np.repeat(np.arange(C), len(most))
        keys = np.union1d(self._keys, (label * C + np.tile(most, C)))
        label, classes = keys // C, keys % C
        label, classes = label[label != classes], classes[label != classes]
        found = _table(label, classes, self._weight(label, classes), C)
        self._classes, self._weights = found


def _table(row: Ints, classes: Ints, values: Doubles, n: int) -> tuple[Ints, Doubles]:
    """Return [n, 5] the classes of the largest values of each row, and the values."""
    kept = first_of_rows(row, (-values, classes), TOP_CLASSES)
    ordered = row[kept]
    place = np.arange(len(kept)) - np.searchsorted(ordered, ordered)
    best = np.full((n, TOP_CLASSES), -1, np.int64)
    largest: npt.NDArray[np.float64] = np.full((n, TOP_CLASSES), -np.inf)
    best[ordered, place], largest[ordered, place] = classes[kept], values[kept]
    return best, largest
