"""Labels are audited by any model's out-of-sample probabilities, and bad input is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from proselflc import InputError, PredictionsAudit, audit_predictions
from proselflc.auditing.predictions import label_channel, outside
from proselflc.integrations import cleanlab as ours

Array = npt.NDArray[Any]


def made(
    n: int = 3000,
    C: int = 5,
    rate: float = 0.2,
    pair: bool = False,
    sureness: float = 4.0,
    seed: int = 0,
) -> tuple[Array, Array, Array]:
    """True classes, given labels of which a share is wrong, and calibrated probabilities."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(n, C)) * sureness
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    true = (p.cumsum(1) > generator.random((n, 1))).argmax(1)
    wrong = generator.random(n) < rate
    step = 1 if pair else generator.integers(1, C, n)
    given = np.where(wrong, (true + step) % C, true)
    return true, given, p


def test_confident_disagreement_is_that_of_cleanlab() -> None:
    count = pytest.importorskip("cleanlab.count")
    for seed in range(3):
        _, given, p = made(500, 4, rate=0.1 * (seed + 1), sureness=2.0, seed=seed)
        joint = count.compute_confident_joint(given, p, calibrate=False)
        shares = joint / joint.sum(1, keepdims=True)  # row = given class
        numbers = np.bincount(given) / len(given)
        expected = 1 - (numbers * shares.diagonal()).sum()
        assert outside.confident_disagreement(p, given) == pytest.approx(expected)


def test_quality_is_bayes_rule_with_a_known_channel() -> None:
    """Against a loop over examples and classes."""
    _, given, p = made(50, 3)
    beside = np.array([[0, 0.7, 0.3], [0.5, 0, 0.5], [0.1, 0.9, 0]])
    channel = label_channel.LabelChannel(0.5, beside)
    quality, other = channel.judge(p, given, 0.2)
    for i, y in enumerate(given):
        chances = [p[i, k] ** 2 * (0.8 if k == y else 0.2 * beside[k, y]) for k in range(3)]
        assert quality[i] == pytest.approx(chances[y] / sum(chances), rel=1e-3, abs=1e-9)
        others = [0 if k == y else chances[k] for k in range(3)]
        assert other[i] == np.argmax(others)


def test_the_likeliest_transition_is_found() -> None:
    """With the true chances of each class, the transition that made the labels is the likeliest."""
    generator = np.random.default_rng(1)
    T = np.array([[0.7, 0.3, 0], [0.05, 0.9, 0.05], [0.2, 0, 0.8]])
    true, _, p = made(20000, 3, sureness=6.0)
    given = (T[true].cumsum(1) > generator.random((len(true), 1))).argmax(1)
    order = np.argsort(given, kind="stable")
    found, likelihood = label_channel.likeliest_transition(p[order], given[order])
    np.testing.assert_allclose(found, T, atol=0.03)
    np.testing.assert_allclose(found.sum(1), 1)
    expected = np.log((p * found.T[given]).sum(1)).sum()
    assert likelihood == pytest.approx(expected)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_wrong_labels_are_found(rate: float, pair: bool) -> None:
    true, given, p = made(rate=rate, pair=pair, sureness=8.0)
    audit = audit_predictions(given, p)
    wrong = given != true
    hits = (audit.is_suspect & wrong).sum()
    assert hits / audit.is_suspect.sum() > 0.75
    assert hits / wrong.sum() > 0.75
    assert audit.noise_low <= wrong.mean() <= audit.noise_high
    assert audit.noise_low <= audit.estimated_noise_rate <= audit.noise_high
    assert audit.estimated_noise_rate == pytest.approx(wrong.mean(), abs=0.04)
    assert audit.expected_precision == pytest.approx(hits / audit.is_suspect.sum(), abs=0.15)
    changed = np.array(audit.action) == "change"
    assert (audit.suggested == true)[changed].mean() > 0.9


def test_what_the_results_are(audited: PredictionsAudit) -> None:
    np.testing.assert_array_equal(audited.is_suspect, audited.quality < 0.5)
    np.testing.assert_array_equal(audited.is_suspect, audited.suggested != audited.given)
    acts = np.array(audited.action)
    np.testing.assert_array_equal(acts != "keep", audited.is_suspect)
    assert set(acts) == {"keep", "review", "change"}
    assert audited.precision_low is not None
    assert audited.precision_high is not None
    assert audited.expected_precision is not None
    assert 0 <= audited.precision_low < audited.expected_precision < audited.precision_high <= 1
    assert audited.warnings == ()


