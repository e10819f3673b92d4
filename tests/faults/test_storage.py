"""Directories that cannot be written, disks that are full, numbers that are none."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from proselflc.cli import app as cli
from proselflc.run import resumption

DIGITS = ("train", "--data", "digits", "--model", "mlp", "--epochs", "3")


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    return text


def refused(capfd: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    """The one line that the command leaves with."""
    assert cli.run([*DIGITS, "--quiet", *map(str, arguments)]) == code
    out, err = capfd.readouterr()
    assert out == ""
    return one_line(err)


@pytest.mark.parametrize("place", ["file", "file/run", "/proc/run"])
def test_a_place_that_cannot_be_written(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("mine")
    text = refused(capfd, "--out", tmp_path / place)
    assert text.startswith(f"cannot write to {tmp_path / place}: ")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_no_run_is_left_alone(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "labels.npz").write_text("mine")
    (tmp_path / "checkpoints").mkdir()
    assert "holds checkpoints but is not a run" in refused(capfd, "--out", tmp_path)
    assert (tmp_path / "labels.npz").read_text() == "mine"
    assert cli.run([*DIGITS, "--quiet", "--out", str(tmp_path), "--overwrite"]) == 0


def test_overwriting_replaces_the_run_and_nothing_else(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = ("--out", tmp_path, "--method", "cce", "--json")
    assert cli.run([*DIGITS, *map(str, first)]) == 0
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (tmp_path / "report.html").write_text("of the old run")
    capfd.readouterr()
    assert "holds a finished run: pass --overwrite to replace it" in refused(capfd, *first)
    assert cli.run([*DIGITS, "--quiet", "--out", str(tmp_path), "--overwrite", "--steps=2"]) == 2
    assert json.loads((tmp_path / "summary.json").read_text())["method"] == "cce"
    second = ("train", "--data", "digits", "--model", "mlp", "--steps", "2", "--quiet")
    assert cli.run([*second, "--out", str(tmp_path), "--overwrite"]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 2
    assert mine.read_text() == "mine"
    assert not (tmp_path / "report.html").exists()
    assert [path.name for path in sorted((tmp_path / "dynamics").iterdir())] == [
        "epoch-00000.npy",
        "recent_p.npy",
        "recent_target.npy",
    ]


def test_a_mistake_leaves_no_directory_behind(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "unknown method" in refused(capfd, "--out", tmp_path / "run", "--method", "nonsense")
    assert not (tmp_path / "run").exists()
    (tmp_path / "there").mkdir()
    refused(capfd, "--out", tmp_path / "there", "--method", "nonsense")
    assert (tmp_path / "there").is_dir()


def test_a_run_that_is_not_there_is_not_begun_by_going_on_with_it(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A mistyped --out would train the default data."""
    out = tmp_path / "mistyped"
    assert cli.run(["train", "--out", str(out), "--resume", "--quiet"]) == 2
    assert one_line(capfd.readouterr().err) == (
        f"there is no run {out}: proselflc train makes one; to start one that can be resumed, add "
        "--data\n"
    )
    assert not out.exists()
    assert cli.run([*DIGITS, "--out", str(out), "--resume", "--quiet"]) == 0  # as in a script
    assert (out / "summary.json").exists()


