"""Code that a file names is not executed unless the user names it on the same call."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.cli import app as cli
from proselflc.reporting import command as report
from proselflc.reporting import run_facts
from proselflc.reviewing.view import next_steps
from proselflc.run.reader import Run, load_run

CODE = "evil:make"
SOURCE = """\
import pathlib, torch
pathlib.Path("was_run").touch()
def make(num_classes, shape):
    return torch.nn.Linear(shape.width, num_classes)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with code in it that leaves a trace, and data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(SOURCE)
    y = np.arange(40) % 2
    np.savez("d.npz", x=np.eye(2, dtype=np.float32)[y], y=y)
    yield tmp_path
    sys.modules.pop("evil", None)


def command(text: str) -> int:
    sys.modules.pop("evil", None)
    return cli.run(shlex.split(text))


def was_run() -> bool:
    """Whether the code was executed since the last time that this was asked."""
    marker = Path("was_run")
    found = marker.exists()
    marker.unlink(missing_ok=True)
    return found


TRAIN = "train --data d.npz --epochs 3 --batch-size 8 --quiet"


@pytest.fixture
def run(here: Path) -> Path:
    """A run whose user has named the code."""
    assert command(f"{TRAIN} --model {CODE} --out run") == 0
    assert was_run()
    return here / "run"


@pytest.mark.parametrize("file", ["mine.toml", "study/chosen.toml", "run/config.toml"])
@pytest.mark.parametrize("kind", ["train", "search"])
def test_a_file_does_not_choose_the_code(
    here: Path, capsys: pytest.CaptureFixture[str], kind: str, file: str
) -> None:
    (here / file).parent.mkdir(exist_ok=True)
    (here / file).write_text(f'data = "d.npz"\nepochs = 1\nmodel = "{CODE}"\n')
    short = "--quiet --out new" if kind == "train" else "--quiet --out new --no-retrain"
    assert command(f"{kind} --config {file} {short}") == 2
    said = capsys.readouterr()
    assert not was_run()
    assert "evil" not in sys.modules
    assert not (here / "new").exists()
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"{file} would have this command import the Python module evil,")
    assert f"in {here} first" in said.err
    assert "call make in it" in said.err
    assert said.err.endswith("name it yourself with --model evil:make\n")


def test_what_the_sentence_says_works(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.toml").write_text(f'data = "d.npz"\nepochs = 1\nmodel = "{CODE}"\n')
    assert command("train --config mine.toml --quiet --out new") == 2
    flag = capsys.readouterr().err.rpartition("yourself with ")[2]
    assert command(f"train --config mine.toml --quiet --out new {flag}") == 0
    assert was_run()
    assert command("train --config mine.toml --quiet --out other --model mlp") == 0
    assert not was_run()  # another model is chosen, so nobody is asked about the file's


def test_a_library_of_models_is_not_code_of_the_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.toml").write_text('data = "d.npz"\nmodel = "torchvision:resnet18"\n')
    assert command("train --config mine.toml --quiet --out new") == 2
    assert 'model "torchvision:resnet18" takes images' in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "train --config run/config.toml --out new",
        "train --out run --resume --config run/config.toml",
        "train --out run --resume",
        "train --config run/config.toml --labels run --reviewed --out new",
        "predict run --data d.npz",
        "audit run --folds 2",
        "export run",
        "report run",
        "audit run",
        "train --data d.npz --labels run --epochs 1 --out new",
        "train --data d.npz --method distillation --method.teacher run --epochs 1 --out new",
    ],
)
def test_no_command_executes_what_a_run_names(run: Path, text: str) -> None:
    command(text)
    assert not was_run()
    assert "evil" not in sys.modules


def test_the_advice_after_a_stop_works(here: Path, program: Any) -> None:
    arguments = shlex.split(TRAIN.replace("--epochs 3", "--epochs 4000"))
    running = program.start(*arguments, "--model", CODE, "--out", "my run", folder=here)
    running.until(lambda: (here / "my run" / "dynamics" / "epoch-00001.npy").exists())
    running.send(signal.SIGTERM)
    said = running.wait().stderr.splitlines()[-1]
    advice = said.rpartition("resume with: proselflc ")[2]
    assert advice == "train --out 'my run' --resume --model evil:make"
    assert was_run()
    running = program.start(*shlex.split(advice), "--quiet", folder=here)
    running.until(lambda: (here / "was_run").exists())
    running.send(signal.SIGKILL)
    assert running.wait().stderr == ""


def test_a_page_about_a_run_does_not_advise_to_execute_its_code(run: Path) -> None:
    path = Path("run/config.toml")
    lines = report._repeat(run_facts.read_runs([Path("run")])[0]).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("# The model of this run is made by code that is not part of")
    assert lines[0].endswith(", evil:make: add it with --model if you trust it")
    assert lines[1] == f"proselflc train --config {path} --out run-again"
    assert command(lines[1].removeprefix("proselflc ")) == 2
    assert command(f"{lines[1].removeprefix('proselflc ')} --quiet --model {CODE}") == 0
    assert was_run()


def test_a_name_cannot_leave_the_comment(run: Path, resealed: Any) -> None:
    config = (run / "config.toml").read_text()
    evil = json.dumps("a:b\nrm -rf x \u202e")
    (run / "config.toml").write_text(config.replace(f'"{CODE}"', evil))
    resealed(run)
    for text in (report._repeat(run_facts.read_runs([run])[0]), next_steps(load_run(run))[0]):
        lines = text.splitlines()
        assert [line.split()[0] for line in lines] == ["#", "proselflc"]
        assert "\u202e" not in text


def test_a_review_repeats_the_code_where_its_user_has_named_it(run: Path) -> None:
    train, _ = next_steps(Run(Path("run")))
    assert train.startswith("# The model of this run is made by code")
    assert " --model" not in train.splitlines()[1]
    train, _ = next_steps(Run(Path("run"), made_by=CODE))
    assert train == (
        "proselflc train --config run/config.toml --model evil:make --labels run --reviewed "
        "--out run-reviewed"
    )


def test_a_study_repeats_the_code_that_its_user_has_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    options = "--batch-size 8 --space lr=0.1 epochs=1 --method cce --no-retrain --quiet"
    assert command(f"search --data d.npz --model {CODE} {options} --out study") == 0
    assert was_run()
    page = (here / "study" / "report.html").read_text()
    advice = re.search("proselflc (train --config study/chosen.toml .*)", page)
    assert advice is not None
    assert "--model evil:make" in advice[1]
    capsys.readouterr()
    assert command("train --config study/chosen.toml --out study/again --quiet") == 2
    assert not was_run()
    assert "study/chosen.toml would have this command import" in capsys.readouterr().err
    assert command(f"{advice[1]} --quiet") == 0
    assert was_run()
    assert command("search --out study --resume --quiet") == 2
    assert not was_run()


def test_a_file_does_not_overwrite_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.toml").write_text("")
    received = tmp_path / "received.toml"
    received.write_text('data = "digits"\nout = "mine"\noverwrite = true\nsteps = 1\n')
    assert cli.run(["train", "--config", "received.toml", "--quiet"]) == 2
    assert "add --overwrite to the command" in capsys.readouterr().err
    assert (tmp_path / "mine" / "config.toml").read_text() == ""
    assert cli.run(["train", "--config", "received.toml", "--quiet", "--overwrite"]) == 0
    assert (tmp_path / "mine" / "summary.json").is_file()
