"""What a review of randomly drawn labels measures, beside exact sums, scipy and repetition."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binomtest

from proselflc.auditing import measured
from proselflc.auditing.measured import Measured, MeasuredPrecision, Reviewed, draw, in_words
from proselflc.data.decisions import DecisionChange, Decisions, Sample, read_decisions
from proselflc.data.labels import Labels
from proselflc.data.noise import fingerprint

N = 2000


@pytest.fixture(scope="module")
def chances() -> np.ndarray:
    """Chances of 2,000 labels to be wrong, as an audit would state them."""
    return np.random.default_rng(0).beta(0.3, 1.5, N).astype(np.float32)


def reviewed_of(
    rows: np.ndarray, groups: tuple[int, ...], sizes: tuple[int, ...], wrong: np.ndarray
) -> Reviewed:
    """The same that `Reviewed.of` returns, by the textbook: a weight is 1 / chance of the draw."""
    many = Counter(groups)
    chance = np.array([many[g] / sizes[g] for g in groups])
    return Reviewed(rows, wrong[rows], 1 / chance / sum(sizes), np.array(groups), chance)


def labels_of(n: int, trusted: np.ndarray | None = None) -> Labels:
    given = np.arange(n) % 3
    return Labels(
        given=given,
        clean=None,
        flipped=np.zeros(n, np.bool_),
        transition=np.eye(3),
        names=("cat", "dog", "fox"),
        ids=tuple(f"id-{k}" for k in range(n)),
        generator="none",
        fingerprint=fingerprint(given, 3),
        trusted=trusted,
    )


def decide(log: Decisions, labels: Labels, rows: list[int], wrong: np.ndarray) -> None:
    """Decide about labels: a wrong one is of the next class."""
    log.add(
        [
            DecisionChange(labels.ids[i], labels.names[(labels.given[i] + wrong[i]) % 3], 0)
            for i in rows
        ],
        "anna",
        "key",
    )


def test_a_sample_has_labels_of_every_kind(chances: np.ndarray) -> None:
    suspect = chances > 0.5
    rows, groups, sizes = draw(chances, suspect, np.arange(N), 30, np.random.default_rng(1))
    assert len(set(rows.tolist())) == len(rows) == len(groups) == 30
    assert sum(sizes) == N
    assert sizes[0] == 20
    assert sizes[0] + sizes[1] == suspect.sum()
    ranked = np.sort(chances)[::-1]
    ends = np.cumsum(sizes)
    for i, g in zip(rows, groups, strict=True):
        assert ranked[ends[g] - 1] <= chances[i] <= ranked[ends[g] - sizes[g]]
    many = Counter(groups)
    assert min(many[g] for g in (0, 1, 2)) >= 3
    assert many[3] >= 12
    # Any beginning has its share of every group.
    assert set(groups[:10]) == {0, 1, 2, 3}


def test_every_label_of_a_group_is_drawn_equally_often() -> None:
    wrong = np.linspace(0.9, 0.0, 60).astype(np.float32)
    generator, hits = np.random.default_rng(0), np.zeros(60)
    for _ in range(3000):
        rows, groups, sizes = draw(wrong, wrong > 0.5, np.arange(60), 20, generator)
        hits[rows] += 1
    begin = 0
    for g, size in enumerate(sizes):
        chance = groups.count(g) / size
        error = math.sqrt(chance * (1 - chance) / 3000)
        assert (np.abs(hits[begin : begin + size] / 3000 - chance) <= 4.5 * error + 1e-12).all()
        begin += size


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 2), (3, 1), (7, 7), (40, 39)])
def test_few_labels_are_drawn_too(n: int, size: int) -> None:
    """All that there are, if that many are wanted; unknown chances and ties included."""
    wrong = np.full(n, np.nan, np.float32)
    rows, groups, sizes = draw(wrong, np.zeros(n, np.bool_), np.arange(n), size, _rng())
    assert len(set(rows.tolist())) == size
    assert Sample(tuple(map(str, rows)), 0, 0, groups, sizes).is_possible


def _rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_estimate_is_right_in_the_mean(chances: np.ndarray) -> None:
    """Whatever the audit believes: here wrong labels have nothing to do with the chances."""
    generator = np.random.default_rng(5)
    wrong = generator.random(N) < 0.36
    suspect = chances > 0.9
    top = np.argsort(-chances)[:20]
    rates, tops, covered = [], [], 0
    for _ in range(600):
        found = reviewed_of(*draw(chances, suspect, np.arange(N), 30, generator), wrong)
        low, rate, high = found.noise_rate()
        covered += low <= wrong.mean() <= high
        rates.append(rate)
        share = found.share(np.isin(found.rows, top))
        assert share is not None
        tops.append(share[1])
    for estimates, truth in ((rates, wrong.mean()), (tops, wrong[top].mean())):
        error = np.std(estimates) / math.sqrt(len(estimates))
        assert abs(np.mean(estimates) - truth) < 4 * error
    assert 0.92 <= covered / 600 <= 0.99


def test_one_group_has_wilsons_interval() -> None:
    wrong = np.arange(40) < 13
    found = Reviewed(
        np.arange(40), wrong, np.full(40, 1 / 40), np.zeros(40, np.int64), np.full(40, 1e-12)
    )
    expected = binomtest(13, 40).proportion_ci(0.95, method="wilson")
    assert found.share() == pytest.approx((expected.low, 13 / 40, expected.high), abs=1e-4)


def test_groups_are_put_together_by_their_sizes() -> None:
    """By hand: 3 of 4 wrong in a group of 100, 1 of 10 in a group of 900."""
    wrong = np.array([1, 1, 1, 0] + [1] + [0] * 9, np.bool_)
    group = np.array([0] * 4 + [1] * 10)
    weight = np.where(group == 0, 100 / 4, 900 / 10) / 1000
    drawn = np.where(group == 0, 4 / 100, 10 / 900)
    found = Reviewed(np.arange(14), wrong, weight, group, drawn).noise_rate()
    assert found[1] == pytest.approx(0.1 * 0.75 + 0.9 * 0.1)
    first = binomtest(3, 4).proportion_ci(0.95, method="wilson")
    second = binomtest(1, 10).proportion_ci(0.95, method="wilson")
    below = 0.01 * 0.96 * (0.75 - first.low) ** 2 + 0.81 * 0.9888889 * (0.1 - second.low) ** 2
    above = 0.01 * 0.96 * (first.high - 0.75) ** 2 + 0.81 * 0.9888889 * (second.high - 0.1) ** 2
    assert found[0] == pytest.approx(found[1] - math.sqrt(below), abs=1e-4)
    assert found[2] == pytest.approx(found[1] + math.sqrt(above), abs=1e-4)


def test_a_review_of_every_label_leaves_no_doubt(chances: np.ndarray) -> None:
    wrong = chances > np.random.default_rng(2).random(N)
    found = reviewed_of(*draw(chances, chances > 0.5, np.arange(N), N, _rng()), wrong)
    assert found.noise_rate() == pytest.approx([wrong.mean()] * 3)
    suspect = chances > 0.5
    result = found.measured(chances, suspect)
    assert result.precision.suspects == pytest.approx([wrong[suspect].mean()] * 3)
    order = np.argsort(-chances, kind="stable")
    for share, many in (
        (result.precision.top_1_percent, 20),
        (result.precision.estimated_rate, wrong.sum()),
    ):
        assert share == pytest.approx([wrong[order[:many]].mean()] * 3)


def test_a_precision_needs_three_decisions(chances: np.ndarray) -> None:
    wrong = chances > 0.5
    found = reviewed_of(*draw(chances, chances > 0.5, np.arange(N), 30, _rng()), wrong)
    suspect = np.zeros(N, np.bool_)
    suspect[found.rows[:2]] = True
    assert found.measured(chances, suspect).precision.suspects is None
    suspect[found.rows[2]] = True
    assert found.measured(chances, suspect).precision.suspects is not None


def test_the_calibration_is_a_logistic_regression_with_a_prior() -> None:
    """The same minimum as scipy's, from another beginning."""
    generator = np.random.default_rng(4)
    x = generator.normal(-2, 3, 500)
    x[3], x[4] = np.nan, -np.inf
    wrong = generator.random(500) < 1 / (1 + np.exp(-(0.4 * np.nan_to_num(x, neginf=-9) + 0.5)))
    rows = np.arange(60)
    weight = generator.uniform(0.5, 3, 60) / 100
    found = Reviewed(rows, wrong[rows], weight, np.zeros(60, np.int64), np.full(60, 0.1))
    known = np.isfinite(x[rows])
    v = weight[known] * known.sum() / weight[known].sum()
    z, y = x[rows][known], wrong[rows][known]

    def loss(theta: np.ndarray) -> float:
        logits = theta[0] * z + theta[1]
        fit = (v * np.where(y, np.log1p(np.exp(-logits)), np.log1p(np.exp(logits)))).sum()
        return float(fit + 10 * (theta[0] - 1) ** 2 + 0.125 * (theta[1] + 3) ** 2)

    expected = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9}).x
    assert found.calibration(x, -3.0) == pytest.approx(expected, abs=1e-4)


