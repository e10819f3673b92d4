"""Calibration errors against a naive loop, closed forms and scikit-learn's temperature scaling."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from torch.testing import assert_close

from proselflc.auditing import evaluation
from proselflc.auditing.evaluation import (
    FITTED_TEMPERATURES,
    fitted_temperature,
    max_probability,
    one_minus_entropy,
    paper_calibration,
    reliabilities,
    reliability,
)
from proselflc.correction.evidence import Evidence
from proselflc.correction.trust import Confidence, MaxProbability
from proselflc.errors import InputError


def some(n: int, C: int, seed: int = 0, scale: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 logits [n, C] that know something about their labels [n]."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(C, (n,), generator=generator)
    logits = scale * torch.randn(n, C, generator=generator)
    logits[torch.arange(n), labels] += scale
    return logits, labels


def naive_gaps(confidence: list[float], correct: list[bool], bins: int) -> list[tuple[int, float]]:
    """(count, |accuracy − confidence|) of every bin that holds anything, one example at a time."""
    content: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for c, r in zip(confidence, correct, strict=True):
        for b in range(bins):
            if (b == 0 or c > b / bins) and c <= (b + 1) / bins:
                content[b].append((c, r))
    assert sum(map(len, content)) == len(confidence)
    gaps = []
    for members in content:
        if members:
            conf = math.fsum(c for c, _ in members) / len(members)
            acc = sum(r for _, r in members) / len(members)
            gaps.append((len(members), abs(acc - conf)))
    return gaps


on_an_edge = st.sampled_from([k / 10 for k in range(11)])
confidences = st.one_of(st.floats(0, 1), on_an_edge, st.floats(0, 1, width=32))


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(confidences, st.booleans()), min_size=1, max_size=60),
    bins=st.sampled_from([1, 2, 3, 10, 15]),
)
def test_bins_and_errors_are_those_of_a_naive_loop(
    pairs: list[tuple[float, bool]], bins: int
) -> None:
    confidence, correct = map(list, zip(*pairs, strict=True))
    found = reliability(
        torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct), bins=bins
    )
    gaps = naive_gaps(confidence, correct, bins)
    assert [c for c in found.counts if c] == [count for count, _ in gaps]
    assert found.edges == tuple(b / bins for b in range(bins + 1))
    ece = math.fsum(count * gap for count, gap in gaps) / len(pairs)
    assert found.ece == pytest.approx(ece, abs=1e-12)
    assert 0 <= found.ece <= 1 + 1e-12
    for count, conf, acc in zip(found.counts, found.confidence, found.accuracy, strict=True):
        assert (conf is None) == (acc is None) == (count == 0)


@pytest.mark.parametrize("k", range(11))
def test_an_edge_belongs_to_the_bin_below_it(k: int) -> None:
    counts = reliability(torch.tensor([k / 10], dtype=torch.float64), torch.tensor([True])).counts
    assert counts.index(1) == max(k - 1, 0)


def test_a_float32_is_binned_as_the_number_it_is() -> None:
    """The float32 0.1 and 0.3 lie above the double, 0.7 and 0.9 below it."""
    confidence = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float32)
    for number in (confidence, confidence.double()):
        counts = reliability(number, torch.ones(5, dtype=torch.bool)).counts
        assert counts == (0, 1, 0, 1, 1, 0, 1, 0, 1, 0)


def test_reliability_by_hand() -> None:
    found = reliability(
        torch.tensor([0.55, 0.6, 0.95, 0.0], dtype=torch.float64),
        torch.tensor([True, False, True, False]),
    )
    assert found.counts == (1, 0, 0, 0, 0, 2, 0, 0, 0, 1)
    assert found.confidence[5] == pytest.approx(0.575)
    assert found.accuracy[5] == 0.5
    assert (found.confidence[0], found.accuracy[0], found.accuracy[1]) == (0.0, 0.0, None)
    assert found.ece == pytest.approx((2 * 0.075 + 0.05) / 4)


@pytest.mark.parametrize(
    ("confidence", "correct", "bins", "sentence"),
    [
        ([0.5], [True], 0, "at least one bin, got 0"),
        ([], [], 10, "got 0 and 0"),
        ([0.5, 0.5], [True], 10, "got 2 and 1"),
        ([math.nan], [True], 10, "not between 0 and 1"),
        ([1.5], [True], 10, "not between 0 and 1"),
    ],
)
def test_bad_bins_are_refused(
    confidence: list[float], correct: list[bool], bins: int, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        reliability(torch.tensor(confidence), torch.tensor(correct), bins=bins)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), C=st.integers(1, 12), scale=st.floats(0, 100))
def test_confidences_are_the_trusts_of_the_paper(seed: int, C: int, scale: float) -> None:
    logits, labels = some(7, C, seed, scale)
    e = Evidence(logits.double(), labels)
    for measure, trust in ((max_probability, MaxProbability()), (one_minus_entropy, Confidence())):
        found = measure(e.log_p)
        assert_close(found, trust(e))
        assert bool(((found >= 0) & (found <= 1)).all())


@pytest.mark.parametrize("C", [2, 3, 7, 1000])
def test_confidences_at_their_ends(C: int) -> None:
    certain = torch.full((1, C), -math.inf, dtype=torch.float64)
    certain[0, 1] = 0
    uniform = torch.full((1, C), -math.log(C), dtype=torch.float64)
    for measure, least in ((max_probability, 1 / C), (one_minus_entropy, 0.0)):
        assert measure(certain).item() == 1
        assert measure(uniform).item() == pytest.approx(least, abs=1e-12)
        assert measure(uniform).item() >= 0


@pytest.mark.parametrize("temperature", [0.125, 1.0, 4.0])
@pytest.mark.parametrize("elements", [1, 50, 1 << 20])
def test_ece_of_logits(temperature: float, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In numpy, one example at a time; however many rows are worked on at once."""
    monkeypatch.setattr(evaluation, "_ELEMENTS", elements)
    logits, labels = some(83, 6)
    p = softmax(logits.numpy().astype(np.float64) / temperature, axis=1)
    correct = (p.argmax(1) == labels.numpy()).tolist()
    entropy = -(p * np.log(p)).sum(1)
    for measure, confidence in (
        (max_probability, p.max(1)),
        (one_minus_entropy, 1 - entropy / np.log(6)),
    ):
        for bins in (10, 15):
            gaps = naive_gaps(confidence.tolist(), correct, bins)
            (found,) = reliabilities(logits, labels, (measure,), temperature=temperature, bins=bins)
            assert found.ece == pytest.approx(sum(c * g for c, g in gaps) / 83, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_that_is_none(temperature: float) -> None:
    with pytest.raises(InputError, match="must be finite and positive"):
        reliabilities(*some(3, 3), (max_probability,), temperature=temperature)


def test_both_readings_of_the_papers_temperatures() -> None:
    logits, labels = some(500, 5, scale=1.0)
    rows = paper_calibration(logits, labels)
    found = {(row["reading"], row["T"], row["measure"]): row["ece"] for row in rows}
    assert len(found) == len(rows) == 12
    measures = {"max_p": max_probability, "entropy": one_minus_entropy}
    for (reading, T, name), ece in found.items():
        scaled = logits / T if reading == "divide" else logits * T
        (expected,) = reliabilities(scaled, labels, (measures[name],))
        assert ece == pytest.approx(expected.ece, abs=1e-6)
    for name in measures:
        assert found["divide", 1, name] == found["multiply", 1, name]
    # Dividing by 1/8 makes every prediction all but certain: the error nears the error rate.
    wrong = (logits.argmax(1) != labels).double().mean().item()
    assert found["divide", 1 / 8, "max_p"] == pytest.approx(wrong, abs=0.1)
    assert found["divide", 1 / 8, "max_p"] > found["divide", 1, "max_p"]
    # Multiplying by it makes them all but uniform: it nears accuracy − 1/C.
    assert found["multiply", 1 / 8, "max_p"] == pytest.approx(1 - wrong - 1 / 5, abs=0.1)


def nll(logits: torch.Tensor, labels: torch.Tensor, temperature: float) -> float:
    z = logits.numpy().astype(np.float64) / temperature
    own: npt.NDArray[np.float64] = z[np.arange(len(z)), labels.numpy()]
    return float((logsumexp(z, axis=1) - own).mean())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), C=st.integers(2, 8), scale=st.floats(0.2, 20))
