"""What suspects are worth, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from proselflc.auditing.detection import Detection, detection, label_accuracy


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_detection_is_that_of_scikit_learn(rows: list[tuple[bool, float, bool]]) -> None:
    is_suspect, quality, flipped = (np.array(column) for column in zip(*rows, strict=True))
    found = detection(is_suspect, quality, flipped)
    if flipped.any() and not flipped.all():
        assert found.auroc == pytest.approx(roc_auc_score(flipped, 1 - quality))
        # The chance that a wrong label ranks below a right one, ties counting half.
        wrong, right = quality[flipped][:, None], quality[~flipped]
        chance = ((wrong < right) + 0.5 * (wrong == right)).mean()
        assert found.auroc == pytest.approx(chance)
        assert found.average_precision == pytest.approx(
            average_precision_score(flipped, 1 - quality)
        )
    else:
        assert (found.auroc, found.average_precision) == (None, None)
    for value, score, defined in (
        (found.precision, precision_score, is_suspect.any()),
        (found.recall, recall_score, flipped.any()),
        (found.f1, f1_score, (is_suspect | flipped).any()),
    ):
        if defined:
            assert value == pytest.approx(score(flipped, is_suspect, zero_division=0))
        else:
            assert value is None


def test_what_has_no_quality_is_not_ranked() -> None:
    found = detection(
        np.array([True, False, False, False]),
        np.array([0.1, 0.9, np.nan, np.nan], dtype=np.float32),
        np.array([True, False, True, False]),
    )
    assert found == Detection(auroc=1.0, average_precision=1.0, precision=1.0, recall=0.5, f1=2 / 3)


labels = st.sampled_from(["cat", "dog", "fox"])


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=20))
def test_label_accuracy_is_counted_before_and_after(rows: list[tuple[str, str, str]]) -> None:
    columns = dict(
        zip(("given_label", "suggested_label", "clean_label"), zip(*rows, strict=True), strict=True)
    )
    before, after = label_accuracy(pa.table({k: list(v) for k, v in columns.items()}))
    assert before == pytest.approx(sum(a == c for a, _, c in rows) / len(rows))
    assert after == pytest.approx(sum(b == c for _, b, c in rows) / len(rows))


def test_without_the_truth_or_labels_there_is_no_accuracy() -> None:
    given_only = pa.table({"given_label": ["cat"], "suggested_label": ["dog"]})
    assert label_accuracy(given_only) == (None, None)
    nothing = pa.array([], pa.string())
    names = ("given_label", "suggested_label", "clean_label")
    assert label_accuracy(pa.table(dict.fromkeys(names, nothing))) == (None, None)
