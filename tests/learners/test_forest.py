"""A forest judges each row by trees that did not see it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import roc_auc_score

from proselflc.learners import forest
from proselflc.learners.forest import out_of_bag


def test_wrong_labels_are_found_beside_gaps_and_rows_without_a_label() -> None:
    x, y = load_iris(return_X_y=True)
    x, stream = x.astype(np.float32), np.random.default_rng(0)
    x[stream.random(x.shape) < 0.05] = np.nan
    given = np.where(stream.random(len(y)) < 0.2, (y + 1) % 3, y)
    p = out_of_bag(x, given, 4)
    assert p.shape == (150, 4)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    assert (p[:, 3] == 0).all()  # a class that does not occur
    assert roc_auc_score(given != y, -p[np.arange(150), given]) > 0.9
    np.testing.assert_array_equal(p, out_of_bag(x, given, 4))
    given[::3] = -1
    p = out_of_bag(x, given, 3)
    assert (p.argmax(1) == y)[::3].mean() > 0.85
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)


def test_a_label_does_not_change_the_opinion_of_its_own_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forest, "TREES", 300)
    x = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    before = out_of_bag(x, y, 2)
    y[7] = 1 - y[7]
    after = out_of_bag(x, y, 2)
    assert abs(before[7] - after[7]).max() < 0.05


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_few_rows_and_one_class(rows: int) -> None:
    x = np.full((rows, 2), np.nan, np.float32)
    one = out_of_bag(x, np.ones(rows, np.int64), 3)
    np.testing.assert_array_equal(one, np.tile(np.array([0, 1, 0], np.float32), (rows, 1)))
    both = out_of_bag(x, np.arange(rows) % 2, 2)
    np.testing.assert_allclose(both.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("lowest", [-3e9, -1e30, float(np.finfo(np.float32).min)])
def test_a_missing_cell_differs_from_the_lowest_of_large_numbers(lowest: float) -> None:
    x = np.full((60, 1), lowest, np.float32)
    x[::2] = np.nan
    y = np.arange(60) % 2
    p = out_of_bag(x, y, 2)
    is_told = bool((p.argmax(1) == y).all())
    assert is_told == (lowest > np.finfo(np.float32).min)  # there is no smaller number to use
