"""Two processes learn what one learns, and keep the same record of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from proselflc.training import checkpoint

# 1,297 examples in batches of 128: the last batch has 17, which two cannot share equally.
DIGITS = ("train", "--data", "digits", "--noise", "pair:0.4", "--epochs", 4)
FIELDS = ("p_given", "entropy", "p_other", "trust")
TIMES = ("seconds", "images_per_second")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start_two(program: Any, *arguments: object, **how: Any) -> list[Any]:
    """Two processes as torchrun starts them, the main one first."""
    return start_each(program, arguments, arguments, **how)


def start_each(
    program: Any,
    *commands: tuple[object, ...],
    folders: Sequence[Path | None] = (None, None),
    limits: Sequence[str] = ("4", "4"),
) -> list[Any]:
    """A process for each of two commands, in a folder each, the main one first.

    `limits` are the gigabytes that the memory of a method may take.
    """
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common["MASTER_PORT"] = str(free_port())
    return [
        program.start(
            *arguments,
            environment={
                **common,
                **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
                "PROSELFLC_MEMORY_GB": limits[rank],
            },
            folder=folders[rank],
        )
        for rank, arguments in enumerate(commands)
    ]


def run_two(program: Any, *arguments: object) -> list[Any]:
    done = [one.wait() for one in start_two(program, *arguments)]
    assert [one.code for one in done] == [0, 0], done
    return done


def history(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def largest_difference(run: Path, other: Path) -> float:
    one, two = (load_file(path / "model.safetensors") for path in (run, other))
    assert one.keys() == two.keys()
    return max(float(np.abs(one[name] - two[name]).max()) for name in one)


def epochs(run: Path) -> list[Any]:
    return [np.load(path) for path in sorted((run / "dynamics").glob("epoch-*.npy"))]


@pytest.fixture(scope="module")
def runs(program: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same training in one process and in two."""
    folder = tmp_path_factory.mktemp("two")
    one, two = folder / "one", folder / "two"
    program(*DIGITS, "--model", "mlp", "--out", one, "--quiet")
    main, other = run_two(program, *DIGITS, "--model", "mlp", "--out", two)
    assert main.stdout == f"{two}\n"
    assert "in 2 processes" in main.stderr
    assert main.stderr.count("epoch ") == 4
    assert (other.stdout, other.stderr) == ("", "")
    return one, two


def test_two_processes_learn_what_one_learns(runs: tuple[Path, Path]) -> None:
    one, two = runs
    assert largest_difference(one, two) < 1e-6
    assert (one / "labels.npz").read_bytes() == (two / "labels.npz").read_bytes()
    assert (one / "config.toml").read_text() == (two / "config.toml").read_text()
    for line, other in zip(history(one), history(two), strict=True):
        assert line == pytest.approx(other, abs=1e-6)


def test_the_record_is_complete_and_without_duplicates(runs: tuple[Path, Path]) -> None:
    one, two = (epochs(run) for run in runs)
    assert len(one) == len(two) == 4
    for rows, others in zip(one, two, strict=True):
        assert len(rows) == len(others) == 1297
        assert (others["predicted"] < 10).all()  # 65535 would be: not seen
        # The models differ by less than 1e-6: a float16 may be rounded the other way, by 2⁻¹⁰.
        for field in FIELDS:
            np.testing.assert_allclose(
                rows[field].astype(float), others[field].astype(float), rtol=2**-9, atol=1e-6
            )
        assert (rows["predicted"] != others["predicted"]).sum() <= 1
    for name in ("recent_p.npy", "recent_target.npy"):
        mean, other = (np.load(run / "dynamics" / name).astype(float) for run in runs)
        np.testing.assert_allclose(mean, other, rtol=2**-8, atol=1e-4)


def test_with_batch_normalisation_two_processes_learn_nearly_the_same(
    program: Any, tmp_path: Path
) -> None:
    """Each process normalises its own half of the batch, as everywhere in PyTorch.

    Statistics of 64 examples instead of 128 are another estimate of the same numbers, with a
    standard error of some 1/√64 of a standard deviation: no rounding, another training path. What
    must agree is what is learned, so the tolerance is on measures at the end: 0.1 of the loss
    (measured: 0.743 and 0.768) and 0.05 of shares (measured test accuracy: 0.830 and 0.824).
    """
    options = (*DIGITS, "--model", "convnet", "--out")
    program(*options, tmp_path / "one", "--quiet")
    run_two(program, *options, tmp_path / "two", "--quiet")
    one, two = (history(tmp_path / name)[-1] for name in ("one", "two"))
    assert one["train_loss"] == pytest.approx(two["train_loss"], abs=0.1)
    for name in ("test_accuracy", "train_accuracy", "epsilon"):
        assert one[name] == pytest.approx(two[name], abs=0.05)
    assert all((rows["predicted"] < 10).all() for rows in epochs(tmp_path / "two"))


