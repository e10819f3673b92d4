"""Every measure of an evaluation against scikit-learn or a formula written out."""

from __future__ import annotations

import json
import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, recall_score, top_k_accuracy_score

from proselflc.auditing import evaluation
from proselflc.auditing.evaluation import (
    evaluate,
    max_probability,
    one_minus_entropy,
    reliabilities,
)
from proselflc.errors import InputError


def some(n: int, C: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(C, (n,), generator=generator)
    return 3 * torch.randn(n, C, generator=generator), labels


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 80), C=st.integers(2, 12))
def test_measures_are_those_of_scikit_learn(seed: int, n: int, C: int) -> None:
    logits, labels = some(n, C, seed)
    found = evaluate(logits, labels, C)
    z, y = logits.numpy().astype(np.float64), labels.numpy()
    p: npt.NDArray[np.float64] = softmax(z, axis=1)
    classes = np.arange(C)
    assert found.n == n
    assert found.accuracy == pytest.approx(accuracy_score(y, z.argmax(1)))
    assert found.nll == pytest.approx(log_loss(y, p, labels=classes), rel=1e-9)
    assert found.brier == pytest.approx(((p - np.eye(C)[y]) ** 2).sum(1).mean(), rel=1e-9)
    if C < 6:
        assert found.top5 is None
    else:
        assert found.top5 == pytest.approx(top_k_accuracy_score(y, z, k=5, labels=classes))
    recall = recall_score(y, z.argmax(1), labels=classes, average=None, zero_division=0)
    for k in classes:
        if (y == k).any():
            assert found.per_class[k] == pytest.approx(recall[k])
        else:
            assert found.per_class[k] is None
    assert len(found.per_class) == C
    for ece, bins, measure in (
        (found.ece, found.reliability, max_probability),
        (found.ece_entropy, found.reliability_entropy, one_minus_entropy),
    ):
        assert ece == bins.ece
        assert ece == reliabilities(logits, labels, (measure,))[0].ece
        assert sum(bins.counts) == n
        assert len(bins.counts) == 10


def test_by_hand() -> None:
    p = torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]], dtype=torch.float64)
    found = evaluate(p.log(), torch.tensor([0, 0, 0]), 2)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.per_class == (found.accuracy, None)
    assert found.nll == pytest.approx(-math.log(0.7 * 0.4 * 0.9) / 3)
    assert found.brier == pytest.approx(2 * (0.09 + 0.36 + 0.01) / 3)
    assert found.ece == pytest.approx((0.3 + 0.6 + 0.1) / 3)


@pytest.mark.parametrize("elements", [1, 20, 1000])
def test_rows_at_once_do_not_matter(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = some(97, 7, 0)
    whole = evaluate(logits, labels, 7)
    monkeypatch.setattr(evaluation, "_ELEMENTS", elements)
    parts = evaluate(logits, labels, 7)
    assert (parts.accuracy, parts.top5, parts.per_class) == (
        whole.accuracy,
        whole.top5,
        whole.per_class,
    )
    assert parts.nll == pytest.approx(whole.nll, rel=1e-12)
    assert parts.brier == pytest.approx(whole.brier, rel=1e-12)
    assert parts.ece == pytest.approx(whole.ece, abs=1e-12)
    assert parts.ece_entropy == pytest.approx(whole.ece_entropy, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_is_evaluated_in_double(dtype: torch.dtype) -> None:
    logits, labels = some(50, 6, 1)
    low = logits.to(dtype)
    assert evaluate(low, labels, 6) == evaluate(low.double(), labels, 6)


def test_the_logits_stay_as_they_were() -> None:
    logits, labels = some(20, 6, 2)
    logits = logits.double()
    before = logits.clone()
    evaluate(logits, labels, 6)
    assert torch.equal(logits, before)


def test_of_equal_logits_the_first_class_is_the_larger() -> None:
    found = evaluate(torch.zeros(8, 8), torch.arange(8), 8)
    assert found.accuracy == 1 / 8
    assert found.top5 == 5 / 8
    assert found.per_class == (1.0, *[0.0] * 7)
    assert found.nll == pytest.approx(math.log(8))
    assert found.brier == pytest.approx(7 / 8)
    assert found.ece == pytest.approx(0, abs=1e-12)


def test_a_label_that_is_ruled_out_is_null_in_json() -> None:
    found = evaluate(torch.tensor([[0.0, -math.inf]]), torch.tensor([1]), 2)
    assert found.nll == math.inf
    assert found.brier == 2
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["nll"] is None


def test_json_says_everything() -> None:
    found = evaluate(*some(30, 3, 3), 3)
    read = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert set(read) == {
        "n",
        "accuracy",
        "top5",
        "per_class",
        "nll",
        "brier",
        "ece",
        "ece_entropy",
        "reliability",
        "reliability_entropy",
    }
    assert read["nll"] == found.nll
    assert read["per_class"] == list(found.per_class)
    assert read["reliability"]["counts"] == list(found.reliability.counts)
    assert set(read["reliability_entropy"]) == {"edges", "counts", "confidence", "accuracy"}


def test_a_model_for_other_data_is_refused() -> None:
    with pytest.raises(InputError, match="has 3 outputs, but the data has 4 classes"):
        evaluate(torch.zeros(2, 3), torch.tensor([0, 1]), 4)
    with pytest.raises(InputError, match="not finite for 2 of 2 examples"):
        evaluate(torch.full((2, 3), math.nan), torch.tensor([0, 1]), 3)
