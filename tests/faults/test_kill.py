"""A run that is killed, stopped or damaged goes on as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

# 31 batches an epoch, the last of them uneven; an evaluation point falls between epochs too.
OPTIONS = (
    *("train", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp"),
    *("--epochs", 8, "--batch-size", 42, "--eval-steps", 50),
)
ALWAYS = ("--checkpoint-seconds", 0)
RESUME = ("--resume", "--checkpoint-seconds", 60)  # saving at every step takes most of the time


def states(run: Path) -> list[Path]:
    folder = run / "checkpoints"
    return sorted(folder.glob("*.safetensors")) if folder.is_dir() else []


def last_step(run: Path) -> int:
    return max((int(path.name[:10]) for path in states(run)), default=0)


@pytest.fixture(scope="session")
def whole(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    program(*OPTIONS, "--out", out)
    return out


@pytest.fixture
def killed(program: Any, tmp_path: Path) -> Path:
    """A run that was killed after step 70."""
    out = tmp_path / "run"
    running = program.start(*OPTIONS, *ALWAYS, "--out", out)
    running.until(lambda: last_step(out) >= 70)
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    assert not (out / "summary.json").exists()
    return out


def test_killed_at_random_moments_it_ends_with_the_same_bits(
    assert_same: Any, program: Any, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    generator = np.random.default_rng(time.time_ns())
    kills = 0
    for least in sorted(generator.integers(1, 230, 5)):
        running = program.start(*OPTIONS, "--out", out, *ALWAYS, "--resume")
        while last_step(out) < least and not running.ended():
            time.sleep(0.001)
        running.send(signal.SIGKILL)
        kills += running.wait().code == -signal.SIGKILL
    done = program(*OPTIONS, "--out", out, *RESUME)
    assert kills > 0
    assert "resuming after step" in done.stderr or "is finished" in done.stderr
    assert_same(out, whole)
    assert not list(out.rglob("*.part"))


def test_killed_between_evaluation_points_the_mean_loss_is_of_all_steps(
    assert_same: Any, program: Any, whole: Path, killed: Path
) -> None:
    program("train", "--out", killed, *RESUME)
    assert_same(killed, whole)


def test_killed_before_the_summary_it_only_finishes(
    assert_same: Any, program: Any, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    running = program.start(*OPTIONS, *ALWAYS, "--out", out)
    running.until(lambda: last_step(out) == 248)
    running.send(signal.SIGKILL)
    if running.wait().code == 0:  # too late: as if it had not come so far
        for name in ("summary.json", "evaluation.json", "examples.parquet", "model.safetensors"):
            (out / name).unlink()
    program("train", "--out", out, *RESUME)
    assert_same(out, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_by_a_signal_it_says_how_to_go_on(
    assert_same: Any, program: Any, whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "my run"
    running = program.start(*OPTIONS, "--out", out)  # no state is saved but because of the stop
    running.until(lambda: (out / "dynamics" / "epoch-00001.npy").exists())
    running.send(number)
    done = running.wait()
    assert done.code == 130
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].endswith(f"proselflc train --out '{out}' --resume")
    assert len(states(out)) == 1
    resumed = program("train", "--out", out, *RESUME)
    assert f"resuming after step {last_step(out)} " not in resumed.stderr  # it went further
    assert_same(out, whole)


def test_stopped_with_the_processes_that_read_images(program: Any, tmp_path: Path) -> None:
    """As `timeout` and batch systems do it: SIGTERM to all processes of the run."""
    for k in range(24):
        folder = tmp_path / "photos" / f"class {k % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(k).integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{k}.png")
    out = tmp_path / "run"
    options = ("--backbone", "none", "--batch-size", 8, "--epochs", 4000, *ALWAYS)
    running = program.start("train", "--data", tmp_path / "photos", *options, "--out", out)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    running.until(lambda: last_step(out) > 5 and len(children.read_text().split()) > 0)
    running.send(signal.SIGTERM)
    for child in children.read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGTERM)
    done = running.wait()
    assert done.code == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(f"proselflc train --out {out} --resume")


def test_a_finished_run_has_nothing_to_resume(program: Any, whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    done = program("train", "--out", whole, "--resume", "--json")
    assert done.stderr == f"note: the run {whole} is finished: there is nothing to resume\n"
    assert json.loads(done.stdout)["run"] == str(whole)
    assert before.keys() == {path for path in whole.rglob("*") if path.is_file()}
    assert all(path.stat().st_mtime_ns == time for path, time in before.items() if path.suffix)


def test_without_a_checkpoint_it_starts_afresh(
    assert_same: Any, program: Any, whole: Path, killed: Path
) -> None:
    for path in states(killed):
        path.unlink()
    done = program("train", "--out", killed, *RESUME)
    assert "going on" not in done.stderr
    assert_same(killed, whole)


def test_where_there_is_nothing_resume_starts(
    assert_same: Any, program: Any, whole: Path, tmp_path: Path
) -> None:
    program(*OPTIONS, "--out", tmp_path / "run", *RESUME, "--quiet")
    assert_same(tmp_path / "run", whole)


@pytest.mark.parametrize("harm", ["a byte", "the end", "all of it"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    assert_same: Any, program: Any, whole: Path, killed: Path, harm: str
) -> None:
    *_, before, newest = states(killed)  # three, if the kill came before the oldest was removed
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    left = {"a byte": len(content), "the end": len(content) // 2, "all of it": 0}[harm]
    newest.write_bytes(content[:left])
    done = program("train", "--out", killed, *RESUME)
    assert f"note: the checkpoint {newest.name} is damaged and is not used" in done.stderr
    assert f"resuming after step {int(before.name[:10])} of 248" in done.stderr
    assert_same(killed, whole)


def test_with_both_checkpoints_damaged_nothing_is_removed(program: Any, killed: Path) -> None:
    """Whatever else the run has recorded may still be wanted."""
    for path in states(killed):
        path.write_bytes(path.read_bytes()[:-1])
    before = sorted(path for path in killed.rglob("*") if path.is_file())
    done = program("train", "--out", killed, *RESUME, code=2)
    assert done.stderr.count("\n") == 1
    assert "again with --overwrite" in done.stderr
    assert sorted(path for path in killed.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("lost", ["epoch", "run"])
def test_a_state_without_its_records_or_of_another_run_is_not_resumed(
    program: Any, whole: Path, killed: Path, lost: str
) -> None:
    if lost == "epoch":
        sorted((killed / "dynamics").glob("epoch-*.npy"))[0].unlink()
    else:
        other = killed.parent / "other"
        program(*OPTIONS, "--seed", 5, "--out", other)
        shutil.rmtree(killed / "checkpoints")
        shutil.copytree(other / "checkpoints", killed / "checkpoints")
    done = program("train", "--out", killed, *RESUME, code=2)
    assert ("epoch-00000.npy is missing" in done.stderr) == (lost == "epoch")
    assert ("belongs to another run" in done.stderr) == (lost == "run")


def test_what_a_kill_left_half_written_is_swept_away(
    assert_same: Any, program: Any, whole: Path, killed: Path
) -> None:
    halves = [folder / f".{'0' * 16}.part" for folder in (killed, killed / "checkpoints")]
    for half in halves:
        half.write_bytes(b"half")
    kept = killed / "notes.part"
    kept.write_text("mine")
    program("train", "--out", killed, *RESUME)
    assert not any(half.exists() for half in halves)
    assert kept.read_text() == "mine"
    assert_same(killed, whole)


def test_history_beyond_the_checkpoint_is_dropped(
    assert_same: Any, program: Any, whole: Path, killed: Path
) -> None:
    own, lines = ((run / "history.jsonl").read_text().splitlines() for run in (killed, whole))
    (killed / "history.jsonl").write_text("\n".join([*own[:1], *lines[3:]]) + "\n")
    program("train", "--out", killed, *RESUME)
    assert_same(killed, whole)


def test_other_options_are_refused_by_name(program: Any, killed: Path) -> None:
    before = {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()}
    done = program(
        "train", "--out", killed, "--resume", "--lr", 0.3, "--method.sharpness=4", code=2
    )
    assert done.stderr.count("\n") == 1
    assert "lr (0.05 there, 0.3 now)" in done.stderr
    assert "method.sharpness (10.0 there, 4.0 now)" in done.stderr
    assert before == {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()}


def test_where_the_data_lies_may_change(
    assert_same: Any, program: Any, whole: Path, killed: Path
) -> None:
    options = ("--data-root", "/nowhere", "--workers", 0)
    program("train", "--out", killed, *RESUME, *options)
    assert_same(killed, whole)


@pytest.mark.parametrize("changed", ["x", "y"])
def test_changed_data_is_refused(program: Any, tmp_path: Path, changed: str) -> None:
    generator = np.random.default_rng(0)
    data: dict[str, Any] = {"x": generator.normal(size=(60, 3)), "y": np.arange(60) % 3}
    np.savez(tmp_path / "data.npz", **data)
    out = tmp_path / "run"
    train = ("train", "--data", tmp_path / "data.npz", "--model", "mlp", "--steps", 100_000)
    running = program.start(*train, "--out", out, "--checkpoint-seconds", 0)
    running.until(lambda: last_step(out) > 0)
    running.send(signal.SIGTERM)
    assert running.wait().code == 130
    data[changed] = data[changed][::-1] * (2 if changed == "x" else 1)
    np.savez(tmp_path / "data.npz", **data)
    done = program("train", "--out", out, "--resume", code=2)
    assert done.stderr.count("\n") == 1
    assert "has the data changed?" in done.stderr


def test_a_run_in_use_is_locked(program: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    running = program.start(*OPTIONS, *ALWAYS, "--out", out)
    running.until(lambda: last_step(out) > 0)
    for option in ("--resume", "--overwrite"):
        done = program(*OPTIONS, "--out", out, option, code=2)
        assert "is in use by another process" in done.stderr
        assert done.stderr.count("\n") == 1
    running.send(signal.SIGKILL)
    running.wait()
    program(*OPTIONS, "--out", out, *RESUME)  # the lock went with its owner


def test_an_unfinished_run_is_not_replaced_without_being_asked(program: Any, killed: Path) -> None:
    done = program(*OPTIONS, "--out", killed, code=2)
    assert "holds an unfinished run: pass --resume" in done.stderr
    assert done.stderr.count("\n") == 1
