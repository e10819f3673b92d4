"""Every command on runs of trees and of an estimator, from a raw table with gaps to its copy."""

from __future__ import annotations

import csv
import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.reviewing.view import ReviewView
from proselflc.run.reader import Run
from proselflc.run.review import Review

NAMES = ("oak", "ash", "elm")
BOOSTING, ESTIMATOR = "boosting", "sklearn:sklearn.linear_model.LogisticRegression"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 rows with a category and gaps, a tenth of the labels wrong, ten rows without a label."""
    stream = np.random.default_rng(0)
    y = stream.integers(0, 3, 600)
    given = np.where(stream.random(600) < 0.1, (y + 1) % 3, y)
    path = tmp_path_factory.mktemp("table") / "trees.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("height", "width", "soil", "tree"))
        for k in range(600):
            height = "NA" if k % 17 == 0 else f"{y[k] + stream.normal() / 3:.3f}"
            soil = ("clay", "sand")[int(y[k] == 2)] if k % 13 else ""
            label = "" if k % 60 == 0 else NAMES[given[k]]
            writer.writerow((height, f"{stream.normal() - y[k]:.3f}", soil, label))
    return path


@pytest.fixture(scope="module", params=[BOOSTING, ESTIMATOR, "auto"])
def run(request: pytest.FixtureRequest, program: Any, table: Path, tmp_path_factory: Any) -> Path:
    out: Path = tmp_path_factory.mktemp("runs") / "run"
    program("train", table, "--label", "tree", "--model", request.param, "--out", out)
    return out


def test_the_audit_is_the_same_when_it_is_made_again(program: Any, run: Path) -> None:
    before = (run / "audit.json").read_text()
    facts = json.loads(before)
    assert facts["folds"] == 5
    assert facts["unlabelled"] == 10
    assert 20 < facts["suspects"] < 90
    program("audit", run)
    assert (run / "audit.json").read_text() == before
    program("audit", run, "--folds", 0)
    assert json.loads((run / "audit.json").read_text())["folds"] is None
    program("audit", run)


def test_a_report_and_a_corrected_copy(
    program: Any, run: Path, table: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    program("report", run, "--out", page)
    assert "trees" in page.read_text()
    copy = tmp_path / "copy.csv"
    program("export", run, "--format", "csv", "--out", copy)
    with copy.open() as file, table.open() as old:
        rows, raw = list(csv.reader(file)), list(csv.reader(old))
    assert len(rows) == len(raw)


def test_a_review_shows_the_columns_of_a_row(run: Path) -> None:
    view = ReviewView(Review(Run(run)), "anna")
    assert view.missing_reason == ""
    columns = view.detail(1)["columns"]
    assert isinstance(columns, list)
    assert {"height", "width", "soil"} >= {one["name"] for one in columns} != set()


def test_predictions_of_the_raw_table(program: Any, run: Path, table: Path, tmp_path: Path) -> None:
    model = json.loads((run / "model.json").read_text()) if (run / "model.json").exists() else {}
    out = tmp_path / "predictions.csv"
    if (run / "model.safetensors").exists():
        program("predict", run, "--data", table, "--label", "tree", "--out", out)
        with out.open() as file:
            assert len(list(csv.reader(file))) == 601
        return
    assert not model.get("state")
    done = program("predict", run, "--data", table, "--label", "tree", "--out", out, code=2)
    assert "keeps no model" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("model", [BOOSTING, ESTIMATOR])
def test_killed_in_the_middle_of_its_rounds_it_ends_with_the_same_bits(
    assert_same: Any, program: Any, table: Path, tmp_path: Path, model: str
) -> None:
    options: tuple[object, ...] = ("train", table, "--label", "tree", "--model", model, "--seed", 3)
    options += ("--epochs", 150) if model == BOOSTING else ()
    whole, out = tmp_path / "whole", tmp_path / "run"
    program(*options, "--out", whole)
    kills = 0
    for least in (1, 3, 5):
        running = program.start(*options, "--out", out, "--checkpoint-seconds", 0, "--resume")
        while _saved(out) < least and not running.ended():
            time.sleep(0.001)
        running.send(signal.SIGKILL)
        kills += running.wait().code == -signal.SIGKILL
    assert kills > 0
    program(*options, "--out", out, "--resume", "--checkpoint-seconds", 60)
    if model == BOOSTING:
        assert_same(out, whole)
    for name in ("examples.parquet", "audit.npz", "witness.npz", "folds/p.npy"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name


def _saved(run: Path) -> int:
    """Return the number of models that the last checkpoint of a run holds."""
    folder = run / "checkpoints"
    found = folder.glob("*.safetensors") if folder.is_dir() else ()
    return max((int(path.name[:10]) for path in found), default=0)
