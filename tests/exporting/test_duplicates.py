"""The list of duplicates, leaked examples and outliers: its order, its columns and its options."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from proselflc.auditing.neighbours import Examination, neighbours_of
from proselflc.auditing.plain_features import PlainFeatures
from proselflc.cli.app import run as command
from proselflc.exporting.duplicates import in_order
from proselflc.files.manifest import Written
from proselflc.run.reader import load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows 3 and 7 conflict, 4 and 12 are copies, 9 is in the test part and 20 is far from all."""
    folder = tmp_path_factory.mktemp("duplicates")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = np.arange(60) % 2
    x[7], x[12], x[20] = x[3], x[4], 6
    y[[3, 7, 4, 12]] = [0, 1, 1, 1]
    x_test = rng.normal(size=(5, 3)).astype(np.float32)
    x_test[2] = x[9]
    names = np.array(["cat", "=dog"])
    ids = np.array([f"row {k}" for k in range(60)])
    y_test = np.arange(5) % 2
    np.savez(folder / "data.npz", x=x, y=y, x_test=x_test, y_test=y_test, names=names, ids=ids)
    words = ["train", "--data", folder / "data.npz", "--epochs", 3, "--out", folder / "run"]
    assert command([*map(str, words), "--quiet"]) == 0
    return folder / "run"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_list_is_printed(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command(["export", str(run), "--what", "duplicates"]) == 0
    out, err = capfd.readouterr()
    rows = rows_of(out)
    assert [row["id"] for row in rows] == ["row 3", "row 7", "row 4", "row 12", "row 9", "row 20"]
    assert [row["given_label"] for row in rows[:3]] == ["cat", "'=dog", "'=dog"]  # for spreadsheets
    assert [row["duplicate_group"] for row in rows] == ["0", "0", "1", "1", "", ""]
    assert [row["conflicting"] for row in rows] == [*["True"] * 2, *["False"] * 4]
    assert [row["test_index"] for row in rows] == [*[""] * 4, "2", ""]
    assert [row["is_outlier"] for row in rows] == [*["False"] * 5, "True"]
    assert float(rows[-1]["outlier"]) > 2
    assert "2 groups of duplicates; 2 examples are in groups with different labels, 1 are" in err


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_the_list_is_written(run: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"list{ending}"
    assert command(["export", str(run), "--what", "duplicates", "--out", str(out)]) == 0
    if ending == ".parquet":
        table = pq.read_table(out)
        assert table["duplicate_group"].to_pylist() == [0, 0, 1, 1, None, None]
        assert table["in_test"].to_pylist() == [*[False] * 4, True, False]
        assert table["given_label"].to_pylist()[1] == "=dog"
    else:
        delimiter = "\t" if ending == ".tsv" else ","
        assert len(list(csv.reader(out.read_text().splitlines(), delimiter=delimiter))) == 7


def test_a_summary_as_json(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "list.csv"
    words = ["export", str(run), "--what", "duplicates", "--out", str(out), "--json"]
    assert command(words) == 0
    assert json.loads(capfd.readouterr().out) == {
        **{"run": str(run), "examples": 6, "groups": 2, "conflicting": 2, "in_test": 1},
        **{"outliers": 1, "written": {"out": str(out)}, "notes": []},
        "warnings": [
            {"code": one.code, "message": one.message} for one in load_run(run).audit.warnings
        ],
    }
    assert load_run(run).audit.warnings


def test_a_run_without_neighbours_gets_them(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = load_run(run)
    found.directory.neighbours.unlink()
    Written(run).seal(found.directory.listed())
    assert command(["export", str(run), "--what", "duplicates", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["conflicting"] == 2
    assert load_run(run).neighbours is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--soft",), "--soft is about labels, not about --what duplicates: omit it"),
        (("--copy", "x.csv"), "--copy is about labels"),
        (("--suspects",), "--suspects is about labels"),
        (("--force",), "--force is about labels"),
        (("--fill",), "--fill is about labels"),
        (("--only-suspects",), "--only-suspects is about labels"),
        (("--link", "hard"), "--link is about labels"),
        (("--format", "npz"), "--format must be csv or parquet for duplicates, got npz"),
        (("--out", "x.npz"), "--format must be csv or parquet for duplicates, got npz"),
        (("--out", "x.txt"), "x.txt"),
    ],
)
def test_options_that_are_refused(
    run: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert command(["export", str(run), "--what", "duplicates", *options]) == 2
    out, err = capfd.readouterr()
    assert words in err
    assert out == ""


def test_an_example_without_a_label_stays_in_its_group() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    x[[5, 9]] = x[2]
    given = np.zeros(20, np.int64)
    given[[5, 9]] = [1, -1]
    found = Examination.of(neighbours_of(PlainFeatures(x, ""), 20), given)
    assert in_order(found).tolist() == [2, 5, 9]
    assert found.conflicting[[2, 5, 9]].tolist() == [True, True, False]
