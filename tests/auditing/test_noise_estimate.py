"""The estimated noise against noise that is known, and against a loop over examples."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from proselflc.auditing import records as chunks
from proselflc.auditing.noise_estimate import early_epochs, joint, with_rate
from proselflc.auditing.records import HeldOut, Records
from proselflc.data import class_matrix, memory_budget
from proselflc.data.inputs import Ints
from proselflc.training.observations import NO_CLASS, ROW, Rows

Doubles = npt.NDArray[np.float64]


def predicting(p: npt.NDArray[np.floating]) -> Records:
    """Records whose mean prediction is p in whatever epochs."""
    return Records([], HeldOut(2, p.astype(np.float16)))


def symmetric(C: int, rate: float) -> Doubles:
    T: Doubles = np.full((C, C), rate / (C - 1))
    np.fill_diagonal(T, 1 - rate)
    return T


def pair(C: int, rate: float) -> Doubles:
    T: Doubles = (1 - rate) * np.eye(C) + rate * np.roll(np.eye(C), 1, axis=1)
    return T


def asymmetric(C: int) -> Doubles:
    T: Doubles = np.eye(C)
    T[0, :2] = 0.6, 0.4
    T[2, [0, 2]] = 0.3, 0.7
    return T


def world(seed: int, n: int, T: Doubles, shares: list[float]) -> tuple[Ints, Ints, Doubles]:
    """True classes, labels, and predictions that know the true class and nothing of the label."""
    generator = np.random.default_rng(seed)
    C = len(T)
    clean = generator.choice(C, n, p=shares)
    y = (generator.random((n, 1)) > T[clean].cumsum(1)).sum(1).clip(0, C - 1)
    z = generator.normal(size=(n, C)) + 3 * np.eye(C)[clean]  # right for 95 of 100, where C is 5
    p = np.exp(3 * z)
    return clean, y, p / p.sum(1, keepdims=True)


def rows_of(p: Doubles, y: Ints) -> Rows:
    """What a recorder keeps of predictions."""
    rows, n = np.zeros(len(y), ROW), np.arange(len(y))
    rows["predicted"], rows["p_given"] = p.argmax(1), p[n, y]
    others = p.copy()
    others[n, y] = -1
    rows["other"], rows["p_other"] = others.argmax(1), others.max(1)
    return rows


EVEN = [0.2] * 5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("T", "shares"),
    [
        (np.eye(5), EVEN),
        (symmetric(5, 0.4), EVEN),
        (pair(5, 0.4), EVEN),
        (asymmetric(5), [0.4, 0.2, 0.2, 0.1, 0.1]),
        (pair(5, 0.3), [0.5, 0.3, 0.1, 0.06, 0.04]),
        (pair(2, 0.3), [0.7, 0.3]),
    ],
    ids=["none", "symmetric", "pair", "asymmetric", "unequal", "two"],
)
def test_known_noise_is_recovered(T: Doubles, shares: list[float], seed: int) -> None:
    """From 4,000 labels: every chance to 0.1, and the noise rate to 0.03."""
    clean, y, p = world(seed, 4000, T, shares)
    counts = joint(predicting(p), y, len(T))
    transition = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(transition, T, rtol=0, atol=0.1)
    assert 1 - counts.trace() / counts.sum() == pytest.approx((y != clean).mean(), abs=0.03)
    np.testing.assert_allclose(counts.sum(1) / len(y), shares, rtol=0, atol=0.05)


def test_the_early_epochs_are_believed_before_labels_are_learned_by_heart() -> None:
    """Later every label is predicted, so that the mean of all epochs would show no noise."""
    clean, y, p = world(0, 4000, pair(5, 0.45), EVEN)
    early = [rows_of(p, y)] * 4
    by_heart = [rows_of(np.eye(5)[y], y)] * 30
    records = Records(early + by_heart)
    assert early_epochs(records, y) == 4
    counts = joint(records, y, 5)
    assert 1 - counts.trace() / counts.sum() == pytest.approx((y != clean).mean(), abs=0.03)
    np.testing.assert_array_equal(counts, joint(Records(early), y, 5))
    memorised = joint(Records(by_heart), y, 5)
    np.testing.assert_allclose(memorised, np.diag(np.bincount(y)), atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), C=st.integers(2, 7))
def test_a_network_that_knows_the_truth_shows_the_true_numbers(seed: int, C: int) -> None:
    """Equals share the last places, so every example that is taken for a class is its anchor."""
    generator = np.random.default_rng(seed)
    clean = np.concatenate([np.arange(C), generator.integers(C, size=300)])
    wrong = generator.random(len(clean)) < 0.25
    y = np.where(wrong, generator.integers(C, size=len(clean)), clean)
    counts = joint(predicting(np.eye(C)[clean]), y, C)
    np.testing.assert_allclose(counts, confusion_matrix(clean, y, labels=range(C)), atol=1e-3)


def by_hand(p: list[list[float]], y: list[int], C: int) -> Doubles:
    """The joint by loops: anchors, their labels, shares by expectation maximisation, columns."""
    n = len(y)
    T = [[float(k == i) for i in range(C)] for k in range(C)]
    for k in range(C):
        sure = []
        for m, label in zip(p, y, strict=True):
            among_five = sum(v > m[k] for v in m) < 5
            if m[k] > 0 and among_five:
                sure.append((m[k], label))
        sure.sort(reverse=True)
        wanted = min(math.ceil(y.count(k) / 2), len(sure))
        if wanted == 0:
            continue
        last = sure[wanted - 1][0]
        surer = [label for value, label in sure if value > last]
        equal = [label for value, label in sure if value == last]
        for i in range(C):
            places = (wanted - len(surer)) / len(equal)
            T[k][i] = (surer.count(i) + equal.count(i) * places) / wanted
    share = [y.count(i) / n for i in range(C)]
    prior = list(share)
    for _ in range(200):
        explained = [sum(prior[k] * T[k][i] for k in range(C)) for i in range(C)]
        prior = [
            sum(share[i] * prior[k] * T[k][i] / explained[i] for i in range(C) if explained[i])
            for k in range(C)
        ]
    counts = np.zeros((C, C))
    for i in range(C):
        explained_by = [prior[k] * T[k][i] for k in range(C)]
        for k in range(C):
            if sum(explained_by):
                counts[k, i] = explained_by[k] / sum(explained_by) * y.count(i)
            elif k == i:
                counts[k, i] = y.count(i)
    return counts


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 40),
    C=st.integers(2, 8),
    elements=st.sampled_from([1, 20, 1 << 21]),
)
def test_the_joint_is_that_of_a_loop_whatever_is_done_at_once(
    seed: int, n: int, C: int, elements: int
) -> None:
    """Any labels and predictions, many of them equal; some classes have neither."""
    generator = np.random.default_rng(seed)
    y = generator.integers(generator.integers(1, C + 1), size=n)
    # Ties between examples, none within one: which of its classes are the first five is then sure.
    values = np.arange(C) * generator.choice([1, 2], (n, 1))
    p = generator.permuted(values, axis=1) / (2 * C * C)
    p[generator.random(n) < 0.2] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_ELEMENTS", elements)
        counts = joint(predicting(p), y, C)
    assert counts.shape == (C, C)
    assert (counts >= 0).all()
    np.testing.assert_allclose(counts.sum(0), np.bincount(y, minlength=C), rtol=1e-9, atol=1e-9)
    halves = p.astype(np.float16)
    seen = [row for row in halves.tolist() if not math.isnan(row[0])]
    kept = [*seen, *[[0.0] * C] * (n - len(seen))]  # what was not seen is nobody's anchor
    ordered = [*y[~np.isnan(p[:, 0])].tolist(), *y[np.isnan(p[:, 0])].tolist()]
    np.testing.assert_allclose(counts, by_hand(kept, ordered, C), rtol=1e-6, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 40), C=st.integers(2, 5))
def test_neither_the_order_of_examples_nor_that_of_classes_matters(
    seed: int, n: int, C: int
) -> None:
    generator = np.random.default_rng(seed)
    y = generator.integers(C, size=n)
    p = generator.multinomial(4, np.full(C, 1 / C), n) / 4
    counts = joint(predicting(p), y, C)
    order, classes = generator.permutation(n), generator.permutation(C)
    again = joint(predicting(p[order][:, classes]), np.argsort(classes)[y[order]], C)
    np.testing.assert_allclose(again, counts[np.ix_(classes, classes)], rtol=1e-6, atol=1e-6)


def test_examples_sorted_by_their_labels_say_the_same() -> None:
    """As folders of images are read; all predictions are as sure as float16 can tell."""
    clean, y, p = world(0, 3000, symmetric(5, 0.4), EVEN)
    sure = np.eye(5)[p.argmax(1)]
    order = np.argsort(y, kind="stable")
    counts = joint(predicting(sure[order]), y[order], 5)
    assert 1 - counts.trace() / counts.sum() == pytest.approx((y != clean).mean(), abs=0.05)
    np.testing.assert_allclose(counts, joint(predicting(sure), y, 5), rtol=1e-6, atol=1e-6)


def test_a_class_without_labels_is_nobodys() -> None:
    _, y, p = world(0, 500, symmetric(3, 0.2), [1 / 3] * 3)
    with_a_fourth = np.hstack([0.5 * p, np.full((500, 1), 0.5)])
    counts = joint(predicting(with_a_fourth), y, 4)
    assert counts[3].tolist() == counts[:, 3].tolist() == [0] * 4
    np.testing.assert_allclose(counts[:3, :3], joint(predicting(p), y, 3), rtol=1e-6)


def test_a_class_that_nobody_is_taken_for_keeps_labels_that_no_other_explains() -> None:
    y = np.array([0] * 10 + [1] * 10 + [2] * 4)
    p = np.eye(3)[[0] * 10 + [1] * 10 + [0] * 4]
    p[:, 2] = 0
    counts = joint(predicting(p), y, 3)
    assert counts[2, :2].tolist() == [0, 0]
    assert counts[1].tolist() == [0, 10, 0]
    # Class 0 is given the label 2 by 4 of its 14; that explains all of these, or the class itself.
    assert counts[0, 0] == pytest.approx(10)
    assert counts[0, 2] + counts[2, 2] == pytest.approx(4)
    lonely = joint(predicting(np.eye(3)[[0] * 10 + [1] * 14] * [1, 1, 0]), y, 3)
    assert lonely[:, 0].tolist() == [10, 0, 0]


def test_labels_that_no_anchor_has_stay() -> None:
    """Both classes' anchors have the label 0, so nothing explains the label 1."""
    y = np.array([0, 0, 0, 1])
    p = np.array([[1, 0.9], [0.9, 1], [0.8, 0.7], [0.1, 0.1]])
    assert joint(predicting(p), y, 2)[:, 1].tolist() == [0, 1]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_what_was_never_seen_is_taken_at_its_word(n: int) -> None:
    y = np.arange(n) % 3
    counts = joint(predicting(np.full((n, 3), np.nan)), y, 3)
    np.testing.assert_array_equal(counts, np.diag(np.bincount(y, minlength=3)))


