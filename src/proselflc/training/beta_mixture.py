"""A mixture of two beta distributions, of low and of high losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

Values: TypeAlias = npt.NDArray[np.float64]
AnyValues = TypeVar("AnyValues", Values, Tensor)

ITERATIONS = 10
EDGE = 1e-4  # how near 0 and 1 a value may be
LEAST = 1e-12  # of a responsibility
BINS = 100
NARROWEST = 1 / BINS  # standard deviation: less would fall between two bins
PERCENTILES = (5, 95)
APART = 0.05  # means of components that are nearer to each other are one
FEWEST = 0.01  # of all values, that each component must have
OVERLAP = 0.2  # more of the values on the wrong side is one component: a bell has 0.23
PARAMETERS = 5  # of a mixture, for which fewer values are no evidence


@dataclass(frozen=True)
class BetaMixture:
    """w_1 Beta(a_1, b_1) + w_2 Beta(a_2, b_2), the one with the larger mean second.

    Attributes:
        a, b: [2] the shapes.
        weights: [2] w, whose sum is 1.
    """

    a: Values
    b: Values
    weights: Values

    @property
    def means(self) -> Values:
        """[2] a/(a + b)."""
        return self.a / (self.a + self.b)

    def posterior(self, x: Values) -> Values:
        """[N] the chance that a value is of the second component.

        From the logarithms of w_k Beta(x; a_k, b_k), for both can be far away.
        """
        from scipy.special import betaln, expit

        x = np.clip(x, EDGE, 1 - EDGE)
        a, b = self.a[:, None], self.b[:, None]
        logs = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - betaln(a, b)
        low, high = logs + np.log(self.weights)[:, None]
        chance: Values = expit(high - low)
        return chance

    def separates(self, x: Values) -> bool:
        """Whether these are two components at all, for the values [N] that they were found in.

        They are if their means are apart, both have values, and few of these would be taken for
        the other's.
        """
        low, high = self.means
        if high - low <= APART or self.weights.min() <= FEWEST:
            return False
        chance = self.posterior(x)
        return bool(np.minimum(chance, 1 - chance).mean() <= OVERLAP)


def fit(x: Values) -> BetaMixture:
    """The mixture of values in [0, 1], by ten rounds of expectation maximisation.

    The shapes come from weighted moments: with mean m and variance s², at least (1/100)²,

        a = m (m (1 − m)/s² − 1)        b = a (1 − m)/m

    The first round has the values on both sides of the threshold that is halfway between their
    means. The publication begins with Beta(1, 2) and Beta(2, 1) instead, from where ten rounds end
    half-way: two narrow components at ¼ and ¾, for example, are not found at all.

    Args:
        x: [N] one or more.
    """
    x = np.clip(x, EDGE, 1 - EDGE)
    mixture = _moments(x, np.where(x > _threshold(x), 1.0, 0.0))
    for _ in range(ITERATIONS):
        mixture = _moments(x, mixture.posterior(x))
    order = np.argsort(mixture.means)
    return BetaMixture(mixture.a[order], mixture.b[order], mixture.weights[order])


def _threshold(x: Values) -> float:
    """A value that is halfway between the means of those below and above it."""
    threshold, before = float(x.mean()), np.inf
    while abs(threshold - before) > EDGE:
        is_high = x > threshold
        if not is_high.any():
            break
        threshold, before = float(x[is_high].mean() + x[~is_high].mean()) / 2, threshold
    return threshold


def _moments(x: Values, chance: Values) -> BetaMixture:
    """The mixture of the moments of x [N], each of the second component by a chance [N]."""
    r = np.maximum((1 - chance, chance), LEAST)
    total = r.sum(1)
    m = (r @ x) / total
    variance = (r * (x - m[:, None]) ** 2).sum(1) / total
    largest = m * (1 - m)  # that a variance could be
    a = m * (largest / np.maximum(variance, np.minimum(NARROWEST**2, largest / 2)) - 1)
    return BetaMixture(a, a * (1 - m) / m, total / total.sum())


@dataclass(frozen=True)
class LossModel:
    """The chance that a label is wrong, by the loss of its example.

    Attributes:
        low, high: losses that become 0 and 1.
        table: [100] the chance, at losses evenly between the two; it never falls.
    """

    low: float
    high: float
    table: Values


def loss_model(losses: Values) -> LossModel | None:
    """The model of all losses, or None where they do not come in two kinds.

    Fitted on the losses from the 5th to the 95th percentile, which become 0 and 1; those that are
    no finite numbers are left out.

    The posterior of the high component is held at its largest for larger losses, and at its
    smallest for smaller ones: far out in a tail, the wider component always wins.
    """
    losses = losses[np.isfinite(losses)]
    if len(losses) == 0:
        return None
    low, high = np.percentile(losses, PERCENTILES)
    inside = losses[(losses >= low) & (losses <= high)]
    if len(inside) < PARAMETERS:
        return None
    inside = normalised(inside, low, high)
    mixture = fit(inside)
    if not mixture.separates(inside):
        return None
    x = np.linspace(0, 1, BINS)
    posterior = mixture.posterior(x)
    beyond = int(np.searchsorted(x, mixture.means[0]))
    largest = beyond + int(posterior[beyond:].argmax())
    smallest = int(posterior[: largest + 1].argmin())
    posterior[:smallest] = posterior[smallest]
    posterior[largest:] = posterior[largest]
    return LossModel(float(low), float(high), np.maximum.accumulate(posterior))


def normalised(losses: AnyValues, low: float, high: float) -> AnyValues:
    """[N] losses from `low` to `high` as 0 … 1, a little within."""
    return ((losses - low) / (high - low + 1e-6)).clip(1e-3, 1 - 1e-3)
