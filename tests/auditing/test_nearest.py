"""The nearest rows, against scikit-learn's brute force and distances written out in float64."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from proselflc.auditing import nearest
from proselflc.auditing.nearest import nearest_of_others, nearest_rows
from proselflc.data.inputs import Floats
from proselflc.errors import InputError

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Floats:
    return RNG.standard_normal(shape).astype(np.float32)


def by_scikit_learn(values: Floats, k: int) -> tuple[Floats, Floats]:
    found = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(values.astype(np.float64))
    distance, index = found.kneighbors()  # leaves each row itself out
    return index, distance


@pytest.mark.parametrize("width", [1, 2, 30, 400])
def test_nearest_rows_equals_brute_force(width: int) -> None:
    x = normal(700, width)
    index, distance = nearest_rows(x, 10)
    assert index.dtype == np.int32
    assert distance.dtype == np.float32
    expected_index, expected_distance = by_scikit_learn(x, 10)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_allclose(distance, expected_distance, rtol=1e-5)


def test_blocks_that_do_not_divide_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(101, 7)
    whole = nearest_rows(x, 5)
    monkeypatch.setattr(nearest, "_PRODUCTS", 101 * 13)
    monkeypatch.setattr(nearest, "_DIFFERENCES", 7 * 11 * 9)
    for one, other in zip(nearest_rows(x, 5), whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tight_clusters_far_from_the_origin_are_told_apart() -> None:
    """Products in float32 see no difference between rows of a cluster."""
    x = np.repeat(100 * normal(4, 50), 60, axis=0) + 1e-3 * normal(240, 50)
    index, distance = nearest_rows(x, 8)
    expected_index, expected_distance = by_scikit_learn(x, 8)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_allclose(distance, expected_distance, rtol=1e-3)


def test_ties_are_ordered_by_index() -> None:
    x = np.arange(9, dtype=np.float32)[:, None]
    index, distance = nearest_rows(x, 2)
    np.testing.assert_array_equal(index[4], [3, 5])
    np.testing.assert_array_equal(distance[4], [1, 1])
    corners = np.eye(6, dtype=np.float32)
    index, distance = nearest_rows(corners, 5)
    np.testing.assert_array_equal(index[2], [0, 1, 3, 4, 5])
    np.testing.assert_allclose(distance, 2**0.5, rtol=1e-6)


def test_fewer_rows_than_neighbours() -> None:
    index, distance = nearest_rows(normal(4, 3), 10)
    assert index.shape == distance.shape == (4, 3)
    assert all(set(row) == set(range(4)) - {i} for i, row in enumerate(index))


def test_a_single_row_has_no_neighbours() -> None:
    index, distance = nearest_rows(normal(1, 3), 10)
    assert index.shape == distance.shape == (1, 0)


def test_identical_rows() -> None:
    index, distance = nearest_rows(np.ones((40, 3), np.float32), 5)
    assert (distance == 0).all()
    assert (index != np.arange(40)[:, None]).all()
    assert all(len(set(row)) == 5 for row in index)


@pytest.mark.parametrize("scale", [1e-20, 1e14])
def test_tiny_and_huge_numbers(scale: float) -> None:
    x = normal(200, 5)
    index, distance = nearest_rows((x * np.float32(scale)).astype(np.float32), 4)
    expected_index, expected = by_scikit_learn(x, 4)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_allclose(distance / scale, expected, rtol=1e-4)


def test_nearest_of_others_equals_all_distances() -> None:
    x, y = normal(60, 8), normal(90, 8)
    index, distance = nearest_of_others(x, y, 3)
    every = cdist(x, y)
    np.testing.assert_array_equal(index, np.argsort(every, axis=1)[:, :3])
    np.testing.assert_allclose(distance, np.sort(every, axis=1)[:, :3], rtol=1e-5)
    assert nearest_of_others(x, y[:2], 3)[0].shape == (60, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e30])
def test_rows_without_a_distance_are_refused(bad: float) -> None:
    x = normal(5, 2)
    x[3, 1] = bad
    with pytest.raises(InputError, match=r"1 of 5 rows have NaN, infinity .* the first is row 3"):
        nearest_rows(x, 2)


def test_other_arguments_that_are_refused() -> None:
    x = normal(5, 2)
    with pytest.raises(InputError, match="at least 1, got 0"):
        nearest_rows(x, 0)
    with pytest.raises(InputError, match=r"float32 \[n, D\], got float32 of shape \[5\]"):
        nearest_rows(x[:, 0], 1)
    with pytest.raises(InputError, match="got int64"):
        nearest_rows(np.ones((3, 2), np.int64), 1)
    with pytest.raises(InputError, match=r"rows of 2 numbers .* rows of 3"):
        nearest_of_others(x, normal(5, 3), 1)


def test_many_rows_need_usearch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "LARGEST_EXACT", 100)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(
        InputError, match=r"more than 100 rows, here 101, .*proselflc\[neighbours\]"
    ):
        nearest_rows(normal(101, 2), 1)
    assert nearest_rows(normal(100, 2), 1)[0].shape == (100, 1)


def test_usearch_finds_most_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch", reason="the extra `neighbours` is not installed")
    x = normal(3000, 16)
    expected, distance = nearest_rows(x, 10)
    y = normal(500, 16)
    between = nearest_of_others(x, y, 1)[0]
    monkeypatch.setattr(nearest, "LARGEST_EXACT", 100)
    index, found = nearest_rows(x, 10)
    assert (index != np.arange(3000)[:, None]).all()
    assert (index == expected).mean() > 0.95
    np.testing.assert_allclose(np.median(found), np.median(distance), rtol=1e-3)
    assert (nearest_of_others(x, y, 1)[0] == between).mean() > 0.95
    assert "usearch.index" in sys.modules
