"""The tables of a page hold the numbers of the run, bounded, in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import pytest

from proselflc.pages.html_page import Table
from proselflc.reporting import tables
from proselflc.reporting.run_facts import read_runs


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_runs_beside_each_other_with_the_best_marked(fabricate: Callable[..., Path]) -> None:
    one = fabricate("one", summary={"test_accuracy": 0.9, "ece": 0.2, "wrong_fitting": 0.1})
    two = fabricate("two", summary={"test_accuracy": 0.8, "ece": None, "method": "cce"})
    table = tables.runs(read_runs([one, two]))
    column = {title: k for k, title in enumerate(table.heading)}
    first, second = table.rows
    assert [cell.text for cell in (first[0], first[1], second[1])] == [
        "one",
        "ProSelfLC",
        "Cross entropy",
    ]
    assert (first[column["test accuracy"]].text, first[column["test accuracy"]].is_best) == (
        "90.0%",
        True,
    )
    assert not second[column["test accuracy"]].is_best
    assert first[column["wrong labels fitted"]].is_best  # low is good
    assert second[column["calibration error"]].text == "–"
    assert not any(row[column["suspects"]].is_best for row in table.rows)


def test_columns_that_no_run_knows_are_absent(fabricate: Callable[..., Path]) -> None:
    bare = [fabricate(name, truth=False, test=False, audited=False) for name in ("a", "b")]
    assert tables.runs(read_runs(bare)).heading == ("run", "method", "seconds")
    assert tables.calibration(read_runs(bare)) is None


def test_calibration_has_every_temperature_reading_and_measure(
    fabricate: Callable[..., Path],
) -> None:
    (one,) = read_runs([fabricate()])
    single = tables.calibration([one])
    assert single is not None
    assert texts(single) == [[T] + ["0.123"] * 4 for T in ("1", "1/4", "1/8")]
    several = tables.calibration([one, one])
    assert several is not None
    assert len(several.rows) == 6
    assert several.heading[0] == "run"


def test_confused_pairs_are_counted(fabricate: Callable[..., Path]) -> None:
    table = read_runs([fabricate(n=30, suspects=10)])[0].run.examples
    frame = table.to_pandas()
    frame = frame[frame["is_suspect"]]
    expected = frame.groupby(["given_label", "suggested_label"]).size().sort_values(ascending=False)
    found = tables.pairs(table)
    assert found is not None
    assert [row[2] for row in texts(found)] == [str(count) for count in expected]
    assert texts(found)[0] == ["cat", "dog", "4", "100%"]
    assert (
        tables.pairs(table.filter(~pd.Series(table["is_suspect"].to_pandas()).to_numpy())) is None
    )


def test_classes_have_their_own_numbers(fabricate: Callable[..., Path]) -> None:
    (one,) = read_runs([fabricate(n=12, suspects=4, names=("cat", "dog", "fox", "none"))])
    table, many = tables.classes(one, one.run.examples)
    assert many == 4
    assert table.heading == (
        "class",
        "examples",
        "suspects",
        "look wrong",
        "are wrong",
        "test accuracy",
    )
    assert texts(table)[0] == ["cat", "3", "1", "33.3%", "33.3%", "50.0%"]
    plain = read_runs([fabricate("plain", audited=False, truth=False, test=False)])[0]
    assert tables.classes(plain, plain.run.examples)[0].heading == ("class", "examples", "suspects")


def test_of_many_classes_those_with_most_suspects_are_kept(
    fabricate: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_CLASSES", 2)
    (one,) = read_runs([fabricate(n=9, suspects=2, names=("a", "b", "c"))])
    table, many = tables.classes(one, one.run.examples)
    assert ([row[0] for row in texts(table)], many) == (["a", "b"], 3)


def test_options_that_differ_are_set_apart(fabricate: Callable[..., Path]) -> None:
    one = fabricate("one", config={"lr": 0.05, "deterministic": True})
    two = fabricate("two", config={"lr": 0.1, "deterministic": True})
    alike, differing = tables.options(read_runs([one, two]))
    assert differing is not None
    assert differing.heading == ("run", "lr")
    assert texts(differing) == [["one", "0.05"], ["two", "0.1"]]
    assert ["deterministic", "yes"] in texts(alike)
    assert ["method", "proselflc"] in texts(alike)
    assert ["versions.proselflc", "0.1.0"] in texts(alike)
    assert tables.options(read_runs([one]))[1] is None


def test_files_that_are_there_are_listed_with_their_size(fabricate: Callable[..., Path]) -> None:
    path = fabricate()
    (path / "labels.npz").write_bytes(b"x" * 1500)
    found = {row[0]: row[1] for row in texts(tables.files(read_runs([path])[0]))}
    assert found["labels.npz"] == "1.5 kB"
    assert "dynamics/" in found
    assert "model.json" not in found
