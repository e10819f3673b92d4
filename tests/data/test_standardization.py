"""Tables: fitted values, and columns matched by name."""

import numpy as np
import pytest
import torch

from proselflc.data.inputs import Features
from proselflc.data.preprocessing import Standardization
from proselflc.errors import InputError


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_columns_come_out_with_mean_0_and_deviation_1() -> None:
    values = np.random.default_rng(0).normal([5, -1e4, 1e-6], [3, 1e-1, 1e-7], (400, 3))
    features = Features(values.astype(np.float32))
    x = Standardization.fit(features, chunk=37)(features).double()
    assert float(x.mean(0).abs().max()) < 1e-4
    assert float((x.std(0, correction=0) - 1).abs().max()) < 1e-4


def test_fit_is_numpys_mean_and_deviation_for_every_chunk() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    for chunk in (1, 7, 1000):
        fitted = Standardization.fit(Features(values), chunk=chunk)
        np.testing.assert_allclose(fitted.mean, values.astype(np.float64).mean(0), rtol=1e-12)
        np.testing.assert_allclose(fitted.std, values.astype(np.float64).std(0), rtol=1e-12)


def test_a_constant_column_is_zero_now_and_later() -> None:
    train = Features(np.array([[0.1, 1], [0.1, 2], [0.1, 6]], np.float32))
    fitted = Standardization.fit(train)
    assert fitted.std[0] == 0
    later = fitted(Features(np.array([[1e30, 3], [-5, 3]], np.float32)))
    assert later.tolist() == [[0, 0], [0, 0]]


def test_far_outliers_stay_finite() -> None:
    fitted = Standardization((0.0,), (1e-30,))
    x = fitted(Features(np.array([[3e38], [-3e38], [0]], np.float32)))
    assert x[:, 0].tolist() == [1e6, -1e6, 0]


def test_only_the_training_part_counts() -> None:
    train = Features(np.array([[1.0], [3.0]], np.float32))
    assert Standardization.fit(train)(Features(np.array([[5.0]], np.float32))).item() == 3.0


def test_columns_are_matched_by_name() -> None:
    train = Features(np.array([[1, 10], [3, 30]], np.float32), ("a", "b"))
    fitted = Standardization.fit(train)
    swapped = Features(np.array([[30, 9, 3]], np.float32), ("b", "extra", "a"))
    assert fitted(swapped).tolist() == [[1, 1]]
    with pytest.raises(InputError, match=r'column "b" .* is missing; columns here: a, c'):
        fitted(Features(np.zeros((1, 2), np.float32), ("a", "c")))
    with pytest.raises(InputError, match="2 features per example, got 3"):
        fitted(Features(np.zeros((1, 3), np.float32)))
