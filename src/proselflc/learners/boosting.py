"""Boosted trees: scikit-learn's HistGradientBoostingClassifier, as arrays of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.learners import trees
from proselflc.learners.learner import Doubles, LabelledTable
from proselflc.learners.trees import ABSENT, WORDS, TreeEnsemble

ROUNDS = 60
LEARNING_RATE = 0.1
# Small trees, strongly regularised: they memorise wrong labels late (docs/decisions/0012).
LEAVES, PENALTY, SHARE_OF_COLUMNS = 15, 5.0, 0.5
MOST_CODES = 255  # of a column, that scikit-learn takes as categories
_ROWS = 4096  # predicted at once


@dataclass(frozen=True)
class Boosting:
    """Gradient boosting of trees on binned columns; missing cells have a branch of their own."""

    rounds: int = ROUNDS
    learning_rate: float = LEARNING_RATE
    seed: int = 0
    takes_codes: ClassVar[bool] = True

    def fit(self, table: LabelledTable) -> FittedBoosting | FittedTrees:
        """Learn a table."""
        classes, C = np.unique(table.y), table.num_classes
        if len(classes) == 1:
            return FittedTrees(trees.constant(int(classes[0]), table.x.shape[1], C))
        from sklearn.ensemble import HistGradientBoostingClassifier

        estimator = HistGradientBoostingClassifier(
            max_iter=self.rounds,
            learning_rate=self.learning_rate,
            max_leaf_nodes=LEAVES,
            l2_regularization=PENALTY,
            max_features=SHARE_OF_COLUMNS,
            early_stopping=False,
            categorical_features=_categories(table),
            random_state=self.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns without a single number, which are legal
            estimator.fit(table.x, table.y, sample_weight=table.weight)
        return FittedBoosting(estimator, classes, C)


@dataclass(frozen=True)
class FittedBoosting:
    """A fitted HistGradientBoostingClassifier, which predicts faster than its arrays do.

    Attributes:
        estimator: of scikit-learn.
        classes: [K] that occurred in training.
        num_classes: C.
    """

    estimator: Any
    classes: Ints
    num_classes: int

    def staged(self, x: Floats) -> Iterator[Doubles]:
        """Yield the probabilities [N, C] of N rows after each round, bit for bit the module's."""
        own = torch.from_numpy(self.classes)
        for scores in self.estimator.staged_decision_function(x):
            sums = torch.from_numpy(scores)
            if sums.ndim == 1:
                sums = torch.stack((torch.zeros_like(sums), sums), 1)
            if len(own) < self.num_classes:
                whole = torch.full((len(x), self.num_classes), ABSENT, dtype=torch.float64)
                whole[:, own] = sums
                sums = whole
            p: Doubles = torch.softmax(sums, 1).numpy()
            yield p

    def module(self) -> nn.Module:
        """Return the trees as arrays."""
        return trees.widened(from_sklearn(self.estimator), self.classes, self.num_classes)


@dataclass(frozen=True)
class FittedTrees:
    """An ensemble of trees, as arrays, that has learned a table."""

    ensemble: TreeEnsemble

    def staged(self, x: Floats) -> Iterator[Doubles]:
        """Yield the probabilities [N, C] of N rows after each round."""
        pieces = [
            self.ensemble.staged(torch.from_numpy(np.ascontiguousarray(x[start : start + _ROWS])))
            for start in range(0, max(len(x), 1), _ROWS)
        ]
        for _ in range(len(self.ensemble.roots)):
            p: Doubles = torch.cat([torch.softmax(next(piece), 1) for piece in pieces]).numpy()
            yield p

    def module(self) -> nn.Module:
        """Return the ensemble."""
        return self.ensemble


def _categories(table: LabelledTable) -> Bools | None:
    """Return [D] which columns scikit-learn can take as categories; None if there are none."""
    if table.categorical is None or not table.categorical.any():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a column may hold nothing but missing cells
        largest = np.nan_to_num(np.nanmax(table.x, axis=0, initial=-1), nan=-1)
    fits: Bools = table.categorical & (largest < MOST_CODES)
    return fits if fits.any() else None


def from_sklearn(estimator: Any) -> TreeEnsemble:
    """Return the trees of a fitted HistGradientBoostingClassifier, for the classes it has seen.

    scikit-learn moves columns of categories to the front and numbers their values; here a node
    names the original column and the original codes.
    """
    columns = int(estimator.n_features_in_)
    order, values = np.arange(columns), dict[int, Doubles]()
    if estimator.is_categorical_ is not None:
        is_category = np.asarray(estimator.is_categorical_)
        order = np.concatenate((np.flatnonzero(is_category), np.flatnonzero(~is_category)))
        encoder = estimator._preprocessor.named_transformers_["encoder"]
        values = {
            int(column): np.asarray(found, np.float64)[~np.isnan(np.asarray(found, np.float64))]
            for column, found in zip(order, encoder.categories_, strict=False)
        }
    known = np.zeros((columns, WORDS), np.int64)
    for column, codes in values.items():
        known[column] = _bits(codes.astype(np.int64))
    found = [
        _tree(predictor, order, values) for round_ in estimator._predictors for predictor in round_
    ]
    baseline = np.asarray(estimator._baseline_prediction, np.float64).reshape(-1)
    extra = {"known": torch.from_numpy(known), "baseline": torch.from_numpy(baseline)}
    return trees.joined(found, len(estimator._predictors), extra)


def _tree(predictor: Any, order: Ints, values: dict[int, Doubles]) -> dict[str, Any]:
    """Return the arrays of one tree."""
    nodes = predictor.nodes
    every, leaf = np.arange(len(nodes)), nodes["is_leaf"].astype(np.bool_)
    feature = order[np.where(leaf, 0, nodes["feature_idx"])]
    asks = nodes["is_categorical"].astype(np.bool_) & ~leaf
    codes = np.full(len(nodes), -1)
    sets: list[Ints] = []
    for node in np.flatnonzero(asks):
        words = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]]
        ordinals = np.flatnonzero((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1)
        known = values[int(feature[node])]
        codes[node] = len(sets)
        sets.append(_bits(known[ordinals[ordinals < len(known)]].astype(np.int64)))
    return {
        "feature": feature,
        "threshold": np.where(leaf | asks, 0.0, nodes["num_threshold"]),
        "missing_left": nodes["missing_go_to_left"].astype(np.bool_),
        "left": np.where(leaf, every, nodes["left"]),
        "right": np.where(leaf, every, nodes["right"]),
        "value": np.where(leaf, nodes["value"], 0.0),
        "codes": codes,
        "sets": np.array(sets, np.int64).reshape(-1, WORDS),
    }


def _bits(codes: Ints) -> Ints:
    """Return the set of codes as words of 32 bits."""
    words = np.zeros(WORDS, np.int64)
    np.bitwise_or.at(words, codes >> 5, 1 << (codes & 31))
    return words
