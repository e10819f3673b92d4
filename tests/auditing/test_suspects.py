"""The chance that a label is right, against the formula one example at a time and known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from sklearn.metrics import roc_auc_score

from proselflc.auditing import records as chunks
from proselflc.auditing.audit import noise_rate
from proselflc.auditing.noise_estimate import joint
from proselflc.auditing.records import HeldOut, Records, Witness
from proselflc.auditing.suspects import LabelOdds, lift, odds_of_every_label
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.training.observations import ROW

Doubles = npt.NDArray[np.float64]
OUT_OF_SAMPLE, TRAINING = 1.5, 3.0  # factors of the log-odds


@dataclass(frozen=True)
class Scores:
    """What follows from the log-odds at the rate of the joint itself."""

    odds: LabelOdds
    quality: Floats
    suggested: Ints

    def distribution(self, rows: slice) -> Any:
        return self.odds.distribution(rows, 1 - self.quality, self.suggested)


def score_labels(
    records: Records, y: Ints, counts: Doubles, trusted: Bools | None = None
) -> Scores:
    odds = LabelOdds(records, y, counts, trusted)
    wrong = odds.wrong(noise_rate(counts))
    return Scores(odds, 1 - wrong, np.where(wrong > 0.5, odds.other, y))


def predicting(p: npt.NDArray[np.floating]) -> Records:
    """Records whose mean prediction is p in whatever epochs."""
    return Records([], HeldOut(2, p.astype(np.float16)))


def naive_lift(counts: list[list[float]]) -> list[list[float]]:
    C = len(counts)
    T = []
    for k, row in enumerate(counts):
        more = [v + (i != k) for i, v in enumerate(row)]
        T.append([v / sum(more) for v in more])
    beside = [T[k][i] for k in range(C) for i in range(C) if k != i]
    mean = sum(beside) / len(beside)
    rms = math.sqrt(sum((v + mean / 2) ** 2 for v in beside) / len(beside))
    return [[1 if k == i else (T[k][i] + mean / 2) / rms for i in range(C)] for k in range(C)]


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def naive_judgement(
    p: list[list[float]], y: list[int], counts: list[list[float]], slope: float
) -> list[tuple[float, int]]:
    """Quality and the best other class of every example; NaN where p is."""
    C, w = len(counts), naive_lift(counts)
    odds, others = [], []
    for m, i in zip(p, y, strict=True):
        s = [max(m[k], 1e-7) / math.sqrt(max(y.count(k), 1)) * w[k][i] for k in range(C)]
        odds.append(slope * math.log(sum(s[k] for k in range(C) if k != i) / s[i]))
        others.append(max((k for k in range(C) if k != i), key=lambda k: s[k]))
    known = [x for x in odds if not math.isnan(x)]
    total = sum(map(sum, counts))
    rate = sum(counts[k][i] for k in range(C) for i in range(C) if k != i) / total
    if rate <= 0:
        return [(1.0 if x in known else math.nan, k) for x, k in zip(odds, others, strict=True)]
    b = brentq(
        lambda b: sum(sigma(x + b) for x in known) / len(known) - rate, -500, 500, xtol=1e-12
    )
    return [(1 - sigma(x + b) if x in known else x, k) for x, k in zip(odds, others, strict=True)]


matrices = st.integers(2, 7).flatmap(
    lambda C: st.lists(
        st.lists(st.sampled_from([0.0, 0.25, 1.0, 7.5, 300.0]), min_size=C, max_size=C),
        min_size=C,
        max_size=C,
    )
)


@settings(max_examples=100, deadline=None)
@given(counts=matrices)
def test_lift_is_that_of_a_loop(counts: list[list[float]]) -> None:
    weights = lift(np.array(counts))
    np.testing.assert_allclose(weights, naive_lift(counts), rtol=1e-12)
    assert weights.diagonal().tolist() == [1] * len(counts)
    beside = weights[~np.eye(len(counts), dtype=bool)]
    assert (beside > 0).all()
    assert (beside**2).mean() == pytest.approx(1)


def test_lift_by_hand() -> None:
    """T is ¾ ¼ | ½ ½, so T̄ = ⅜ and the numerators are 7/16 and 11/16."""
    counts = np.array([[3.0, 0], [1, 2]])
    rms = math.sqrt((7**2 + 11**2) / 2)
    np.testing.assert_allclose(lift(counts), [[1, 7 / rms], [11 / rms, 1]], rtol=1e-12)
    assert counts.tolist() == [[3, 0], [1, 2]]  # as it was


@pytest.mark.parametrize("wrong", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("C", [2, 3, 30])
def test_noise_that_goes_everywhere_alike_has_no_lift(C: int, wrong: float) -> None:
    counts = np.full((C, C), wrong)
    np.fill_diagonal(counts, 5000)
    np.testing.assert_allclose(lift(counts), 1, rtol=1e-12)


def test_noise_between_pairs_lifts_them_and_more_so_the_more_examples_show_it() -> None:
    C = 10
    pair = 60 * np.eye(C) + 40 * np.roll(np.eye(C), 1, axis=1)
    lifts = [lift(scale * pair) for scale in (0.01, 1, 100, 1e9)]
    along = [weights[0, 1] for weights in lifts]
    elsewhere = [weights[0, 2] for weights in lifts]
    assert along == sorted(along)
    assert elsewhere == sorted(elsewhere, reverse=True)
    # Without end: T is 0.4 on 10 of 90 cells, so T̄ = 0.4/9.
    granted = 0.4 / 18
    rms = math.sqrt(((0.4 + granted) ** 2 + 8 * granted**2) / 9)
    assert along[-1] == pytest.approx((0.4 + granted) / rms, rel=1e-6)
    assert elsewhere[-1] == pytest.approx(granted / rms, rel=1e-6)


def drawn(seed: int, n: int, C: int) -> tuple[Doubles, Ints, Doubles]:
    """Any predictions, some of nothing, labels of some of the classes, and a joint of any sizes."""
    generator = np.random.default_rng(seed)
    y = generator.integers(generator.integers(1, C + 1), size=n)
    p = generator.dirichlet(np.full(C, generator.choice([0.05, 0.5, 5])), n)
    p[generator.random(n) < 0.15] = np.nan
    counts = generator.gamma(0.3, 20, (C, C)) + np.diag(np.bincount(y, minlength=C))
    return p, y, counts


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 30),
    C=st.sampled_from([2, 3, 6, 40]),
    elements=st.sampled_from([1, 100, 1 << 21]),
)
def test_the_judgement_is_that_of_a_loop_whatever_is_done_at_once(
    seed: int, n: int, C: int, elements: int
) -> None:
    p, y, counts = drawn(seed, n, C)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_ELEMENTS", elements)
        found = score_labels(predicting(p), y, counts)
    halves = p.astype(np.float16).astype(np.float64)
    if np.isnan(p).all():
        assert np.isnan(found.quality).all()
        assert found.suggested.tolist() == y.tolist()
        return
    expected = naive_judgement(halves.tolist(), y.tolist(), counts.tolist(), OUT_OF_SAMPLE)
    quality, other = (np.array(column) for column in zip(*expected, strict=True))
    assert found.quality.dtype == np.float32
    np.testing.assert_allclose(found.quality, quality, rtol=0, atol=2e-5)
    known = ~np.isnan(p[:, 0])
    np.testing.assert_array_equal(known, ~np.isnan(found.quality))
    assert ((found.quality[known] >= 0) & (found.quality[known] <= 1)).all()
    suspect = found.suggested != y
    np.testing.assert_array_equal(suspect, found.quality < 0.5)
    assert not suspect[~known].any()
    w = np.array(naive_lift(counts.tolist())).T[y]
    share = np.maximum(halves, 1e-7) / np.sqrt(np.maximum(np.bincount(y, minlength=C), 1)) * w
    share[np.arange(n), y] = 0
    chances = share / share.sum(1, keepdims=True) * (1 - quality)[:, None]
    chances[np.arange(n), y] = quality
    np.testing.assert_allclose(found.distribution(slice(0, n)), chances, rtol=0, atol=3e-5)
    for i in np.flatnonzero(suspect):
        k = int(found.suggested[i])
        if k != other[i]:  # two that float32 cannot tell apart
            best = naive_lift(counts.tolist())[other[i]][y[i]] * halves[i, other[i]]
            root = math.sqrt(max((y == other[i]).sum(), 1) / max((y == k).sum(), 1))
            same = naive_lift(counts.tolist())[k][y[i]] * halves[i, k]
            assert same * root == pytest.approx(best, rel=1e-4, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 60), C=st.integers(2, 5))
def test_the_chances_have_the_noise_rate_for_their_mean(seed: int, n: int, C: int) -> None:
    p, y, counts = drawn(seed, n, C)
    quality = score_labels(predicting(p), y, counts).quality
    if not np.isnan(quality).all():
        rate = 1 - counts.trace() / counts.sum()
        assert 1 - np.nanmean(quality, dtype=np.float64) == pytest.approx(rate, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 60))
def test_what_is_trusted_is_right_and_the_others_share_the_noise(seed: int, n: int) -> None:
    p, y, counts = drawn(seed, n, 3)
    counts += np.diag(np.full(3, counts.sum()))  # less noise than there are others
    trusted = np.random.default_rng(seed).random(n) < 0.3
    found = score_labels(predicting(p), y, counts, trusted)
    known = ~np.isnan(p[:, 0])
    np.testing.assert_array_equal(np.isnan(found.quality), ~known)
    assert (found.quality[trusted & known] == 1).all()
    assert (found.suggested[trusted] == y[trusted]).all()
    row = int(np.flatnonzero(trusted & known)[0]) if (trusted & known).any() else None
    if row is not None:
        chances = found.distribution(slice(row, row + 1))[0]
        np.testing.assert_array_equal(chances, np.eye(3)[y[row]])
    rate = 1 - counts.trace() / counts.sum()
    if (known & ~trusted).sum() > rate * known.sum():
        assert 1 - np.nanmean(found.quality, dtype=np.float64) == pytest.approx(rate, abs=1e-6)


def test_the_judgement_looks_at_all_epochs() -> None:
    """Two epochs that each believe one of two labels, and a third that was not seen."""
    rows = np.zeros((3, 2), ROW)
    rows["p_given"] = [[0.75, 0.25], [0.25, 0.25], [np.nan, np.nan]]
    rows["p_other"] = [[0.25, 0.5], [0.5, 0.75], [np.nan, np.nan]]
    rows["other"] = [[1, 2], [2, 2], [7, 7]]
    y, counts = np.array([0, 0]), np.array([[5.0, 1, 0], [2, 5, 1], [4, 0, 5]])
    mean = np.array([[0.5, 0.25, 0.25], [0.25, 0.125, 0.625]])
    found = score_labels(Records(list(rows)), y, counts)
    expected = naive_judgement(mean.tolist(), y.tolist(), counts.tolist(), TRAINING)
    np.testing.assert_allclose(found.quality, [q for q, _ in expected], atol=1e-6)
    assert found.suggested.tolist() == [0, 2]


def test_without_noise_nobody_is_suspect() -> None:
    p, y, _ = drawn(0, 40, 3)
    found = score_labels(predicting(p), y, np.diag([20.0, 10, 10]))
    np.testing.assert_array_equal(found.quality, np.where(np.isnan(p[:, 0]), np.nan, 1))
    np.testing.assert_array_equal(found.suggested, y)


def test_where_all_labels_are_wrong_all_are_suspect() -> None:
    y = np.array([0, 1, 2, 1])
    p = np.array([[1.0, 0, 0], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [np.nan] * 3])
    found = score_labels(predicting(p), y, np.array([[0.0, 9, 1], [5, 0, 5], [2, 8, 0]]))
    np.testing.assert_array_equal(found.quality, [0, 0, 0, np.nan])
    assert found.suggested[3] == 1
    assert (found.suggested[:3] != y[:3]).all()


@pytest.mark.parametrize("rate", [0.25, 0.75])
def test_a_single_example_is_as_wrong_as_labels_are(rate: float) -> None:
    for p in ([0.9, 0.1], [0.0, 1.0], [0.5, 0.5]):
        found = score_labels(
            predicting(np.array([p])), np.array([0]), np.array([[1 - rate, 0], [rate, 0]])
        )
        assert found.quality.tolist() == pytest.approx([1 - rate])
        assert found.suggested.tolist() == [int(rate > 0.5)]


def test_nothing_to_judge() -> None:
    found = score_labels(predicting(np.zeros((0, 3))), np.zeros(0, np.int64), np.zeros((3, 3)))
    assert found.quality.shape == found.suggested.shape == (0,)


Noise = Literal["pair", "symmetric"]


def world(
    seed: int, shares: list[float], noise: Noise, rate: float, sharpness: float
) -> tuple[Ints, Ints, Doubles]:
    """Of 6,000 examples the true class, the label, and the exact chance of every true class."""
    generator = np.random.default_rng(seed)
    n, C = 6000, len(shares)
    clean = generator.choice(C, n, p=shares)
    steps = np.ones(n, np.int64) if noise == "pair" else generator.integers(1, C, n)
    y = np.where(generator.random(n) < rate, (clean + steps) % C, clean)
    z = sharpness * (generator.normal(size=(n, C)) + sharpness * np.eye(C)[clean])
    p = np.exp(z - z.max(1, keepdims=True)) * shares
    return clean, y, p / p.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", range(3))
def test_where_labels_go_astray_helps_to_find_them(seed: int) -> None:
    """With pair noise an example between other classes is hard, but not wrong."""
    clean, y, p = world(seed, [0.2] * 5, "pair", 0.3, sharpness=2)
    records = predicting(p)
    quality = score_labels(records, y, joint(records, y, 5)).quality
    ours = roc_auc_score(y != clean, -quality)
    assert ours > 0.965
    assert ours > roc_auc_score(y != clean, -p[np.arange(len(y)), y]) + 0.008
    no_lift = score_labels(
        records, y, np.full((5, 5), 0.3 / 4) + (0.7 - 0.3 / 4) * np.eye(5)
    ).quality
    assert ours > roc_auc_score(y != clean, -no_lift) + 0.008


@pytest.mark.parametrize("noise", ["pair", "symmetric"])
def test_false_alarms_are_not_much_more_frequent_in_rare_classes(noise: Noise) -> None:
    """Of classes with 60 % and with 2 and 1 % of the examples, the ratio is at most 7.

    Where the label is not the likeliest class, which is the usual rule, it is more than 8.
    """
    alarms = {"ours": np.zeros(2), "usual": np.zeros(2)}
    right = np.zeros(2)
    for seed in range(5):
        clean, y, p = world(seed, [0.6, 0.3, 0.07, 0.02, 0.01], noise, 0.2, sharpness=3)
        records = predicting(p)
        found = score_labels(records, y, joint(records, y, 5))
        for where, group in enumerate((clean == 0, clean >= 3)):
            group &= y == clean
            right[where] += group.sum()
            alarms["ours"][where] += (found.suggested != y)[group].sum()
            alarms["usual"][where] += (p.argmax(1) != y)[group].sum()
    common, rare = alarms["ours"] / right
    usual_common, usual_rare = alarms["usual"] / right
    assert 0 < rare < 7 * common
    assert usual_rare > 8 * usual_common
    assert rare < 0.75 * usual_rare


def of_training(p: Doubles, y: Ints) -> Records:
    """Three epochs that each saw p, which is their mean."""
    n = np.arange(len(y))
    rows = np.zeros(len(y), ROW)
    others = p.copy()
    others[n, y] = -1
    rows["predicted"], rows["p_given"] = p.argmax(1), p[n, y]
    rows["other"], rows["p_other"] = others.argmax(1), others.max(1)
    return Records([rows] * 3)


def test_what_was_seen_in_training_is_believed_more() -> None:
    p, y, counts = drawn(3, 25, 4)
    records = of_training(np.nan_to_num(p, nan=0.25), y)
    m = records.mean_prediction(slice(0, 25), y, 4).astype(np.float64)
    expected = naive_judgement(m.tolist(), y.tolist(), counts.tolist(), TRAINING)
    found = score_labels(records, y, counts)
    np.testing.assert_allclose(found.quality, [q for q, _ in expected], rtol=0, atol=2e-5)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 25), C=st.sampled_from([2, 3, 9]))
def test_network_and_witness_are_one_judge(seed: int, n: int, C: int) -> None:
    """√(m h), example by example; neither is a veto, and what was not seen stays unknown."""
    m, y, counts = drawn(seed, n, C)
    h = np.random.default_rng(seed + 1).dirichlet(np.full(C, 0.2), n).astype(np.float16)
    m16, h64 = m.astype(np.float16).astype(np.float64), h.astype(np.float64)
    both = []
    for one, other in zip(m16.tolist(), h64.tolist(), strict=True):
        root = [math.sqrt(max(a, 1e-6) * max(b, 1e-6)) for a, b in zip(one, other, strict=True)]
        both.append([math.nan] * C if math.isnan(one[0]) else [v / sum(root) for v in root])
    records = Records([], HeldOut(2, m.astype(np.float16)), Witness(h, "words"))
    np.testing.assert_allclose(records.judgement(slice(0, n), y, C), both, rtol=1e-5, atol=1e-7)
    found = score_labels(records, y, counts)
    if np.isnan(m).all():
        assert np.isnan(found.quality).all()
        return
    expected = naive_judgement(both, y.tolist(), counts.tolist(), OUT_OF_SAMPLE)
    np.testing.assert_allclose(found.quality, [q for q, _ in expected], rtol=0, atol=2e-5)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 40), C=st.integers(2, 6))
def test_a_larger_rate_makes_every_label_less_likely_right_in_the_same_order(
    seed: int, n: int, C: int
) -> None:
    p, y, counts = drawn(seed, n, C)
    odds = LabelOdds(predicting(p), y, counts)
    known = ~np.isnan(p[:, 0])
    before = np.zeros(n)
    for rate in (0.0, 0.01, 0.2, 0.7):
        wrong = odds.wrong(rate).astype(np.float64)
        np.testing.assert_array_equal(np.isnan(wrong), ~known)
        if known.any():
            assert wrong[known].mean() == pytest.approx(rate, abs=1e-6)
        assert (wrong[known] >= before[known] - 1e-6).all()
        order = np.argsort(odds.log_odds[known], kind="stable")
        assert (np.diff(wrong[known][order]) >= -1e-6).all()
        before = wrong


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 20), C=st.integers(2, 6))
def test_the_odds_of_every_label_are_those_it_would_have(seed: int, n: int, C: int) -> None:
    """One example at a time, and for the given labels those of `LabelOdds`."""
    p, y, counts = drawn(seed, n, C)
    p = np.nan_to_num(p, nan=1 / C).astype(np.float16)
    found = odds_of_every_label(p.astype(np.float32), y, counts)
    w = naive_lift(counts.tolist())
    root = [math.sqrt(max((y == k).sum(), 1)) for k in range(C)]
    for m, row in zip(p.astype(np.float64).tolist(), found, strict=True):
        s = [max(m[k], 1e-7) / root[k] for k in range(C)]
        for i in range(C):
            others = sum(s[k] * w[k][i] for k in range(C) if k != i)
            assert row[i] == pytest.approx(math.log(others / s[i]), abs=1e-4)
    own = LabelOdds(Records([], HeldOut(2, p)), y, counts).log_odds
    np.testing.assert_allclose(found[np.arange(n), y], own, atol=1e-4)
