"""`ProSelfLCClassifier` on data frames with categories and missing cells."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from proselflc.integrations.sklearn import ProSelfLCClassifier

N = 240


def pandas_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    return pd.DataFrame(
        {
            "size": np.where(rng.random(N) < 0.1, np.nan, 2 * y + rng.normal(0, 0.5, N)),
            "colour": pd.Categorical(np.where(rng.random(N) < 0.9, y, 1 - y)),
            "city": np.array(["Rome", "Oslo", None], dtype=object)[rng.integers(0, 3, N)],
            "since": pd.date_range("2021-01-01", periods=N),
        }
    )


def arrow_frame() -> pa.Table:
    return pa.Table.from_pandas(pandas_frame(), preserve_index=False)


def polars_frame() -> Any:
    return pytest.importorskip("polars", reason="the dev group installs it").from_arrow(
        arrow_frame().set_column(1, "colour", arrow_frame()["colour"].cast(pa.int64()))
    )


Y = np.array(["no", "yes"])[np.arange(N) % 2]


@pytest.mark.parametrize("model", [None, "boosting"])
@pytest.mark.parametrize("make", [pandas_frame, arrow_frame, polars_frame])
def test_frames_of_every_library(make: Any, model: str | None) -> None:
    if model == "boosting" and make is not pandas_frame:
        pytest.skip("one library is enough for trees")
    X = make()
    classifier = ProSelfLCClassifier(model=model, epochs=10, random_state=0).fit(X, Y)
    assert list(classifier.feature_names_in_) == ["size", "colour", "city", "since"]
    assert classifier.n_features_in_ == 4
    assert classifier.score(X, Y) > 0.9
    assert classifier.corrected_labels_.dtype == Y.dtype
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_order_does_not_matter() -> None:
    X = pandas_frame()
    order = np.random.default_rng(1).permutation(N)
    p = ProSelfLCClassifier(epochs=3, random_state=0).fit(X, Y).predict_proba(X)
    other = ProSelfLCClassifier(epochs=3, random_state=0).fit(X.iloc[order], Y[order])
    np.testing.assert_allclose(other.predict_proba(X), p)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        ([None if k % 60 == 7 else "ab"[k % 2] for k in range(N)], "O"),
        (np.where(np.arange(N) % 60 == 7, np.nan, np.arange(N) % 2), "f"),
        (pd.Series(np.arange(N) % 2).astype("Int64").mask(np.arange(N) % 60 == 7), "f"),
    ],
)
@pytest.mark.parametrize("is_mixed", [True, False])
def test_missing_labels_are_not_learned_and_stay_missing(y: Any, kind: str, is_mixed: bool) -> None:
    X = pandas_frame() if is_mixed else np.arange(N)[:, None] % 2 + np.zeros((N, 3))
    classifier = ProSelfLCClassifier(epochs=5, random_state=0).fit(X, y)
    assert len(classifier.classes_) == 2
    assert classifier.classes_.dtype.kind in "iU"
    gone = np.arange(N) % 60 == 7
    assert np.array_equal(np.isnan(classifier.label_quality_), gone)
    assert not classifier.label_issues_[gone].any()
    assert bool(pd.isna(pd.Series(classifier.corrected_labels_))[gone].all())
    assert classifier.corrected_labels_.dtype.kind == kind
    assert set(classifier.predict(X)) <= set(classifier.classes_)


def test_gaps_come_later() -> None:
    X = pd.DataFrame({"a": np.arange(N) % 2 + 0.0, "b": np.arange(N) * 1.0})
    classifier = ProSelfLCClassifier(epochs=3, random_state=0).fit(X, Y)
    holes = X.copy()
    holes.loc[3, "b"] = np.nan
    filled = X.copy()
    filled.loc[3, "b"] = X["b"].median()
    np.testing.assert_allclose(classifier.predict_proba(holes), classifier.predict_proba(filled))
    with pytest.raises(ValueError, match='lacks the column "size"'):
        ProSelfLCClassifier(epochs=1).fit(pandas_frame(), Y).predict(X)
    with pytest.raises(ValueError, match="y has no labels"):
        ProSelfLCClassifier(epochs=1).fit(pandas_frame(), [None] * N)


def polars_labels() -> Any:
    return pytest.importorskip("polars", reason="the dev group installs it").Series(Y)


@pytest.mark.parametrize(
    "make", [Y.tolist, lambda: pa.array(Y), lambda: pa.chunked_array([Y]), polars_labels]
)
def test_labels_of_every_library(make: Any) -> None:
    classifier = ProSelfLCClassifier(epochs=2, random_state=0).fit(pandas_frame(), make())
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.corrected_labels_.tolist()[:2] == ["no", "yes"]