@pytest.fixture(scope="module")
def audited() -> PredictionsAudit:
    _, given, p = made()
    return audit_predictions(given, p)


def test_classes_may_have_any_order(audited: PredictionsAudit) -> None:
    """Class ids are names: renaming them changes nothing else."""
    _, given, p = made()
    order = np.array([3, 0, 4, 1, 2])  # new id of each class
    renamed = np.empty_like(p)
    renamed[:, order] = p
    other = audit_predictions(order[given], renamed)
    np.testing.assert_allclose(other.quality, audited.quality, atol=1e-9)
    np.testing.assert_array_equal(other.suggested, order[audited.suggested])
    assert other.action == audited.action


def test_examples_may_have_any_order_and_precision(audited: PredictionsAudit) -> None:
    _, given, p = made()
    order = np.random.default_rng(5).permutation(len(given))
    other = audit_predictions(given[order].tolist(), p[order])
    np.testing.assert_allclose(other.quality, audited.quality[order], atol=1e-9)
    half = audit_predictions(given, p.astype(np.float16))
    assert (half.is_suspect == audited.is_suspect).mean() > 0.999


def test_labels_without_disagreement_have_no_suspects() -> None:
    p = np.full((400, 4), 0.02)
    y = np.arange(400) % 4
    p[np.arange(400), y] = 0.94
    audit = audit_predictions(y, p)
    assert not audit.is_suspect.any()
    assert audit.noise_low == 0
    assert audit.estimated_noise_rate < 0.01
    assert (audit.expected_precision, audit.precision_low, audit.precision_high) == (None,) * 3


def test_trusted_labels_are_right() -> None:
    _, given, p = made()
    trusted = np.arange(len(given)) % 3 == 0
    audit = audit_predictions(given, p, trusted=trusted)
    assert (audit.quality[trusted] == 1).all()
    assert not audit.is_suspect[trusted].any()
    assert audit.is_suspect[~trusted].any()
    with pytest.raises(InputError, match="expected 3000 booleans"):
        audit_predictions(given, p, trusted=trusted[:5])


def codes(audit: PredictionsAudit) -> set[str]:
    assert all(set(one) == {"code", "message"} for one in audit.warnings)
    return {one["code"] for one in audit.warnings}


def test_a_weak_model_changes_nothing_and_states_no_precision() -> None:
    _, given, p = made(sureness=1.0)
    audit = audit_predictions(given, p)
    assert audit.agreement < 0.5
    assert "weak_judge" in codes(audit)
    assert audit.expected_precision is None
    assert "change" not in audit.action


def test_few_examples_change_nothing() -> None:
    _, given, p = made(60, 3)
    audit = audit_predictions(given, p)
    assert codes(audit) == {"few_examples"}
    assert "change" not in audit.action
    assert audit.expected_precision is None


def test_a_single_class_is_said() -> None:
    p = np.tile([0.9, 0.1], (300, 1))
    audit = audit_predictions(np.zeros(300, int), p, names=("cat", "dog"))
    assert codes(audit) == {"one_class"}
    assert 'all 300 labels are "cat"' in audit.warnings[0]["message"]
    assert not audit.is_suspect.any()


def test_columns_in_another_order_are_refused() -> None:
    _, given, p = made(rate=0.1)
    with pytest.raises(InputError, match=r"columns of pred_probs are in another order") as caught:
        audit_predictions(given, p[:, [1, 2, 3, 4, 0]], names=tuple("abcde"))
    assert 'class "' in caught.value.reason
    assert caught.value.field == "pred_probs"
    assert caught.value.fix == "give column k the probability of class k"
    # Two of five are worth a warning, and a few examples nothing.
    swapped = audit_predictions(given, p[:, [1, 0, 2, 3, 4]])
    assert "class_order" in codes(swapped)
    assert "class_order" not in codes(audit_predictions(given[:20], p[:20][:, [1, 2, 3, 4, 0]]))


