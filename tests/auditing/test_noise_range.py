"""The range of the noise rate, against closed forms, loops and labels that were really planted."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from proselflc.auditing.noise_estimate import joint
from proselflc.auditing.noise_range import (
    CAUTION_PLANTED,
    CAUTION_SUREST,
    NoiseRange,
    Planted,
    Share,
    noise_range,
    own_odds,
    surest_share,
)
from proselflc.auditing.records import HeldOut, Records
from proselflc.auditing.suspects import odds_of_every_label
from proselflc.data.inputs import Bools, Ints

Doubles = npt.NDArray[np.float64]


@settings(max_examples=100, deadline=None)
@given(
    trials=st.integers(1, 5000), part=st.floats(0, 1), errors=st.sampled_from([0.8, 1.64, 1.96, 3])
)
def test_the_interval_is_wilsons(trials: int, part: float, errors: float) -> None:
    hits = round(part * trials)
    level = float(1 - 2 * norm.sf(errors))
    expected = binomtest(hits, trials).proportion_ci(confidence_level=level, method="wilson")
    low, high = Share(hits, trials).interval(errors)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= low <= Share(hits, trials).rate + 1e-12 <= high + 2e-12 <= 1 + 3e-12


def test_of_nothing_everything_is_possible() -> None:
    assert Share(0, 0).interval(1.96) == pytest.approx((0, 1), abs=1e-6)
    assert surest_share(np.zeros(0), np.zeros(0, np.bool_)) == Share(0, 0)
    assert Share(7, 5).rate == 1  # more than were planted


def sizes(n: int, most: float) -> list[int]:
    """100, 125, 156.25 …, in whole examples, of at most n; from n / 4 ≥ 20 if that is fewer."""
    first = min(100, n, max(20, math.ceil(n / 4)))
    found, k = [], 0
    while first * 1.25**k <= most:
        found.append(min(math.ceil(first * 1.25**k), n))
        k += 1
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 700), rate=st.sampled_from([0, 0.02, 0.3, 1]))
def test_the_surest_are_counted_one_by_one(seed: int, n: int, rate: float) -> None:
    generator = np.random.default_rng(seed)
    confidence = generator.permutation(n) / n  # no two alike
    differs: Bools = generator.random(n) < rate * (1.5 - confidence)
    order = sorted(range(n), key=lambda i: -confidence[i])
    best: tuple[float, int, int] | None = None
    for k in sizes(n, max(0.5 * n, 100)):
        hits = sum(bool(differs[i]) for i in order[:k])
        level = float(1 - 2 * norm.sf(CAUTION_SUREST))
        bound = binomtest(hits, k).proportion_ci(confidence_level=level, method="wilson").high
        if best is None or bound < best[0] - 1e-12:
            best = bound, hits, k
    assert best is not None
    found = surest_share(confidence, differs)
    assert (found.hits, found.trials) == best[1:]


@pytest.mark.parametrize(
    ("other", "anchored", "expected"),
    [
        (0.1, 0.1, "inside"),
        (0.0, 0.1, "least"),
        (0.9, 0.1, "most"),
        (0.1, 0.6, "wide"),
    ],
)
def test_the_second_estimate_is_followed_as_far_as_the_first_allows(
    other: float, anchored: float, expected: str
) -> None:
    surest = Share(20, 200)
    least, most = surest.interval(1.64)
    low, high = surest.interval(1.96)
    found = noise_range(surest, other, anchored)
    rate = {"inside": 0.1, "least": least, "most": most, "wide": 0.1}[expected]
    assert found == NoiseRange(low, rate, 0.6 if expected == "wide" else high)
    assert found.low <= found.rate <= found.high


@pytest.mark.parametrize(
    ("low", "rate", "known"), [(0.05, 0.1, True), (0.049, 0.1, False), (0, 0, False)]
)
def test_a_rate_is_known_if_its_range_is_narrow(low: float, rate: float, known: bool) -> None:
    assert NoiseRange(low, rate, 1.0).is_known == known


def world(
    seed: int, n: int, C: int, rate: float, *, pair: bool, sharpness: float = 4.0
) -> tuple[Ints, Ints, npt.NDArray[np.float32]]:
    """True classes, labels, and calibrated predictions that did not see the labels."""
    generator = np.random.default_rng(seed)
    clean = generator.integers(C, size=n)
    steps = np.ones(n, np.int64) if pair else generator.integers(1, C, n)
    y = np.where(generator.random(n) < rate, (clean + steps) % C, clean)
    z = sharpness * (generator.normal(size=(n, C)) + sharpness * np.eye(C)[clean])
    p = np.exp(z - z.max(1, keepdims=True))
    return clean, y, (p / p.sum(1, keepdims=True)).astype(np.float32)


def planted_by_hand(
    seed: int, p: npt.NDArray[np.float32], y: Ints, counts: Doubles, times: int
) -> Doubles:
    """The log-odds of wrong labels that were drawn, several for every example."""
    generator, C = np.random.default_rng(seed), len(counts)
    odds = odds_of_every_label(p, y, counts)
    found = []
    for i, row in enumerate(p):
        k = int(row.argmax())
        column = counts.sum(0)
        usual = [0.0 if j == k else float(column[j]) for j in range(C)]
        wrong = [0.0 if j == k else float(counts[k, j]) + usual[j] / sum(usual) for j in range(C)]
        drawn = generator.choice(C, times, p=np.array(wrong) / sum(wrong))
        found.append(odds[i, drawn])
    return np.concatenate(found)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("sharpness", [1.5, 3.0])
def test_planted_labels_are_those_that_one_would_draw(pair: bool, sharpness: float) -> None:
    n, C, times = 600, 4, 60
    _, y, p = world(0, n, C, 0.2, pair=pair, sharpness=sharpness)
    counts = joint(Records([], HeldOut(2, p)), y, C)
    planted, own = Planted.of(p, y, counts), own_odds(p, y, counts)
    drawn = planted_by_hand(1, p, y, counts, times)
    assert planted.n == n
    assert planted.planted[-1] == pytest.approx(n)
    np.testing.assert_allclose(own, odds_of_every_label(p, y, counts)[np.arange(n), y])
    for suspects in (1, 30, 120, 400, n):
        threshold = np.sort(own)[::-1][suspects - 1]
        expected = (drawn >= threshold - 1e-9).mean()
        spread = 5 * math.sqrt(0.25 / len(drawn)) + 1 / n
        assert planted.recall(own, suspects) == pytest.approx(expected, abs=spread)
    # Of the thresholds above which there are 100, 125 … of them, the one with the smallest bound.
    ordered = np.sort(drawn)[::-1]
    bounds, shares = [], []
    for size in sizes(n, 0.9 * n):
        threshold = ordered[min(size * times, len(ordered)) - 1]
        share = Share(float((own >= threshold - 1e-9).sum()), float(size))
        bounds.append(share.interval(CAUTION_PLANTED)[1])
        shares.append(share)
    best = shares[int(np.argmin(bounds))]
    assert planted.share(own).rate == pytest.approx(best.rate, abs=0.03)
    assert planted.share(own).interval(CAUTION_PLANTED)[1] == pytest.approx(min(bounds), abs=0.03)


def test_many_examples_are_planted_in_some(monkeypatch: pytest.MonkeyPatch) -> None:
    _, y, p = world(0, 3000, 4, 0.2, pair=False)
    counts = joint(Records([], HeldOut(2, p)), y, 4)
    own = own_odds(p, y, counts)
    whole = Planted.of(p, y, counts)
    monkeypatch.setattr("proselflc.auditing.noise_range._CELLS", 2000)
    some = Planted.of(p, y, counts)
    assert len(some.odds) < len(whole.odds) / 4
    assert some.n == whole.n == 3000
    assert some.recall(own, 500) == pytest.approx(whole.recall(own, 500), abs=0.05)
    assert some.share(own).rate == pytest.approx(whole.share(own).rate, abs=0.03)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.02, 0.1, 0.2, 0.4])
def test_a_strong_judge_has_the_truth_in_its_range(rate: float, pair: bool) -> None:
    inside = []
    for seed in range(4):
        clean, y, p = world(seed, 2000, 5, rate, pair=pair)
        counts = joint(Records([], HeldOut(2, p)), y, 5)
        surest = surest_share(p.max(1), p.argmax(1) != y)
        other = Planted.of(p, y, counts).share(own_odds(p, y, counts)).rate
        found = noise_range(surest, other, 1 - counts.trace() / counts.sum())
        truth = (y != clean).mean()
        inside.append(found.low <= truth <= found.high)
        # The smallest of several bounds is more often too small than too large.
        assert -0.05 < found.rate - truth < 0.03
        assert found.high - found.low < 0.15
    assert sum(inside) >= 3
