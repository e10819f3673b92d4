"""The scikit-learn classifier with trees in place of its network."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from proselflc.errors import InputError
from proselflc.integrations.sklearn import ProSelfLCClassifier


@pytest.mark.parametrize("model", ["boosting", "auto"])
def test_the_classifier_takes_a_learner(model: str) -> None:
    X, clean = load_breast_cancer(return_X_y=True)
    wrong = np.random.default_rng(0).random(len(clean)) < 0.1
    y = np.array(["bad", "good"])[np.where(wrong, 1 - clean, clean)]
    classifier = ProSelfLCClassifier(model=model, random_state=0).fit(X, y)
    p = classifier.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert set(classifier.predict(X)) == {"bad", "good"}
    assert roc_auc_score(wrong, -classifier.label_quality_) > 0.97
    assert (classifier.corrected_labels_ == np.array(["bad", "good"])[clean]).mean() > 0.95
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(classifier.predict_proba(X[order]), p[order])
    if model == "boosting":
        assert classifier.n_iter_ == 60
        with pytest.raises(InputError, match="continues the training of a network"):
            classifier.set_params(warm_start=True).fit(X, y)


def test_an_estimator_that_runs_do_not_keep_is_refused_before_it_is_fitted() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    name = "sklearn:sklearn.linear_model.LogisticRegression"
    with pytest.raises(InputError, match="is not kept for predictions: use that estimator itself"):
        ProSelfLCClassifier(model=name).fit(X, y)
