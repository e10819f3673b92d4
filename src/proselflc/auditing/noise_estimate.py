"""Which way wrong labels went, estimated from early learning.

A network learns what most labels say before it memorises the exceptions. For some time, the
examples that it assigns to a class with most confidence therefore belong to that class whatever
their labels say, and the labels of these examples show the noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.auditing.records import Records, first_in_each_row
from proselflc.data import class_matrix
from proselflc.data.class_matrix import ClassMatrix
from proselflc.data.inputs import Floats, Ints
from proselflc.data.memory_budget import is_dense
from proselflc.data.noise_generators import Matrix

LEARNED = 0.6  # share of fitted labels at which early learning ends
FEWEST_EPOCHS = 3
ANCHORS = 0.5  # of the examples with a label are its anchors
CANDIDATES = 5  # classes that an example can be an anchor of
_MOST_WRONG = 0.95  # of the labels of a class
_ROUNDS = 200


def joint(records: Records, given: Ints, num_classes: int) -> ClassMatrix:
    """Return the estimated number of examples by true and given class.

    The anchors of class k are the examples with the largest p_k by the judgement of the early
    epochs (`Records.judgement`), half as many as have the label k; ties share the last places, so
    that the order of the examples does not matter. Their labels are row k of the transition T, and
    a class that no example is assigned to keeps its label. The true classes' shares π solve
    Σ_k π_k T_ki = share of label i, and the joint is n π_k T_ki, scaled so that every column sums
    to the number of examples with that label.

    Args:
        records: the records of n examples.
        given: [n] their labels.
        num_classes: C.

    Returns:
        [C, C], row = true class, column = given class; a scipy.sparse.csr_array beyond
        `memory_budget.DENSE_CLASSES` classes.
    """
    transition = _anchored(records, given, num_classes, early_epochs(records, given))
    numbers = np.bincount(given, minlength=num_classes).astype(np.float64)
    shares = numbers / max(numbers.sum(), 1)
    if not is_dense(num_classes):
        return _explained(transition, numbers, shares)
    prior = shares.copy()
    for _ in range(_ROUNDS):  # expectation maximisation
        explained = prior[:, None] * transition
        total = explained.sum(0)
        prior = (explained * (shares / np.where(total > 0, total, 1))).sum(1)
    explained = prior[:, None] * transition
    total = explained.sum(0)
    counts: Matrix = explained * (numbers / np.where(total > 0, total, 1))
    unexplained = (total == 0) & (numbers > 0)
    counts[unexplained, unexplained] = numbers[unexplained]
    return counts


def with_rate(joint: ClassMatrix, rate: float) -> ClassMatrix:
    """Return the joint with another share of wrong labels that go the same way.

    Every column keeps its sum, and at least a twentieth of it stays right. If no label was wrong,
    wrong ones are distributed as all labels are; if all labels are of one class, none is wrong.
    """
    true, label, counts = class_matrix.cells(joint)
    beside = true != label
    numbers = np.asarray(joint.sum(0), np.float64)
    if not counts[beside].sum() and rate > 0 and isinstance(joint, np.ndarray):
        true, label, counts = class_matrix.cells(np.outer(numbers, numbers))
        beside = true != label
    scale = rate * numbers.sum() / max(counts[beside].sum(), 1e-300)
    wrong = counts[beside] * scale
    sums = np.bincount(label[beside], wrong, minlength=len(numbers))
    wrong *= np.minimum(1, _MOST_WRONG * numbers / np.maximum(sums, 1e-300))[label[beside]]
    sums = np.bincount(label[beside], wrong, minlength=len(numbers))
    every = np.arange(len(numbers))
    rows = np.concatenate((true[beside], every))
    columns = np.concatenate((label[beside], every))
    values = np.concatenate((wrong, numbers - sums))
    if not isinstance(joint, np.ndarray):
        return class_matrix.of_cells(rows, columns, values, len(numbers))
    result: Matrix = np.zeros_like(joint, np.float64)
    result[rows, columns] = values
    return result


def early_epochs(records: Records, given: Ints) -> int:
    """Return the number of epochs before one predicted more than 60 % of the labels it saw.

    From then on a network begins to memorise wrong labels. The number is at least three if there
    are that many epochs.
    """
    for e, epoch in enumerate(records.observed):
        recorded = ~np.isnan(epoch["p_given"])
        fitted = (epoch["predicted"] == given) & recorded
        if e >= FEWEST_EPOCHS and fitted.sum() > LEARNED * max(recorded.sum(), 1):
            return e
    return len(records.observed)


def _explained(transition: ClassMatrix, numbers: Matrix, shares: Matrix) -> ClassMatrix:
    """Return the joint of a sparse transition, by the same rounds on its cells alone.

    Args:
        transition: [C, C], row = true class.
        numbers: [C] number of labels.
        shares: [C] the numbers divided by their sum.
    """
    back, prior = transition.T.tocsr(), shares.copy()
    for _ in range(_ROUNDS):
        total = back @ prior
        prior = prior * (transition @ (shares / np.where(total > 0, total, 1)))
    total = back @ prior
    rows, columns, values = class_matrix.cells(transition)
    counts = prior[rows] * values * (numbers / np.where(total > 0, total, 1))[columns]
    left = np.flatnonzero((total == 0) & (numbers > 0))
    return class_matrix.of_cells(
        np.concatenate((rows, left)),
        np.concatenate((columns, left)),
        np.concatenate((counts, numbers[left])),
        len(numbers),
    )


def _anchored(records: Records, given: Ints, C: int, epochs: int) -> ClassMatrix:
    """Return [C, C] the labels of every class's anchors, as shares."""
    classes, values, labels = _candidates(records, given, C, epochs)
    order = np.lexsort((-values, classes))  # by class, most confident first
    classes, values, labels = classes[order], values[order], labels[order]
    first = np.searchsorted(classes, np.arange(C + 1))
    wanted = np.bincount(given, minlength=C)
    if not is_dense(C):
        return _sparsely_anchored(classes, values, labels, first, wanted)
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


