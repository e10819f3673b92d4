"""`proselflc predict`: any data, with and without labels, to the screen and to files."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest

import proselflc
from proselflc.cli.app import run as command
from proselflc.run.reader import load_run

X = np.array([[0.0, 0.0], [0.1, 0.0], [1.0, 1.0], [0.9, 1.0]] * 10, dtype=np.float32)
Y = np.array([0, 0, 1, 1] * 10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("predict") / "run"
    proselflc.fit(X, Y, names=["low", "high"], epochs=20, batch_size=8, out=out)
    return out


def table(path: Path, *, labels: bool) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "a", "b", *(["label"] if labels else [])])
        for k in range(4):
            writer.writerow([f"row {k}", *X[k], *([["low", "high"][Y[k]]] if labels else [])])
    return path


def test_a_table_on_the_screen(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table(tmp_path / "new.csv", labels=True)
    assert command(["predict", str(run), "--data", str(data)]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["id"] for row in rows] == ["row 0", "row 1", "row 2", "row 3"]
    assert [row["predicted_label"] for row in rows] == ["low", "low", "high", "high"]
    assert [row["given_label"] for row in rows] == ["low", "low", "high", "high"]
    assert all(0.5 < float(row["confidence"]) <= 1 for row in rows)
    assert err == "4 examples, 100.0% of the predictions match the labels\n"


def test_without_labels_nothing_is_said_about_them(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table(tmp_path / "new.csv", labels=False)
    assert command(["predict", str(run), "--data", str(data), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["accuracy"] is None
    assert json.loads(out)["examples"] == 4
    assert err == ""


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npz"])
def test_files_of_every_kind(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    np.savez(tmp_path / "new.npz", x=X[:4], y=Y[:4])
    out = tmp_path / f"predicted{suffix}"
    arguments = ["predict", str(run), "--data", str(tmp_path / "new.npz"), "--out", str(out)]
    assert command(arguments) == 0
    assert capsys.readouterr().out == f"{out}\n"
    if suffix == ".npz":
        with np.load(out, allow_pickle=False) as file:
            assert file["probabilities"].argmax(1).tolist() == [0, 0, 1, 1]
            assert file["names"].tolist() == ["low", "high"]
            assert file["labels"].tolist() == [0, 0, 1, 1]
    elif suffix == ".parquet":
        columns = pq.read_table(out).to_pydict()
        assert columns["predicted_label"] == ["low", "low", "high", "high"]
    else:
        delimiter = "\t" if suffix == ".tsv" else ","
        text = io.StringIO(out.read_text(encoding="utf-8"))
        rows = list(csv.DictReader(text, delimiter=delimiter))
        assert [row["predicted_label"] for row in rows] == ["low", "low", "high", "high"]
    assert command(arguments) == 2
    assert "exists" in capsys.readouterr().err
    assert command([*arguments, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "digits"], "unknown class"),
        (["--data", "digits", "--out", "x.txt"], "must end in .csv"),
        (["--data", "digits", "--out", "nowhere/x.csv"], "no folder"),
        ([], "pass --data"),
        (["--data", "missing.csv"], "no file or folder"),
    ],
)
def test_wrong_input_is_one_sentence(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert command(["predict", str(run), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_a_directory_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["predict", str(tmp_path), "--data", "digits"]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_data_in_the_place_of_a_run_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: object) -> str:
        assert command(["audit", str(path)]) == 2
        return capsys.readouterr().err

    data = table(tmp_path / "new.csv", labels=True)
    words = "is a file of data, not a run: train on it first with proselflc train --data"
    assert refused(data) == f"{data} {words} {data}\n"
    assert refused("digits").startswith("digits is the name of a data set, not a run: train on it ")
    (tmp_path / "cats").mkdir()
    advice = (
        "it has no config.toml that a run has written; if it holds data, train on it first with"
    )
    assert refused(tmp_path / "cats").startswith(f"{tmp_path / 'cats'} is not a run: {advice} ")
    (tmp_path / "cats" / "1.PNG").touch()
    assert refused(tmp_path).startswith(f"{tmp_path} is a folder of images, not a run: train on it")
    assert refused(run / "audit.json") == (
        f"{run / 'audit.json'} is a file in a run, not a run: pass its folder, {run}\n"
    )
    assert f"is a folder of runs, not a run: pass {run}\n" in refused(run.parent)
    other = tmp_path / "a.txt"
    other.touch()
    assert refused(other).startswith(f"{other} is a file, not a run: pass the folder that ")


def test_a_run_that_names_a_factory_is_not_obeyed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], resealed: Any
) -> None:
    """Whoever hands us a run must not choose what code is imported."""
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    described = json.loads((copy / "model.json").read_text())
    (copy / "model.json").write_text(json.dumps({**described, "model": "this:s"}))
    resealed(copy)
    data = table(tmp_path / "new.csv", labels=False)
    assert command(["predict", str(copy), "--data", str(data)]) == 2
    assert "not in the catalogue (this:s)" in capsys.readouterr().err


@pytest.fixture(scope="module")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the columns a and class of a table with others."""
    folder = tmp_path_factory.mktemp("columns")
    with open(folder / "old.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "town", "a", "class", "verdict", "note"])
        for k in range(40):
            writer.writerow([f"k{k}", "Bonn", *X[k], ["low", "high"][Y[k]], "x"])
    columns = ("--id-column", "key", "--label-column", "verdict", "--ignore-column", "town", "note")
    out = folder / "run"
    options = ("--data", str(folder / "old.csv"), *columns, "--epochs", "20", "--batch-size", "8")
    assert command(["train", *options, "--out", str(out), "--quiet"]) == 0
    return out


def predicted(
    run: Path, data: Path, text: str, capsys: pytest.CaptureFixture[str], *options: str
) -> list[dict[str, str]]:
    data.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert command(["predict", str(run), "--data", str(data), *options]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_a_model_gets_the_columns_it_was_made_for(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new.csv"
    rows = predicted(
        table_run,
        new,
        "class,title,a,key,seen,town\n0,Dr,0,p,01.02.2026,\n1,,1,q,,Kiel\n",
        capsys,
    )
    assert [row["id"] for row in rows] == ["p", "q"]
    assert [row["predicted_label"] for row in rows] == ["low", "high"]
    assert "given_label" not in rows[0]
    labelled = "a,class,verdict,label\n0,0,low,?\n1,1,high,?\n"
    rows = predicted(table_run, new, labelled, capsys, "--ignore-column", "label")
    assert [row["given_label"] for row in rows] == ["low", "high"]
    assert [row["id"] for row in rows] == ["0", "1"]
    rows = predicted(table_run, new, labelled, capsys, "--ignore-column", "verdict", "label")
    assert "given_label" not in rows[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", 'lacks the column "class" that the model was trained on'),
        ("x,b\n1,2\n", 'lacks the columns "a" and "class" that'),
        ("a,class\n1,inf\n", "number is expected: fill it in or drop the row\n"),
        ("a,class\n1,x\n", 'holds "x", which is not a number, in line 2: fix the cells\n'),
    ],
)
def test_columns_that_a_model_needs_must_be_there(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    new = tmp_path / "new.csv"
    new.write_text(text)
    assert command(["predict", str(table_run), "--data", str(new)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("model", ["mlp", "boosting"])
@pytest.mark.parametrize("is_mixed", [True, False])
def test_columns_that_were_constant_need_not_be_there(
    model: str, is_mixed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predictions are those with the columns."""
    constants = {
        "unit": "mg" if is_mixed else "7",
        "on": "2026-01-02" if is_mixed else "3",
        "k": "5",
    }
    columns: dict[str, list[object]] = {name: [cell] * 40 for name, cell in constants.items()}
    columns |= {"v": [k % 2 + k / 100 for k in range(40)], "label": ["low", "high"] * 20}
    whole, part = tmp_path / "whole.csv", tmp_path / "part.csv"
    for path, names in ((whole, list(columns)), (part, ["v"])):
        rows = [names, *zip(*(columns[name] for name in names), strict=True)]
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    run = tmp_path / "run"
    training = ["train", str(whole), "--model", model, "--epochs", "5", "--out", str(run)]
    assert command([*training, "--quiet"]) == 0
    found = []
    for path in (whole, part):
        capsys.readouterr()
        assert command(["predict", str(run), str(path)]) == 0
        out, err = capsys.readouterr()
        found.append([row["confidence"] for row in csv.DictReader(io.StringIO(out))])
    assert found[0] == found[1]
    assert 'has no columns "unit", "on" and "k", which were constant in training' in err
    trained = load_run(run)
    frames = [pd.read_csv(path, dtype={"v": float}) for path in (whole, part)]
    frames.append(frames[1].mask(frames[1].index.to_numpy()[:, None] < 3))
    probabilities = [trained.predict(frame).probabilities for frame in frames]
    assert np.array_equal(probabilities[0], probabilities[1])
    assert np.array_equal(probabilities[0][3:], probabilities[2][3:])
    part.write_text("unit\nmg\n")
    assert command(["predict", str(run), str(part)]) == 2
    assert 'lacks the column "v"' in capsys.readouterr().err


def test_missing_cells_of_a_model_of_numbers_are_the_training_median(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": np.array(["low", "high"])[Y]})
    run = proselflc.fit(frame[["a", "b"]], frame["label"], epochs=3, out=tmp_path / "run")
    medians = frame[["a", "b"]].astype(np.float32).median()
    capsys.readouterr()
    new = tmp_path / "new.csv"
    new.write_text("a,b\n0.1,NA\n,?\n1,1\n")
    assert command(["predict", str(run.path), "--data", str(new), "--json"]) == 0
    _, err = capsys.readouterr()
    assert err == (
        'note: 3 cells of "a" and "b" are missing and count as the training median of their '
        "column\n"
    )
    filled = pd.DataFrame({"a": [0.1, medians["a"], 1], "b": [medians["b"], medians["b"], 1]})
    expected = run.predict(filled).probabilities
    holes = pd.DataFrame({"a": [0.1, None, 1], "b": [None, None, 1]})
    assert np.array_equal(run.predict(holes).probabilities, expected)
    out = tmp_path / "p.npz"
    assert command(["predict", str(run.path), "--data", str(new), "--out", str(out)]) == 0
    with np.load(out) as file:
        assert np.allclose(file["probabilities"], expected, atol=1e-6)

    new.write_text("a,b\n0.1,NA\n,word\n1,1\n")
    capsys.readouterr()
    assert command(["predict", str(run.path), "--data", str(new)]) == 2
    assert 'holds "word", which is not a number, in line 3' in capsys.readouterr().err
    with pytest.raises(proselflc.InputError, match='"b" holds "word", which is not a number'):
        run.predict(pd.DataFrame({"a": [0.1, None], "b": ["1", "word"]}))
