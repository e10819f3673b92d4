"""Points in a plane: principal components as scikit-learn has them, and neighbours side by side."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from proselflc.auditing.mapping import layout
from proselflc.auditing.mapping.layout import arranged, principal_plane
from proselflc.auditing.neighbours import neighbours_of
from proselflc.auditing.plain_features import PlainFeatures
from proselflc.data.inputs import Floats


def random(n: int, D: int, seed: int = 0) -> Floats:
    scale = np.linspace(3, 1, D)
    return (np.random.default_rng(seed).normal(size=(n, D)) * scale + 5).astype(np.float32)


def placed(values: Floats) -> Floats:
    return arranged(values, neighbours_of(PlainFeatures(values, "numbers"), len(values)))


@pytest.mark.parametrize(("n", "D"), [(200, 12), (15, 40), (3, 2)])
def test_principal_components_are_those_of_scikit_learn(n: int, D: int) -> None:
    x = random(n, D)
    found, expected = principal_plane(x), PCA(2).fit_transform(x.astype(np.float64))
    expected *= np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_sign_of_a_component_is_fixed() -> None:
    x = random(100, 5)
    np.testing.assert_allclose(principal_plane(x)[::-1], principal_plane(x[::-1]), atol=1e-4)
    weights = np.linalg.lstsq(x - x.mean(0), principal_plane(x), rcond=None)[0]
    assert (weights[np.abs(weights).argmax(axis=0), [0, 1]] > 0).all()


def test_components_of_a_sample_are_nearly_those_of_all() -> None:
    x = random(3 * layout.SAMPLE, 6)
    found, expected = principal_plane(x), PCA(2).fit_transform(x)
    for k in range(2):
        assert abs(np.corrcoef(found[:, k], expected[:, k])[0, 1]) > 0.95


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((1, 3)),
        np.array([[1.0, 2, 3], [4, 5, 6]]),
        np.full((50, 4), 7.0),
        np.arange(30.0)[:, None],
        np.repeat(np.eye(3), 20, axis=0),
        np.full((30, 2), 1e14) * np.arange(30)[:, None] / 30,
    ],
    ids=["one", "two", "constant", "one column", "copies", "huge"],
)
def test_every_table_has_a_finite_map(values: Floats) -> None:
    x = values.astype(np.float32)
    xy = placed(x)
    assert xy.shape == (len(x), 2)
    assert xy.dtype == np.float32
    assert np.isfinite(xy).all()
    assert np.isfinite(principal_plane(x)).all()
    for row in np.unique(x, axis=0):  # copies share a point
        assert len(np.unique(xy[(x == row).all(axis=1)], axis=0)) == 1


def test_the_map_is_the_same_every_time() -> None:
    x = random(300, 8)
    np.testing.assert_array_equal(placed(x), placed(x.copy()))


def test_digits_are_nearer_to_their_like_than_in_principal_components() -> None:
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    vote = KNeighborsClassifier(10)
    ours, plane = (
        cross_val_score(vote, points, y, cv=3).mean() for points in (placed(x), principal_plane(x))
    )
    assert plane < 0.7
    assert ours > 0.93


def test_fifty_thousand_take_seconds() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50_000, 8)).astype(np.float32)
    neighbours = neighbours_of(PlainFeatures(x[:2000], ""), 2000)
    many = type(neighbours)(
        (np.arange(50_000)[:, None] + rng.integers(1, 50_000, (50_000, 10))) % 50_000,
        np.sort(rng.random((50_000, 10)).astype(np.float32), axis=1),
        np.arange(50_000, dtype=np.int32),
        np.full(50_000, -1, np.int32),
        np.zeros(50_000, np.float32),
        "numbers",
    )
    begin = time.process_time()
    assert np.isfinite(arranged(x, many)).all()
    assert time.process_time() - begin < 40  # about 5 on an idle core