def fitting(*shares: tuple[int, int]) -> tuple[Records, Ints]:
    """Epochs that see so many of ten examples and predict so many of their labels."""
    y = np.arange(10) % 2
    files = []
    for seen, fitted in shares:
        rows = np.zeros(10, ROW)
        rows["predicted"] = np.where(np.arange(10) < fitted, y, 1 - y)
        rows["p_given"] = 0.5
        rows["p_given"][seen:] = np.nan
        rows["predicted"][seen:] = NO_CLASS
        files.append(rows)
    return Records(files), y


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([], 0),
        ([(10, 10)] * 2, 2),
        ([(10, 10)] * 3, 3),
        ([(10, 10)] * 9, 3),
        ([(10, 5)] * 9, 9),
        ([(10, 6)] * 9, 9),  # not more than 60 %
        ([*[(10, 5)] * 5, (10, 7), *[(10, 9)] * 4], 5),
        ([(10, 9), (10, 9), (10, 9), (10, 5), (10, 7), (10, 2)], 4),
        ([*[(10, 5)] * 3, (5, 3), (5, 4), (10, 5)], 4),  # of those that were seen
        ([*[(10, 5)] * 3, (0, 0), (1, 1)], 4),
    ],
)
def test_early_learning_is_over_when_most_labels_are_fitted(
    shares: list[tuple[int, int]], expected: int
) -> None:
    assert early_epochs(*fitting(*shares)) == expected


