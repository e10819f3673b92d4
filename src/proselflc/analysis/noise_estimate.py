"""How many labels are wrong, and which way they went, estimated from early learning.

A network learns what most labels say before it learns the exceptions by heart. So for some time
the examples that it takes for a class with most confidence are examples of that class whatever
their labels say, and the labels that these carry show the noise.
"""

from __future__ import annotations

import math

import numpy as np

from proselflc.analysis.records import Records, slices
from proselflc.data.dataset import Floats, Ints
from proselflc.data.noise import Matrix

LEARNED = 0.6  # share of labels that are fitted when early learning is over
FEWEST_EPOCHS = 3
ANCHORS = 0.5  # of the examples that are given a class
KEPT = 5  # classes of an example that it can be an anchor of
_ROUNDS = 200


def joint(records: Records, given: Ints, num_classes: int) -> Matrix:
    """Estimate how many examples have which true and which given class.

    The anchors of class k are the examples with the largest mean p_k in the early epochs, half as
    many as have the label k; equals share the last places, so that the order of the examples does
    not matter. Their labels are row k of the transition T, and a class that nobody is taken for
    keeps its label. The true classes' shares π solve Σ_k π_k T_ki = share of label i, and the joint
    is n π_k T_ki, scaled so that every column sums to the number of examples with that label.

    Args:
        records: of n examples.
        given: [n] their labels.
        num_classes: C.

    Returns:
        [C, C], row = true class, column = given class.
    """
    transition = _anchored(records, given, num_classes, early_epochs(records, given))
    numbers = np.bincount(given, minlength=num_classes).astype(np.float64)
    shares = numbers / max(numbers.sum(), 1)
    prior = shares.copy()
    for _ in range(_ROUNDS):  # expectation maximisation: every round, a better likelihood
        explained = prior[:, None] * transition
        total = explained.sum(0)
        prior = (explained * (shares / np.where(total > 0, total, 1))).sum(1)
    explained = prior[:, None] * transition
    total = explained.sum(0)
    counts: Matrix = explained * (numbers / np.where(total > 0, total, 1))
    unexplained = (total == 0) & (numbers > 0)
    counts[unexplained, unexplained] = numbers[unexplained]
    return counts


def early_epochs(records: Records, given: Ints) -> int:
    """How many epochs there were before one predicted more than 60 % of the labels it saw.

    By then a network begins to learn wrong labels, if there are any. At least three, where there
    are that many.
    """
    for e, epoch in enumerate(records.observed):
        seen = ~np.isnan(epoch["p_given"])
        fitted = (epoch["predicted"] == given) & seen
        if e >= FEWEST_EPOCHS and fitted.sum() > LEARNED * max(seen.sum(), 1):
            return e
    return len(records.observed)


def _anchored(records: Records, given: Ints, C: int, epochs: int) -> Matrix:
    """[C, C] the labels of every class's anchors, as shares."""
    classes, values, labels = _candidates(records, given, C, epochs)
    order = np.lexsort((-values, classes))  # by class, the surest first
    classes, values, labels = classes[order], values[order], labels[order]
    first = np.searchsorted(classes, np.arange(C + 1))
    wanted = np.bincount(given, minlength=C)
    transition: Matrix = np.eye(C)
    for k in range(C):
        number = min(math.ceil(ANCHORS * wanted[k]), int(first[k + 1] - first[k]))
        if number:
            surest = values[first[k] : first[k + 1]]
            last = surest[number - 1]
            weights = (surest >= last).astype(np.float64)
            equals = surest == last
            weights[equals] = 1 - (weights.sum() - number) / equals.sum()
            transition[k] = np.bincount(labels[first[k] : first[k + 1]], weights, C) / number
    return transition


def _candidates(records: Records, given: Ints, C: int, epochs: int) -> tuple[Ints, Floats, Ints]:
    """The likeliest classes of every example: class, mean p and the example's label, flat.

    An anchor is among the surest examples of its class, so that class is among its likeliest.
    """
    kept = min(KEPT, C)
    parts = []
    for rows in slices(len(given), C):
        m = records.mean_prediction(rows, given, C, epochs=epochs)
        top = np.argpartition(-m, kept - 1, axis=1)[:, :kept]
        largest = np.take_along_axis(m, top, 1)
        possible = largest > 0  # not of an example that was never seen
        labels = np.broadcast_to(given[rows, None], top.shape)
        parts.append((top[possible], largest[possible], labels[possible]))
    classes, values, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    return classes, values, y
