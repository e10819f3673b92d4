"""Rows without a label are predicted, suggested and reviewable, but neither learned nor judged."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import proselflc
from proselflc.data.dataset import NO_LABEL
from proselflc.data.decisions import DecisionChange
from proselflc.data.labels import Labels
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.reviewing.view import ReviewView
from proselflc.run.reader import Run, load_run
from proselflc.run.review import Review, View

NAMES = ("ant", "bee", "cat")
GENERATOR = np.random.default_rng(0)
TRUE = GENERATOR.integers(3, size=300)
X = (2 * np.eye(3)[TRUE] + GENERATOR.normal(0, 0.5, (300, 3))).round(4)
GIVEN = np.where(np.arange(300) < 30, (TRUE + 1) % 3, TRUE)
HAS_NONE = np.isin(np.arange(300), GENERATOR.permutation(300)[:60])
TRAIN = ("--epochs", 12, "--batch-size", 32, "--quiet")


def cells(*, only_labelled: bool = False) -> list[list[str]]:
    rows = [["id", "a", "b", "c", "label"]]
    for i in range(300):
        if HAS_NONE[i] and only_labelled:
            continue
        label = "" if HAS_NONE[i] else NAMES[GIVEN[i]]
        rows.append([f"r{i}", *map(str, X[i]), label])
    return rows


def written(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, program: Any) -> tuple[Path, Path]:
    """A run on a table with rows without a label, and one on the same table without these rows."""
    folder = tmp_path_factory.mktemp("unlabelled")
    whole = written(folder / "whole.csv", cells())
    labelled = written(folder / "labelled.csv", cells(only_labelled=True))
    for data in (whole, labelled):
        program("train", "--data", data, *TRAIN, "--out", folder / data.stem)
    return folder / "whole", folder / "labelled"


@pytest.fixture
def run(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(runs[0], tmp_path / "run"))


def decide(run: Path, example: str, label: str | None) -> None:
    load_run(run).decisions.add([DecisionChange(example, label, 0)], "me", f"key {example}")


def test_the_other_rows_are_learned_and_judged_as_if_they_were_alone(
    runs: tuple[Path, Path],
) -> None:
    whole, alone = (load_run(path) for path in runs)
    for name in ("model.safetensors", "neighbours.npz", "map.npz", "witness.npz", "audit.npz"):
        assert (whole.path / name).read_bytes() == (alone.path / name).read_bytes(), name
    ours, theirs = (run.labelled_examples.drop_columns("index") for run in (whole, alone))
    assert ours.equals(theirs)
    audits = [json.loads((run.path / "audit.json").read_text()) for run in (whole, alone)]
    assert audits[0].pop("unlabelled") == 60
    assert audits[0] == audits[1]
    assert whole.summary.pop("unlabelled") == 60
    changing = ("data", "seconds")
    assert {k: v for k, v in whole.summary.items() if k not in changing} == {
        k: v for k, v in alone.summary.items() if k not in changing
    }


def test_rows_without_a_label_are_predicted_and_left_for_a_review(runs: tuple[Path, Path]) -> None:
    run = load_run(runs[0])
    table = run.examples
    assert table["index"].to_pylist() == list(range(300))
    assert table["id"].to_pylist() == [f"r{i}" for i in range(300)]
    np.testing.assert_array_equal(~table["given_label"].is_valid().to_numpy(), HAS_NONE)
    rest = table.filter(table["given_label"].is_null())
    predicted = run.predict(X[HAS_NONE].astype(np.float32))
    assert rest["suggested_label"].to_pylist() == predicted.class_names
    np.testing.assert_allclose(rest["p_suggested"].to_numpy(), predicted.confidence, atol=1e-3)
    chances = np.array(rest["corrected_distribution"].to_pylist())
    np.testing.assert_allclose(chances, predicted.probabilities, atol=1e-3)
    assert set(rest["action"].to_pylist()) == {"review"}
    assert not any(rest["is_suspect"].to_pylist())
    for name in ("quality", "p_given", "witness", "first_learned_epoch", "trust"):
        assert rest[name].null_count == 60, name
    assert (np.array(predicted.class_names) == np.array(NAMES)[TRUE[HAS_NONE]]).mean() > 0.9


def test_the_audit_and_its_pages_say_so(run: Path, program: Any) -> None:
    words = "60 rows have no label; they were predicted, not judged."
    before = (run / "examples.parquet").read_bytes()
    assert words in program("audit", run).stdout
    assert (run / "examples.parquet").read_bytes() == before
    program("report", run)
    assert words in (run / "report.html").read_text()
    about = str(ReviewView(Review(load_run(run)), "me").start()["about"])
    assert words in about
    assert load_run(run).audit.unlabelled == 60


def test_labels_are_empty_until_they_are_decided_or_filled(run: Path) -> None:
    suggested = load_run(run).examples["suggested_label"].to_pylist()
    labels = proselflc.corrected_labels(run, notes=False)
    assert [label is None for label in labels] == HAS_NONE.tolist()
    filled = proselflc.corrected_labels(run, fill=True, notes=False)
    assert filled == [
        s if none else own for s, none, own in zip(suggested, HAS_NONE, labels, strict=True)
    ]
    row = int(np.flatnonzero(HAS_NONE)[3])
    other = next(name for name in NAMES if name != suggested[row])
    decide(run, f"r{row}", other)
    assert proselflc.corrected_labels(run, notes=False)[row] == other
    assert proselflc.corrected_labels(run, fill=True, notes=False)[row] == other
    some = proselflc.corrected_labels(run, fill=True, min_confidence=0.9, notes=False)
    sure = load_run(run).examples["p_suggested"].to_numpy() >= 0.9
    for i in np.flatnonzero(HAS_NONE):
        assert (some[i] is not None) == (bool(sure[i]) or i == row)


def test_a_corrected_copy_keeps_all_rows_in_order(run: Path, tmp_path: Path, program: Any) -> None:
    row = int(np.flatnonzero(HAS_NONE)[0])
    decide(run, f"r{row}", "cat")
    for fill in ((), ("--fill",)):
        copy = tmp_path / f"copy{len(fill)}.csv"
        said = program("export", run, "--copy", copy, *fill).stderr
        assert f"{60 if fill else 1} of 60 missing ones" in said
        found = list(csv.reader(copy.read_text().splitlines()))
        assert [r[:4] for r in found] == [r[:4] for r in cells()]
        assert [r[5] for r in found[1:]] == [r[4] for r in cells()[1:]]
        expected = proselflc.corrected_labels(run, fill=bool(fill), notes=False)
        assert [r[4] for r in found[1:]] == [label or "" for label in expected]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_exports_can_be_trained_on(
    run: Path, runs: tuple[Path, Path], tmp_path: Path, suffix: str, program: Any
) -> None:
    data = str(runs[0].parent / "whole.csv")
    out = tmp_path / f"labels{suffix}"
    program("export", run, "--out", out)
    found = open_data(Request(data, labels=out))
    assert len(found.train) == 240
    assert found.unlabelled is not None
    assert found.unlabelled.part.ids == tuple(f"r{i}" for i in np.flatnonzero(HAS_NONE))


def test_training_on_the_labels_of_a_run(
    run: Path, runs: tuple[Path, Path], tmp_path: Path, program: Any
) -> None:
    data = str(runs[0].parent / "whole.csv")
    row = int(np.flatnonzero(HAS_NONE)[0])
    decide(run, f"r{row}", "cat")
    found = open_data(Request(data, labels=run))
    assert len(found.train) == 241
    assert found.train.labels[found.train.ids.index(f"r{row}")] == 2
    filled = open_data(Request(data, labels=run, fill=True))
    assert filled.unlabelled is None
    assert filled.train.ids == tuple(f"r{i}" for i in range(300))
    expected = proselflc.corrected_labels(run, fill=True, notes=False)
    assert [NAMES[k] for k in filled.train.labels] == expected
    again = tmp_path / "again"
    program(
        *("train", "--data", data, "--labels", run, "--fill", "--epochs", 1, "--quiet"),
        *("--out", again),
    )
    assert Labels.load(again / "labels.npz").rest == ()
    program("audit", again, "--folds", 2)  # which opens the data again


def test_they_are_listed_in_the_review(run: Path) -> None:
    review = Review(load_run(run))
    rows = review.view(View(among="unlabelled"))
    assert sorted(rows.tolist()) == np.flatnonzero(HAS_NONE).tolist()
    assert (np.diff(review.sure[rows]) >= 0).all()  # the least sure first
    assert (review.given[rows] == NO_LABEL).all()
    left = review.remaining
    view = ReviewView(review, "me")
    start: Any = view.start()
    assert start["listed"]["unlabelled"] == 60
    assert all(item["given"] == NO_LABEL for item in view.items(rows[:5]))
    assert view.detail(int(rows[0]))["curve"] is None
    assert view.neighbours(int(rows[0]))["given"] == []
    labelled = int(np.flatnonzero(~HAS_NONE)[100])
    curve: Any = view.detail(labelled)["curve"]
    last = list(load_run(run).dynamics)[-1]["p_given"][100]
    assert curve["given"][-1] == pytest.approx(float(last), abs=1e-4)
    assert review.can_be_decided(int(rows[0]))
    decide(run, review.ids[int(rows[0])], "bee")
    review.refresh()
    assert review.label[rows[0]] == 1
    assert review.remaining == pytest.approx(left)  # it was never counted as wrong
    assert review.whole_precision.decided == 0
    review.use_sample(30, "me", seed=0)
    assert not HAS_NONE[review.suspects].any()


def test_a_trusted_share_has_labels(runs: tuple[Path, Path], tmp_path: Path, program: Any) -> None:
    data = runs[0].parent / "whole.csv"
    out = tmp_path / "run"
    program("train", "--data", data, *TRAIN, "--trusted", 0.2, "--out", out)
    labels = Labels.load(out / "labels.npz")
    assert len(labels.ids) == 192
    assert labels.rest == tuple(f"r{i}" for i in np.flatnonzero(HAS_NONE))
    numbers = [int(name[1:]) for name in labels.all_ids]
    assert numbers == sorted(numbers)
    assert load_run(out).examples["id"].to_pylist() == list(labels.all_ids)
    # The last checkpoint is the end of training: what comes after it is done again.
    before = (out / "examples.parquet").read_bytes()
    (out / "manifest.json").unlink()
    (out / "summary.json").unlink()
    program("train", "--data", data, *TRAIN, "--trusted", 0.2, "--out", out, "--resume")
    assert (out / "examples.parquet").read_bytes() == before


def test_other_rows_without_a_label_cannot_be_resumed(
    run: Path, runs: tuple[Path, Path], tmp_path: Path, program: Any
) -> None:
    rows = cells()
    del rows[1 + int(np.flatnonzero(HAS_NONE)[0])]
    config = run / "config.toml"
    table = written(tmp_path / "other.csv", rows)
    old = str(runs[0].parent / "whole.csv")
    config.write_text(config.read_text().replace(old, str(table)))
    for name in ("manifest.json", "summary.json"):
        (run / name).unlink()
    said = program("train", "--out", run, "--resume", code=2).stderr
    assert "the examples without a label are not those that" in said


def fitted(y: Any) -> Run:
    return proselflc.fit(X.astype(np.float32), y, epochs=3, batch_size=32, notes=False)


def test_in_python() -> None:
    y = np.array(NAMES, dtype=object)[GIVEN]
    y[HAS_NONE] = None
    run = fitted(y)
    np.testing.assert_array_equal(~run.examples["given_label"].is_valid().to_numpy(), HAS_NONE)
    labels = proselflc.corrected_labels(run, force=True, notes=False)
    assert labels.dtype == object
    np.testing.assert_array_equal(labels == None, HAS_NONE)  # noqa: E711 - elementwise
    frame = proselflc.find_label_issues(run)
    np.testing.assert_array_equal(frame["given_label"].isna(), HAS_NONE)
    assert not frame["is_label_issue"][HAS_NONE].any()
    numbers = np.where(HAS_NONE, np.nan, GIVEN)
    labels = proselflc.corrected_labels(fitted(numbers), force=True, notes=False)
    np.testing.assert_array_equal(np.isnan(labels), HAS_NONE)


def test_an_npz_file_says_minus_one(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=np.where(HAS_NONE, -1, GIVEN))
    found = open_data(Request(str(path)))
    np.testing.assert_array_equal(found.train.labels, GIVEN[~HAS_NONE])
    assert found.unlabelled is not None
    np.testing.assert_array_equal(found.unlabelled.before, np.cumsum(~HAS_NONE)[HAS_NONE])


def test_embeddings_go_row_for_row_with_all_rows(tmp_path: Path) -> None:
    table = written(tmp_path / "t.csv", cells())
    np.save(tmp_path / "e.npy", np.arange(300.0)[:, None])
    found = open_data(Request(str(table), features=tmp_path / "e.npy"))
    assert found.unlabelled is not None
    for part, rows in ((found.train, ~HAS_NONE), (found.unlabelled.part, HAS_NONE)):
        assert part.inputs.numbers is not None
        np.testing.assert_array_equal(part.inputs.numbers[:, 0], np.flatnonzero(rows))


def test_a_folder_of_images_without_a_label_is_named(tmp_path: Path) -> None:
    for folder in ("cat", "dog", "todo"):
        (tmp_path / folder).mkdir()
        for k in range(3):
            Image.new("RGB", (8, 8), (k, 0, 0)).save(tmp_path / folder / f"{k}.png")
    assert open_data(Request(str(tmp_path))).names == ("cat", "dog", "todo")
    found = open_data(Request(str(tmp_path), unlabelled="todo"))
    assert found.names == ("cat", "dog")
    assert found.unlabelled is not None
    assert found.unlabelled.part.ids == ("todo/0.png", "todo/1.png", "todo/2.png")
    with pytest.raises(InputError, match='has no folder "other" beside its class folders'):
        open_data(Request(str(tmp_path), unlabelled="other"))


def test_where_they_cannot_be_used_they_are_refused(tmp_path: Path, program: Any) -> None:
    table = written(tmp_path / "t.csv", cells())
    said = program(
        *("noise", "--data", table, "--kind", "symmetric:0.2", "--out", tmp_path / "n.csv"), code=2
    ).stderr
    assert "60 rows of" in said
    with pytest.raises(InputError, match=r"60 rows of .* have no label: drop them"):
        proselflc.record(240, 3, data=str(table))
    said = program("train", "--data", "digits", "--unlabelled", "x", code=2).stderr
    assert "is about tables and image folders, but digits is neither" in said


def test_a_word_for_no_label_is_noted(tmp_path: Path, program: Any) -> None:
    rows = [[*row[:-1], row[-1] or "NA"] for row in cells()]
    table = written(tmp_path / "t.csv", rows)
    said = program("train", "--data", table, "--epochs", 1, "--out", tmp_path / "run").stderr
    assert "60 rows have no label: they are predicted at the end" in said
    assert '"NA" in the label column' in said
    out = tmp_path / "three"
    program("train", "--data", table, "--epochs", 1, "--quiet", "--unlabelled", "", "--out", out)
    assert load_run(out).labels.names == ("NA", "ant", "bee", "cat")
    program("predict", out, "--data", table)