def test_without_news_the_calibration_stays() -> None:
    """Decisions that are as likely as predicted move little; a judge that errs is flattened."""
    generator = np.random.default_rng(6)
    x = generator.normal(0, 4, 4000)
    wrong = generator.random(4000) < 1 / (1 + np.exp(-(x - 1)))
    every = np.arange(4000)
    flat = np.zeros(4000, np.int64), np.full(4000, 0.1)
    found = Reviewed(every, wrong, np.full(4000, 1 / 4000), *flat)
    assert found.calibration(x, -1.0) == pytest.approx((1, -1), abs=0.15)
    slope, _ = found.calibration(-x, -1.0)
    assert slope == measured.FLATTEST
    # Nothing but right labels does not send the shift to −∞.
    few = Reviewed(every[:30], every[:30] < 0, np.full(30, 1 / 30), flat[0][:30], flat[1][:30])
    _, shift = few.calibration(x, 0.0)
    assert -20 < shift < -1


def test_decisions_about_a_sample(tmp_path: Path, chances: np.ndarray) -> None:
    labels = labels_of(N)
    log = read_decisions(tmp_path / "review.jsonl", labels.fingerprint)
    wrong = np.random.default_rng(1).random(N) < 0.3
    assert Reviewed.of(log, labels) is None
    # Labels that were not drawn do not count, however many are decided.
    decide(log, labels, list(range(100)), wrong)
    assert Reviewed.of(log, labels) is None
    rows, groups, sizes = draw(chances, chances > 0.5, np.arange(N), 30, _rng())
    ids = tuple(labels.ids[i] for i in rows)
    log.draw(Sample(ids, 100, 0, groups, sizes), "anna")
    open_rows = [int(i) for i in rows if i >= 100]
    decide(log, labels, [i for i in open_rows if i != rows[20]], wrong)
    found = Reviewed.of(read_decisions(log.path, labels.fingerprint), labels)
    assert found is not None
    # Up to the first that is not decided.
    assert found.rows.tolist() == rows[:20].tolist()
    expected = reviewed_of(rows[:20], groups[:20], sizes, wrong)
    for name in ("wrong", "weight", "group", "drawn"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name))
    assert found.weight.sum() == pytest.approx(1)
    # A label that cannot be told is passed over.
    log.add([DecisionChange(labels.ids[rows[20]], None, 0)], "anna", "unsure")
    found = Reviewed.of(log, labels)
    assert found is not None
    assert found.rows.tolist() == np.delete(rows, 20).tolist()
    assert found.weight.sum() == pytest.approx(1)


