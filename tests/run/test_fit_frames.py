"""`proselflc.fit` on data frames with categories and missing cells, from any library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import proselflc
from proselflc.data.sources import arrays
from proselflc.data.tables.frames import AskedColumns
from proselflc.data.tables.mixed import MixedColumns

N = 120


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = np.where(np.arange(N) % 11 == 3, np.nan, np.arange(N) % 2 + rng.normal(0, 0.2, N))
    return pd.DataFrame(
        {
            "size": size,
            "colour": np.array(["red", "blue", None], dtype=object)[np.arange(N) % 3],
            "code": rng.integers(0, 5, N),
            "since": pd.date_range("2021-01-01", periods=N),
        }
    )


def labels() -> list[str | None]:
    return [None if k % 40 == 7 else "ab"[k % 2] for k in range(N)]


def polars_frame() -> Any:
    return pytest.importorskip("polars", reason="the dev group installs it").from_arrow(arrow())


def arrow() -> pa.Table:
    return pa.Table.from_pandas(frame(), preserve_index=False)


@pytest.mark.parametrize("make", [frame, polars_frame, arrow])
def test_frames_of_every_library(make: Any) -> None:
    x = make()
    run = proselflc.fit(x, labels(), epochs=3, categorical="code", ignore_column=["since"])
    kinds = {kind.name: kind.kind for kind in run.preprocessing.kinds}  # type: ignore[attr-defined]
    assert kinds == {"size": "number", "colour": "category", "code": "category"}
    assert len(run.predict(x).labels) == N
    assert len(run.examples) == N
    fixed = proselflc.corrected_labels(run)
    assert len(fixed) == N
    assert [fixed[k] for k in (7, 47, 87)] == [None, None, None]
    assert {fixed[k] for k in range(7)} <= {"a", "b"}


def test_asked_columns_are_checked() -> None:
    with pytest.raises(proselflc.InputError, match='unknown column "colr"; did you mean'):
        proselflc.fit(frame(), labels(), categorical="colr")
    with pytest.raises(proselflc.InputError, match='"code" is named twice'):
        proselflc.fit(frame(), labels(), categorical="code", text=["code"])
    with pytest.raises(proselflc.InputError, match="x is not a data frame"):
        proselflc.fit(np.zeros((4, 2)), [0, 1, 0, 1], numeric="a")


def test_a_category_of_integers_is_no_number() -> None:
    x = pd.DataFrame({"code": pd.Categorical([3, 1, 1, 3]), "v": [1.0, 2.0, 3.0, 4.0]})
    taken = arrays.inputs(x)
    assert isinstance(taken, MixedColumns)
    assert [kind.kind for kind in taken.kinds] == ["category", "number"]
    plain = arrays.inputs(x, asked=AskedColumns.of(ignore_column="code"))
    assert plain.columns == ("v",)
    assert plain.numbers is not None