def test_a_run_that_cannot_fit_is_refused_before_it_replaces_another(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.run([*DIGITS, "--quiet", "--out", str(tmp_path)]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    class Usage:
        free = 10_000

    monkeypatch.setattr("proselflc.run.resumption.shutil.disk_usage", lambda path: Usage())
    text = refused(capfd, "--out", tmp_path, "--overwrite")
    assert text.startswith("the run needs about ")
    assert "0 MB left: free some space, or choose another --out" in text
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of two megabytes, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    # Lazily, because a file that is still open must not leave the mount behind.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_fills_up(
    capfd: pytest.CaptureFixture[str],
    small_disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resumption, "check_disk_space", lambda *_: None)
    filling = small_disk / "filling"
    filling.write_bytes(bytes(1_400_000))
    out, options = small_disk / "run", ("--checkpoint-seconds", "0", "--epochs", "30")
    train = (*DIGITS[:-2], *options, "--quiet")
    assert cli.run([*train, "--out", str(out)]) in (1, 2)
    assert "No space left on device" in one_line(capfd.readouterr().err)
    history = (out / "history.jsonl").read_text()
    assert list((out / "checkpoints").glob("*.safetensors"))
    assert not list(out.rglob("*.part"))
    filling.unlink()
    assert cli.run(["train", "--out", str(out), "--resume", "--quiet"]) == 0
    assert (out / "history.jsonl").read_text().startswith(history.splitlines()[0])
    assert cli.run([*train, "--out", str(tmp_path / "other")]) == 0
    assert (out / "model.safetensors").read_bytes() == (
        tmp_path / "other" / "model.safetensors"
    ).read_bytes()


def test_files_that_may_not_grow(program: Any, tmp_path: Path) -> None:
    """A quota, as a limit on the size of files has it: the first checkpoint does not fit."""
    out = tmp_path / "run"
    done = program.start(*DIGITS, "--out", out, "--quiet", largest_file=100_000).wait()
    assert done.code in (1, 2)
    assert one_line(done.stderr).startswith(f"cannot write {out}/checkpoints/")
    assert not list(out.rglob("*.part"))
    program("train", "--out", out, "--resume", "--quiet")
    assert (out / "summary.json").is_file()


@pytest.mark.parametrize("file", ["epoch-00002.npy", "recent_p.npy", "examples.parquet"])
def test_no_space_for_any_one_file(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
) -> None:
    rename = os.replace

    def full(source: Path, target: Path) -> None:
        if target.name == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr("proselflc.files.regular.os.replace", full)
    assert "No space left on device" in refused(capfd, "--out", tmp_path / "run")
    monkeypatch.undo()
    assert not (tmp_path / "run" / "summary.json").exists()
    assert cli.run(["train", "--out", str(tmp_path / "run"), "--resume", "--quiet"]) == 0


@pytest.mark.parametrize("save", ["0", "60"])
def test_a_loss_that_is_no_number_leaves_the_last_good_state(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, save: str
) -> None:
    options = ("--lr", "1e8", "--checkpoint-seconds", save, "--out", tmp_path)
    text = refused(capfd, *options, code=1)
    assert text.startswith("the loss of step ")
    assert "try a lower --lr" in text
    states = sorted((tmp_path / "checkpoints").iterdir())
    for path in states:
        assert all(
            bool(tensor.isfinite().all())
            for name, tensor in load_file(path).items()
            if name.startswith("model.")
        )
    step = int(text.split()[4])
    assert int(states[-1].name[:10]) == step - 1
    assert not (tmp_path / "summary.json").exists()


def test_weights_that_are_no_numbers_are_never_saved(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proselflc.training.recipe.LARGEST", 1e300)  # a recipe would refuse it
    options = ("--lr", "1e38", "--weight-decay", "1e10", "--checkpoint-seconds", "0")
    text = refused(capfd, *options, "--out", tmp_path / "run", code=1)
    assert text.startswith("the loss of step 2 is nan at learning rate 1e+38")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_model_that_is_no_number_after_the_last_step_is_not_a_result(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ("--data", "digits", "--model", "mlp", "--steps", "1", "--lr", "1e30", "--quiet")
    for way in ((), ("--resume",)):
        assert cli.run(["train", *options, "--out", str(tmp_path / "run"), *way]) == 1
        assert (
            capfd.readouterr()
            .err.splitlines()[-1]
            .startswith("the model's outputs are not finite after step 1: try a lower --lr")
        )
    assert not (tmp_path / "run" / "summary.json").exists()
