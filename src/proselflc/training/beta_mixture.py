"""A mixture of two beta distributions, fitted to low and high losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

Values: TypeAlias = npt.NDArray[np.float64]
AnyValues = TypeVar("AnyValues", Values, Tensor)

ITERATIONS = 10
EDGE = 1e-4  # values are clipped to [EDGE, 1 − EDGE]
LEAST = 1e-12  # the smallest responsibility
BINS = 100
NARROWEST = 1 / BINS  # the smallest standard deviation: less would fall between two bins
PERCENTILES = (5, 95)
APART = 0.05  # components whose means are closer count as one
FEWEST = 0.01  # the smallest share of the values that a component must have
OVERLAP = 0.2  # the largest share of misassigned values; a single bell has 0.23
PARAMETERS = 5  # of a mixture; fewer values cannot determine them


@dataclass(frozen=True)
class BetaMixture:
    """The density w_1 Beta(a_1, b_1) + w_2 Beta(a_2, b_2), ordered by mean.

    Attributes:
        a, b: [2] the shapes.
        weights: [2] w, whose sum is 1.
    """

    a: Values
    b: Values
    weights: Values

    @property
    def means(self) -> Values:
        """Return the means [2] of the components, a/(a + b)."""
        return self.a / (self.a + self.b)

    def posterior(self, x: Values) -> Values:
        """Return the probability [N] that a value is from the second component.

        It is computed from log densities, because both densities can underflow.
        """
        from scipy.special import betaln, expit

        x = np.clip(x, EDGE, 1 - EDGE)
        a, b = self.a[:, None], self.b[:, None]
        logs = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - betaln(a, b)
        low, high = logs + np.log(self.weights)[:, None]
        chance: Values = expit(high - low)
        return chance

    def separates(self, x: Values) -> bool:
        """Return whether the values [N] that the mixture was fitted to form two components.

        They do if the means are apart, both components have values, and few values are misassigned.
        """
        low, high = self.means
        if high - low <= APART or self.weights.min() <= FEWEST:
            return False
        chance = self.posterior(x)
        return bool(np.minimum(chance, 1 - chance).mean() <= OVERLAP)


def fit(x: Values) -> BetaMixture:
    """Return the mixture of values [N] in [0, 1], by ten rounds of expectation maximisation.

    The shapes come from weighted moments: with mean m and variance s², at least (1/100)²,

        a = m (m (1 − m)/s² − 1)        b = a (1 − m)/m

    The first round splits the values at the threshold that is halfway between the means of both
    sides. The publication starts from Beta(1, 2) and Beta(2, 1), from which ten rounds do not
    converge: two narrow components at ¼ and ¾, for example, are not found at all.
    """
    x = np.clip(x, EDGE, 1 - EDGE)
    mixture = _moments(x, np.where(x > _threshold(x), 1.0, 0.0))
    for _ in range(ITERATIONS):
        mixture = _moments(x, mixture.posterior(x))
    order = np.argsort(mixture.means)
    return BetaMixture(mixture.a[order], mixture.b[order], mixture.weights[order])


def _threshold(x: Values) -> float:
    """Return a threshold halfway between the means of the values below and above it."""
    threshold, before = float(x.mean()), np.inf
    while abs(threshold - before) > EDGE:
        is_high = x > threshold
        if not is_high.any():
            break
        threshold, before = float(x[is_high].mean() + x[~is_high].mean()) / 2, threshold
    return threshold


def _moments(x: Values, chance: Values) -> BetaMixture:
    """Return the mixture with the moments of x [N], weighted by the second component's chance."""
    r = np.maximum((1 - chance, chance), LEAST)
    total = r.sum(1)
    m = (r @ x) / total
    variance = (r * (x - m[:, None]) ** 2).sum(1) / total
    largest = m * (1 - m)  # the upper bound of a variance
    a = m * (largest / np.maximum(variance, np.minimum(NARROWEST**2, largest / 2)) - 1)
    return BetaMixture(a, a * (1 - m) / m, total / total.sum())


@dataclass(frozen=True)
class LossModel:
    """The probability that a label is wrong, as a function of the loss.

    Attributes:
        low, high: losses that are mapped to 0 and 1.
        table: [100] nondecreasing probabilities at evenly spaced losses between the two.
    """

    low: float
    high: float
    table: Values


def loss_model(losses: Values) -> LossModel | None:
    """Return the model of all losses, or None if they do not form two components.

    It is fitted to the finite losses from the 5th to the 95th percentile, mapped to [0, 1]. The
    posterior of the high component stays at its maximum for larger losses and at its minimum for
    smaller ones: far out in a tail, the wider component always wins.
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
    """Return losses [N] mapped from [low, high] to the inside of (0, 1)."""
    return ((losses - low) / (high - low + 1e-6)).clip(1e-3, 1 - 1e-3)
