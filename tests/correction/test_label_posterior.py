"""The probability of every class to be the true one: each formula against a plain loop."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.testing import assert_close

from proselflc.correction.label_posterior import (
    LARGEST_BIAS,
    POWERS,
    TINY,
    UNSEEN,
    bias_for,
    label_likelihoods,
    label_posterior,
    log_odds,
    log_weights,
    surest_labels,
)


def predictions(n: int, C: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Remembered predictions [n, C] and given classes [n]."""
    generator = torch.Generator().manual_seed(seed)
    m = (2 * torch.randn(n, C, generator=generator, dtype=torch.float64)).softmax(1)
    return m, torch.randint(C, (n,), generator=generator)


def random_transition(C: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    T = torch.rand(C, C, generator=generator, dtype=torch.float64) + 3 * torch.eye(C)
    return T / T.sum(1, keepdim=True)


@pytest.mark.parametrize("a", [1.0, 4.0])
@pytest.mark.parametrize("b", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("C", [2, 5])
def test_w_is_a_power_of_m_times_shares_times_transition_times_bias(
    C: int, b: float, a: float
) -> None:
    """w_j ∝ m_j^a π_j^(−(a − 1)/2) T_jy exp(−b [j = y])"""
    m, y = predictions(30, C)
    T, shares = random_transition(C), torch.arange(1, C + 1, dtype=torch.float64)
    shares = shares / shares.sum()
    w = label_posterior(m, y, T, shares, a, torch.tensor(b))
    for i in range(30):
        row = []
        for j in range(C):
            one = float(m[i, j]) ** a * float(shares[j]) ** (-(a - 1) / 2) * float(T[j, y[i]])
            row.append(one * math.exp(-b) if j == y[i] else one)
        assert_close(w[i], torch.tensor([one / sum(row) for one in row], dtype=torch.float64))


def test_what_is_0_is_taken_as_tiny() -> None:
    m = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    T = torch.eye(3, dtype=torch.float64)
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    (found,) = log_weights(m, torch.tensor([1]), T, shares, 4.0)
    expected = [
        math.log(TINY) - 1.5 * math.log(0.5),
        4 * math.log(UNSEEN) - 1.5 * math.log(0.3),
        4 * math.log(UNSEEN) - 1.5 * math.log(0.2) + math.log(TINY),
    ]
    assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("C", [2, 4])
def test_a_class_without_labels_is_never_the_true_one(C: int) -> None:
    m, y = predictions(20, C)
    y = y.clamp(max=C - 2)
    shares = torch.bincount(y, minlength=C) / 20
    T = random_transition(C)
    w = label_posterior(m, y, T, shares, 4.0, 1.0)
    assert (w[:, -1] == 0).all()
    assert_close(w.sum(1), torch.ones(20, dtype=torch.float64))
    odds = log_odds(log_weights(m, y, T, shares, 3.0), y)
    assert torch.equal(odds == -torch.inf, torch.full((20,), C == 2))
    assert 0 <= bias_for(odds, 0.1) <= LARGEST_BIAS


def test_log_odds_are_those_of_a_wrong_label_without_bias() -> None:
    m, y = predictions(50, 4)
    T, shares = random_transition(4), torch.full((4,), 0.25, dtype=torch.float64)
    w = label_posterior(m, y, T, shares, 3.0, 0.0)
    of_given = w[torch.arange(50), y]
    expected = (1 - of_given).log() - of_given.log()
    assert_close(log_odds(log_weights(m, y, T, shares, 3.0), y), expected)
    for b in (0.5, 3.0):  # and with one they are b more
        biased = label_posterior(m, y, T, shares, 3.0, b)[torch.arange(50), y]
        assert_close(1 - biased, torch.sigmoid(expected + b))


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4, 0.9])
def test_b_makes_as_many_labels_wrong_as_the_rate_says(rate: float) -> None:
    """The least b ≥ 0 with mean σ(log odds + b) ≥ rate."""
    odds = torch.linspace(-8, 2, 101, dtype=torch.float64)

    def excess(b: float) -> float:
        return float(np.mean(1 / (1 + np.exp(-(odds.numpy() + b))))) - rate

    b = bias_for(odds, rate)
    assert b == pytest.approx(0.0 if excess(0) >= 0 else brentq(excess, 0, 50), abs=1e-6)
    assert excess(b) >= 0


