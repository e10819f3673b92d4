"""Folds that are killed, stopped or damaged go on as if nothing had happened."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.run.reader import load_run

FOLDS = ("p.npy", "folds.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, program: Any) -> Path:
    """A run whose folds save their state after every step: 14 batches of 64 in each."""
    out = tmp_path_factory.mktemp("folds") / "run"
    program(
        *("train", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--quiet"),
        *("--epochs", 6, "--batch-size", 64, "--checkpoint-seconds", 0, "--out", out),
    )
    shutil.rmtree(out / "checkpoints")
    return out


@pytest.fixture(scope="module")
def whole(trained: Path, program: Any) -> Path:
    """The same with folds that nobody disturbed."""
    out = trained.parent / "whole"
    shutil.copytree(trained, out)
    program("audit", out, "--folds", 3, "--quiet")
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "my run"))


def last_step(run: Path, fold: str) -> int:
    states = (run / "folds" / fold / "checkpoints").glob("*.safetensors")
    return max((int(path.name[:10]) for path in states), default=0)


def assert_same(run: Path, whole: Path) -> None:
    for name in FOLDS:
        assert (run / "folds" / name).read_bytes() == (whole / "folds" / name).read_bytes(), name
    for name in ("examples.parquet", "audit.json"):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list(run.rglob("*.part"))
    assert not list(run.rglob("checkpoints"))


def killed(program: Any, run: Path, fold: str, step: int) -> None:
    """Kill the audit when it has come so far."""
    running = program.start("audit", run, "--folds", 3)
    running.until(lambda: last_step(run, fold) >= step)
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    assert not (run / "folds" / "folds.json").exists()


def test_killed_within_folds_it_ends_with_the_same_bytes(
    program: Any, run: Path, whole: Path
) -> None:
    before = (run / "examples.parquet").read_bytes()
    killed(program, run, "3-1", 20)
    assert (run / "examples.parquet").read_bytes() == before
    assert load_run(run).records.held_out is None  # half of the folds are no folds
    killed(program, run, "3-2", 50)
    first = (run / "folds/3-1/model.safetensors").stat().st_mtime_ns
    done = program("audit", run, "--folds", 3)
    assert "resuming after step" in done.stderr
    assert (run / "folds/3-1/model.safetensors").stat().st_mtime_ns == first
    assert_same(run, whole)


def test_killed_when_all_is_trained_it_only_puts_together(
    program: Any, run: Path, whole: Path
) -> None:
    shutil.copytree(whole / "folds", run / "folds")
    (run / "folds" / "folds.json").unlink()
    half = run / "folds" / "3-2" / f".{'0' * 16}.part"
    half.write_bytes(b"half")
    (run / "folds" / "p.npy").write_bytes(b"of other folds")
    done = program("audit", run, "--folds", 3)
    assert done.stderr == ""
    assert_same(run, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_by_a_signal_it_says_how_to_go_on(
    program: Any, run: Path, whole: Path, number: signal.Signals
) -> None:
    running = program.start("audit", run, "--folds", 3, "--data", "digits")
    running.until(lambda: last_step(run, "3-2") >= 10)
    running.send(number)
    done = running.wait()
    assert done.code == 130
    assert done.stdout == ""
    command = f"proselflc audit '{run}' --folds 3 --data digits"
    assert done.stderr.splitlines()[-1].endswith(f"finished work is kept, continue with: {command}")
    assert last_step(run, "3-2") >= 10
    program("audit", run, "--folds", 3)
    assert_same(run, whole)


def test_a_fold_whose_states_are_damaged_begins_anew(program: Any, run: Path, whole: Path) -> None:
    killed(program, run, "3-2", 30)
    for path in (run / "folds/3-2/checkpoints").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    done = program("audit", run, "--folds", 3)
    assert "3-2 cannot be resumed" in done.stderr
    assert_same(run, whole)


def test_a_fold_that_cannot_go_on_loses_nothing(program: Any, run: Path, whole: Path) -> None:
    killed(program, run, "3-2", 30)
    lost = run / "folds/3-2/dynamics/epoch-00000.npy"
    lost.rename(run / "kept.npy")
    before = sorted(p for p in (run / "folds/3-2").rglob("*") if p.suffix != ".part")
    done = program("audit", run, "--folds", 3, code=2)
    assert "dynamics/epoch-00000.npy is missing, though the run wrote it" in done.stderr
    assert f"remove {run / 'folds/3-2'} to train this fold again" in done.stderr
    assert done.stderr.splitlines()[-1:] == done.stderr.splitlines()
    assert sorted((run / "folds/3-2").rglob("*")) == before
    (run / "kept.npy").rename(lost)
    program("audit", run, "--folds", 3)
    assert_same(run, whole)


def test_folds_in_the_making_are_locked(program: Any, run: Path) -> None:
    running = program.start("audit", run, "--folds", 3)
    running.until(lambda: last_step(run, "3-1") >= 5)
    for options in (("--folds", 3), ("--folds", 2), ()):
        done = program("audit", run, *options, code=2)
        assert "is in use by another process" in done.stderr
        assert done.stderr.count("\n") == 1
    done = program("train", "--data", "digits", "--out", run, "--overwrite", code=2)
    assert "is in use by another process" in done.stderr
    running.send(signal.SIGKILL)
    running.wait()


def test_a_full_disk_leaves_nothing_half_done(program: Any, run: Path, whole: Path) -> None:
    """The predictions of all folds are the largest file here that is written after training."""
    shutil.copytree(whole / "folds", run / "folds")
    for name in FOLDS:
        (run / "folds" / name).unlink()
    p = np.load(whole / "folds" / "p.npy")
    before = (run / "examples.parquet").read_bytes()
    done = program.start("audit", run, "--folds", 3, largest_file=p.nbytes // 2).wait()
    assert done.code == 2
    assert "p.npy" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (run / "folds" / "p.npy").exists()
    assert (run / "examples.parquet").read_bytes() == before
    program("audit", run, "--folds", 3)
    assert_same(run, whole)
