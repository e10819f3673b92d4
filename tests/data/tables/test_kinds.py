"""The kind of a column is found from its training cells, and every cell is read by it."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proselflc.data.request import Request
from proselflc.data.tables import dates, kinds, table
from proselflc.data.tables.cells import MISSING, decimal_mark, number_in
from proselflc.data.tables.kinds import Column, Kind
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError


def column(cells: list[object]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


def kind_of(cells: list[object]) -> Kind:
    return kinds.find("c", column(cells)).kind.kind


def read(cells: list[object]) -> Column:
    found = kinds.find("c", column(cells))
    return kinds.read(found.kind, column(cells))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", "-3e2"], "number"),
        (["17,99", "3", "4,5"], "number"),
        (["1,001", "2", "1,234.5"], "number"),
        ([1, 2, None], "number"),
        ([True, None, False], "boolean"),
        (["yes", "no", "Yes", ""], "boolean"),
        (["T", "F", "T"], "boolean"),
        (["2024-01-31", "2023-12-01"], "date"),
        (["31.01.2024", "01.12.2023"], "date"),
        (["07:05", "23:59:59"], "date"),
        ([date(2024, 1, 31)], "date"),
        (["Jan 5, 2020", "12 Feb 2021"], "date"),
        (["red", "green", "red"], "category"),
        ([f"row-{k}" for k in range(30)], "ignored"),
        (["", "NA", "?"], "ignored"),
        ([None, None], "ignored"),
        ([f"a long story about number {k} and its life" for k in range(60)], "text"),
        ([f"{k}.png" for k in range(30)], "ignored"),
    ],
)
def test_kinds(cells: list[object], kind: Kind) -> None:
    assert kind_of(cells) == kind


@pytest.mark.parametrize("missing", sorted({*MISSING, "N/A", "NaN", " null ", "None", "-", " "}))
def test_every_spelling_of_a_missing_cell(missing: str) -> None:
    assert np.isnan(read(["1", missing, "3"]).values).tolist() == [False, True, False]
    words = read(["red", missing, "red"])
    assert words.values.tolist() == [0, -1, 0]
    assert words.words == ("red",)


def test_a_few_cells_that_do_not_fit_are_missing_and_counted() -> None:
    cells: list[object] = [str(k / 2) for k in range(99)]
    cells.insert(40, "broken")
    found = kinds.find("c", column(cells))
    assert (found.kind.kind, found.misfits, found.misfit) == ("number", 1, "broken")
    assert np.flatnonzero(np.isnan(kinds.read(found.kind, column(cells)).values)).tolist() == [40]


def test_a_column_that_changes_its_kind_half_way_is_noted_with_the_line(tmp_path: Path) -> None:
    rows = [f"{k if k < 30 else 'word'},{'ab'[k % 2]}" for k in range(60)]
    path = tmp_path / "a.csv"
    path.write_text("v,label\n" + "\n".join(rows) + "\n")
    inputs = table.read(path).dataset().train.inputs
    assert isinstance(inputs, MixedColumns)
    [found] = inputs.found
    assert found.kind.kind == "category"
    assert found.notes == (
        '50% of its cells are numbers, the others words, the first "word" in line 32',
    )
    numeric = table.read(path, Request(numeric=("v",))).dataset().train.inputs
    assert isinstance(numeric, MixedColumns)
    assert np.isnan(numeric.cells[0].values).sum() == 30
    assert numeric.found[0].notes[0].startswith("30 cells are not a number and count as missing")


def test_asked_kinds_win(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("zip,v,label\n" + "".join(f"{k % 3},{k}.5,{'ab'[k % 2]}\n" for k in range(30)))
    inputs = table.read(path, Request(categorical=("zip",))).dataset().train.inputs
    assert isinstance(inputs, MixedColumns)
    assert [kind.kind for kind in inputs.kinds] == ["category", "number"]
    with pytest.raises(InputError, match="drop one of them"):
        table.read(path, Request(categorical=("zip",), numeric=("zip",)))
    with pytest.raises(InputError, match='unknown column "zp"; did you mean "zip"'):
        table.read(path, Request(categorical=("zp",)))
    with pytest.raises(InputError, match="not learned from"):
        table.read(path, Request(categorical=("label",)))


def test_kinds_are_found_from_the_training_rows_alone(tmp_path: Path) -> None:
    rows = [f"{k}.5,{'ab'[k % 2]},train" for k in range(40)]
    rows += [f"junk {k},{'ab'[k % 2]},test" for k in range(40)]
    path = tmp_path / "a.csv"
    path.write_text("v,label,split\n" + "\n".join(rows) + "\n")
    data = table.read(path).dataset()
    assert isinstance(data.train.inputs, MixedColumns)
    assert data.test is not None
    assert isinstance(data.test.inputs, MixedColumns)
    assert data.train.inputs.kinds[0].kind == "number"
    assert np.isnan(data.test.inputs.cells[0].values).all()


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12))
def test_numbers_with_either_mark_are_read_back(value: float) -> None:
    plain = f"{value:,.3f}"
    swapped = plain.replace(",", "_").replace(".", ",").replace("_", ".")
    expected = float(f"{value:.3f}")
    assert number_in(plain) == expected
    assert number_in(swapped, ",") == expected


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_not(cell: str) -> None:
    for mark in (".", ","):
        value = number_in(cell, mark)
        assert value is None or np.isfinite(value)
    assert decimal_mark([cell]) in ".,"


@given(st.datetimes(datetime(1000, 1, 1), datetime(2999, 12, 31)))
def test_dates_are_read_back(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    expected = (moment - datetime(1970, 1, 1)).total_seconds() / 86400
    for text, order in (
        (moment.isoformat(), "ymd"),
        (moment.isoformat(" ") + "Z", "ymd"),
        (f"{moment.day:02}.{moment.month}.{moment.year:04} {moment:%H:%M:%S}", "dmy"),
        (f"{moment.month}/{moment.day}/{moment.year:04} {moment:%H:%M:%S}", "mdy"),
    ):
        assert dates.days(text, order) == pytest.approx(expected, abs=1e-6), text
    assert dates.text(expected, False)[:10] == moment.date().isoformat()


@given(st.text(max_size=30))
def test_no_text_breaks_a_date(cell: str) -> None:
    for order in ("ymd", "dmy", "mdy", "time"):
        value = dates.days(cell, order)
        assert value is None or np.isfinite(value)
    dates.looks_like_date(cell)


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=30))
def test_every_column_of_texts_has_a_kind_by_which_it_can_be_read(cells: list[object]) -> None:
    found = kinds.find("c", pa.chunked_array([pa.array(cells, pa.string())]))
    assert found.missing + 0 <= found.rows == len(cells)
    if found.kind.kind != "ignored":
        try:
            one = kinds.read(found.kind, pa.chunked_array([pa.array(cells, pa.string())]))
        except kinds.InfiniteError:  # 1e100 does not fit in float32, and its row is named
            return
        assert len(one) == len(cells)
        assert int(one.is_missing.sum()) == found.missing + found.misfits


def test_columns_of_two_tables_are_joined_by_their_words() -> None:
    a, b = read(["x", "y", ""]), read(["z", "y"])
    both = a.concat([b])
    assert [both.cell(k) for k in range(5)] == ["x", "y", "", "z", "y"]


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="an older version of Arrow")
def test_views_of_texts_are_texts() -> None:
    cells = pa.chunked_array([pa.array(["a", "NA", "b"] * 10, pa.string_view())])
    found = kinds.find("c", cells)
    assert (found.kind.kind, found.missing) == ("category", 10)
    assert kinds.read(found.kind, cells).words == ("a", "b")
    packed = pa.chunked_array([pa.array([b"a", b"b"] * 10, pa.binary_view())])
    assert kinds.find("c", packed).kind.kind == "category"


def test_dates_that_python_cannot_hold_are_missing() -> None:
    for unit, far in (("s", 2**40), ("ms", 2**50), ("us", 2**62)):
        cells = pa.chunked_array([pa.array([far, 0, -far, None], pa.timestamp(unit))])
        found = kinds.find("c", cells)
        assert (found.kind.kind, found.missing) == ("date", 3)
        column = kinds.read(found.kind, cells)
        assert [column.cell(k) for k in range(4)] == ["", "1970-01-01", "", ""]
    days = pa.chunked_array([pa.array([2**31 - 1, 1], pa.date32())])
    assert kinds.find("c", days).missing == 1


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(InputError, match='the column "c" holds bytes that are not UTF-8'):
        kinds.find("c", column([b"\xff\xfe", b"a"]))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_seconds(unit: str) -> None:
    cells = pa.chunked_array([pa.array([90, None], pa.duration("s")).cast(pa.duration(unit))])
    found = kinds.find("c", cells)
    assert found.kind.kind == "number"
    values = kinds.read(found.kind, cells).values
    assert values[0] == 90
    assert np.isnan(values[1])
