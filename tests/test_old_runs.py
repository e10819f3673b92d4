"""Runs that version 0.1.0 wrote are read, audited, reported, exported, reviewed and resumed.

`fixtures/runs-of-0.1.0.tar.xz` was made with commit 4a06c7b: one small run of each kind, on a table
of 120 trees. `fixtures/stopped-runs-of-0.1.0.tar.xz` is of the same commit: runs of six epochs of
the methods that have a state of their own, stopped in the fifth, and the weights of whole ones.
"""

from __future__ import annotations

import json
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import proselflc
from proselflc.cli.app import run as command

ARCHIVE = Path(__file__).parent / "fixtures" / "runs-of-0.1.0.tar.xz"
STOPPED = ARCHIVE.with_name("stopped-runs-of-0.1.0.tar.xz")
STATEFUL = (
    *("d2l", "elr", "forward", "gce_truncated", "joint_hard", "m_dyr_h", "m_dyr_s", "md_dyr_sh"),
    *("s_adaptation", "sat", "tf_kd_self"),
)
FINISHED = ("finished", "finished-in-stages", "fitted", "folds", "recorded", "reviewed")
WITH_MODEL = tuple(name for name in FINISHED if name != "recorded")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the table and the old runs, which is the current one."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def succeeds(*words: str) -> None:
    assert command([*words, "--quiet"] if words[0] in ("train", "audit") else list(words)) == 0


@pytest.mark.parametrize("name", FINISHED)
def test_every_file_is_read(folder: Path, name: str) -> None:
    run = proselflc.load_run(folder / name)
    assert len(run.labels.ids) == run.examples.num_rows == 120
    assert run.labels.names in (("ash", "birch", "cedar"), ("0", "1", "2"))
    assert run.summary["label_accuracy_before"] is None
    assert 0 < run.audit.suspects < 60
    assert len(run.history) in (5, 6)
    assert len(list(run.dynamics)) in (5, 6)
    assert len(run.stages) == (2 if name == "finished-in-stages" else 0)
    if name == "reviewed":
        assert {one.example: one.label for one in run.decisions.standing.values()} == {
            "tree-000": "birch",
            "tree-001": None,
        }


@pytest.mark.parametrize("name", FINISHED)
def test_an_audit_that_is_only_read_is_called_old(folder: Path, name: str) -> None:
    run = proselflc.load_run(folder / name)
    assert [one.code for one in run.audit.warnings] == ["older_audit"]
    assert (run.audit.changes, run.audit.noise_low, run.audit.judge) == (None, None, None)
    assert "action" not in run.examples.column_names
    assert not (folder / name / "witness.npz").exists()


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("name", FINISHED)
def test_audited_anew(folder: Path, name: str, reachable: bool) -> None:
    """With a second opinion, if the inputs are there: in the table, or kept in the run."""
    before = proselflc.load_run(folder / name).examples
    if not reachable:
        (folder / "trees.csv").unlink()
    succeeds("audit", name)
    run = proselflc.load_run(folder / name)
    after, audit = run.examples, run.audit
    for column in ("id", "given_label"):
        assert after[column].to_pylist() == before[column].to_pylist()
    assert audit.noise_low is not None
    assert audit.noise_high is not None
    assert audit.noise_low <= audit.estimated_noise_rate <= audit.noise_high
    assert audit.changes is not None
    assert "older_audit" not in [one.code for one in audit.warnings]
    actions = after["action"].to_pylist()
    assert set(actions) <= {"keep", "review", "change"}
    assert actions.count("change") == audit.changes
    assert len(actions) - actions.count("keep") == audit.suspects
    # The data of "fitted" was given in Python, and a recording keeps its own.
    has_second = name == "recorded" or (reachable and name != "fitted")
    assert (folder / name / "witness.npz").exists() == has_second
    # Where there are folds, it says what they predict.
    assert after["witness"].null_count == (0 if has_second or name == "folds" else 120)
    codes = [one.code for one in audit.warnings]
    assert audit.judge is not None
    if has_second:
        forest = "" if name == "recorded" else " and a forest of trees"  # it is for named columns
        assert audit.judge.kind == f"standardised columns{forest}"
        # The ranking is about the same.
        ours, theirs = (np.argsort(np.argsort(t["quality"])) for t in (after, before))
        assert np.corrcoef(ours, theirs)[0, 1] > 0.5
    elif name == "folds":
        assert audit.judge.kind == "2 folds"
    else:
        assert audit.judge.kind is None
        assert {"no_witness", "too_weak"} & set(codes)
        assert audit.changes == 0