@pytest.mark.parametrize(
    ("labels", "p", "message"),
    [
        ([0, 1], [[0.5, 0.5]], "labels is int64 of shape .2.: expected 1 class ids"),
        ([0.5], [[0.5, 0.5]], "labels is float64"),
        ([2], [[0.5, 0.5]], "range from 2 to 2, but pred_probs has 2 columns: expected class ids"),
        ([-1], [[0.5, 0.5]], "range from -1 to -1"),
        ([0, 1], [[0.5, 0.5], [3.0, -2.0]], "row 1 .* got a negative number, -2"),
        ([0], [[0.5, 0.6]], "row 0 of pred_probs is not a distribution: .* got a sum of 1.1"),
        ([0], [[0.5, math.nan]], "row 0 .* got NaN or infinity"),
        ([0], [[0.5, math.inf]], "row 0 .* got NaN or infinity"),
        ([0], [0.5, 0.5], "float64 of shape .2.: expected probabilities .n, C."),
        ([0], [[1.0]], "at least one example and two classes"),
        ([0], [["a", "b"]], "expected probabilities"),
        ([], np.zeros((0, 2)), "expected probabilities"),
    ],
)
def test_what_is_not_labels_and_probabilities(labels: Any, p: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        audit_predictions(labels, p)
    assert caught.value.field in ("labels", "pred_probs")


def test_what_to_do_about_a_row() -> None:
    with pytest.raises(InputError) as caught:
        audit_predictions([0], [[2.0, 3.0]])
    assert caught.value.fix == "give probabilities instead of logits or scores"
    with pytest.raises(InputError) as caught:
        audit_predictions([0], [[math.nan, 0.5]])
    assert caught.value.fix == "predict these examples again, or drop them"


def test_names_must_fit() -> None:
    with pytest.raises(InputError, match="names has 2 class names, 1 of them distinct: expected 2"):
        audit_predictions([0], [[0.5, 0.5]], names=("a", "a"))


def test_more_classes_than_a_matrix_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that number the classes of wrong labels are taken as even."""
    true, given, p = made(2000, 6, sureness=8.0)
    monkeypatch.setattr("proselflc.data.memory_budget.DENSE_CLASSES", 5)
    audit = audit_predictions(given, p)
    wrong = given != true
    assert wrong[audit.is_suspect].mean() > 0.8
    assert audit.is_suspect[wrong].mean() > 0.8


def test_cleanlabs_names_use_the_same_function(audited: PredictionsAudit) -> None:
    _, given, p = made()
    np.testing.assert_array_equal(ours.label_issue_mask(given, p), audited.is_suspect)
    np.testing.assert_array_equal(ours.get_label_quality_scores(given, p), audited.quality)


def test_the_range_of_precision_holds_what_it_promises() -> None:
    """If the chances are right, the share of wrong labels is in the range in 90 % of the draws."""
    generator = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        chances = generator.uniform(0.5, 1, 60)
        found = outside.precision_range(chances, chances, 1.0)
        assert found is not None
        assert found.expected == pytest.approx(chances.mean())
        inside += found.low <= (generator.random(60) < chances).mean() <= found.high
    assert 0.85 < inside / 400 <= 1
    low, high = np.full(50, 0.6), np.full(50, 0.9)
    wide = outside.precision_range(low, high, 0.5)
    assert wide is not None
    assert wide.expected == pytest.approx(0.7)  # the middle of 0.5 and 0.9
    assert wide.low < 0.5 < 0.9 < wide.high
    assert outside.precision_range(low[:0], high[:0], 0.5) is None


def test_predictions_at_chance_have_no_suspects() -> None:
    _, given, p = made()
    for known in (np.full_like(p, 1 / p.shape[1]), np.random.default_rng(0).permutation(p)):
        audit = audit_predictions(given, known)
        assert not audit.is_suspect.any()
        assert set(audit.action) == {"keep"}
        assert audit.noise_low == 0
        assert "too_weak" in [warning["code"] for warning in audit.warnings]
        assert (audit.expected_precision, audit.precision_low, audit.precision_high) == (None,) * 3


def test_no_precision_is_stated_where_it_is_unknown() -> None:
    _, given, p = made()
    other = np.random.default_rng(0).random(len(p)) < 0.5
    p = np.where(other[:, None], np.roll(p, 1, axis=1), p)
    audit = audit_predictions(given, p)
    assert audit.is_suspect.any()
    assert "weak_judge" in [warning["code"] for warning in audit.warnings]
    assert (audit.expected_precision, audit.precision_low, audit.precision_high) == (None,) * 3