@pytest.mark.parametrize("victim", [0, 1])
def test_one_process_killed_ends_the_job_which_resumes(
    program: Any, runs: tuple[Path, Path], tmp_path: Path, victim: int
) -> None:
    out = tmp_path / "run"
    options = (*DIGITS, "--model", "mlp", "--out", out)
    two = start_two(program, *options, "--checkpoint-seconds", 0)
    two[0].until(lambda: len(list((out / "checkpoints").glob("*.safetensors"))) == 2)
    two[victim].send(signal.SIGKILL)
    ends = [one.wait() for one in two]
    assert ends[victim].code == -signal.SIGKILL
    assert ends[1 - victim].code == 1
    assert "Traceback" not in ends[1 - victim].stderr
    assert not (out / "summary.json").exists()
    main, _ = run_two(program, *options, "--resume")
    assert "resuming after step" in main.stderr
    assert history(out) == history(runs[1])
    assert largest_difference(out, runs[1]) == 0
    for rows, others in zip(epochs(out), epochs(runs[1]), strict=True):
        assert rows.tobytes() == others.tobytes()


@pytest.mark.parametrize("victim", [0, 1])
def test_one_process_killed_the_run_goes_on_in_one(
    program: Any, tmp_path: Path, victim: int
) -> None:
    """Batches of 185 leave 2 of 1,297 examples: one process could learn from them, two cannot."""
    options = (*DIGITS, "--model", "mlp", "--batch-size", 185, "--out")
    whole, out = tmp_path / "whole", tmp_path / "run"
    two = start_two(program, *options, out, "--checkpoint-seconds", 0)
    two[0].until(lambda: len(list((out / "checkpoints").glob("*.safetensors"))) == 2)
    two[victim].send(signal.SIGKILL)
    ends = [one.wait(60) for one in two]
    assert ends[1 - victim].code == 1  # it does not wait for the one that is gone
    done = program("train", "--out", out, "--resume")
    assert "the run was begun in 2 processes and is resumed in 1" in done.stderr
    assert "resuming after step" in done.stderr
    if victim == 0:
        run_two(program, *options, whole)
        assert largest_difference(out, whole) < 1e-6
        assert [line["step"] for line in history(out)] == [7, 14, 21, 28]
        for line, other in zip(history(out), history(whole), strict=True):
            assert line == pytest.approx(other, abs=1e-6)


def test_a_memory_in_two_processes_outlives_one_of_them(program: Any, tmp_path: Path) -> None:
    """Each process remembers its own examples; the checkpoint has them all, for any number."""
    options = (*DIGITS, "--method", "elr", "--model", "mlp", "--out")
    whole, out = tmp_path / "whole", tmp_path / "run"
    two = start_two(program, *options, out, "--checkpoint-seconds", 0)
    two[0].until(lambda: len(list((out / "checkpoints").glob("*.safetensors"))) == 2)
    two[1].send(signal.SIGKILL)
    assert [one.wait(60).code for one in two] == [1, -signal.SIGKILL]
    (path,) = sorted((out / "checkpoints").glob("*.safetensors"))[-1:]
    assert load_file(path)["strategy.memory.rows.average"].shape == (1297, 10)
    run_two(program, "train", "--out", out, "--resume", "--quiet")
    program(*options, whole, "--quiet")
    assert largest_difference(out, whole) < 1e-5
    for line, other in zip(history(out), history(whole), strict=True):
        assert line == pytest.approx(other, abs=1e-5)
    for rows, others in zip(epochs(out), epochs(whole), strict=True):
        found, expected = (some["p_given"].astype(float) for some in (rows, others))
        np.testing.assert_allclose(found, expected, rtol=2**-9, atol=1e-5)