def test_b_is_0_without_wrong_labels_and_bounded_with_hopeless_odds() -> None:
    assert bias_for(torch.tensor([-9.0, -3.0], dtype=torch.float64), 0.0) == 0
    assert bias_for(torch.full((5,), -90.0, dtype=torch.float64), 0.3) == LARGEST_BIAS


def test_likelihoods_are_of_the_label_given_the_sharpened_prediction() -> None:
    """log Σ_j s_j T_jy, s ∝ m_j^a π_j^(−(a − 1)/2), for every power."""
    m, y = predictions(20, 3)
    T, shares = random_transition(3), torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    found = label_likelihoods(m, y, T, shares)
    assert len(found) == len(POWERS)
    for a, every in zip(POWERS, found, strict=True):
        for i in range(20):
            s = [float(m[i, j]) ** a * float(shares[j]) ** (-(a - 1) / 2) for j in range(3)]
            p = sum(one / sum(s) * float(T[j, y[i]]) for j, one in enumerate(s))
            assert float(every[i]) == pytest.approx(math.log(p))


def surest_by_loop(
    confidence: list[float], predicted: list[int], given: list[int], C: int
) -> tuple[list[list[float]], int, int]:
    """T, the number of the surest predictions, and how many of them are not of the given class."""
    counts = [[0] * C for _ in range(C)]
    for j in range(C):
        of_class = [i for i, k in enumerate(predicted) if k == j]
        ranked = sorted(of_class, key=lambda i: (-confidence[i], i))
        tenth = len(of_class) // 10
        for i in ranked[: max(tenth, 10)]:
            counts[j][given[i]] += 1
    number = sum(map(sum, counts))
    contradicted = number - sum(counts[j][j] for j in range(C))
    rate = Fraction(contradicted, number)
    T = []
    for j in range(C):
        uniform = [1 - rate if k == j else rate / (C - 1) for k in range(C)]
        row = [counts[j][k] + 10 * uniform[k] for k in range(C)]
        T.append([float(one / sum(row)) for one in row])
    return T, number, contradicted


@pytest.mark.parametrize(("n", "C"), [(40, 2), (300, 3), (2000, 5)])
def test_the_surest_tenth_of_every_predicted_class_is_counted(n: int, C: int) -> None:
    generator = torch.Generator().manual_seed(n)
    confidence = torch.randint(20, (n,), generator=generator) / 20  # with many ties
    predicted = (C * torch.rand(n, generator=generator) ** 2).long()  # some classes are rarer
    given = torch.randint(C, (n,), generator=generator)
    found = surest_labels(confidence, predicted, given, C)
    T, number, contradicted = surest_by_loop(
        confidence.tolist(), predicted.tolist(), given.tolist(), C
    )
    assert_close(found.transition, torch.tensor(T))
    assert_close(found.transition.sum(1), torch.ones(C))
    assert (found.number, found.contradicted) == (number, contradicted)
    assert found.rate == contradicted / number


def test_a_class_that_is_never_predicted_has_the_uniform_row_of_the_rate() -> None:
    predicted = torch.tensor([0] * 30 + [1] * 5)
    given = torch.tensor([0] * 8 + [1] * 22 + [1] * 5)
    found = surest_labels(torch.linspace(1, 0.4, 35), predicted, given, 3)
    assert (found.number, found.contradicted) == (15, 2)  # of ten and of all five
    assert_close(found.transition[2], torch.tensor([1 / 15, 1 / 15, 13 / 15]))


def test_labels_that_the_surest_predictions_confirm_give_the_identity() -> None:
    predicted = torch.arange(60) % 3
    found = surest_labels(torch.rand(60), predicted, predicted, 3)
    assert_close(found.transition, torch.eye(3))
    assert found.rate == 0
