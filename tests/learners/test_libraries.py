"""Models of LightGBM, XGBoost and CatBoost, saved as their own text, where installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from proselflc.errors import InputError
from proselflc.learners import catalogue, libraries
from proselflc.learners.learner import LabelledTable, predictions
from proselflc.learners.libraries import LIBRARIES


def rows(classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    stream = np.random.default_rng(0)
    x = stream.normal(size=(300, 4)).astype(np.float32)
    x[:, 1] = stream.integers(0, 5, 300)
    y = ((x[:, 0] > 0).astype(np.int64) + (x[:, 1] == 2)) % classes
    x[stream.random(x.shape) < 0.05] = np.nan
    return x, np.array([False, True, False, False]), y


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_saved_model_predicts_as_the_fitted_one(name: str, classes: int) -> None:
    pytest.importorskip(name)
    x, categorical, y = rows(classes)
    present = np.array([0, 2, 3])[y]  # of four classes, some of which do not occur
    fitted = catalogue.make(name, 20, None, 0).fit(LabelledTable(x, present, 4, categorical))
    staged = list(fitted.staged(x))
    assert len(staged) == 20
    p = predictions(fitted, x)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p.argmax(1) == present).mean() > 0.8
    assert (p[:, 1] < 1e-20).all()
    module = fitted.module()
    assert module is not None
    again = catalogue.read(name, module.state_dict(), 4)
    q = torch.softmax(again(torch.from_numpy(x)), 1).numpy()
    np.testing.assert_allclose(q, p, atol=1e-9)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_not_installed_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    x, _, y = rows(2)
    with pytest.raises(InputError, match=f"{name} is not installed: pip install {name}"):
        catalogue.make(name, 3, None, 0).fit(LabelledTable(x, y, 2))


def test_a_damaged_text_is_refused(tmp_path: Path) -> None:
    for name in LIBRARIES:
        pytest.importorskip(name)
        state = {
            "text": torch.from_numpy(np.frombuffer(b"no model", np.uint8).copy()),
            "classes": torch.arange(2),
            "library": torch.zeros(1, dtype=torch.uint8),
        }
        with pytest.raises(InputError, match=f"{name} cannot read the model"):
            catalogue.read(name, state, 2)
        with pytest.raises(InputError, match="classes of the model are damaged"):
            catalogue.read(name, {**state, "classes": torch.arange(3)}, 2)


@pytest.mark.parametrize(
    ("columns", "classes", "message"),
    [
        (4, 3, None),
        (5, 3, "cannot predict a row of 5 columns: made for 4 columns"),
        (4, 2, "predicts 3 numbers for a row of 4 columns, expected 1 finite ones for 2 classes"),
    ],
)
def test_a_model_for_other_columns_or_classes_is_refused_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch, columns: int, classes: int, message: str | None
) -> None:
    class Three:
        """A library whose models have four columns and three classes."""

        def fit(self, table: LabelledTable, boosting: object) -> Three:
            return self

        def read(self, text: bytes) -> Three:
            return self

        def scores(self, x: np.ndarray) -> Iterator[np.ndarray]:
            if x.shape[1] != 4:
                raise ValueError("made for 4 columns")
            yield np.zeros((len(x), 3))

        def text(self) -> bytes:
            return b"three"

    monkeypatch.setitem(LIBRARIES, "lightgbm", Three())
    monkeypatch.setattr(libraries, "_imported", lambda name: None)
    state = {
        "text": torch.zeros(3, dtype=torch.uint8),
        "classes": torch.arange(classes),
    }
    if message is None:
        assert catalogue.read("lightgbm", state, classes, columns) is not None
        return
    with pytest.raises(InputError, match=message):
        catalogue.read("lightgbm", state, classes, columns)
