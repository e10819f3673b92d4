"""Labels and probabilities come in as cleanlab's users have them, and go out as its frames."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from proselflc import ProSelfLCClassifier
from proselflc.errors import InputError
from proselflc.integrations import cleanlab as ours

classification = pytest.importorskip("cleanlab.classification")
rank = pytest.importorskip("cleanlab.rank")

Array = npt.NDArray[Any]


class Labelled(NamedTuple):
    X: Array
    given: Array
    clean: Array
    p: Array  # out of sample


@pytest.fixture(scope="module")
def labelled() -> Labelled:
    """Digits of which 30 % have another label, and what another model says of them."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:600] / 16, y[:600]
    generator = np.random.default_rng(0)
    given = y.copy()
    wrong = generator.permutation(len(y))[:180]
    given[wrong] = (given[wrong] + generator.integers(1, 10, len(wrong))) % 10
    model = LogisticRegression(C=0.1)
    return Labelled(X, given, y, cross_val_predict(model, X, given, cv=3, method="predict_proba"))


def test_scores_find_wrong_labels_as_well_as_cleanlabs(labelled: Labelled) -> None:
    wrong = labelled.given != labelled.clean
    quality = ours.get_label_quality_scores(labelled.given, labelled.p)
    theirs = rank.get_label_quality_scores(labelled.given, labelled.p)
    assert ((quality >= 0) & (quality <= 1)).all()
    found = roc_auc_score(wrong, -quality)
    assert found > 0.93
    assert found > roc_auc_score(wrong, -theirs) - 0.02
    issues = ours.label_issue_mask(labelled.given, labelled.p)
    np.testing.assert_array_equal(issues, quality < 0.5)
    assert wrong[issues].mean() > 0.7
    assert issues[wrong].mean() > 0.7


def test_the_frame_has_cleanlabs_columns_and_kinds(labelled: Labelled) -> None:
    frame = ours.label_issues(labelled.given.tolist(), labelled.p.tolist())
    theirs = classification.CleanLearning(verbose=False).find_label_issues(
        labels=labelled.given, pred_probs=labelled.p
    )
    assert list(frame.columns) == list(theirs.columns)
    assert [t.kind for t in frame.dtypes] == [t.kind for t in theirs.dtypes]
    np.testing.assert_array_equal(frame["given_label"], theirs["given_label"])
    both = frame["is_label_issue"] & theirs["is_label_issue"]
    assert both.sum() > 100
    assert (frame["predicted_label"] == labelled.clean)[both].mean() > 0.7


def test_cleanlab_learns_with_our_classifier_and_from_our_frame(labelled: Labelled) -> None:
    def learner() -> Any:
        classifier = ProSelfLCClassifier(epochs=8, random_state=0)
        return classification.CleanLearning(classifier, cv_n_folds=3, verbose=False)

    wrong = labelled.given != labelled.clean
    whole = learner().fit(labelled.X, labelled.given)
    issues = whole.get_label_issues()
    assert roc_auc_score(wrong, -issues["label_quality"]) > 0.93
    assert "sample_weight" in issues.columns  # which it has given to our fit
    assert whole.score(labelled.X, labelled.clean) > 0.85

    frame = ours.label_issues(labelled.given, labelled.p)
    told = learner().fit(labelled.X, labelled.given, label_issues=frame)
    kept = (~frame["is_label_issue"]).sum()
    assert len(told.clf.label_issues_) == kept  # it was fitted to what we left
    assert told.score(labelled.X, labelled.clean) > 0.85


@pytest.mark.parametrize(
    ("labels", "p", "message"),
    [
        ([0, 1], [[0.5, 0.5]], "expected 1 class ids"),
        ([0.5], [[0.5, 0.5]], "expected 1 class ids"),
        ([2], [[0.5, 0.5]], "range from 2 to 2, but pred_probs has 2 columns"),
        ([-1], [[0.5, 0.5]], "range from -1 to -1"),
        ([0, 1], [[0.5, 0.5], [3.0, -2.0]], "row 1 of pred_probs is not a distribution"),
        ([0], [[0.5, 0.6]], "row 0 of pred_probs is not a distribution"),
        ([0], [[0.5, np.nan]], "row 0 of pred_probs is not a distribution"),
        ([0], [0.5, 0.5], "expected probabilities"),
        ([0], [["a", "b"]], "expected probabilities"),
        ([], np.zeros((0, 2)), "expected probabilities"),
    ],
)
def test_what_is_not_labels_and_probabilities(labels: Any, p: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ours.label_issue_mask(labels, p)


def test_without_pandas_the_arrays_still_come(
    labelled: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert ours.label_issue_mask(labelled.given, labelled.p).any()
    with pytest.raises(InputError, match=r'needs pandas: pip install "proselflc\[cleanlab\]"'):
        ours.label_issues(labelled.given, labelled.p)


def test_the_former_name_still_works_and_says_the_new_one(labelled: Labelled) -> None:
    with pytest.warns(DeprecationWarning, match="renamed to label_issue_mask"):
        former: Any = ours.find_label_issues
    expected = ours.label_issue_mask(labelled.given, labelled.p)
    np.testing.assert_array_equal(former(labelled.given, labelled.p), expected)
    assert not hasattr(ours, "find_label_issue")
