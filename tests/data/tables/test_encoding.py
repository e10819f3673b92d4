"""Columns as numbers, against scikit-learn's encoders; saved and read back without pickle."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from proselflc.data import serving
from proselflc.data.inputs import Features
from proselflc.data.preprocessing import Standardization
from proselflc.data.tables import kinds
from proselflc.data.tables.encoding import MOST, RARE, TableEncoding, for_trees
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError


def mixed(**columns: list[object]) -> MixedColumns:
    cells = {name: pa.chunked_array([pa.array(values)]) for name, values in columns.items()}
    found = [kinds.find(name, column) for name, column in cells.items()]
    return MixedColumns(tuple(kinds.read(f.kind, cells[f.kind.name]) for f in found), tuple(found))


@pytest.fixture
def rows() -> MixedColumns:
    draw = np.random.default_rng(0)
    height: list[object] = [None if k % 7 == 0 else float(draw.normal(170, 9)) for k in range(200)]
    colour: list[object] = [str(draw.choice(["red", "green", "blue"])) for _ in range(196)]
    return mixed(
        height=height,
        colour=[*colour, "odd", "rare", None, None],
        ok=[bool(k % 3) for k in range(200)],
        day=[f"2024-{1 + k % 12:02}-{1 + k % 28:02}" for k in range(200)],
        story=[f"once there was a bird called number {k} in a tree" for k in range(200)],
    )


def test_dense_columns_are_scikit_learns(rows: MixedColumns) -> None:
    encoding = TableEncoding.fit(rows)
    dense = encoding.dense(rows)
    assert np.isfinite(dense).all()
    assert dense.shape == (200, encoding.width)
    raw = rows.cells[0].values.astype(np.float64)[:, None]
    scaled = StandardScaler().fit_transform(SimpleImputer(strategy="median").fit_transform(raw))
    np.testing.assert_allclose(dense[:, 0], scaled[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(dense[:, 1], np.isnan(raw[:, 0]))
    words = np.array([rows.cells[1].cell(k) or "?" for k in range(200)], dtype=object)[:, None]
    there = words[:, 0] != "?"
    one_hot = OneHotEncoder(
        min_frequency=RARE, handle_unknown="infrequent_if_exist", sparse_output=False
    ).fit(words[there])
    expected = one_hot.transform(words[there])  # sorted by name, the pool last
    ours = dense[there, 2:7]
    order = np.argsort(encoding.encoded[1].categories)
    np.testing.assert_array_equal(ours[:, [*order, 3]], expected)
    np.testing.assert_array_equal(dense[:, 6], ~there)


def test_unseen_categories_are_pooled_or_nothing(rows: MixedColumns) -> None:
    encoding = TableEncoding.fit(rows)
    new = rows.take(np.arange(2))
    words = mixed(c=["violet", "violet"]).cells[0]
    changed = kinds.Column(new.cells[1].kind, words.values, words.words)
    other = MixedColumns((new.cells[0], changed, *new.cells[2:]))
    assert encoding.dense(other)[:, 2:7].tolist() == [[0, 0, 0, 1, 0]] * 2
    alone = TableEncoding.fit(mixed(c=["a", "b"] * 60))
    assert alone.dense(mixed(c=["z", "a"])).tolist() == [[0, 0], [1, 0]]
    assert for_trees(alone, mixed(c=["z", "a"]))[0].tolist()[1] == [0.0]
    assert np.isnan(for_trees(alone, mixed(c=["z", "a"]))[0][0, 0])


def test_many_categories_have_codes_and_few_have_columns() -> None:
    words: list[object] = [f"w{k}" for k in range(100) for _ in range(20 if k < 80 else 1)]
    encoding = TableEncoding.fit(mixed(c=words))
    assert encoding.width == MOST + 1
    dense = encoding.dense(mixed(c=words))
    assert (dense.sum(axis=1) == 1).all()
    values, categorical = for_trees(encoding, mixed(c=words))
    assert categorical.tolist() == [True]
    assert values.max() == 80  # the pool
    assert len(np.unique(values)) == 81


def test_for_trees_keeps_what_is_missing(rows: MixedColumns) -> None:
    encoding = TableEncoding.fit(rows)
    values, categorical = for_trees(encoding, rows)
    np.testing.assert_array_equal(values[:, 0], rows.cells[0].values)
    assert categorical[1]
    assert categorical.sum() == 1
    assert np.isnan(values[198:, 1]).all()
    names = ("age", "year", "month", "day", "weekday")
    day = dict(zip(names, values[:, 3:8].T, strict=True))
    assert day["year"].tolist() == [2024] * 200
    assert day["month"].tolist() == [1 + k % 12 for k in range(200)]
    assert day["day"].tolist() == [1 + k % 28 for k in range(200)]
    from datetime import date

    weekdays = [date(2024, 1 + k % 12, 1 + k % 28).weekday() for k in range(200)]
    assert day["weekday"].tolist() == weekdays
    assert day["age"].min() == 0
    numbers = Features(np.arange(6, dtype=np.float32).reshape(3, 2), ("a", "b"))
    plain, none = for_trees(Standardization.fit(numbers), numbers)
    assert plain.tolist() == numbers.values.tolist()
    assert not none.any()


def test_it_is_saved_as_json_and_read_back_the_same(rows: MixedColumns) -> None:
    encoding = TableEncoding.fit(rows)
    again = serving.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again == encoding
    assert isinstance(again, TableEncoding)
    np.testing.assert_array_equal(again.dense(rows), encoding.dense(rows))
    # Rows are encoded each by itself.
    some = np.array([5, 199, 0])
    np.testing.assert_array_equal(encoding.dense(rows.take(some)), encoding.dense(rows)[some])


def test_damaged_and_foreign_inputs_are_refused(rows: MixedColumns) -> None:
    encoding = TableEncoding.fit(rows)
    stored = encoding.to_json()
    first = stored["encoded"]
    assert isinstance(first, list)
    changes: list[dict[str, object]] = [{"encoded": []}, {"encoded": first[:1] * 2}]
    for change in changes:
        with pytest.raises(InputError, match="damaged"):
            serving.from_json({**stored, **change})
    with pytest.raises(InputError, match=r'column "height" .* is missing'):
        encoding.check(MixedColumns(rows.cells[1:]))
    with pytest.raises(InputError, match="made for the columns of a table"):
        encoding.check(Features(np.zeros((1, 2), np.float32)))
    with pytest.raises(InputError, match="is a number here, but the model was made for a category"):
        encoding.check(
            mixed(height=[1.0], colour=[2.0], ok=[True], day=["2024-01-01"], story=["a"])
        )


def test_rows_are_kept_in_a_run_and_read_back(rows: MixedColumns, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from proselflc.data.inputs import read_kept, write_kept

    write_kept(rows, tmp_path / "a.parquet", tmp_path / "a.npz")
    again = read_kept(tmp_path / "a.parquet", tmp_path / "a.npz", 200)
    assert isinstance(again, MixedColumns)
    assert again.kinds == rows.kinds
    for mine, theirs in zip(rows.cells, again.cells, strict=True):
        assert [mine.cell(k) for k in range(200)] == [theirs.cell(k) for k in range(200)]
