"""How far the predictions that labels are judged by can be relied on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from proselflc.data.inputs import Bools, Ints
from proselflc.files.typed import Share

WEAK, TOO_WEAK = 0.6, 0.25  # skill below which no label is changed, and below which none is suspect
TOLD_APART = 0.75  # share of right predictions below which two classes cannot be told apart
HARDLY_AGREES = 0.25  # κ below which labels may be chance rather than wrong; none is changed
OWN_MISTAKES = 0.4  # see `tells_wrong_labels`
RECOGNISED = 0.5  # share of the agreement with all labels that the labels of a class must reach
BEYOND_CHANCE = 1.645  # standard errors above chance at which predictions know something
_FEWEST = 20  # examples of two classes that a share is taken of


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes that the judge cannot tell apart.

    Attributes:
        one, other: class names.
        accuracy: estimated share of their examples that it predicts rightly, of these two classes.
    """

    one: str
    other: str
    accuracy: Share


@dataclass(frozen=True)
class Judge:
    """What is known about predictions that did not see the labels they judge.

    Attributes:
        kind: what they are, such as "standardised columns" or "4 folds"; None if there are none,
            and the early epochs of training take their place.
        accuracy: estimated share of examples whose true class they predict.
        skill: the accuracy in units in which chance is 0 and perfection is 1; 0 for predictions
            that have nothing to do with the labels (`is_informed`).
        agreement: share of examples for which they predict the same class as the network.
        fitted: share of the given labels that the network predicted in its last epoch.
        confused: pairs of classes that they cannot tell apart, the worst first.
        kappa: the skill that they would have if all given labels were right, Cohen's κ, one
            standard error below the estimate.
    """

    kind: str | None
    accuracy: Share
    skill: Share
    agreement: Share
    fitted: Share
    confused: tuple[ConfusedPair, ...] = ()
    kappa: Share = 1.0

    @property
    def is_weak(self) -> bool:
        """Return whether no label should be changed without asking a person."""
        return self.skill < WEAK or self.kappa < HARDLY_AGREES

    @property
    def is_too_weak(self) -> bool:
        """Return whether no label should be called suspect."""
        return self.skill < TOO_WEAK


def corrected_accuracy(share: float, rate: float) -> float:
    """Return the share of right predictions, if a share agrees with labels of a noise rate.

    Predictions that did not see a label seldom agree with it if it is wrong.
    """
    return min(1.0, share / max(1 - rate, 1e-9))


def tells_wrong_labels(agreed: float, chance: float, low: float) -> bool:
    """Return whether wrong labels can be told from the judge's own mistakes.

    Where the outcome is partly chance, as in most records of people, even the surest predictions
    differ from right labels, and nothing tells these from wrong ones. So the share r of wrong
    labels must be large beside the share m of wrong predictions, and the more so the less the
    predictions have in common with the labels:

        r κ ≥ 0.4 m

    where κ is the skill of the predictions if all labels were right.

    Args:
        agreed: share of the labels that agree with the predictions.
        chance: share that would agree by chance.
        low: r, the share of the labels that are wrong at least.
    """
    mistakes = 1 - corrected_accuracy(agreed, low)
    return low * skill(agreed, chance) >= OWN_MISTAKES * mistakes


def recognised_classes(predicted: Ints, given: Ints, num_classes: int) -> Bools:
    """Return [C] whether the labels of each class agree with the predictions often enough.

    A rare class that is hardly ever predicted is not known to be wrongly given. Its labels must
    agree at least half as often as all labels do.

    Args:
        predicted, given: [n] classes.
        num_classes: C.
    """
    same = predicted == given
    labels = np.bincount(given, minlength=num_classes)
    agreeing = np.bincount(given[same], minlength=num_classes)
    found: Bools = agreeing * len(given) >= RECOGNISED * same.sum() * labels
    return found


def skill(accuracy: float, chance: float) -> float:
    """Return an accuracy in units in which chance is 0 and perfection is 1."""
    return max(0.0, (accuracy - chance) / (1 - chance)) if chance < 1 else 0.0


def chance_agreement(predicted: Ints, given: Ints, num_classes: int) -> float:
    """Return Σ a_k b_k / n² for a_k predictions and b_k labels of class k; 1 for no examples.

    It is 1 / C if classes are balanced, and more if one of them is large.
    """
    n = len(given)
    if n == 0:
        return 1.0
    a, b = (np.bincount(y, minlength=num_classes) / n for y in (predicted, given))
    return float(a @ b)


def is_informed(predicted: Ints, given: Ints, num_classes: int) -> bool:
    """Return whether predictions agree with labels more often than by chance.

    Predictions that always name the largest class agree with most labels and know nothing. With
    a_k predictions and b_k labels of class k in any order, the number m that agrees has

        E(m) = Σ a_k b_k / n
        Var(m) = (Σ a_k b_k (n − a_k)(n − b_k) + (Σ a_k b_k)² − Σ a_k² b_k²) / (n² (n − 1))

    and must be 1.645 standard errors above E(m).

    Args:
        predicted, given: [n] classes.
        num_classes: C.
    """
    n = len(given)
    if n < 2:
        return False
    a, b = (np.bincount(y, minlength=num_classes).astype(np.float64) for y in (predicted, given))
    both = a * b
    mean = n * chance_agreement(predicted, given, num_classes)
    spread = (both * (n - a) * (n - b)).sum() + both.sum() ** 2 - np.square(both).sum()
    error = math.sqrt(max(0.0, float(spread)) / (n * n * (n - 1)))
    return float((predicted == given).sum()) > mean + BEYOND_CHANCE * error


def confused_pairs(
    predicted: Ints, given: Ints, rate: float, num_classes: int
) -> dict[tuple[int, int], float]:
    """Return the pairs of classes, the smaller first, that predictions cannot tell apart.

    For two classes only the examples count whose label and prediction are among them. The value is
    the share that agrees, corrected for wrong labels.

    Args:
        predicted, given: [n] classes.
        rate: share of wrong labels.
        num_classes: C.
    """
    C = num_classes
    cells, counts = np.unique(given * C + predicted, return_counts=True)
    one, other = cells // C, cells % C
    right = np.zeros(C)
    right[one[one == other]] = counts[one == other]
    beside = one != other
    pairs = np.minimum(one, other)[beside] * C + np.maximum(one, other)[beside]
    pairs, place = np.unique(pairs, return_inverse=True)
    crossed = np.bincount(place.reshape(-1), counts[beside], minlength=len(pairs))
    found = {}
    for pair, count in zip(pairs.tolist(), crossed.tolist(), strict=True):
        a, b = divmod(pair, C)
        total = float(right[a] + right[b]) + count
        accuracy = corrected_accuracy((total - count) / total, rate)
        if total >= _FEWEST and accuracy < TOLD_APART:
            found[a, b] = accuracy
    return dict(sorted(found.items(), key=lambda item: item[1]))
