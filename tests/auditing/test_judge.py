"""How good a judge is, counted pair by pair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.auditing.judge import (
    Judge,
    chance_agreement,
    confused_pairs,
    corrected_accuracy,
    is_informed,
    recognised_classes,
    skill,
    tells_wrong_labels,
)


@pytest.mark.parametrize(
    ("accuracy", "classes", "expected"),
    [(1.0, 2, 1.0), (0.5, 2, 0.0), (0.75, 2, 0.5), (0.1, 10, 0.0), (0.55, 10, 0.5), (0.2, 4, 0.0)],
)
def test_skill_is_the_way_from_chance_to_perfection(
    accuracy: float, classes: int, expected: float
) -> None:
    assert skill(accuracy, 1 / classes) == pytest.approx(expected)


def test_there_is_no_skill_in_a_single_class() -> None:
    assert skill(1.0, 1.0) == 0


def test_predictions_that_agree_with_right_labels_are_right() -> None:
    assert corrected_accuracy(0.72, 0.2) == pytest.approx(0.9)
    assert corrected_accuracy(0.9, 0.2) == 1
    assert corrected_accuracy(0.5, 1.0) == 1
    assert corrected_accuracy(0.5, 0.0) == 0.5


@pytest.mark.parametrize(
    ("found", "weak", "too_weak"), [(0.6, False, False), (0.59, True, False), (0.24, True, True)]
)
def test_what_is_weak(found: float, weak: bool, too_weak: bool) -> None:
    judge = Judge(None, 0.5, found, 0.5, 0.5)
    assert (judge.is_weak, judge.is_too_weak) == (weak, too_weak)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(0, 300),
    C=st.integers(2, 6),
    rate=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_pairs_are_those_of_a_loop(seed: int, n: int, C: int, rate: float) -> None:
    generator = np.random.default_rng(seed)
    y = generator.integers(C, size=n)
    predicted = np.where(generator.random(n) < 0.5, y, generator.integers(C, size=n))
    expected = {}
    for a in range(C):
        for b in range(a + 1, C):
            of_both = [
                (int(i), int(j))
                for i, j in zip(y, predicted, strict=True)
                if {int(i), int(j)} <= {a, b}
            ]
            crossed = [pair for pair in of_both if pair[0] != pair[1]]
            if len(of_both) < 20 or not crossed:
                continue
            share = min(1.0, (1 - len(crossed) / len(of_both)) / (1 - rate))
            if share < 0.75:
                expected[a, b] = share
    found = confused_pairs(predicted, y, rate, C)
    assert found == pytest.approx(expected)
    assert list(found.values()) == sorted(found.values())  # the worst first


def test_two_shirts_among_ten_classes() -> None:
    y = np.repeat(np.arange(10), 100)
    predicted = y.copy()
    predicted[0:40] = 6  # of class 0
    predicted[600:640] = 0  # of class 6
    predicted[300:310] = 4
    assert confused_pairs(predicted, y, 0.0, 10) == {(0, 6): pytest.approx(0.6)}
    assert confused_pairs(predicted, y, 0.3, 10) == {}  # if a third of the labels is wrong


def test_predictions_that_know_nothing_are_not_informed() -> None:
    generator = np.random.default_rng(0)
    given = (generator.random(2000) < 0.1).astype(np.int64)
    assert not is_informed(np.zeros(2000, np.int64), given, 2)  # agrees with 90 % of the labels
    assert not is_informed(1 - given, given, 2)
    assert is_informed(given, given, 2)
    chance = [is_informed(generator.permutation(given), given, 2) for _ in range(400)]
    assert np.mean(chance) < 0.1
    assert not is_informed(np.zeros(1, np.int64), np.zeros(1, np.int64), 2)


def test_the_chance_of_agreement_is_that_of_all_orders() -> None:
    generator = np.random.default_rng(1)
    predicted, given = generator.integers(0, 3, (2, 40))
    counts = [(generator.permutation(predicted) == given).sum() for _ in range(20_000)]
    least = np.mean(counts) + 1.645 * np.std(counts)
    found = []
    for _ in range(2000):
        order = generator.permutation(predicted)
        if abs((order == given).sum() - least) > 0.5:
            found.append(is_informed(order, given, 3) == ((order == given).sum() > least))
    assert all(found)


def test_what_agrees_by_chance_is_counted_over_all_orders() -> None:
    predicted, given = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 1, 1, 2])
    shares = [np.mean(predicted == np.array(order)) for order in itertools.permutations(given)]
    assert chance_agreement(predicted, given, 4) == pytest.approx(float(np.mean(shares)))
    assert chance_agreement(given[:0], given[:0], 4) == 1
    everything = np.zeros(10, np.int64)
    assert chance_agreement(everything, everything, 2) == 1  # so there is no skill in it


@pytest.mark.parametrize(
    ("agreed", "chance", "low", "expected"),
    [
        (0.88, 0.5, 0.10, True),  # two classes that are told apart, one label in ten wrong
        (0.60, 0.1, 0.38, True),  # ten classes, many wrong labels
        (0.77, 0.1, 0.10, True),  # more mistakes than wrong labels, but most labels are predicted
        (0.58, 0.5, 0.40, True),  # two classes, and hardly more right labels than wrong ones
        (0.84, 0.5, 0.04, False),  # mistakes are three times as frequent as wrong labels
        (0.70, 0.5, 0.15, False),  # an outcome that is half chance
        (0.89, 0.83, 0.04, False),  # one large class, and the others are not recognised
        (0.64, 0.55, 0.22, False),  # hardly better than chance
    ],
)
def test_when_wrong_labels_can_be_told_from_mistakes(
    agreed: float, chance: float, low: float, expected: bool
) -> None:
    assert tells_wrong_labels(agreed, chance, low) is expected


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 60), C=st.integers(2, 5))
def test_recognised_classes_are_those_of_a_loop(seed: int, n: int, C: int) -> None:
    generator = np.random.default_rng(seed)
    predicted, labels = generator.integers(0, C, n), generator.integers(0, C, n)
    of_all = sum(a == b for a, b in zip(predicted, labels, strict=True)) / n
    found = recognised_classes(predicted, labels, C)
    for k in range(C):
        own = [a == k for a, b in zip(predicted, labels, strict=True) if b == k]
        if own and abs(sum(own) / len(own) - of_all / 2) > 1e-9:
            assert found[k] == (sum(own) / len(own) > of_all / 2)


def test_a_rare_class_that_is_hardly_predicted_is_not_recognised() -> None:
    labels = np.repeat([0, 1], [90, 10])
    predicted = np.zeros(100, np.int64)
    predicted[90:93] = 1
    assert recognised_classes(predicted, labels, 2).tolist() == [True, False]
