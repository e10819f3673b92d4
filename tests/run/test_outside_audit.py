"""`proselflc audit RUN --part test`: the labels of the test part, which were never learned."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import proselflc
from proselflc.cli.app import run as command

CLASSES, PER_CLASS, WRONG = 3, 100, 15


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on three well separated classes; the first 15 labels of its test part are wrong."""
    folder = tmp_path_factory.mktemp("part")
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(CLASSES), PER_CLASS)
    centres = 4 * np.eye(CLASSES)
    x, x_test = (
        (centres[y] + generator.normal(size=(len(y), CLASSES))).astype(np.float32) for _ in range(2)
    )
    y_test = y.copy()
    y_test[:WRONG] = 1
    names = np.array(["cat", "dog", "owl"])
    np.savez(folder / "data.npz", x=x, y=y, x_test=x_test, y_test=y_test, names=names)
    data = ["--data", str(folder / "data.npz"), "--epochs", "20", "--batch-size", "16"]
    assert command(["train", *data, "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def test_wrong_labels_of_the_test_part_are_found(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    out = tmp_path / "test.parquet"
    arguments = ["audit", str(run), "--part", "test", "--out", str(out), "--worst", "5", "--json"]
    assert command(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run"], found["part"], found["out"]) == (str(run), "test", str(out))
    assert found["examples"] == CLASSES * PER_CLASS
    assert all(row["index"] < WRONG for row in found["worst"])
    assert {row["suggested_label"] for row in found["worst"]} == {"cat"}

    import pyarrow.parquet as pq

    suspects = pq.read_table(out)["is_suspect"].to_numpy()
    assert suspects[:WRONG].all()
    assert suspects[WRONG:].mean() < 0.05
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*")}  # nothing changed


def test_it_is_the_audit_of_the_runs_own_predictions(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`predict` writes a file that `audit --pred-probs` reads, for labels and all."""
    p, data = str(tmp_path / "p.npz"), str(run.parent / "data.npz")
    assert command(["predict", str(run), "--data", data, "--split", "test", "--out", p]) == 0
    capsys.readouterr()
    assert command(["audit", "--pred-probs", p, "--labels", p, "--json"]) == 0
    of_files = json.loads(capsys.readouterr().out)
    assert command(["audit", str(run), "--part", "test", "--json"]) == 0
    of_run = json.loads(capsys.readouterr().out)
    assert of_run.pop("run") == str(run)
    assert of_run.pop("part") == "test"
    assert of_run == of_files


def test_a_run_without_a_test_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i},{i % 7},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["height,width,label", *rows]))
    run = str(tmp_path / "run")
    data = ["--data", str(tmp_path / "table.csv"), "--epochs", "1"]
    assert command(["train", *data, "--out", run, "--quiet"]) == 0
    capsys.readouterr()
    assert command(["audit", run, "--part", "test"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "has no test part, only train: audit the training part, without --part" in err


def test_data_from_python_is_not_on_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    proselflc.fit(x, y, epochs=1, out=tmp_path / "run")
    capsys.readouterr()
    assert command(["audit", str(tmp_path / "run"), "--part", "test"]) == 2
    assert "was given in Python and is not on disk" in capsys.readouterr().err


def test_what_is_only_for_one_part(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["audit", str(run), "--part", "test", "--folds", "2"]) == 2
    assert "--folds is only used with the training part: omit it" in capsys.readouterr().err
    assert command(["audit", str(run), "--out", "labels.csv"]) == 2
    assert "--out is only used with --pred-probs and --part test" in capsys.readouterr().err
