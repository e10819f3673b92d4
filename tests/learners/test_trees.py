"""Trees saved as arrays predict what scikit-learn predicts, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from proselflc.errors import InputError
from proselflc.learners.boosting import Boosting, from_sklearn
from proselflc.learners.learner import LabelledTable, mean_over_rounds, predictions
from proselflc.learners.trees import TreeEnsemble


def messy(classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows with gaps and two columns of codes, which columns these are, and labels."""
    stream = np.random.default_rng(seed)
    x = stream.normal(size=(400, 5)).astype(np.float32)
    x[:, 1] = stream.integers(0, 9, 400)
    x[:, 3] = 2 * stream.integers(0, 40, 400)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] % 3 == 1)
    y = (y + (x[:, 3] > 30)) % classes
    x[stream.random(x.shape) < 0.1] = np.nan
    return x, np.array([False, True, False, True, False]), y.astype(np.int64)


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("categorical", [True, False])
def test_an_ensemble_is_scikit_learns_bit_for_bit(classes: int, categorical: bool) -> None:
    x, columns, y = messy(classes)
    known = columns if categorical else None
    estimator = HistGradientBoostingClassifier(
        max_iter=12, categorical_features=known, random_state=0, early_stopping=False
    ).fit(x, y)
    ensemble = from_sklearn(estimator)
    new, _, _ = messy(classes, seed=1)
    new[:5, 1], new[5:9, 3], new[9, 0] = 77, 3, np.inf  # codes that did not occur in training
    z = ensemble(torch.from_numpy(new))
    raw = estimator.decision_function(new)
    expected = np.stack((np.zeros(len(raw)), raw), 1) if classes == 2 else raw
    np.testing.assert_array_equal(z.numpy(), expected)
    staged = list(estimator.staged_decision_function(new))
    for ours, theirs in zip(ensemble.staged(torch.from_numpy(new)), staged, strict=True):
        np.testing.assert_array_equal(ours[:, -1].numpy(), theirs.reshape(len(new), -1)[:, -1])
    p = torch.softmax(z, 1).numpy()
    np.testing.assert_allclose(p, estimator.predict_proba(new), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("present", [[0, 1, 2, 3], [1, 3], [0, 2, 3], [2]])
def test_classes_that_did_not_occur_are_not_predicted(present: list[int]) -> None:
    x, columns, y = messy(len(present))
    y = np.array(present)[y % len(present)]
    fitted = Boosting(rounds=20).fit(LabelledTable(x, y, 4, columns))
    p = predictions(fitted, x)
    assert p.shape == (len(x), 4)
    np.testing.assert_allclose(p.sum(1), 1)
    absent = [k for k in range(4) if k not in present]
    assert (p[:, absent] < 1e-20).all()
    assert (p.argmax(1) == y).mean() > 0.7
    state = fitted.module().state_dict()
    again = TreeEnsemble.from_state(state, x.shape[1], 4)
    np.testing.assert_array_equal(torch.softmax(again(torch.from_numpy(x)), 1).numpy(), p)


def test_the_mean_over_rounds_is_that_of_the_staged_predictions() -> None:
    x, columns, y = messy(3)
    fitted = Boosting(rounds=7).fit(LabelledTable(x, y, 3, columns))
    rounds = list(fitted.staged(x))
    assert len(rounds) == 7
    np.testing.assert_allclose(mean_over_rounds(fitted, x), np.mean(rounds, 0))


def test_a_doubtful_row_is_weighted_between_its_labels() -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    table = LabelledTable(x, np.array([0, 1, 1, 0]), 2, weight=np.array([1.0, 2, 1, 1]))
    quality = np.array([0.9, 0.25, 0.0, 0.3], np.float32)
    found = table.corrected(np.array([0, 0, 0, 0]), quality)
    assert found.weight is not None
    total = np.zeros((4, 2))
    np.add.at(total, ((found.x[:, 0] / 2).astype(int), found.y), found.weight)
    np.testing.assert_allclose(total, np.array([[1, 0], [1.5, 0.5], [1, 0], [1, 0]]))
    assert (found.weight > 0).all()


def test_a_damaged_ensemble_is_refused() -> None:
    x, columns, y = messy(3)
    state = Boosting(rounds=3).fit(LabelledTable(x, y, 3, columns)).module().state_dict()
    TreeEnsemble.from_state(state, 5, 3)
    backwards = state["left"].clone()
    backwards[3] = 0  # a path that would never end
    damages = {
        "left": backwards,
        "feature": state["feature"] + 5,
        "value": state["value"] * np.nan,
        "roots": state["roots"] - 1,
        "codes": state["codes"] + len(state["sets"]) + 1,
        "sets": state["sets"] - 1,
        "threshold": state["threshold"].float(),
        "baseline": state["baseline"][:2],
    }
    for name, value in damages.items():
        with pytest.raises(InputError, match=name):
            TreeEnsemble.from_state({**state, name: value}, 5, 3)
    for name, value in state.items():
        with pytest.raises(InputError, match=f'"{name}" is a single number'):
            TreeEnsemble.from_state({**state, name: torch.zeros((), dtype=value.dtype)}, 5, 3)
    endless = {
        "roots": state["roots"][:0],
        "value": torch.full_like(state["value"], 1e300),
        "baseline": torch.full_like(state["baseline"], -np.inf),
    }
    for name, value in endless.items():
        with pytest.raises(InputError, match=f'"{name}" is damaged'):
            TreeEnsemble.from_state({**state, name: value}, 5, 3)
    with pytest.raises(InputError, match="known"):
        TreeEnsemble.from_state(state, 4, 3)
    with pytest.raises(InputError, match="expected the arrays"):
        TreeEnsemble.from_state({"weight": torch.zeros(2)}, 5, 3)


@pytest.mark.parametrize("present", [[0, 1], [1, 3], [0, 2, 3], [0, 1, 2, 3]])
def test_a_fitted_ensemble_predicts_what_its_arrays_predict(present: list[int]) -> None:
    x, columns, y = messy(len(present))
    y = np.array(present)[y % len(present)]
    fitted = Boosting(rounds=15).fit(LabelledTable(x, y, max(present) + 1, columns))
    module = fitted.module()
    assert isinstance(module, TreeEnsemble)
    new = torch.from_numpy(messy(len(present), seed=1)[0])
    for ours, saved in zip(fitted.staged(new.numpy()), module.staged(new), strict=True):
        np.testing.assert_array_equal(ours, torch.softmax(saved, 1).numpy())