def _sparsely_anchored(
    classes: Ints, values: Floats, labels: Ints, first: Ints, wanted: Ints
) -> ClassMatrix:
    """Return the labels of every class's anchors, for all classes at once and without zeros.

    Args:
        classes, values, labels: candidates, by class and most confident first.
        first: [C + 1] position of the first candidate of each class.
        wanted: [C] number of labels of each class.
    """
    C = len(wanted)
    number = np.minimum(np.ceil(ANCHORS * wanted).astype(np.int64), np.diff(first))
    some = np.flatnonzero(number)
    last = np.full(C, np.inf)
    last[some] = values[first[some] + number[some] - 1]
    above, equal = values > last[classes], values == last[classes]
    surer, alike = (np.bincount(classes[which], minlength=C) for which in (above, equal))
    share = (number - surer) / np.maximum(alike, 1)  # of each tie for the last places
    weights = (
        np.where(above, 1.0, np.where(equal, share[classes], 0.0)) / np.maximum(number, 1)[classes]
    )
    kept, none = weights > 0, np.flatnonzero(number == 0)
    return class_matrix.of_cells(
        np.concatenate((classes[kept], none)),
        np.concatenate((labels[kept], none)),
        np.concatenate((weights[kept], np.ones(len(none)))),
        C,
    )


def _candidates(records: Records, given: Ints, C: int, epochs: int) -> tuple[Ints, Floats, Ints]:
    """Return the likeliest classes of every example: class, mean p and the example's label, flat.

    An anchor is among the most confident examples of its class, so that class is among its
    likeliest.
    """
    kept = min(CANDIDATES, C)
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    for rows in records.slices(len(given), C):
        if not is_dense(C):
            mean = records.sparse_mean_prediction(rows, given, C, epochs=epochs)
            likely = first_in_each_row(mean.row, (-mean.p, mean.classes), kept)
            likely = likely[mean.p[likely] > 0]
            parts.append((mean.classes[likely], mean.p[likely], given[rows][mean.row[likely]]))
            continue
        m = records.judgement(rows, given, C, epochs=epochs)
        top = np.argpartition(-m, kept - 1, axis=1)[:, :kept]
        largest = np.take_along_axis(m, top, 1)
        possible = largest > 0  # excludes examples that were never seen
        labels = np.broadcast_to(given[rows, None], top.shape)
        parts.append((top[possible], largest[possible], labels[possible]))
    classes, values, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    return classes, values, y