def test_two_samples_count_together(tmp_path: Path, chances: np.ndarray) -> None:
    labels = labels_of(N)
    log = read_decisions(tmp_path / "review.jsonl", labels.fingerprint)
    wrong = np.random.default_rng(1).random(N) < 0.3
    parts = []
    for size in (20, 60):
        rows, groups, sizes = draw(chances, chances > 0.5, np.arange(N), size, _rng())
        log.draw(Sample(tuple(labels.ids[i] for i in rows), 9, 0, groups, sizes), "anna")
        decide(log, labels, [int(i) for i in rows if log.of(labels.ids[i]) is None], wrong)
        parts.append(reviewed_of(rows, groups, sizes, wrong).noise_rate()[1])
    found = Reviewed.of(log, labels)
    assert found is not None
    assert len(found.rows) == 80
    assert found.noise_rate()[1] == pytest.approx((20 * parts[0] + 60 * parts[1]) / 80)
    assert len(set(found.group.tolist())) == 8


def test_trusted_labels_are_right(tmp_path: Path, chances: np.ndarray) -> None:
    trusted = np.arange(N) < 500
    labels = labels_of(N, trusted)
    log = read_decisions(tmp_path / "review.jsonl", labels.fingerprint)
    from_rows = np.flatnonzero(~trusted)
    rows, groups, sizes = draw(chances, chances > 0.5, from_rows, 20, _rng())
    assert not trusted[rows].any()
    log.draw(Sample(tuple(labels.ids[i] for i in rows), 9, 0, groups, sizes), "anna")
    decide(log, labels, rows.tolist(), np.ones(N, np.bool_))
    found = Reviewed.of(log, labels)
    assert found is not None
    assert found.noise_rate()[1] == pytest.approx(0.75)
    # It is not a sample of all labels, if none is trusted.
    assert Reviewed.of(log, labels_of(N)) is None


def test_a_sample_of_an_older_version_measures_no_rate(tmp_path: Path) -> None:
    labels = labels_of(40)
    log = read_decisions(tmp_path / "review.jsonl", labels.fingerprint)
    log.draw(Sample(labels.ids[:20], 20, 0), "anna")
    decide(log, labels, list(range(20)), np.ones(40, np.bool_))
    assert Reviewed.of(log, labels) is None


def test_in_words() -> None:
    share = (0.6, 0.8, 0.9)
    whole = Measured(30, (0.221, 0.36, 0.504), MeasuredPrecision(share, share, None))
    assert in_words(whole) == (
        "Measured on 30 reviewed labels, 36.0% of all labels are wrong (95% interval 22.1% to "
        "50.4%). Of the 1% of the labels that look most wrong 80% (60% to 90%), of as many labels "
        "as are wrong 80% (60% to 90%) are wrong."
    )
    assert in_words(Measured(30, (0, 0, 0.1), MeasuredPrecision())).endswith(
        "(95% interval 0.0% to 10.0%)."
    )
