"""How likely each label is wrong, and what it should be instead: `LabelOdds` has the formula."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from proselflc.auditing.examples import TopClasses
from proselflc.auditing.records import Doubles, Records, first_in_each_row
from proselflc.data import class_matrix
from proselflc.data.class_matrix import ClassMatrix
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.noise_generators import Matrix
from proselflc.training.observations import TOP_CLASSES

# The factor of the log-odds in the chance of being wrong: a mean over the epochs is less confident
# than a trained model.
SLOPE, SLOPE_OUT_OF_SAMPLE, SLOPE_CALIBRATED = 3.0, 1.5, 2.0
_EVEN = 0.5  # share of the mean transition that is added to every pair of classes
_LEAST = 1e-7  # float16 has no smaller p
_ROUNDS = 60


class LabelOdds:
    """The log-odds that each of n labels is wrong, and what it should be instead.

    With p the judgement of network and witness about an example (`Records.judgement`), n_k the
    number of labels k, and i the example's own label, the support of class k is

        s_k = p_k / √n_k · w_ki        (w_ii = 1)

    where w_ki says how much more often than average class k gets the label i (`lift`), and the
    root keeps large classes from swamping rare ones. Calibrated predictions (`HeldOut`) need no
    such help: there it is 1. The label is wrong with the chance

        P = σ(a log(Σ_{k≠i} s_k / s_i) + b)        a = 3, or 1.5 out of sample, or 2 if calibrated

    where b makes the mean of P over all examples that were seen the rate of wrong labels. For
    trusted labels P = 0. The class k ≠ i with the largest s_k is suggested where P > ½.

    Args:
        records: the records of n examples.
        given: [n] their labels.
        joint: [C, C] from `noise_estimate.joint`.
        trusted: [n] whether a label is known to be right, or None.
    """

    def __init__(
        self, records: Records, given: Ints, joint: ClassMatrix, trusted: Bools | None = None
    ) -> None:
        n, C = len(given), joint.shape[0]
        is_dense = isinstance(joint, np.ndarray)
        self._supports = (_DenseSupports if is_dense else _SparseSupports)(records, given, joint)
        self.log_odds, self.other = np.empty(n), np.empty(n, np.int64)
        for rows in records.slices(n, C):
            self.log_odds[rows], self.other[rows] = self._supports.compare(rows)
        if trusted is not None:
            self.log_odds[trusted & ~np.isnan(self.log_odds)] = -np.inf
        self.slope = SLOPE
        if records.held_out is not None:
            calibrated = records.held_out.is_calibrated
            self.slope = SLOPE_CALIBRATED if calibrated else SLOPE_OUT_OF_SAMPLE
        self.given = given

    @property
    def scaled(self) -> Doubles:
        """Return [n] a log(Σ_{k≠i} s_k / s_i), which b is added to."""
        return self.slope * self.log_odds

    def wrong(self, rate: float, stretch: float = 1.0) -> Floats:
        """Return [n] the chance P of each label to be wrong, at a rate of wrong labels.

        Args:
            rate: mean of P.
            stretch: factor of a, which is not 1 after a review.
        """
        return _calibrate(stretch * self.scaled, rate)

    def shift(self, rate: float) -> float:
        """Return b at a rate of wrong labels, which must be positive."""
        return shift_of(self.scaled, rate)

    def at(self, stretch: float, shift: float) -> Floats:
        """Return [n] the chance P of each label to be wrong, with a factor of a, and b."""
        from scipy.special import expit

        chances: Floats = expit(stretch * self.scaled + shift).astype(np.float32)
        return chances

    def distribution(self, rows: slice, wrong: Floats, suggested: Ints) -> Floats | TopClasses:
        """Return the chances of the classes of some examples: see `LabelScores`.

        Args:
            rows: the examples.
            wrong: [n] the chance of each label to be wrong.
            suggested: [n] what each label should be.
        """
        return self._supports.distribution(rows, wrong, suggested)


def odds_of_every_label(p: Floats, given: Ints, joint: Matrix) -> Doubles:
    """Return [N, C] the log-odds that each label would be wrong, by predictions alone.

    Args:
        p: [N, C] predictions.
        given: [n] labels, whose numbers count.
        joint: [C, C] from `noise_estimate.joint`.
    """
    C = len(joint)
    root = np.sqrt(np.maximum(np.bincount(given, minlength=C), 1))
    weights = lift(joint)
    weights[np.diag_indices(C)] = 0
    support = np.maximum(p, _LEAST) / root
    odds: Doubles = np.log(support @ weights) - np.log(support)
    return odds


def lift(joint: Matrix) -> Matrix:
    """Return how much more often than average a class gets a label, by the estimated joint.

    With T the rows of the joint, each cell off the diagonal increased by one example, divided by
    their sums, w_ki = (T_ki + ½ T̄) / RMS for k ≠ i, where T̄ is the mean of T off the diagonal and
    RMS the root of the mean square of the numerators; w_ii = 1. Uniform noise gives 1 everywhere.

    Args:
        joint: [C, C], row = true class.
    """
    beside = ~np.eye(len(joint), dtype=bool)
    counts = joint + beside
    transition = counts / counts.sum(1, keepdims=True)
    granted = transition + _EVEN * transition[beside].mean()
    weights: Matrix = granted / np.sqrt((granted[beside] ** 2).mean())
    weights[~beside] = 1
    return weights


def _root(records: Records, given: Ints, num_classes: int) -> Doubles:
    """Return [C] what the support of each class is divided by: √n_k, or 1 if calibrated."""
    if records.held_out is not None and records.held_out.is_calibrated:
        return np.ones(num_classes)
    root: Doubles = np.sqrt(np.maximum(np.bincount(given, minlength=num_classes), 1))
    return root


class _DenseSupports:
    """The support of every class for every example.

    Args:
        records: the records of n examples.
        given: [n] their labels.
        joint: [C, C] from `noise_estimate.joint`.
    """

    def __init__(self, records: Records, given: Ints, joint: Matrix) -> None:
        self.records, self.given = records, given
        self.weights: Floats = lift(joint).T.astype(np.float32)  # row = given class

    @cached_property
    def _root(self) -> Floats:
        return _root(self.records, self.given, len(self.weights)).astype(np.float32)

    def _supports(self, rows: slice) -> tuple[Doubles, Floats]:
        """Return [rows] the support of the given label, and [rows, C] of the others, else 0."""
        y, C = self.given[rows], len(self.weights)
        p = np.maximum(self.records.judgement(rows, self.given, C), np.float32(_LEAST))
        support: Floats = np.asarray(p / self._root * self.weights[y], np.float32)
        own = np.arange(len(y)), y
        right = support[own].astype(np.float64)
        support[own] = 0
        return right, support

    def compare(self, rows: slice) -> tuple[Doubles, Ints]:
        """Return [rows] the log-odds of being wrong, and the other class with most support."""
        right, others = self._supports(rows)
        with np.errstate(invalid="ignore"):
            log_odds = np.log(others.sum(1, dtype=np.float64)) - np.log(right)
        return log_odds, others.argmax(1)

    def distribution(self, rows: slice, wrong: Floats, suggested: Ints) -> Floats:
        """Return [rows, C] 1 − P for the given label; the others share P by their support."""
        _, others = self._supports(rows)
        chances: Floats = others * (wrong[rows] / others.sum(1))[:, None]
        chances[np.arange(len(chances)), self.given[rows]] = 1 - wrong[rows]
        return chances


class _Supports(NamedTuple):
    """The supports of N examples in sparse form.

    Attributes:
        right: [N] support of the given label; NaN for an example that was never seen.
        others: [N] sum of the supports of all other classes.
        classes: [N, 5] other classes with the largest support, largest first; −1 for none.
        supports: [N, 5] their supports; −∞ for none.
    """

    right: Doubles
    others: Doubles
    classes: Ints
    supports: Doubles


class _SparseSupports:
    """The same for a sparse joint, without an array [C, C] or [n, C].

    Only those w_ki differ from a number of class k alone whose cell of the joint is not 0, and m
    has a value of its own for a few classes of each example. Sums over all classes are therefore
    sums over these few, and one product for all the others.
    """

    def __init__(self, records: Records, given: Ints, joint: ClassMatrix) -> None:
        self.records, self.given = records, given
        C = self.num_classes = joint.shape[0]
        total = joint.sum(1) + (C - 1)  # of counts that are one larger off the diagonal
        mean = ((total - joint.diagonal()) / total).sum() / (C * (C - 1))
        granted = 1 / total + _EVEN * mean  # to a cell that is 0
        true, label, counts = class_matrix.cells(joint)
        beside = true != label
        true, label = true[beside], label[beside]
        more = counts[beside] / total[true]
        squares = (C - 1) * (granted**2).sum() + ((2 * granted[true] + more) * more).sum()
        rms = np.sqrt(squares / (C * (C - 1)))
        # s_k = m_k · w_ki / √n_k, where w_ki / √n_k = usual_k + more_ki
        self.root = _root(records, given, C)
        self.usual: Doubles = granted / rms / self.root
        more = more / rms / self.root[true]
        order = np.argsort(label * C + true)
        self._keys, self._more = (label * C + true)[order], more[order]
        whole = np.bincount(label, more, minlength=C)
        self.whole: Doubles = self.usual.sum() - self.usual + whole  # of all classes but the label
        self._classes, self._weights = self._heaviest()

    def _supports(self, rows: slice) -> _Supports:
        y, C = self.given[rows], self.num_classes
        mean = self.records.sparse_mean_prediction(rows, self.given, C)
        own = mean.classes == y[mean.row]
        p, rest = np.maximum(mean.p, _LEAST), np.maximum(mean.rest, _LEAST)
        right = np.full(len(y), np.nan)
        right[mean.row[own]] = p[own] / self.root[mean.classes[own]]
        row, classes = mean.row[~own], mean.classes[~own]
        weight = self._weight(y[row], classes)
        support = p[~own] * weight
        others = rest * self.whole[y]
        others += np.bincount(row, support - rest[row] * weight, minlength=len(y))
        # The likeliest are among the example's own classes and the label's heaviest ones.
        many = self._classes.shape[1]
        usual_row, usual = np.repeat(np.arange(len(y)), many), self._classes[y].reshape(-1)
        usual_support = (rest[:, None] * self._weights[y]).reshape(-1)
        new = (usual >= 0) & ~np.isnan(usual_support)
        new &= ~np.isin(usual_row * C + usual, row * C + classes)
        row = np.concatenate((row, usual_row[new]))
        classes = np.concatenate((classes, usual[new]))
        support = np.concatenate((support, usual_support[new]))
        return _Supports(right, others, *_largest_of_rows(row, classes, support, len(y)))

    def compare(self, rows: slice) -> tuple[Doubles, Ints]:
        """Return [rows] the log-odds of being wrong, and the other class with most support."""
        found = self._supports(rows)
        return np.log(found.others) - np.log(found.right), found.classes[:, 0]

    def distribution(self, rows: slice, wrong: Floats, suggested: Ints) -> TopClasses:
        """Return the five likeliest classes: 1 − P for the given label, the others share P."""
        found, y, P = self._supports(rows), self.given[rows], wrong[rows].astype(np.float64)
        with np.errstate(invalid="ignore"):
            chances = found.supports * (P / found.others)[:, None]
        classes = np.concatenate((y[:, None], found.classes), 1)
        chances = np.concatenate(((1 - P)[:, None], chances), 1)
        chances[classes < 0] = -np.inf
        order = np.lexsort((classes, -chances), axis=1)[:, :TOP_CLASSES]
        of_suggested = np.where(suggested[rows] == y, chances[:, 0], chances[:, 1])
        return TopClasses(
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

    def _heaviest(self) -> tuple[Ints, Doubles]:
        """Return [C, 5] the other classes of largest weight for each label, and the weights."""
        C = self.num_classes
        most = np.argsort(-self.usual, kind="stable")[: TOP_CLASSES + 1]
        label = np.repeat(np.arange(C), len(most))
        keys = np.union1d(self._keys, (label * C + np.tile(most, C)))
        label, classes = keys // C, keys % C
        label, classes = label[label != classes], classes[label != classes]
        return _largest_of_rows(label, classes, self._weight(label, classes), C)


def _largest_of_rows(row: Ints, classes: Ints, values: Doubles, n: int) -> tuple[Ints, Doubles]:
    """Return [n, 5] the classes with the largest values of each row, and the values."""
    kept = first_in_each_row(row, (-values, classes), TOP_CLASSES)
    ordered = row[kept]
    place = np.arange(len(kept)) - np.searchsorted(ordered, ordered)
    best = np.full((n, TOP_CLASSES), -1, np.int64)
    largest: npt.NDArray[np.float64] = np.full((n, TOP_CLASSES), -np.inf)
    best[ordered, place], largest[ordered, place] = classes[kept], values[kept]
    return best, largest


def _calibrate(x: Doubles, rate: float) -> Floats:
    """Return [n] σ(x + b) with the b that makes their mean the rate, found by bisection.

    Args:
        x: NaN where nothing is known, −∞ where σ is 0 for any b.
        rate: less than 1.
    """
    from scipy.special import expit

    if rate <= 0 or not np.isfinite(x).any():
        return np.where(np.isnan(x), np.nan, 0).astype(np.float32)
    chances: Floats = expit(x + shift_of(x, rate)).astype(np.float32)
    return chances


def shift_of(x: Doubles, rate: float) -> float:
    """Return the b of `_calibrate`, for a positive rate; 0 if nothing is known."""
    from scipy.special import expit

    known = x[~np.isnan(x)]
    finite = known[np.isfinite(known)]
    if not len(finite):
        return 0.0
    low, high = -100.0 - float(finite.max()), 100.0 - float(finite.min())
    for _ in range(_ROUNDS):
        b = (low + high) / 2
        low, high = (b, high) if expit(known + b).mean() < rate else (low, b)
    return (low + high) / 2
