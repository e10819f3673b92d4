"""Which suspects are shown, what they are and how they were learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.errors import InputError
from proselflc.reporting.gallery import (
    agreement,
    cards,
    choices,
    codes,
    curves,
    views,
    worst,
)
from proselflc.training.observations import ROW


def table_of(frame: pd.DataFrame) -> pa.Table:
    columns = {
        "index": np.arange(len(frame)),
        "id": [f"id-{k}" for k in range(len(frame))],
        "given_label": frame["given"].astype(str).to_list(),
        "suggested_label": ["x"] * len(frame),
        "is_suspect": frame["is_suspect"].astype(bool).to_numpy(),
        "quality": pa.array(frame["quality"].to_list(), pa.float32(), from_pandas=True),
        "p_suggested": pa.array([0.5] * len(frame), pa.float32()),
    }
    return pa.table(columns)


ROWS = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.booleans(), st.sampled_from([0.1, 0.2, 0.5, float("nan")])
    ),
    max_size=40,
)


@given(ROWS, st.integers(1, 12))
def test_every_class_has_its_turn_before_any_has_another(
    rows: list[tuple[str, bool, float]], most: int
) -> None:
    frame = pd.DataFrame(rows, columns=["given", "is_suspect", "quality"])
    shown = worst(table_of(frame), most)
    frame["quality"] = frame["quality"].fillna(1)
    marked = frame[frame["is_suspect"].astype(bool)].sort_values("quality", kind="stable")
    marked["turn"] = marked.groupby("given").cumcount()
    expected = marked.sort_values(["turn", "quality"], kind="stable").head(most)
    assert set(shown) == set(expected.index)
    qualities = frame["quality"].to_numpy()[shown]
    assert (np.diff(qualities) >= 0).all()


def test_a_rare_class_is_not_crowded_out() -> None:
    frame = pd.DataFrame({"given": ["big"] * 1000 + ["rare"], "is_suspect": True, "quality": 0.1})
    frame.loc[1000, "quality"] = 0.4
    assert 1000 in worst(table_of(frame), 10)


def test_classes_are_numbered_alike_in_every_chunk() -> None:
    one = table_of(pd.DataFrame({"given": list("ab"), "is_suspect": True, "quality": 0.1}))
    two = table_of(pd.DataFrame({"given": list("cba"), "is_suspect": True, "quality": 0.1}))
    numbers, names = codes(pa.concat_tables([one, two]))
    assert [names[k] for k in numbers] == list("abcba")


def test_curves_are_of_the_rows_asked_for_in_all_epochs() -> None:
    epochs = []
    for e in range(3):
        rows = np.zeros(5, ROW)
        rows["p_given"] = np.arange(5) / 10 + e / 100
        rows["p_other"] = 0.5
        epochs.append(rows)
    epochs[1]["p_given"][4] = np.nan
    found = curves(iter(epochs), np.array([4, 0]), 5)
    assert found is not None
    p_given, p_other = found
    np.testing.assert_allclose(p_given, [[0.4, np.nan, 0.42], [0, 0.01, 0.02]], atol=1e-3)
    np.testing.assert_allclose(p_other[1], 0.5)
    assert curves(iter(()), np.array([0]), 5) is None


def test_records_of_other_examples_are_refused() -> None:
    with pytest.raises(InputError, match="belongs to another run"):
        curves([np.zeros(4, ROW)], np.array([0]), 5)


def test_agreement_counts_runs_that_suggest_the_same() -> None:
    frame = pd.DataFrame({"given": list("abc"), "is_suspect": True, "quality": 0.1})
    own = table_of(frame)
    other = own.set_column(3, "suggested_label", pa.array(["x", "y", "x"]))
    np.testing.assert_array_equal(agreement(own, np.array([1, 2]), [other, own]), [2, 3])
    with pytest.raises(InputError, match="cannot be compared"):
        agreement(own, np.array([1]), [other.slice(1)])


def test_a_suspect_is_what_its_row_says() -> None:
    frame = pd.DataFrame({"given": list("ab"), "is_suspect": True, "quality": [0.25, np.nan]})
    table = table_of(frame)
    rows = np.array([1, 0])
    seen = views(Texts(("one", "two")), rows, table)
    second, first = cards(table, rows, seen, None, np.array([1, 2]), 2)
    assert (first["id"].text, first["given"].text, first["suggested"].text) == ("id-0", "a", "x")
    assert (first["quality"], first["sure"], first["truth"]) == ("25%", "50%", None)
    assert (first["quality_order"], first["sure_order"], first["given_place"]) == (0.25, 0.5, 0)
    assert (first["agreeing"], first["curve"], first["text"]) == ("2 of 2 runs agree", None, "one")
    assert (second["quality"], second["text"], second["index"]) == ("", "two", 1)
    assert choices([second, first], "given") == [(0, "a"), (1, "b")]
    assert choices([second, first], "suggested") == [(0, "x")]


def test_images_have_thumbnails_and_bad_files_none(tmp_path: Path) -> None:
    frame = pd.DataFrame({"given": list("ab"), "is_suspect": True, "quality": 0.1})
    table, rows = table_of(frame), np.array([0, 1])
    pixels = Images(np.zeros((2, 8, 8, 1), np.uint8))
    assert all(one.picture is not None for one in views(pixels, rows, table))
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    good, bad = views(ImageFiles((tmp_path / "a.png", tmp_path / "b.png")), rows, table)
    assert good.picture is not None
    assert bad.picture is None


def test_features_tell_the_columns_least_like_the_given_class() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 5)).astype(np.float32)
    values[:, 4] = 3  # a column that never changes says nothing
    values[7, 2] = 9
    given = np.array(["a", "b"])[np.arange(60) % 2]
    table = table_of(pd.DataFrame({"given": given, "is_suspect": True, "quality": 0.1}))
    (found,) = views(Features(values, tuple("vwxyz")), np.array([7]), table)
    frame = pd.DataFrame(values, columns=list("vwxyz"))[given == "b"]
    z = ((frame.loc[7] - frame.mean()) / frame.std(ddof=0)).abs()
    assert [one.column for one in found.deviations] == list(z.nlargest(3).index)
    first = found.deviations[0]
    assert (first.column, first.value) == ("x", 9)
    np.testing.assert_allclose(
        (first.mean, first.spread), (frame["x"].mean(), frame["x"].std(ddof=0)), rtol=1e-5
    )
    (unnamed,) = views(Features(values), np.array([7]), table)
    assert unnamed.deviations == ()


def test_inputs_of_another_number_of_examples_are_refused() -> None:
    table = table_of(pd.DataFrame({"given": list("ab"), "is_suspect": True, "quality": 0.1}))
    with pytest.raises(InputError, match="there are 1 inputs, but the run has 2 examples"):
        views(Texts(("one",)), np.array([0]), table)
