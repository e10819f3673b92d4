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
PERCENTILES = (5, 95)
APART = 0.05  # means of components that are nearer to each other are one
FEWEST = 0.01  # of all values, that each component must have
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

    def densities(self, x: Values) -> Values:
        """[2, N] w_k Beta(x; a_k, b_k)."""
        from scipy.stats import beta

        found: Values = self.weights[:, None] * beta.pdf(x, self.a[:, None], self.b[:, None])
        return found

    def posterior(self, x: Values) -> Values:
        """[N] the chance that a value is of the second component."""
        each = np.maximum(self.densities(np.clip(x, EDGE, 1 - EDGE)), LEAST)
        chance: Values = each[1] / each.sum(0)
        return chance

    def separates(self) -> bool:
        """Whether there are two components at all."""
        known = all(np.isfinite(v).all() for v in (self.a, self.b, self.weights))
        if not known or (self.a <= 0).any() or (self.b <= 0).any():
            return False
        low, high = self.means
        return bool(high - low > APART and self.weights.min() > FEWEST)


def fit(x: Values) -> BetaMixture:
    """The mixture of values in [0, 1], by ten rounds of expectation maximisation.

    The shapes come from weighted moments: with mean m and variance s²,

        a = m (m (1 − m)/s² − 1)        b = a (1 − m)/m
    """
    x = np.clip(x, EDGE, 1 - EDGE)
    mixture = BetaMixture(np.array([1.0, 2.0]), np.array([2.0, 1.0]), np.array([0.5, 0.5]))
    for _ in range(ITERATIONS):
        each = np.maximum(mixture.densities(x), LEAST)
        r = each / each.sum(0)
        total = r.sum(1)
        m = (r @ x) / total
        variance = (r * (x - m[:, None]) ** 2).sum(1) / total
        a = m * (m * (1 - m) / np.maximum(variance, LEAST) - 1)
        b = a * (1 - m) / m
        mixture = BetaMixture(a, b, total / total.sum())
        if not (np.isfinite(a).all() and (a > 0).all() and (b > 0).all()):
            break
    order = np.argsort(mixture.means)
    return BetaMixture(mixture.a[order], mixture.b[order], mixture.weights[order])


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
    mixture = fit(normalised(inside, low, high))
    if not mixture.separates():
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
