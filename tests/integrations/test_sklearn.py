"""The classifier does what scikit-learn expects of one, weighs rows and finds wrong labels."""

from __future__ import annotations

import copy
import gc
import importlib
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import joblib  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pytest
import sklearn.utils.validation
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from torch import nn

from proselflc import ProSelfLCClassifier
from proselflc.errors import InputError

Array = npt.NDArray[Any]
NAMES = np.array([f"digit {k}" for k in range(10)])


class Digits(NamedTuple):
    X: Array
    given: Array  # texts
    clean: Array
    X_test: Array
    test: Array
    classifier: ProSelfLCClassifier


@pytest.fixture(scope="module")
def digits() -> Digits:
    """Digits of which 40 % have another label, and a classifier that has learned them."""
    X, y = load_digits(return_X_y=True)
    generator = np.random.default_rng(0)
    order = generator.permutation(len(y))
    X, y = X[order], y[order]
    given = y[:1200].copy()
    given[:480] = (given[:480] + generator.integers(1, 10, 480)) % 10
    classifier = ProSelfLCClassifier(random_state=0).fit(X[:1200], NAMES[given])
    return Digits(X[:1200], NAMES[given], NAMES[y[:1200]], X[1200:], NAMES[y[1200:]], classifier)


def few(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    """Three clouds in a plane."""
    generator = np.random.default_rng(seed)
    y = generator.integers(3, size=n)
    return np.eye(3)[y][:, :2] + generator.normal(0, 0.2, (n, 2)), y


def test_every_check_of_scikit_learn_passes_and_none_is_skipped() -> None:
    program = """
import torch
from sklearn.utils.estimator_checks import check_estimator
from proselflc import ProSelfLCClassifier
torch.set_num_threads(1)
results = check_estimator(ProSelfLCClassifier(epochs=8), on_fail=None, on_skip=None)
for one in results:
    if one["status"] != "passed":
        print(one["check_name"], one["status"], repr(one["exception"]))
print(len(results) > 50)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},  # without it one check is skipped
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stdout + done.stderr


def test_wrong_labels_are_found_and_mended_in_the_users_own_words(digits: Digits) -> None:
    classifier, wrong = digits.classifier, digits.given != digits.clean
    issues = classifier.label_issues_
    assert wrong[issues].mean() > 0.9  # precision
    assert issues[wrong].mean() > 0.7  # recall
    assert roc_auc_score(wrong, -classifier.label_quality_) > 0.95
    change = classifier.label_actions_ == "change"
    np.testing.assert_array_equal(change, classifier.corrected_labels_ != digits.given)
    np.testing.assert_array_equal(issues, classifier.label_actions_ != "keep")
    assert 0.8 * issues.sum() < change.sum() < issues.sum()
    low, high = classifier.noise_range_
    assert low <= classifier.noise_rate_ <= high
    assert isinstance(classifier.warnings_, tuple)
    assert (classifier.corrected_labels_ == digits.clean).mean() > 0.85
    assert classifier.corrected_labels_.dtype == classifier.classes_.dtype
    assert classifier.noise_rate_ == pytest.approx(0.4, abs=0.1)


def test_wrong_labels_hardly_hurt(digits: Digits) -> None:
    assert digits.classifier.score(digits.X_test, digits.test) > 0.88
    assert set(digits.classifier.predict(digits.X_test)) <= set(NAMES)


def test_history_and_length(digits: Digits) -> None:
    history = digits.classifier.history_
    assert history[-1]["epoch"] == digits.classifier.n_iter_ == 30
    fitted = (digits.classifier.predict(digits.X) == digits.given).mean()
    assert history[-1]["train_accuracy"] == pytest.approx(fitted, abs=0.002)


def test_the_frame_is_what_cleanlab_calls_label_issues(digits: Digits) -> None:
    frame = digits.classifier.get_label_issues()
    expected = ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert list(frame.columns) == expected
    np.testing.assert_array_equal(frame["given_label"], digits.given)
    change = digits.classifier.label_actions_ == "change"
    expected_labels = np.where(change, frame["predicted_label"], digits.given)
    np.testing.assert_array_equal(expected_labels, digits.classifier.corrected_labels_)
    assert frame["is_label_issue"].sum() == digits.classifier.label_issues_.sum()


def test_probabilities_are_the_networks(digits: Digits) -> None:
    """By matrix products of its weights with columns that are standardised by hand."""
    X, deviation = digits.X.astype(np.float32).astype(float), digits.X.std(0)
    hidden = (X - X.mean(0)) / np.where(deviation == 0, np.inf, deviation)
    state = {name: t.numpy() for name, t in digits.classifier.model_.state_dict().items()}
    hidden = np.maximum(hidden @ state["hidden1.weight"].T + state["hidden1.bias"], 0)
    logits = hidden @ state["fc.weight"].T + state["fc.bias"]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(digits.classifier.predict_proba(digits.X), p, atol=1e-6)


def test_a_pickled_and_a_dumped_classifier_answer_alike(digits: Digits) -> None:
    p = digits.classifier.predict_proba(digits.X_test)
    file = io.BytesIO()
    joblib.dump(digits.classifier, file)
    file.seek(0)
    for again in (pickle.loads(pickle.dumps(digits.classifier)), joblib.load(file)):
        np.testing.assert_array_equal(again.predict_proba(digits.X_test), p)
        np.testing.assert_array_equal(again.label_issues_, digits.classifier.label_issues_)


def test_weights_are_repetitions_and_order_is_no_matter() -> None:
    """In batches of 16, of which there are several."""
    X, y = few()
    generator = np.random.default_rng(1)
    weight = generator.integers(0, 4, len(y))
    order = generator.permutation(len(y))
    classifier = ProSelfLCClassifier(epochs=5, batch_size=16, random_state=0)
    weighted = clone(classifier).fit(X[order], y[order], sample_weight=weight[order])
    repeated = clone(classifier).fit(X.repeat(weight, 0), y.repeat(weight))
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))
    plain = clone(classifier).fit(X, y)
    assert np.abs(weighted.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3
    left_out = weight[order] == 0
    assert np.isnan(weighted.label_quality_[left_out]).all()
    assert not weighted.label_issues_[left_out].any()
    assert not np.isnan(weighted.label_quality_[~left_out]).any()
    assert repeated.label_quality_.shape == (weight.sum(),)


def test_probabilities_become_the_shares_of_the_weights() -> None:
    """Two places, each with both labels: cross entropy is least at the weighted shares."""
    X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 1, 0, 1])
    classifier = ProSelfLCClassifier("cce", epochs=100, lr=0.3, schedule="constant", random_state=0)
    p = classifier.fit(X, y, sample_weight=[3, 1, 0.2, 0.6]).predict_proba([[0.0], [1.0]])
    np.testing.assert_allclose(p, [[0.75, 0.25], [0.25, 0.75]], atol=0.01)


@pytest.mark.parametrize(
    ("weight", "message"),
    [([-1.0] + [1.0] * 119, "negative"), ([0.0] * 120, "zero")],
)
def test_weights_that_are_none(weight: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProSelfLCClassifier().fit(*few(), sample_weight=weight)


def test_a_method_that_cannot_weigh_says_so_and_works_without() -> None:
    X, y = few()
    classifier = ProSelfLCClassifier("elr", epochs=5, random_state=0)
    assert classifier.fit(X.repeat(2, 0), y.repeat(2)).score(X, y) > 0.9
    with pytest.raises(ValueError, match=r"elr cannot weigh examples.*proselflc"):
        classifier.fit(X, y, sample_weight=np.arange(len(y)))


def test_frames_keep_their_columns() -> None:
    X, y = few()
    frame = pd.DataFrame(X, columns=["width", "height"])
    classifier = ProSelfLCClassifier(epochs=3, random_state=0).fit(frame, pd.Series(y))
    assert list(classifier.feature_names_in_) == ["width", "height"]
    assert classifier.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict(frame[["height", "width"]])


def test_the_same_state_gives_the_same_classifier_also_in_threads() -> None:
    X, y = few()

    def learned(state: int) -> Array:
        return ProSelfLCClassifier(epochs=3, random_state=state).fit(X, y).predict_proba(X)

    alone = [learned(state) for state in (0, 1)]
    jobs = [joblib.delayed(learned)(state) for state in (0, 1, 0, 1)]
    together = joblib.Parallel(n_jobs=4, backend="threading")(jobs)
    for expected, found in zip(alone * 2, together, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(alone[0], alone[1])


def test_in_a_pipeline_a_grid_and_a_cross_validation() -> None:
    X, y = few()
    pipeline = make_pipeline(MinMaxScaler(), ProSelfLCClassifier(epochs=8, random_state=0))
    grid = {
        "proselflcclassifier__parameters": [{"sharpness": 6.0}, {"sharpness": 14.0}],
        "proselflcclassifier__hidden_layer_sizes": [(8,)],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    best = search.best_estimator_[-1]
    assert best.parameters in ({"sharpness": 6.0}, {"sharpness": 14.0})
    assert [tuple(p.shape) for p in best.model_.parameters()] == [(8, 2), (8,), (3, 8), (3,)]
    assert search.best_score_ > 0.9
    p = cross_val_predict(search.best_estimator_, X, y, cv=2, method="predict_proba")
    assert (p.argmax(1) == y).mean() > 0.9


def test_ones_own_network_is_copied_and_another_method_and_optimiser_taken() -> None:
    X, y = few()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))
    before = {name: t.clone() for name, t in network.state_dict().items()}
    classifier = ProSelfLCClassifier(
        "boot_soft",
        parameters={"epsilon": 0.2},
        model=network,
        epochs=8,
        optimizer="adamw",
        lr=0.02,
        random_state=0,
    ).fit(X, y)
    assert classifier.score(X, y) > 0.95
    assert isinstance(classifier.model_[1], nn.BatchNorm1d)  # type: ignore[index]
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


def test_nothing_is_said_and_nothing_left_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    classifier = ProSelfLCClassifier(epochs=4).fit(*few(30))
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    classifier.set_params(verbose=True).fit(*few(30))
    assert "proselflc with" in capfd.readouterr().err


def test_settings_may_be_numpys_numbers_as_a_search_draws_them() -> None:
    X, y = few(30)
    drawn: dict[str, Any] = {
        "epochs": np.int64(2),
        "batch_size": np.int32(8),
        "lr": np.float32(0.1),
        "hidden_layer_sizes": np.array([5]),
        "parameters": {"sharpness": np.int64(8)},
    }
    found = ProSelfLCClassifier(**drawn, random_state=0).fit(X, y)
    plain: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 8,
        "lr": float(np.float32(0.1)),
        "hidden_layer_sizes": 5,
        "parameters": {"sharpness": 8},
    }
    same = ProSelfLCClassifier(**plain, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.predict_proba(X), same.predict_proba(X))
    assert found.n_iter_ == 2


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"method": "proselfc"}, "method", 'did you mean "proselflc"'),
        ({"parameters": {"epsilon": 0.1}}, "method.epsilon", r'it takes parameters\["sharp'),
        ({"epochs": 0}, "epochs", "must be at least 1, got 0$"),
        ({"lr": -1.0}, "lr", "must be a positive number"),
        ({"method": ["cce"]}, "method", "must be a name"),
        ({"batch_size": "8"}, "batch_size", "must be a whole number, got '8'"),
        ({"hidden_layer_sizes": (8, 0)}, "hidden_layer_sizes", r"whole numbers.* got \(8, 0\)"),
        ({"model": 3}, "model", "must be a module"),
        ({"optimizer": "adam"}, "optimizer", "must be one of sgd, adamw"),
        ({"schedule": "step"}, "schedule", "must be one of multistep"),
    ],
)
def test_a_wrong_parameter_is_refused_when_fitting(
    settings: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ProSelfLCClassifier(**settings).fit(*few(30))
    assert caught.value.field == field


def test_wrong_input_is_said_as_scikit_learn_does() -> None:
    X, y = few(30)
    with pytest.raises(ValueError, match="one class only"):
        ProSelfLCClassifier().fit(X, np.zeros(30))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        ProSelfLCClassifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="too large for dtype"), np.errstate(all="ignore"):
        ProSelfLCClassifier().fit(X * 1e300, y)
    with pytest.raises(NotFittedError):
        ProSelfLCClassifier().predict(X)
    with pytest.raises(NotFittedError):
        ProSelfLCClassifier().get_label_issues()


def test_a_missing_or_old_library_is_said(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pandas", None)
        with pytest.raises(InputError, match=r'pip install "proselflc\[cleanlab\]"'):
            digits.classifier.get_label_issues()
    with monkeypatch.context() as old:
        old.delattr(sklearn.utils.validation, "validate_data")
        old.delitem(sys.modules, "proselflc.integrations.sklearn")
        with pytest.raises(ImportError, match=r"needs 1\.6 or newer"):
            importlib.import_module("proselflc.integrations.sklearn")


def test_a_parameter_of_the_method_is_reached_by_its_name() -> None:
    X, y = few()
    classifier = ProSelfLCClassifier(epochs=4, random_state=0)
    found = classifier.get_params()
    assert {name: value for name, value in found.items() if name.startswith("method__")} == {
        "method__sharpness": 10.0,  # the paper's
        "method__midpoint": 0.5,
        "method__trust": "global*local",
    }
    assert not any(name.startswith("method__") for name in classifier.get_params(deep=False))
    classifier.set_params(method__sharpness=4.0).set_params(method__trust="global")
    assert classifier.parameters == {"sharpness": 4.0, "trust": "global"}
    assert classifier.get_params()["method__sharpness"] == 4.0
    by_hand = ProSelfLCClassifier(
        parameters={"sharpness": 4.0, "trust": "global"}, epochs=4, random_state=0
    )
    for one in (classifier, clone(classifier)):
        p = one.fit(X, y).predict_proba(X)
        np.testing.assert_array_equal(p, by_hand.fit(X, y).predict_proba(X))
    default = ProSelfLCClassifier(epochs=4, random_state=0).fit(X, y).predict_proba(X)
    assert np.abs(p - default).max() > 1e-4
    classifier.set_params(method__sharpness=None, method__trust=None)  # as they were
    assert classifier.parameters is None
    np.testing.assert_array_equal(classifier.fit(X, y).predict_proba(X), default)


def test_what_was_given_is_not_changed_by_a_search() -> None:
    given = {"sharpness": 6.0}
    classifier = ProSelfLCClassifier(parameters=given)
    other = clone(classifier).set_params(method__sharpness=7.0)
    assert (given, other.parameters) == ({"sharpness": 6.0}, {"sharpness": 7.0})
    classifier.set_params(method__midpoint=0.4)
    assert given == {"sharpness": 6.0}


def test_a_grid_goes_over_methods_and_their_parameters() -> None:
    X, y = few(60)
    pipeline = make_pipeline(MinMaxScaler(), ProSelfLCClassifier(epochs=3, random_state=0))
    name = "proselflcclassifier__method"
    grid = [
        {f"{name}__sharpness": [6.0, 14.0], f"{name}__midpoint": [0.3]},
        {name: ["boot_soft"], f"{name}__epsilon": [0.1, 0.5]},
    ]
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_[-1].parameters in (
        *({"sharpness": b, "midpoint": 0.3} for b in (6.0, 14.0)),
        *({"epsilon": e} for e in (0.1, 0.5)),
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method__epsilon": 0.1}, "method proselflc has no method__epsilon: it takes method__sh"),
        ({"method": "cce", "method__q": 0.1}, "cce has no method__q: it takes no parameters"),
        ({"method": "gcce", "method__q": 0.1}, 'unknown method "gcce"; did you mean "gce"'),
        ({"sharpness": 3}, "Invalid parameter 'sharpness'"),
    ],
)
def test_a_parameter_that_the_method_does_not_take_is_refused(
    settings: dict[str, Any], message: str
) -> None:
    classifier = ProSelfLCClassifier()
    with pytest.raises(ValueError, match=message):
        classifier.set_params(**settings)
    assert classifier.parameters is None
    assert classifier.method == "proselflc"


def test_class_weights_are_sample_weights() -> None:
    X, y = few()
    rare = (y != 2) | (np.arange(len(y)) % 4 == 0)
    X, y = X[rare], y[rare]
    classifier = ProSelfLCClassifier("cce", epochs=4, random_state=0)
    plain = clone(classifier).fit(X, y).predict_proba(X)
    weight = np.array([1.0, 3.0, 0.5])
    by_class = clone(classifier).set_params(class_weight={0: 1, 1: 3, 2: 0.5}).fit(X, y)
    by_row = clone(classifier).fit(X, y, sample_weight=weight[y])
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    assert np.abs(by_class.predict_proba(X) - plain).max() > 1e-3
    balanced = clone(classifier).set_params(class_weight="balanced").fit(X, y)
    share = len(y) / (3 * np.bincount(y))  # scikit-learn's rule, by hand
    by_row = clone(classifier).fit(X, y, sample_weight=share[y])
    np.testing.assert_allclose(balanced.predict_proba(X), by_row.predict_proba(X), atol=1e-6)
    # A row of weight k is k rows, also for what is balanced.
    times = np.arange(len(y)) % 3
    twice = clone(balanced).fit(X, y, sample_weight=times).predict_proba(X)
    rows = clone(balanced).fit(X.repeat(times, 0), y.repeat(times)).predict_proba(X)
    np.testing.assert_allclose(twice, rows, atol=1e-6)


def test_balanced_classes_become_equally_likely() -> None:
    """One place with nine labels of one class and one of another: cross entropy gives a half."""
    X, y = np.zeros((10, 1)), np.array([0] * 9 + [1])
    settings: dict[str, Any] = {"epochs": 100, "lr": 0.3, "schedule": "constant"}
    classifier = ProSelfLCClassifier("cce", **settings, random_state=0)
    np.testing.assert_allclose(classifier.fit(X, y).predict_proba(X[:1]), [[0.9, 0.1]], atol=0.01)
    balanced = classifier.set_params(class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba(X[:1]), [[0.5, 0.5]], atol=0.01)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("equal", "class_weight.*balanced"),
        ({0: 1, 5: 2}, "not in class_weight"),
        ({0: 1, 1: -1, 2: 1}, "class_weight has a weight of -1"),
        ({0: 1, 1: float("nan"), 2: 1}, "class_weight has a weight of nan"),
        ({0: 0, 1: 0, 2: 0}, "nothing to learn from"),
        ({0: 0, 1: 1, 2: 0}, "one class only"),
    ],
)
def test_class_weights_that_are_none(class_weight: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProSelfLCClassifier(class_weight=class_weight).fit(*few(30))


def test_a_warm_start_goes_on_with_the_fitted_weights() -> None:
    X, y = few()
    classifier = ProSelfLCClassifier(epochs=6, random_state=0, warm_start=True).fit(X, y)
    first = classifier.predict_proba(X)
    before = {name: t.clone() for name, t in classifier.model_.state_dict().items()}
    # With a learning rate of nearly nothing the weights stay where they were.
    still = copy.deepcopy(classifier).set_params(lr=1e-12).fit(X * 3 + 1, y)
    for name, tensor in still.model_.state_dict().items():
        torch.testing.assert_close(tensor, before[name], atol=1e-6, rtol=0)
    # And rows are prepared as they were when the weights were learned.
    np.testing.assert_allclose(still.predict_proba(X), first, atol=1e-5)
    assert still.model_ is not classifier.model_
    for name, tensor in classifier.model_.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    cold = copy.deepcopy(classifier).set_params(warm_start=False, lr=1e-12).fit(X, y)
    assert np.abs(cold.predict_proba(X) - first).max() > 0.1
    # More of it fits better than a beginning.
    longer = copy.deepcopy(classifier).fit(X, y)
    began: list[Any] = [one.history_[0]["train_loss"] for one in (longer, classifier)]
    assert began[0] < began[1] / 2
    assert longer.n_iter_ == 6


def test_a_warm_start_of_ones_own_network_and_one_that_is_not_fitted() -> None:
    X, y = few()
    torch.manual_seed(0)
    network = nn.Linear(2, 3)
    settings: dict[str, Any] = {"epochs": 5, "random_state": 0, "warm_start": True}
    classifier = ProSelfLCClassifier(model=network, **settings).fit(X, y)
    before = classifier.model_.state_dict()["weight"].clone()
    classifier.set_params(lr=1e-12).fit(X, y)
    after = classifier.model_.state_dict()["weight"]
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    assert not torch.equal(network.weight, before)


def test_a_warm_start_with_other_data_is_refused() -> None:
    X, y = few()
    classifier = ProSelfLCClassifier(epochs=3, random_state=0, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"warm_start .* classes 0, 1, 2, but y has 0, 1, 2, 3"):
        classifier.fit(X, np.where(np.arange(len(y)) == 0, 3, y))
    with pytest.raises(ValueError, match="3 features, but ProSelfLCClassifier is expecting 2"):
        classifier.fit(np.column_stack((X, X[:, 0])), y)
    with pytest.raises(ValueError, match=r"hidden_layer_sizes were \(128,\) and are \(8,\) now"):
        classifier.set_params(hidden_layer_sizes=(8,)).fit(X, y)
    assert classifier.set_params(hidden_layer_sizes=128).fit(X, y).score(X, y) > 0.9
