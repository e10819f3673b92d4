"""A mixture of two betas finds the components that values were drawn from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from proselflc.data.inputs import Bools
from proselflc.methods.dynamic_bootstrapping import BINS, BetaMixture, Values, fit, loss_model

few = settings(deadline=None, max_examples=60, derandomize=True)


def drawn(
    low: tuple[float, float],
    high: tuple[float, float],
    share: float,
    n: int = 20_000,
    seed: int = 0,
) -> Values:
    """n values, a share of which are of the second beta."""
    generator = np.random.default_rng(seed)
    is_high = np.arange(n) < round(share * n)
    return np.where(is_high, generator.beta(*high, n), generator.beta(*low, n))


@pytest.mark.parametrize(
    ("low", "high", "share"),
    [
        ((2.0, 10.0), (10.0, 2.0), 0.4),
        ((2.0, 10.0), (10.0, 2.0), 0.1),
        ((1.5, 12.0), (8.0, 4.0), 0.6),
        ((20.0, 60.0), (60.0, 20.0), 0.5),
        ((2.0, 20.0), (10.0, 4.0), 0.3),
        ((1.0, 14.0), (6.0, 3.0), 0.5),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_known_components_are_recovered(
    low: tuple[float, float], high: tuple[float, float], share: float, seed: int
) -> None:
    found = fit(drawn(low, high, share, seed=seed))
    assert found.separates(drawn(low, high, share, seed=seed))
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights[1] == pytest.approx(share, abs=0.03)
    for k, (a, b) in enumerate((low, high)):
        true = stats.beta(a, b)
        ours = stats.beta(found.a[k], found.b[k])
        assert found.means[k] == pytest.approx(true.mean(), abs=0.02)
        assert ours.std() == pytest.approx(true.std(), rel=0.15)


def test_the_posterior_is_the_one_of_bayes() -> None:
    a, b, weights = np.array([2.0, 9.0]), np.array([8.0, 3.0]), np.array([0.7, 0.3])
    x = np.linspace(0.001, 0.999, 41)
    low, high = (w * stats.beta(*shape).pdf(x) for w, *shape in zip(weights, a, b, strict=True))
    found = BetaMixture(a, b, weights)
    np.testing.assert_allclose(found.posterior(x), high / (low + high), rtol=1e-9)
    np.testing.assert_array_equal(found.posterior(np.array([0.0, 1.0])) > 0.5, [False, True])


def one_round(x: Values, shapes: list[Any]) -> list[Any]:
    """Expectation and moments, value by value; from a, b and w to new ones."""
    sums = np.zeros((2, 3))
    for value in x:
        density = [w * stats.beta.pdf(value, a, b) for a, b, w in shapes]
        for k in (0, 1):
            r = density[k] / sum(density)
            sums[k] += r, r * value, r * value**2
    return [by_moments(sums[k], len(x)) for k in (0, 1)]


def by_moments(sums: Any, n: int) -> tuple[float, float, float]:
    """a, b and w of a component that has so much of n values."""
    total, first, second = sums
    m = first / total
    common = m * (1 - m) / (second / total - m**2) - 1
    return m * common, (1 - m) * common, total / n


def test_it_is_ten_rounds_of_expectation_and_moments_from_two_clusters() -> None:
    from scipy.cluster.vq import kmeans2

    x = drawn((2, 10), (10, 2), 0.3, n=60)
    _, cluster = kmeans2(x, np.array([x.min(), x.max()]), minit="matrix", iter=50)
    halves = [x[cluster == k] for k in (0, 1)]
    shapes = [by_moments((len(v), v.sum(), (v**2).sum()), len(x)) for v in halves]
    for _ in range(10):
        shapes = one_round(x, shapes)
    found = fit(x)
    np.testing.assert_allclose(np.stack((found.a, found.b, found.weights), 1), shapes, rtol=1e-5)


def test_the_larger_mean_is_second() -> None:
    """Also where the component that begins low ends high."""
    x = np.concatenate((drawn((30, 60), (30, 60), 0.5, n=500), drawn((60, 1), (60, 1), 0.5, n=20)))
    found = fit(x)
    assert found.means[0] <= found.means[1]


def losses_of(share: float, n: int = 5000) -> tuple[Values, Bools]:
    """Losses of two kinds, and which are of the high one."""
    generator = np.random.default_rng(0)
    is_high = generator.random(n) < share
    return np.where(is_high, generator.gamma(20, 0.2, n), generator.gamma(1.5, 0.15, n)), is_high


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_high_losses_are_wrong_labels(share: float) -> None:
    losses, is_high = losses_of(share)
    model = loss_model(losses)
    assert model is not None
    assert (model.low, model.high) == pytest.approx(tuple(np.quantile(losses, (0.05, 0.95))))
    place = np.clip((losses - model.low) / (model.high - model.low), 0, 1)
    wrong = np.interp(place, np.linspace(0, 1, BINS), model.table)
    assert ((wrong > 0.5) == is_high).mean() > 0.97
    assert wrong.mean() == pytest.approx(share, abs=0.05)


def check(losses: Values) -> bool:
    """Whether there is a model, which must then be one."""
    model = loss_model(losses)
    if model is None:
        return False
    assert model.table.shape == (BINS,)
    assert (np.diff(model.table) >= 0).all()
    assert (model.table >= 0).all()
    assert (model.table <= 1).all()
    assert model.table[-1] > model.table[0]
    assert math.isfinite(model.low)
    assert model.low < model.high < math.inf
    return True


positive = st.floats(0.05, 50)


@few
@given(
    shapes=st.tuples(positive, positive, positive, positive),
    share=st.floats(0, 1),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    n=st.integers(1, 400),
    seed=st.integers(0, 1000),
)
def test_the_chance_never_falls(
    shapes: tuple[float, float, float, float], share: float, scale: float, n: int, seed: int
) -> None:
    check(scale * drawn(shapes[:2], shapes[2:], share, n, seed))


@few
@given(st.lists(st.floats(0, 1e30), max_size=60))
def test_whatever_the_losses_are_the_chance_never_falls(losses: list[float]) -> None:
    check(np.array(losses, np.float64))


def test_tails_are_held_although_the_wider_component_wins_there() -> None:
    """A wide low component and a narrow high one: beyond it, the posterior itself would fall."""
    generator = np.random.default_rng(1)
    losses = np.concatenate((generator.beta(1.2, 3, 8000), generator.beta(300, 150, 4000)))
    mixture = fit((losses - losses.min()) / np.ptp(losses))
    x = np.linspace(0, 1, BINS)
    assert mixture.posterior(x)[-1] < 0.5 < mixture.posterior(x).max()
    model = loss_model(losses)
    assert model is not None
    assert check(losses)
    assert model.table[-1] == model.table.max() > 0.5


@pytest.mark.parametrize(
    "losses",
    [
        np.zeros(100),
        np.full(100, 0.7),
        np.full(100, 1e30),
        np.random.default_rng(0).normal(5, 0.1, 5000),
        np.random.default_rng(0).normal(2, 1, 500),
        np.full(50, np.nan),
        np.full(50, np.inf),
        np.zeros(0),
        np.array([1.0]),
        np.array([0.1, 5.0]),
        np.array([0.1, 0.2, 5.0]),
    ],
    ids=[
        "zero",
        "constant",
        "huge",
        "bell",
        "wide-bell",
        "nan",
        "infinite",
        "none",
        "one",
        "two",
        "three",
    ],
)
def test_where_losses_are_of_one_kind_or_too_few_there_is_no_model(losses: Values) -> None:
    assert loss_model(losses) is None


def test_losses_that_are_no_numbers_are_left_out() -> None:
    losses, _ = losses_of(0.4, n=1000)
    expected = loss_model(losses)
    found = loss_model(np.concatenate((losses, [np.inf, np.nan, -np.inf, np.inf])))
    assert expected is not None
    assert found is not None
    assert (found.low, found.high) == (expected.low, expected.high)
    np.testing.assert_array_equal(found.table, expected.table)


@pytest.mark.parametrize(
    ("a", "b", "weights"),
    [
        ([200, 210], [200, 200], [0.5, 0.5]),
        ([1, 3], [3, 1], [0.995, 0.005]),
    ],
    ids=["near", "rare"],
)
def test_what_are_not_two_components(a: list[float], b: list[float], weights: list[float]) -> None:
    x = np.linspace(0.01, 0.99, 99)
    assert not BetaMixture(np.array(a), np.array(b), np.array(weights)).separates(x)
    two = BetaMixture(np.array([1.0, 3.0]), np.array([3.0, 1.0]), np.array([0.9, 0.1]))
    assert two.separates(x)


def test_components_that_most_values_could_be_of_are_one() -> None:
    """Uniform values under Beta(1, 2) and Beta(2, 1): their posterior is x, a quarter is wrong."""
    one = BetaMixture(np.array([1.0, 2.0]), np.array([2.0, 1.0]), np.array([0.5, 0.5]))
    x = np.linspace(0.001, 0.999, 999)
    np.testing.assert_allclose(one.posterior(x), x)
    assert not one.separates(x)
    assert one.separates(np.array([0.05, 0.95]))
