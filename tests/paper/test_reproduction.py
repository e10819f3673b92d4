"""What is kept of a run and by which name; what is missing is done once, also after a kill."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proselflc.cli import app as cli
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.paper import command
from proselflc.paper.command import Reproduction, complete, find_artefact
from proselflc.paper.output import (
    MISSING,
    Output,
    ResultTable,
    mean_std,
)
from proselflc.paper.plan import SCALES, PendingRun, RunPlan
from proselflc.paper.records import RecordStore
from proselflc.queue.run_store import key
from proselflc.run.config import Config
from proselflc.terminal import Interrupted
from proselflc.training.recipe import Recipe

CPU = SCALES["cpu"]


def small(seed: int = 0, method: str = "proselflc") -> Config:
    recipe = Recipe(epochs=3, batch_size=64, optimizer="sgd", lr=0.05, weight_decay=0.0, seed=seed)
    return Config(
        Request("digits"),
        noise="pair:0.4",
        method=method,
        model="mlp",
        recipe=recipe,
        eval_epochs=1,
    )


def test_the_key_is_of_what_a_run_depends_on_and_of_nothing_else(tmp_path: Path) -> None:
    one = small()
    assert key(one) == key(replace(one, workers=0, eval_epochs=None, eval_steps=7))
    assert key(one) == key(replace(one, request=replace(one.request, data_root=tmp_path)))
    explicit = replace(one, parameters=dict(sharpness=10.0, midpoint=0.5))
    assert key(one) == key(explicit)
    others = [
        small(seed=1),
        small(method="cce"),
        replace(one, parameters=dict(sharpness=8.0)),
        replace(one, noise="pair:0.3"),
        replace(one, trusted="0.2"),
        replace(one, recipe=replace(one.recipe, lr=0.06)),
    ]
    assert len({key(one), *map(key, others)}) == 7


def test_a_file_counts_by_what_is_in_it(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, content in zip(paths, (b"1", b"1", b"2"), strict=True):
        path.write_bytes(content)
    weights = [key(replace(small(), weights=path)) for path in paths]
    masks = [key(replace(small(method="masking"), parameters=dict(mask=path))) for path in paths]
    for found in (weights, masks):
        assert found[0] == found[1] != found[2]
    paths[0].write_bytes(b"2")
    assert key(replace(small(), weights=paths[0])) == weights[2]


def test_a_teacher_that_is_named_by_its_key_is_the_same_in_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = {"teacher": Path(key(small()))}
    here = key(replace(small(method="distillation"), parameters=teacher))
    monkeypatch.chdir(tmp_path)
    assert key(replace(small(method="distillation"), parameters=teacher)) == here


def test_a_run_is_recorded_whole_and_not_done_again(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    config = small()
    assert store.record(config) is None
    store.add(config, command.train_and_measure(config, store.runs))
    found = store.record(config)
    assert found is not None
    assert 0 < found.summary["test_accuracy"] <= 1
    assert [line["epoch"] for line in found.history] == [1, 2, 3]
    assert len(found.facts["fingerprint"]) == 64
    assert {"torch", "python", "machine", "cores"} <= found.facts["made_with"].keys()
    assert str(tmp_path) not in json.dumps(dict(found.facts))
    path = next((tmp_path / "records").iterdir())
    path.write_text(path.read_text()[:100])
    with pytest.raises(InputError, match="damaged"):
        store.record(config)


def test_a_record_has_all_parameters_of_its_method(tmp_path: Path) -> None:
    config = CPU.config("cifar100", "gce", {}, seed=0, noise="pair:0.4")
    RecordStore(tmp_path).add(config, {})
    (path,) = (tmp_path / "records").iterdir()
    found = json.loads(path.read_text())["config"]
    assert found["method"] == {"name": "gce", "q": 0.7}


class Tiny:
    """A table of two runs on digits."""

    @staticmethod
    def make(plan: RunPlan) -> Output:
        cells = []
        for seed in plan.seeds:
            record = plan.record(PendingRun(small(seed), f"seed {seed}"))
            cells.append(None if record is None else 100 * record.summary["test_accuracy"])
        return Output("tiny", {"": ResultTable(("accuracy",), ((mean_std(cells),),))})


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    one = command.Artefact("table2", "two runs", Tiny.make)
    monkeypatch.setitem(command.ARTEFACTS, "table2", one)


@pytest.mark.usefixtures("tiny")
def test_what_is_missing_is_done_and_only_that(tmp_path: Path) -> None:
    one = Reproduction(find_artefact("table2"), CPU, (0, 1), tmp_path)
    said: list[str] = []
    output, plan = one.evaluate()
    assert output.tables[""].rows == ((MISSING,),)
    assert len(plan.pending) == 2
    complete(one, said.append)
    assert len(said) == 2
    output, plan = one.evaluate()
    assert not plan.pending
    assert "±" in output.tables[""].rows[0][0]
    assert not any(path.is_dir() for path in (tmp_path / "runs").iterdir())
    complete(replace(one, seeds=(0, 1, 2)), said.append)
    assert [text.split(" (")[0] for text in said] == ["seed 0", "seed 1", "seed 2"]


@pytest.mark.usefixtures("tiny")
def test_a_run_that_another_process_does_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Reproduction(find_artefact("table2"), CPU, (0,), tmp_path)
    claim = one.store.queue().claim([key(small(0))])
    assert claim is not None
    said: list[str] = []

    def wait(seconds: float) -> None:
        assert said == ["waiting for a run of other processes"]
        assert not (tmp_path / "records").exists()
        with claim:  # which ends unfinished, as if that process had been stopped
            pass

    monkeypatch.setattr("time.sleep", wait)
    complete(one, said.append)
    assert said[1:] == ["seed 0 (1 to go)"]


@pytest.mark.usefixtures("tiny")
def test_a_run_whose_record_was_removed_is_done_again(tmp_path: Path) -> None:
    one = Reproduction(find_artefact("table2"), CPU, (0,), tmp_path)
    for _ in range(3):
        said: list[str] = []
        complete(one, said.append)
        assert said == ["seed 0 (1 to go)"]
        (path,) = (tmp_path / "records").iterdir()
        path.unlink()
    names = [key(small(0)), f"{key(small(0))}-2", f"{key(small(0))}-3"]
    assert list(one.store.queue().entries()) == names


@pytest.mark.usefixtures("tiny")
def test_without_optuna_runs_are_refused_and_results_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.run(["reproduce", "table2", "--out", str(tmp_path)]) == 2
    assert 'reproduce needs Optuna, which is not installed: pip install "proselflc[search]"' in (
        capsys.readouterr().err
    )
    assert cli.run(["reproduce", "table2", "--out", str(tmp_path), "--report"]) == 0


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_reproduction as t
from proselflc.paper import command
command.ARTEFACTS["table2"] = command.Artefact("table2", "two runs", t.Tiny.make)
from dataclasses import replace
short = t.small()
epochs = {epochs}
t.small = lambda seed: replace(
    short,
    recipe=replace(short.recipe, epochs=epochs, seed=seed),
    eval_epochs=epochs // 2,
    checkpoint_seconds=0.2,
)
command.WAITING = 0.1
from proselflc.paper.command import Reproduction, complete
seeds = tuple(range({seeds}))
one = Reproduction(command.find_artefact("table2"), t.CPU, seeds, Path({folder!r}), keep_runs=True)
complete(one, lambda text: print(text, flush=True))
print(one.evaluate()[0].tables[""].rows[0][0], flush=True)
"""


