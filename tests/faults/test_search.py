"""A search that is killed, stopped or shared comes to the same end, and no trial is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

OPTIONS = (
    *("search", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--batch-size", 64),
    *("--method", "boot_soft,proselflc", "--space", "epochs=2,3", "lr=0.1"),
    *("epsilon=0.125,0.5", "sharpness=8,16"),
)
TRIALS = 6
ALWAYS = ("--checkpoint-seconds", 0)
RESUME = ("--resume", "--checkpoint-seconds", 60)  # saving at every step takes most of the time


@pytest.fixture(scope="module")
def whole(program: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a search finds that nobody disturbs."""
    out = tmp_path_factory.mktemp("whole") / "study"
    program(*OPTIONS, "--out", out)
    return result(out)


def result(study: Path) -> dict[str, Any]:
    """What was chosen, by what, and with which runs; not where and how long it took."""
    summary: dict[str, Any] = json.loads((study / "summary.json").read_text())
    for one in summary["chosen"].values():
        one["run"] = Path(one["run"]).name
        del one["config"]
    for stage in summary["stages"]:
        for trial in stage["trials"]:
            del trial["seconds"]
    for place in ("study", "config", "report"):
        del summary[place]
    return summary


def over(study: Path) -> int:
    """Return how many trials the journal says are over; one that was left has failed instead."""
    journal = study / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True) if journal.is_file() else []
    told = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return sum(one["op_code"] == 6 and one.get("state") in (1, 2) for one in told)


def said(stderr: str) -> list[str]:
    """Which trials a process has done."""
    return re.findall(r"^(.*: trial \d+ of \d+)", stderr, re.M)


def is_training(study: Path) -> bool:
    """Whether some run has begun and is not finished."""
    runs = study / "runs"
    begun = list(runs.glob("*/checkpoints/*.safetensors")) if runs.is_dir() else []
    return any(not (one.parents[1] / "summary.json").exists() for one in begun)


@pytest.mark.parametrize(
    ("number", "after"),
    [(signal.SIGKILL, (0, 3)), (signal.SIGTERM, (4,)), (signal.SIGINT, (1,))],
)
def test_it_goes_on_where_it_was(
    program: Any, whole: dict[str, Any], tmp_path: Path, number: int, after: tuple[int, ...]
) -> None:
    out = tmp_path / "study"
    lines: list[str] = []
    for count in after:
        options = ("search", "--resume") if (out / "study.toml").exists() else OPTIONS
        running = program.start(*options, *ALWAYS, "--out", out)
        running.until(lambda wanted=count: over(out) >= wanted and is_training(out))
        running.send(number)
        done = running.wait()
        lines += said(done.stderr)
        if number == signal.SIGKILL:
            assert done.code == -9
        else:
            assert done.code == 130
            resume = f": proselflc search --out {out} --resume"
            assert done.stderr.splitlines()[-1].endswith(resume)
        assert not (out / "summary.json").exists()
    lines += said(program("search", "--out", out, *RESUME).stderr)
    assert result(out) == whole
    assert over(out) == TRIALS
    assert len(set(lines)) == len(lines)  # no trial was done twice
    assert len(lines) >= TRIALS - len(after)  # one that ends with its process could not say so


def test_two_processes_share_a_study(program: Any, whole: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "study"
    first = program.start(*OPTIONS, *ALWAYS, "--out", out)
    first.until(lambda: (out / "study.toml").exists())
    second = program.start("search", "--out", out, "--resume")
    ends = [one.wait() for one in (first, second)]
    assert [one.code for one in ends] == [0, 0]
    lines = [said(one.stderr) for one in ends]
    assert sorted(lines[0] + lines[1]) == sorted(set(lines[0] + lines[1]))
    assert len(lines[0]) + len(lines[1]) == TRIALS
    assert lines[1]  # the second had something to do
    assert result(out) == whole


def test_a_process_that_is_killed_leaves_its_trial_to_the_other(
    program: Any, whole: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "study"
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    first = program.start(*OPTIONS, *ALWAYS, "--out", out, "--storage", url)
    first.until(lambda: is_training(out))
    second = program.start("search", "--out", out, "--resume", "--storage", url)
    second.until(lambda: len(list((out / "runs").glob("*/config.toml"))) >= 2)
    assert not (out / "journal.log").exists()
    first.send(signal.SIGKILL)
    assert first.wait().code == -9
    assert second.wait().code == 0
    assert result(out) == whole


def test_workers_end_with_the_process_that_started_them(
    program: Any, whole: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "study"
    running = program.start(*OPTIONS, *ALWAYS, "--out", out, "--jobs", 2)
    running.until(lambda: is_training(out))
    workers = children(running.pid)
    assert len(workers) == 1
    running.send(signal.SIGKILL)
    assert running.wait().code == -9
    deadline = time.monotonic() + 60
    while any(is_alive(one) for one in workers):
        assert time.monotonic() < deadline, "a worker goes on without its parent"
        time.sleep(0.05)
    done = program("search", "--out", out, *RESUME, "--jobs", 2)
    assert result(out) == whole
    assert over(out) == TRIALS
    assert "Traceback" not in done.stderr


def children(pid: int) -> list[int]:
    """The processes that a process has started with Python's multiprocessing."""
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "spawn_main" in line]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return bool(state.strip()) and not state.startswith("Z")
