"""The neighbours that a run keeps: written at its end, read again, and found later."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import proselflc
from proselflc.auditing import nearest
from proselflc.auditing.neighbours import Examination, examine
from proselflc.cli import app
from proselflc.data.inputs import Features, Floats
from proselflc.errors import InputError
from proselflc.files.manifest import Written
from proselflc.run import neighbours
from proselflc.run.reader import Run, load_run


def table(path: Path, rows: int = 40) -> Path:
    """Two clusters; row 7 is row 3 with another label, and row 9 is in the test part."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3)) + 4 * (np.arange(rows) % 2)[:, None]
    x[7] = x[3]
    split = np.where(np.arange(rows) < rows - 8, "train", "test")
    x[rows - 1] = x[9]
    names = np.array(["cat", "dog"])[np.arange(rows) % 2]
    names[7] = "cat"
    lines = [f"{a:.6f},{b:.6f},{c:.6f},{names[i]},{split[i]}" for i, (a, b, c) in enumerate(x)]
    path.write_text("\n".join(["a,b,c,label,split", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("neighbours")
    data = table(folder / "pets.csv")
    words = ["train", "--data", data, "--out", folder / "run", "--epochs", 2, "--quiet"]
    assert app.run([str(word) for word in words]) == 0
    return load_run(folder / "run")


@pytest.fixture
def run(trained: Run, tmp_path: Path) -> Run:
    shutil.copytree(trained.path, tmp_path / "run")
    return load_run(tmp_path / "run")


def without(run: Run) -> Run:
    """A run of an older version: without the file, which its manifest does not list."""
    run.directory.neighbours.unlink()
    Written(run.path).seal(run.directory.listed())
    return load_run(run.path)


def same(one: Examination | None, other: Examination | None) -> None:
    assert one is not None
    assert other is not None
    for name in ("duplicate_group", "conflicting", "outlier", "is_outlier", "in_test"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_training_writes_them(run: Run) -> None:
    found = neighbours.examination(run)
    assert found is not None
    np.testing.assert_array_equal(np.flatnonzero(found.conflicting), [3, 7])
    np.testing.assert_array_equal(np.flatnonzero(found.in_test), [9])
    assert found.neighbours.test_index[9] == 7
    assert found.neighbours.kind == "standardised columns"
    assert "neighbours.npz" in (run.path / "manifest.json").read_text()


def test_a_run_without_them(run: Run) -> None:
    old = without(run)
    assert old.neighbours is None
    assert neighbours.examination(old) is None


def test_they_are_found_later(run: Run) -> None:
    expected = neighbours.examination(run)
    old = without(run)
    found = neighbours.of_run(old)
    same(Examination.of(found, old.labels.given), expected)
    same(neighbours.examination(old), expected)
    same(neighbours.examination(load_run(run.path)), expected)  # they are kept, and listed


def test_a_damaged_file_is_written_again(run: Run) -> None:
    expected = neighbours.examination(run)
    run.directory.neighbours.write_bytes(b"nonsense")
    damaged = load_run(run.path)
    with pytest.raises(InputError, match=r"neighbours.npz differs .* export .* --what duplicates"):
        damaged.neighbours  # noqa: B018
    neighbours.of_run(damaged)
    same(neighbours.examination(load_run(run.path)), expected)


def test_of_another_run(run: Run) -> None:
    found = run.neighbours
    assert found is not None
    other = examine(Features(normal(5, 2)), np.zeros(5, np.int64))
    assert other is not None
    other.neighbours.save(run.directory.neighbours)
    Written(run.path).seal(run.directory.listed())
    with pytest.raises(InputError, match="it is of 5 examples, and there are 32"):
        load_run(run.path).neighbours  # noqa: B018


def test_data_that_is_missing_or_has_moved(trained: Run, run: Run, tmp_path: Path) -> None:
    data = Path(str(run.config["data"]))
    moved = tmp_path / "moved.csv"
    shutil.copy(data, moved)
    old = without(run)
    text = run.directory.config.read_text().replace(str(data), str(tmp_path / "gone.csv"))
    run.directory.config.write_text(text)
    Written(run.path).seal(run.directory.listed())
    old = load_run(run.path)
    with pytest.raises(InputError, match=r"gone\.csv"):
        neighbours.of_run(old)
    assert old.neighbours is None
    assert len(neighbours.of_run(old, data=str(moved))) == 32


def normal(*shape: int) -> Floats:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_fit_and_record_compare_too(tmp_path: Path) -> None:
    x = normal(30, 4)
    x[20] = x[10]
    y = np.arange(30) % 3
    fitted = proselflc.fit(x, y, epochs=1, quiet=True)
    found = neighbours.examination(fitted)
    assert found is not None
    assert set(np.flatnonzero(found.conflicting)) == {10, 20}
    with proselflc.record(30, 3, out=tmp_path / "run", labels=y, inputs=x) as rec:
        for _ in range(4):
            rec(torch.arange(30), 5 * torch.eye(3)[torch.from_numpy(y)])
    found = neighbours.examination(load_run(tmp_path / "run"))
    assert found is not None
    assert set(np.flatnonzero(found.conflicting)) == {10, 20}


def test_many_examples_without_usearch_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "LARGEST_EXACT", 20)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    fitted = proselflc.fit(normal(30, 4), np.arange(30) % 3, epochs=1, quiet=True)
    assert fitted.neighbours is None
    notes = fitted.summary["notes"]
    assert isinstance(notes, list)
    assert notes[0].startswith("duplicates and outliers were not looked for: neighbours among more")
    with pytest.raises(InputError, match="was given in Python"):
        neighbours.of_run(fitted)


def test_folds_do_not_compare(run: Run) -> None:
    proselflc.audit(run, folds=2)
    assert not list(run.directory.folds.rglob("neighbours.npz"))
    assert run.neighbours is not None
