"""How many labels are wrong, as a range, from predictions that did not see the labels.

Two estimates that fail differently are combined. The first asks how often the labels of the
examples that the predictions are surest of differ from them: there, a difference is hardly ever the
predictions' own mistake. It is right whichever way wrong labels go, but sure examples are few. The
second asks how many of all labels look as unlikely as wrong labels would: it uses every example,
but has to know which way wrong labels go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from proselflc.auditing.records import Doubles
from proselflc.auditing.suspects import odds_of_every_label
from proselflc.data.inputs import Bools, Ints
from proselflc.data.noise_generators import Matrix

FEWEST, QUARTER = 100, 0.25  # examples that a share is taken of: a quarter of a small data set
STEP = 1.25  # from one number of examples to the next
MOST_SURE, MOST_PLANTED = 0.5, 0.9  # of the examples
RANGE = 1.96  # standard errors of the first estimate that the range extends: 95 %
NARROW = 1.64  # standard errors that the second may differ from the first
# Of several shares the one with the smallest upper bound is taken, by this many standard errors.
CAUTION_SUREST, CAUTION_PLANTED = 2.5, 5.0
KNOWN = 0.5  # of the rate must be the low end, for the precision of suspects to be known
_LEAST = 20  # examples that a share is taken of, however small the data set
_CELLS = 4_000_000  # of [examples, classes] in which wrong labels are planted


@dataclass(frozen=True)
class NoiseRange:
    """The share of wrong labels: the best estimate, and the range that it is probably in."""

    low: float
    rate: float
    high: float

    @property
    def is_known(self) -> bool:
        """Return whether the rate is known well enough to say how many suspects are wrong."""
        return self.rate > 0 and self.low >= KNOWN * self.rate


@dataclass(frozen=True)
class Share:
    """A number of hits among a number of trials, which need not be whole."""

    hits: float
    trials: float

    @property
    def rate(self) -> float:
        return min(1.0, self.hits / self.trials) if self.trials else 1.0

    def interval(self, errors: float) -> tuple[float, float]:
        """Return Wilson's interval for the chance of a hit, some standard errors wide.

        (p + z²/2n ± z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n), where p = hits/n and z is the number
        of standard errors; from 0 to 1 without trials. It is written out because importing
        scipy.stats takes long.
        """
        if not self.trials:
            return 0.0, 1.0
        n, z, p = self.trials, errors, self.rate
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        width = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return max(0.0, middle - width), min(1.0, middle + width)


def noise_range(surest: Share, other: float, anchored: float) -> NoiseRange:
    """Return the range of the share of wrong labels.

    Args:
        surest: the first estimate.
        other: the second, which is followed as far as the first allows.
        anchored: share of wrong labels by `noise_estimate.joint`, which counts the natural
            confusion of classes as noise: the range extends to it.
    """
    low, high = surest.interval(RANGE)
    least, most = surest.interval(NARROW)
    rate = min(max(other, least), most)
    return NoiseRange(min(low, rate), rate, max(high, rate, anchored))


def surest_share(confidence: npt.NDArray[np.floating], differs: Bools) -> Share:
    """Return how many labels of the surest examples differ from their predictions.

    The number of examples is the one for which the upper bound of the share is smallest.

    Args:
        confidence: [n] largest probability of each example.
        differs: [n] whether the label is not the class of that probability.
    """
    n = len(confidence)
    if n == 0:
        return Share(0, 0)
    hits = np.cumsum(differs[np.argsort(-confidence, kind="stable")])
    shares = [Share(float(hits[k - 1]), k) for k in _sizes(n, max(MOST_SURE * n, FEWEST))]
    return min(shares, key=lambda share: share.interval(CAUTION_SUREST)[1])


@dataclass(frozen=True)
class Planted:
    """Wrong labels, one for each of n examples, as they would go by an estimated joint.

    Attributes:
        n: number of examples.
        odds: log-odds of being wrong that labels would have, largest first.
        planted: expected number of wrong labels with these log-odds or larger.
    """

    n: int
    odds: Doubles
    planted: Doubles

    @classmethod
    def of(cls, p: npt.NDArray[np.floating], given: Ints, joint: Matrix) -> Planted:
        """Plant wrong labels beside predictions [n, C] that did not see the given ones [n]."""
        n, C = p.shape
        some = p[:: max(1, n * C // _CELLS)].astype(np.float32)
        odds = odds_of_every_label(some, given, joint).reshape(-1)
        chances = _wrong_labels(joint)[some.argmax(1)].reshape(-1)
        order = np.argsort(-odds, kind="stable")
        planted = np.cumsum(chances[order])
        return cls(n, odds[order], planted * (n / max(planted[-1], 1e-9)))

    def share(self, own: Doubles) -> Share:
        """Return how many given labels look as unlikely as wrong labels would.

        Above a threshold of the log-odds there are S given labels, and F of the n planted ones. If
        r n labels are wrong, at least r F of the S are expected, so that S / F is at least r. The
        threshold is the one for which the upper bound of S / F is smallest.

        Args:
            own: [n] log-odds of the given labels, by the same predictions.
        """
        ordered = np.sort(own)
        shares = []
        for size in _sizes(self.n, max(MOST_PLANTED * self.n, FEWEST)):
            place = min(int(np.searchsorted(self.planted, size)), len(self.odds) - 1)
            above = self.n - int(np.searchsorted(ordered, self.odds[place]))
            shares.append(Share(above, float(self.planted[place])))
        return min(shares, key=lambda share: share.interval(CAUTION_PLANTED)[1])

    def recall(self, own: Doubles, suspects: int) -> float:
        """Return the share of planted labels that look no likelier than a number of suspects.

        Args:
            own: [n] log-odds of the given labels, by the same predictions.
            suspects: number of labels with the largest log-odds that are suspect, from 1 to n.
        """
        threshold = np.sort(own)[self.n - suspects]
        place = int(np.searchsorted(-self.odds, -threshold, side="right"))
        return float(self.planted[place - 1]) / self.n if place else 0.0


def own_odds(p: npt.NDArray[np.floating], given: Ints, joint: Matrix) -> Doubles:
    """Return [n] the log-odds of the given labels, by predictions [n, C] alone."""
    from proselflc.auditing.records import slices

    own = np.empty(len(given))
    for rows in slices(len(given), p.shape[1]):
        y = given[rows]
        odds = odds_of_every_label(p[rows].astype(np.float32), given, joint)
        own[rows] = odds[np.arange(len(y)), y]
    return own


def _wrong_labels(joint: Matrix) -> Matrix:
    """Return [C, C] the chance of each class to be the wrong label of an example of a class.

    One wrong label that is distributed as all labels are is added to those of every class.
    """
    beside = ~np.eye(len(joint), dtype=bool)
    usual = np.where(beside, joint.sum(0) + 1e-9, 0)
    wrong = np.where(beside, joint, 0) + usual / usual.sum(1, keepdims=True)
    chances: Matrix = wrong / wrong.sum(1, keepdims=True)
    return chances


def _sizes(n: int, most: float) -> list[int]:
    """Return growing numbers of examples, at most n ≥ 1."""
    sizes, size = [], float(min(FEWEST, max(_LEAST, math.ceil(QUARTER * n)), n))
    while size <= most:
        sizes.append(min(math.ceil(size), n))
        size *= STEP
    return sizes