def test_a_mark_that_is_a_label_is_not_counted_where_nothing_was_seen() -> None:
    """Whatever is in the row of an example that was not seen."""
    records, y = fitting(*[(10, 5)] * 3, (5, 3), (10, 5))
    records.observed[3]["predicted"][5:] = y[5:]
    assert early_epochs(records, y) == 5


joints = st.integers(2, 6).flatmap(
    lambda C: st.lists(
        st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=C, max_size=C),
        min_size=C,
        max_size=C,
    )
)


@settings(max_examples=100, deadline=None)
@given(cells=joints, rate=st.sampled_from([0.0, 0.01, 0.2, 0.6, 0.9]))
def test_another_rate_keeps_labels_and_the_way_wrong_ones_went(
    cells: list[list[float]], rate: float
) -> None:
    """Column by column; no more than 95 % of the labels of a class become wrong."""
    counts = np.array(cells) + np.diag(np.full(len(cells), 1.0))
    C, n = len(counts), counts.sum()
    beside = ~np.eye(C, dtype=bool)
    found = with_rate(counts, rate)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(0), counts.sum(0), rtol=1e-9)
    wrong = counts[beside].sum()
    if wrong == 0:
        if rate > 0:  # distributed as all labels are
            numbers = counts.sum(0)
            wanted = np.where(beside, np.outer(numbers, numbers), 0)
        else:
            wanted = np.zeros((C, C))
    else:
        wanted = np.where(beside, counts, 0)
    total = wanted.sum()
    scaled = wanted * (rate * n / total if total else 0)
    for i in range(C):
        most = 0.95 * counts[:, i].sum()
        column = scaled[:, i] * min(1.0, most / scaled[:, i].sum() if scaled[:, i].sum() else 1.0)
        np.testing.assert_allclose(np.delete(found[:, i], i), np.delete(column, i), atol=1e-6)
    if (scaled.sum(0) <= 0.95 * counts.sum(0)).all() and (total or rate == 0):
        assert found[beside].sum() / n == pytest.approx(rate, abs=1e-9)
    assert counts.tolist() == (np.array(cells) + np.diag(np.full(C, 1.0))).tolist()  # as it was


@settings(max_examples=60, deadline=None)
@given(cells=joints, rate=st.sampled_from([0.0, 0.01, 0.3, 0.9]))
def test_another_rate_in_sparse_form(cells: list[list[float]], rate: float) -> None:
    counts = np.array(cells) + np.diag(np.full(len(cells), 1.0))
    rows, columns = np.nonzero(counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_budget, "DENSE_CLASSES", 1)
        sparse = class_matrix.of_cells(rows, columns, counts[rows, columns], len(counts))
        found = with_rate(sparse, rate)
    assert not isinstance(found, np.ndarray)
    if counts[~np.eye(len(counts), dtype=bool)].sum():
        np.testing.assert_allclose(found.toarray(), with_rate(counts, rate), atol=1e-9)
    else:  # nothing says which way they would go, and all cells would be too many
        np.testing.assert_array_equal(found.toarray(), counts)


def test_labels_of_one_class_cannot_be_wrong() -> None:
    right = np.diag([300.0, 0.0, 0.0])
    np.testing.assert_array_equal(with_rate(right, 0.1), right)
