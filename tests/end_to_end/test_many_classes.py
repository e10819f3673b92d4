"""Training, audit, export, report and prediction make nothing of examples × classes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from proselflc.auditing import nearest
from proselflc.cli.app import run as command
from proselflc.data import memory_budget
from proselflc.errors import InputError
from proselflc.methods import joint
from proselflc.run.reader import load_run
from proselflc.training import observations, prediction_memory

N, C, M, BATCH = 2200, 2001, 300, 110
SMALLER = N * C // 4  # numbers that nothing may have


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        found = func(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
        return found


@contextmanager
def nothing_large() -> Iterator[None]:
    """Refuse tensors, and arrays of numpy, with a number per example and class."""
    tracemalloc.start()
    try:
        with Watch() as watch:
            yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert watch.largest < SMALLER
    assert peak < 4 * N * C  # float32; with all else, and a checkpoint as bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    generator = np.random.default_rng(0)
    centres = 3 * generator.normal(size=(C, 4)).astype(np.float32)
    y, y_test = np.arange(N) % C, generator.integers(0, C, M)
    np.savez(folder / "data.npz", x=centres[y], y=y, x_test=centres[y_test], y_test=y_test)
    return folder


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "DENSE_NUMBERS", 10**5)
    monkeypatch.setattr(observations, "LARGEST", 10**5)
    monkeypatch.setattr(nearest, "_PRODUCTS", 10**5)


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    train(folder, "run")
    return folder / "run"


def train(folder: Path, name: str, *options: str) -> None:
    arguments = ["train", "--data", str(folder / "data.npz"), "--out", str(folder / name)]
    arguments += ["--noise", "symmetric:0.2", "--epochs", "3", "--eval-epochs", "3"]
    arguments += ["--batch-size", str(BATCH), "--model", "mlp", "--quiet", *options]
    assert command(arguments) == 0


def test_training_and_what_follows_make_nothing_of_examples_by_classes(
    folder: Path, run: Path, small_budget: None
) -> None:
    assert command(["audit", str(run)]) == 0  # what is imported then is not counted later
    with nothing_large():
        train(folder, "again")
    with nothing_large():
        assert command(["audit", str(folder / "again")]) == 0
    with nothing_large():
        words = ["export", str(folder / "again"), "--out", str(folder / "x.npz"), "--soft"]
        assert command([*words, "--force"]) == 0
    # Logits in a file, or in memory: the measures are the same to the last digit.
    ours, theirs = (load_run(folder / name) for name in ("again", "run"))
    assert ours.evaluation == theirs.evaluation
    assert ours.history[-1]["test_accuracy"] == theirs.history[-1]["test_accuracy"]
    assert ours.examples["quality"].equals(theirs.examples["quality"])
    assert ours.recent("p").shape == (N, 5)
    assert theirs.recent("p").shape == (N, C)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("elr", "a mean prediction of every example as the 5 largest classes"),
        ("sat", "a label of every example as the 5 largest classes"),
        ("joint_soft", "10 predictions and a label of every example as the 5 largest classes"),
    ],
)
def test_a_method_that_remembers_keeps_the_largest_classes(
    folder: Path,
    small_budget: None,
    method: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(prediction_memory, "COPIES", 100)
    monkeypatch.setattr(memory_budget, "LIMIT", 220 * 10**6)  # and a hundredth for the memory
    monkeypatch.setattr(joint, "NUMBERS", 10**5)
    out = folder / method
    arguments = ["train", "--data", str(folder / "data.npz"), "--out", str(out), "--epochs", "3"]
    arguments += ["--model", "mlp", "--method", method, "--batch-size", str(BATCH)]
    with nothing_large():
        assert command(arguments) == 0
    assert capsys.readouterr().err.count(words) == 1
    assert load_run(out).summary["steps"] == 60


def test_every_format_is_exported(folder: Path, run: Path) -> None:
    for name, options in (
        ("labels.csv", ["--soft"]),
        ("labels.parquet", ["--soft"]),
        ("labels.npz", ["--soft"]),
        ("issues.csv", ["--format", "cleanlab"]),
    ):
        assert command(["export", str(run), "--out", str(folder / name), "--force", *options]) == 0
        assert (folder / name).stat().st_size < 1e6
    table = pq.read_table(folder / "labels.parquet")
    assert len(table) == N
    assert table.column_names[-2:] == ["label_5", "p_5"]
    with np.load(folder / "labels.npz") as file:
        assert file["probabilities"].shape == file["classes"].shape == (N, 5)


def test_the_page_is_small_and_made_of_cells(run: Path) -> None:
    assert command(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert len(page) < 1.5e6
    assert "2001 classes" in page


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_predictions_are_streamed(
    folder: Path, run: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["predict", str(run), "--data", str(folder / "data.npz"), "--split", "all"]
    assert command([*arguments, "--out", str(folder / f"whole{suffix}")]) == 0
    monkeypatch.setattr(memory_budget, "DENSE_NUMBERS", 10**5)
    with Watch() as watch:
        assert command([*arguments, "--out", str(folder / f"streamed{suffix}")]) == 0
    assert watch.largest <= 512 * C
    whole, streamed = (folder / f"{name}{suffix}" for name in ("whole", "streamed"))
    if suffix == ".csv":
        assert streamed.read_bytes() == whole.read_bytes()
        return
    with np.load(whole) as one, np.load(streamed) as other:
        assert set(one) == set(other)
        for name in one:
            np.testing.assert_array_equal(other[name], one[name])


def test_a_prediction_that_does_not_fit_is_refused_with_its_size(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "LIMIT", 4 * 100 * C)
    loaded = load_run(run)
    assert loaded.predict(np.zeros((100, 4), np.float32)).probabilities.shape == (100, C)
    with pytest.raises(InputError) as caught:
        loaded.predict(np.zeros((101, 4), np.float32))
    assert "101 examples of 2,001 classes needs 0.00081 GB of memory" in caught.value.reason
    assert "fewer examples" in str(caught.value)


@pytest.mark.parametrize(
    ("method", "limit", "words"),
    [
        ("forward", 4 * N * C + 40 * C * C, "looks at predictions for 2,200 examples"),
        ("backward", 4 * N * C + 80 * C * C, "looks at predictions for 2,200 examples"),
        ("s_adaptation", 64 * C * C, "matrices of these classes"),
        ("proselflc_auto", 32 * C * C, "keeps a transition matrix of 2,001 classes"),
        ("cce", 48 * 512 * C, "a batch of 512 examples with logits of 2,001 classes"),
    ],
)
def test_a_method_that_does_not_fit_is_refused_before_it_begins(
    folder: Path,
    method: str,
    limit: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(memory_budget, "LIMIT", limit - 1)
    arguments = ["train", "--data", str(folder / "data.npz"), "--method", method]
    with Watch() as watch:
        assert command([*arguments, "--epochs", "4", "--out", str(folder / method)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert f"needs {memory_budget.gigabytes(limit)} of memory" in error
    assert "--method" in error or "--batch-size" in error
    assert not (folder / method).exists()
    assert watch.largest < SMALLER


def test_noise_that_compares_all_pairs_of_classes_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory_budget, "LIMIT", 10**6)
    arguments = ["noise", "--data", str(folder / "data.npz"), "--kind", "confusable_pairs:0.2"]
    assert command([*arguments, "--out", str(folder / "noisy.npz")]) == 2
    assert "among all pairs of 2,001 needs 0.064 GB of memory" in capsys.readouterr().err
