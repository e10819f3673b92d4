"""How labels come from true classes: which classes are mistaken for which, and how surely."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from proselflc.auditing.predictions.checks import Probabilities
from proselflc.auditing.records import Doubles, slices
from proselflc.data.inputs import Ints
from proselflc.data.memory_budget import is_dense
from proselflc.data.noise_generators import Matrix

TEMPERATURES = tuple(float(t) for t in np.geomspace(0.1, 2.0, 13))
_EVEN = 5.0  # examples of each class that are added to its transition, at the mean noise rate
_ROUNDS = 20
_LEAST = 1e-6  # smallest probability, since a model's zeros are rounded
_NUMBERS = 4 * 10**6  # probabilities that are enough to fit temperature and transition
_MOST = 0.95  # largest noise rate


class LabelChannel(NamedTuple):
    """How labels come from true classes, and predictions from both.

    Attributes:
        tau: τ, the temperature; below 1 the true classes are surer than p.
        beside: [C, C] S, the shares of each class's wrong labels; row = true class, rows sum to 1,
            0 on the diagonal. None if they are even.
    """

    tau: float
    beside: Matrix | None

    def judge(
        self, p: Probabilities, given: Ints, rate: float, sharper: float = 1.0
    ) -> tuple[Doubles, Ints]:
        """Return [n] the chance P(y) that each label is right, and the likeliest other class."""
        n, C = p.shape
        quality, other = np.empty(n), np.empty(n, np.int64)
        for rows in slices(n, C):
            y = given[rows]
            chances = sharpened(p[rows], sharper * self.tau) * self.columns(y, rate, C)
            own = np.arange(len(y)), y
            right = chances[own]
            chances[own] = 0
            quality[rows] = right / (right + chances.sum(1))
            other[rows] = chances.argmax(1)
        return quality, other

    def columns(self, given: Ints, rate: float, num_classes: int) -> Doubles:
        """Return [N, C] T_ky for the label y of each example."""
        C, rate = num_classes, min(rate, _MOST)
        if self.beside is None:
            columns: Doubles = np.full((len(given), C), rate / (C - 1))
        else:
            columns = (rate * self.beside.T)[given]
        columns[np.arange(len(given)), given] = 1 - rate
        return columns


def fit(p: Probabilities, given: Ints, rate: float) -> LabelChannel:
    """Return S and τ of the largest likelihood Π_i Σ_k c_ik T_ky.

    First S is that of the likeliest T with any rates on its diagonal (`likeliest_transition`), and
    any τ; then τ is the likeliest with T = (1 − r) I + r S. Of many examples, evenly spaced ones
    are used; beyond `memory_budget.DENSE_CLASSES` classes, S is even.

    Args:
        p: [n, C].
        given: [n].
        rate: r.
    """
    n, C = p.shape
    rows = np.arange(0, n, math.ceil(n * C / _NUMBERS))
    rows = rows[np.argsort(given[rows], kind="stable")]
    p, given, beside = p[rows], given[rows], None
    if is_dense(C):
        found = (likeliest_transition(sharpened(p, tau), given) for tau in TEMPERATURES)
        beside = max(found, key=lambda one: one[1])[0] + _LEAST
        np.fill_diagonal(beside, 0)
        beside /= beside.sum(1, keepdims=True)
    columns = LabelChannel(1.0, beside).columns(given, rate, C)

    def likelihood(tau: float) -> float:
        return float(np.log((sharpened(p, tau) * columns).sum(1)).sum())

    return LabelChannel(max(TEMPERATURES, key=likelihood), beside)


def likeliest_transition(c: Doubles, given: Ints) -> tuple[Matrix, float]:
    """Return the T of the largest likelihood Π_i Σ_k c_ik T_ky, and its logarithm.

    Twenty rounds of expectation maximisation find T from an even start; five examples per class at
    the mean noise rate keep small classes from extremes.

    Args:
        c: [n, C] chances of each true class.
        given: [n] labels in ascending order.
    """
    n, C = c.shape
    beside = ~np.eye(C, dtype=bool)
    there, starts = np.unique(given, return_index=True)
    sizes = np.diff(np.r_[starts, n])

    def even(rate: float) -> Matrix:
        return np.where(beside, rate / (C - 1), 1 - rate)

    def weighted(transition: Matrix) -> Doubles:
        found: Doubles = c * np.repeat(transition.T[there], sizes, axis=0)
        return found

    transition = even(0.1)
    for _ in range(_ROUNDS):
        shares = weighted(transition)
        shares /= shares.sum(1, keepdims=True)
        joint: Matrix = np.zeros((C, C))
        joint[:, there] = np.add.reduceat(shares, starts, axis=0).T
        joint += _EVEN * even(float(joint[beside].sum() / n))
        transition = joint / joint.sum(1, keepdims=True)
    return transition, float(np.log(weighted(transition).sum(1)).sum())


def sharpened(p: Probabilities, tau: float) -> Doubles:
    """Return [N, C] p^(1/τ) with rows that sum to 1; τ < 1 is sharper than p."""
    powers: Doubles = np.log(np.maximum(p, _LEAST, dtype=np.float64)) / tau
    powers -= powers.max(1, keepdims=True)
    np.exp(powers, out=powers)
    powers /= powers.sum(1, keepdims=True)
    return powers