def test_the_fitted_temperature_minimises_the_loss(seed: int, C: int, scale: float) -> None:
    logits, labels = some(60, C, seed, scale)
    fitted = fitted_temperature(logits, labels)
    low, high = FITTED_TEMPERATURES
    assert low <= fitted <= high
    best = minimize_scalar(
        lambda log_t: nll(logits, labels, math.exp(log_t)),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert nll(logits, labels, fitted) <= best.fun + 1e-12
    if low * 1.01 < fitted < high / 1.01:
        for factor in (0.999, 1.001):
            assert nll(logits, labels, fitted) <= nll(logits, labels, fitted * factor)


def test_the_fitted_temperature_scales_with_the_logits() -> None:
    logits, labels = some(400, 4)
    fitted = fitted_temperature(logits, labels)
    assert fitted_temperature(4 * logits, labels) == pytest.approx(4 * fitted, rel=1e-6)
    assert fitted_temperature(logits + 100, labels) == pytest.approx(fitted, rel=1e-4)


class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose decisions are its inputs."""

    def __init__(self, C: int = 4) -> None:
        self.C = C
        self.classes_ = np.arange(C)

    def fit(self, X: object, y: object) -> Given:
        return self

    def predict(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        raise NotImplementedError

    def decision_function(self, X: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return X


def test_the_fitted_temperature_is_that_of_scikit_learn() -> None:
    logits, labels = some(400, 4)
    X = logits.double().numpy()
    scaled = CalibratedClassifierCV(FrozenEstimator(Given()), method="temperature")
    theirs = scaled.fit(X, labels.numpy()).predict_proba(X)
    ours = softmax(X / fitted_temperature(logits, labels), axis=1)
    # Theirs minimises the loss itself, which tells temperatures apart to half the digits only.
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_a_fitted_temperature_stays_in_its_range() -> None:
    low, high = FITTED_TEMPERATURES
    right = torch.eye(3)
    labels = torch.arange(3)
    assert fitted_temperature(right, labels) == low
    assert fitted_temperature(-right, labels) == high
    assert fitted_temperature(torch.full((3, 4), 0.1), labels) == 1
    masked = torch.tensor([[1.0, 0.0, -math.inf], [1.0, 0.0, -math.inf], [2.0, 1.0, -math.inf]])
    # Two of three right by a margin of 1: e^(1/T) = 2.
    assert fitted_temperature(masked, torch.tensor([0, 0, 1])) == pytest.approx(1 / math.log(2))
    assert fitted_temperature(masked, torch.tensor([0, 0, 2])) == high


@pytest.mark.parametrize(
    ("logits", "labels", "sentence"),
    [
        (torch.zeros(2, 3), torch.zeros(3, dtype=torch.long), r"\(2, 3\) for labels of shape \(3,"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.long), r"shape \(2,\) for labels"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "at least one label"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "a label is 3, but the model has 3 outputs"),
        (torch.zeros(2, 3), torch.tensor([0, -1]), "a label is -1"),
        (torch.tensor([[0, math.nan]]), torch.tensor([0]), "not finite for 1 of 1 examples"),
        (torch.tensor([[0, math.inf]]), torch.tensor([0]), "not finite for 1 of 1 examples"),
        (torch.full((1, 2), -math.inf), torch.tensor([0]), "not finite for 1 of 1 examples"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    logits: torch.Tensor, labels: torch.Tensor, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        reliabilities(logits, labels, (max_probability,))
    with pytest.raises(InputError, match=sentence):
        fitted_temperature(logits, labels)