def started(program: Any, folder: Path, *, seeds: int, epochs: int) -> Any:
    """Another process that reproduces the tiny table."""
    tests = str(Path(__file__).parent)
    code = SCRIPT.format(tests=tests, folder=str(folder), seeds=seeds, epochs=epochs)
    return program.start(code=code)


def test_processes_that_share_a_directory_do_every_run_once(tmp_path: Path, program: Any) -> None:
    both = [started(program, tmp_path / "shared", seeds=4, epochs=2) for _ in range(2)]
    ended = [process.wait(240) for process in both]
    assert [done.code for done in ended] == [0, 0], ended
    outputs = [done.stdout.splitlines() for done in ended]
    said = [line for lines in outputs for line in lines[:-1]]
    done = [line.split(" (")[0] for line in said if "waiting for " not in line]
    assert sorted(done) == [f"seed {k}" for k in range(4)]
    assert outputs[0][-1] == outputs[1][-1]
    assert "±" in outputs[0][-1]


def test_an_interrupted_reproduction_goes_on_where_it_was(tmp_path: Path, program: Any) -> None:
    """Killed in the middle of a run, and the same as one that was not."""
    killed = started(program, tmp_path / "killed", seeds=1, epochs=80)
    killed.until(lambda: bool(list((tmp_path / "killed").glob("runs/*/checkpoints/*"))))
    killed.send(signal.SIGKILL)
    assert killed.wait().code == -signal.SIGKILL
    assert not (tmp_path / "killed" / "records").exists()
    both = [started(program, tmp_path / one, seeds=1, epochs=80) for one in ("killed", "whole")]
    ended = [process.wait(240) for process in both]
    assert [done.code for done in ended] == [0, 0], ended
    again, whole = (done.stdout.splitlines()[-1] for done in ended)
    assert again == whole
    assert float(again) > 10


@pytest.mark.usefixtures("tiny")
def test_a_stop_says_how_the_reproduction_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not how the run at hand would: it is one of many."""

    def stopped(config: Config, folder: Path) -> dict[str, Any]:
        raise Interrupted("stopped after step 3, go on with: proselflc train --resume")

    monkeypatch.setattr(command, "train_and_measure", stopped)
    assert (
        cli.run(["reproduce", "table2", "--seeds", "0", "--out", str(tmp_path), "--quiet"]) == 130
    )
    said = capsys.readouterr().err
    assert "the same command continues" in said
    assert str(tmp_path) in said
    assert "train --resume" not in said
