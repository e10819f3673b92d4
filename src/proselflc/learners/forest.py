"""A forest of trees on samples of the rows, which judges each row by the trees that did not see it.

One forest costs as much as one model, and every row is out of the sample of a third of its trees.
"""

from __future__ import annotations

import warnings

import numpy as np

from proselflc.data.inputs import Floats, Ints
from proselflc.learners.learner import Doubles, all_classes

TREES = 100  # of each of the two kinds
LEAST_IN_LEAF = 3
MOST_IN_SAMPLE = 20_000  # rows that one tree sees


def out_of_bag(x: Floats, y: Ints, num_classes: int, seed: int = 0) -> Floats:
    """Return [n, C] the chance of each class for each row, by trees that did not see the row.

    Half of the trees choose the best of some thresholds, and half of them random ones.

    Args:
        x: [n, D] numbers; NaN for a missing cell, and a code ≥ 0 for a category.
        y: [n] class ids; a row with a label below 0 is predicted, but not learned from.
        num_classes: C.
        seed: of the samples and the trees.
    """
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    lowest = np.nanmin(x, axis=0, initial=0).astype(np.float32)
    # From 2^24 on, float32 does not tell a number from the next whole one.
    below = np.minimum(lowest - 1, np.nextafter(lowest, np.finfo(np.float32).min))
    whole = np.where(np.isnan(x), below, x).astype(np.float32)
    own, rest = np.flatnonzero(y >= 0), np.flatnonzero(y < 0)
    shares = np.bincount(y[own], minlength=num_classes) / max(len(own), 1)
    if len(np.unique(y[own])) < 2:
        return np.broadcast_to(shares, (len(y), num_classes)).astype(np.float32)
    total: Doubles = np.zeros((len(y), num_classes))
    for kind in (RandomForestClassifier, ExtraTreesClassifier):
        forest = kind(
            TREES,
            min_samples_leaf=LEAST_IN_LEAF,
            bootstrap=True,
            max_samples=min(len(own), MOST_IN_SAMPLE),
            oob_score=True,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows that every tree saw
            forest.fit(whole[own], y[own])
        unseen = all_classes(forest.oob_decision_function_, forest.classes_, num_classes)
        total[own] += np.where(unseen.sum(1, keepdims=True) > 0, unseen, shares)
        if len(rest):
            total[rest] += all_classes(
                forest.predict_proba(whole[rest]), forest.classes_, num_classes
            )
    return (total / 2).astype(np.float32)