@pytest.mark.parametrize("name", FINISHED)
def test_report_and_export(folder: Path, name: str) -> None:
    succeeds("report", name, "--out", "page.html")
    assert "</html>" in (folder / "page.html").read_text(encoding="utf-8")
    succeeds("export", name, "--format", "csv", "--out", "labels.csv")
    assert len((folder / "labels.csv").read_text(encoding="utf-8").splitlines()) == 121


@pytest.mark.parametrize("name", WITH_MODEL)
def test_predict(folder: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    columns = ("id", "label") if name == "fitted" else ("id",)  # that run calls its classes 0, 1, 2
    words = [word for column in columns for word in ("--ignore-column", column)]
    assert command(["predict", name, "--data", "trees.csv", *words, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["examples"] == 120


@pytest.mark.parametrize("name", ["finished", "reviewed", "recorded"])
def test_review(folder: Path, name: str, serve: Callable[..., Any]) -> None:
    server = serve(folder / name)
    server.enter()
    assert server.get("/api/start")["suspects"] == proselflc.load_run(folder / name).audit.suspects


@pytest.mark.parametrize(
    ("stopped", "finished", "method"),
    [
        ("stopped", "finished", "proselflc"),
        ("stopped-in-stage-2", "finished-in-stages", "joint_soft"),
    ],
)
def test_resumed_as_if_never_stopped(
    folder: Path, stopped: str, finished: str, method: str
) -> None:
    options = ["--data", "trees.csv", "--id-column", "id", "--epochs", "6", "--batch-size", "32"]
    succeeds("train", *options, "--method", method, "--out", stopped, "--resume")
    resumed, whole = (
        load_file(folder / name / "model.safetensors") for name in (stopped, finished)
    )
    assert resumed.keys() == whole.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(resumed[name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", STATEFUL)
def test_the_state_of_a_method_is_resumed(folder: Path, method: str) -> None:
    with tarfile.open(STOPPED) as archive:
        archive.extractall(folder, filter="data")
    run = folder / "stopped-by-method" / method
    succeeds("train", "--out", str(run), "--resume")
    resumed = load_file(run / "model.safetensors")
    whole = load_file(folder / "weights-by-method" / f"{method}.safetensors")
    assert resumed.keys() == whole.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(resumed[name], weight, rtol=1e-5, atol=1e-6)
    assert len(list(proselflc.load_run(run).dynamics)) == 6


@pytest.mark.parametrize("method", STATEFUL)
def test_the_state_of_a_method_is_resumed_in_two_processes(
    folder: Path, program: Any, method: str
) -> None:
    """These were stopped by a version that took one process for some of the methods."""
    with tarfile.open(STOPPED) as archive:
        archive.extractall(folder, filter="data")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        common["MASTER_PORT"] = str(one.getsockname()[1])
    run = folder / "stopped-by-method" / method
    words = ("train", "--out", run, "--resume", "--quiet")
    both = [
        program.start(*words, folder=folder, environment={**common, "RANK": k, "LOCAL_RANK": k})
        for k in "01"
    ]
    done = [one.wait() for one in both]
    assert [one.code for one in done] == [0, 0], done
    resumed = load_file(run / "model.safetensors")
    whole = load_file(folder / "weights-by-method" / f"{method}.safetensors")
    assert resumed.keys() == whole.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(resumed[name], weight, rtol=1e-3, atol=1e-4)


def test_a_recording_goes_on(folder: Path) -> None:
    rows = [line.split(",") for line in (folder / "trees.csv").read_text().splitlines()[1:]]
    x = torch.tensor([[float(cell) for cell in row[1:5]] for row in rows])
    names = ("ash", "birch", "cedar")
    y = np.array([names.index(row[5]) for row in rows])
    model = nn.Linear(4, 3)
    with proselflc.record(
        120, 3, out="recorded-stopped", labels=y, names=names, inputs=x.numpy(), resume=True
    ) as recording:
        assert recording.epoch == 3
        recording(torch.arange(120), model(x))
    assert len(list(recording.run.dynamics)) == 4
    assert recording.run.examples.num_rows == 120


def test_the_run_that_a_study_ended_with_is_read(folder: Path) -> None:
    found = json.loads((folder / "study" / "summary.json").read_text())
    run = proselflc.load_run(folder / found["chosen"]["proselflc"]["run"])
    assert run.config["method"] == {
        "name": "proselflc",
        "sharpness": 8.0,
        "midpoint": 0.5,
        "trust": "global*local",
    }


def test_a_study_whose_trusted_examples_were_drawn_otherwise_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(["search", "--resume", "--out", "study", "--quiet", "--json"]) == 2
    assert "trusted examples differently" in capfd.readouterr().err