def test_more_processes_than_can_share_a_batch_are_refused(program: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = (*DIGITS, "--model", "mlp", "--batch-size", 185, "--out", out)
    running = program.start(*options, "--checkpoint-seconds", 0)
    running.until(lambda: len(list((out / "checkpoints").glob("*.safetensors"))) == 2)
    running.send(signal.SIGKILL)
    running.wait()
    main, other = (one.wait() for one in start_two(program, "train", "--out", out, "--resume"))
    assert (main.code, other.code) == (2, 2)
    assert main.stderr.splitlines()[-1] == (
        "the last batch of each epoch has 2 examples, which 2 processes cannot share: resume the "
        "run in 1, as it was begun"
    )


def test_one_process_asked_to_stop_stops_both(
    program: Any, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = (*DIGITS, "--model", "mlp", "--out", out)
    two = start_two(program, *options)
    two[0].until((out / "dynamics").exists)
    two[1].send(signal.SIGTERM)
    main, other = (one.wait() for one in two)
    assert (main.code, other.code) == (130, 130)
    assert main.stderr.splitlines()[-1].endswith(f"proselflc train --out {out} --resume")
    assert other.stderr == ""
    run_two(program, "train", "--out", out, "--resume")
    assert largest_difference(out, runs[1]) == 0


LAUNCHERS = {
    "torchrun": ("torch.distributed.run", "--nproc-per-node=2", "--master-port"),
    "accelerate": (
        *("accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"),
        *("--mixed_precision=no", "--dynamo_backend=no", "--main_process_port"),
    ),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers(tmp_path: Path, launcher: str) -> None:
    """The launcher itself: a killed worker ends it with an error, and it says nothing twice."""
    out = tmp_path / "run"
    command = [
        *(sys.executable, "-m", *LAUNCHERS[launcher], str(free_port()), "-m", "proselflc"),
        *("train", "--data", "digits", "--model", "mlp", "--steps", "100000"),
        *("--checkpoint-seconds", "0", "--out", str(out)),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(tmp_path / "log", "w") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        while not list(out.glob("checkpoints/*.safetensors")):
            assert job.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.05)
        workers = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(int(workers[-1]), signal.SIGKILL)
        assert job.wait(timeout=100) != 0
    assert (tmp_path / "log").read_text().count("in 2 processes, into") == 1
    assert not (out / "summary.json").exists()


def test_processes_that_are_not_there_are_missed(program: Any, tmp_path: Path) -> None:
    alone = program.start(
        *(*DIGITS, "--model", "mlp", "--out", tmp_path / "run"), environment={"WORLD_SIZE": "3"}
    ).wait()
    assert alone.code == 2
    assert alone.stderr.count("\n") == 1
    assert alone.stderr.startswith("3 processes were started and ")
    assert "start the same number on every machine with torchrun" in alone.stderr
    assert not (tmp_path / "run").exists()


def test_only_the_main_process_complains(program: Any, tmp_path: Path) -> None:
    options = (*DIGITS, "--model", "mlp", "--out", tmp_path / "run", "--method", "nonsense")
    main, other = (one.wait() for one in start_two(program, *options))
    assert (main.code, other.code) == (2, 2)
    assert main.stderr.count("\n") == 1
    assert other.stderr == ""


SLOW = """
import os, sys, time
from proselflc import terminal
from proselflc.cli.app import main

terminal.TURN = 60.0 if sys.argv.pop(1) == "all" else 0.5
rank = os.environ["RANK"]
if rank == "0":
    time.sleep(3)
    if terminal.TURN == 0.5:
        sys.exit(1)
main()
"""


@pytest.mark.parametrize("who", ["all", "second"])
def test_an_error_is_said_once_whichever_process_has_it_first(tmp_path: Path, who: str) -> None:
    """The launcher ends the others as soon as one ends: the first one must have the time to say it.

    If it has no error, the one that has says it.
    """
    (tmp_path / "slow.py").write_text(SLOW)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
            *("--master-port", str(free_port()), "slow.py", who, "train", "--method", "nonsense"),
        ],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.count('unknown method "nonsense"') == 1, done.stderr


FACTORY = """
import os, torch
from torch import nn

def make(num_classes, shape):
    torch.manual_seed(int(os.environ.get("RANK", "0")))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, num_classes))
"""


@pytest.mark.parametrize("method", ["tf_kd_self", "joint_soft"])
def test_all_begin_with_the_weights_of_the_main_process(
    program: Any, tmp_path: Path, method: str
) -> None:
    """Also the average of the weights, and those that the second stage begins with."""
    (tmp_path / "mine.py").write_text(FACTORY)
    options = (*DIGITS, "--model", "mine:make", "--method", method, "--ema", "0.9", "--out")
    done = program.start(*options, "one", "--quiet", folder=tmp_path).wait()
    assert done.code == 0, done
    folders = (tmp_path, tmp_path)
    both = start_two(program, *options, "two", "--quiet", folders=folders)
    assert [one.wait().code for one in both] == [0, 0], [one.wait() for one in both]
    assert largest_difference(tmp_path / "one", tmp_path / "two") < 1e-5


def refused(both: list[Any]) -> str:
    """Return what the main process says, which the other one does not repeat."""
    main, other = (one.wait() for one in both)
    assert (main.code, other.code) == (2, 2), (main, other)
    assert other.stderr == ""
    assert main.stderr.count("different") == 1
    return str(main.stderr.splitlines()[-1])


def test_processes_with_different_options_are_refused(program: Any, tmp_path: Path) -> None:
    ours = (*DIGITS, "--model", "mlp", "--out", tmp_path / "run")
    theirs = (*ours, "--lr", "0.5")
    assert refused(start_each(program, ours, theirs)) == (
        "processes 0 and 1 were started with different options (lr: 0.05 and 0.5): start all "
        "processes with the same command"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("cells", "what"),
    [(("1.0", "b"), "the labels"), (("9.0", "a"), "the means of the inputs")],
)
def test_processes_that_read_different_data_are_refused(
    program: Any, tmp_path: Path, cells: tuple[str, str], what: str
) -> None:
    folders = tmp_path / "here", tmp_path / "there"
    for folder, (x, y) in zip(folders, (("1.0", "a"), cells), strict=True):
        folder.mkdir()
        rows = [f"{x},{y}", *(f"{k}.5,{'ab'[k % 2]}" for k in range(40))]
        (folder / "table.csv").write_text("\n".join(["x,label", *rows]) + "\n")
    words = ("train", "--data", "table.csv", "--model", "mlp", "--out", tmp_path / "run")
    assert refused(start_two(program, *words, folders=folders)) == (
        f"processes 0 and 1 read different data: {what} are not the same: give all machines the "
        "same files"
    )


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (
            ("4", "0.00015"),
            "processes 0 and 1 have different memory limits, so that the method would keep what it "
            "remembers in different ways: set PROSELFLC_MEMORY_GB to the same number for all "
            "processes",
        ),
        (
            ("0.0001", "0.0001"),
            "the method keeps a mean prediction of 3,000 examples of 4 classes as float16, which "
            "with the copies for a checkpoint needs 0.00011 GB of memory, and the limit is 0.0001 "
            "GB: use fewer examples or classes, or another --method, or raise the limit with "
            "PROSELFLC_MEMORY_GB=1",
        ),
    ],
)
def test_a_memory_that_does_not_fit_is_refused(
    program: Any, tmp_path: Path, limits: tuple[str, str], says: str
) -> None:
    """With its copies, it takes 180 kB in float32, and 108 kB in float16."""
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["x,label", *(f"{k}.5,{'abcd'[k % 4]}" for k in range(3000))]))
    words = ("train", "--data", table, "--model", "mlp", "--method", "elr")
    both = start_two(program, *words, "--out", tmp_path / "run", limits=limits)
    main, other = (one.wait() for one in both)
    assert (main.code, other.code) == (2, 2), (main, other)
    assert main.stderr.splitlines()[-1] == says
    assert other.stderr == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("is_there", "says"),
    [
        (False, "only 1 of 2 processes see the run run: put it where all machines can read it"),
        (
            True,
            "not all processes see the same checkpoint in run: put the run where all machines can "
            "read it, and try again",
        ),
    ],
)
def test_processes_that_see_different_runs_are_refused(
    program: Any, tmp_path: Path, is_there: bool, says: str
) -> None:
    """In one of two folders there is no run, or one with another state after the same step."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    rows = "\n".join(["x,label", *(f"{k}.5,{'ab'[k % 2]}" for k in range(40))])
    (here / "t.csv").write_text(rows + "\n")
    options = ("train", "--data", "t.csv", "--model", "mlp", "--epochs", "1", "--out", "run")
    assert program.start(*options, folder=here).wait().code == 0
    for name in ("summary.json", "manifest.json"):
        (here / "run" / name).unlink()
    shutil.copytree(here, there)
    if is_there:
        checkpoints = there / "run" / "checkpoints"
        state, _ = checkpoint.read_last(checkpoints)
        assert state is not None
        shutil.rmtree(checkpoints)
        checkpoint.write(checkpoints, replace(state, facts={**state.facts, "notes": ["other"]}))
    else:
        shutil.rmtree(there / "run")
    main, other = (
        one.wait() for one in start_two(program, *options, "--resume", folders=(here, there))
    )
    assert (main.code, other.code) == (2, 2), (main, other)
    assert main.stderr.splitlines()[-1] == says
    assert other.stderr == ""
