"""The paper by its numbers: what is computed, what is asked for, what is kept and resumed."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.app import cli
from proselflc.app.config import Config
from proselflc.app.interruption import Interrupted
from proselflc.app.kept_runs import key
from proselflc.app.reproduction import artefacts, command, computed, printed, running, tables
from proselflc.app.reproduction.artefacts import artefact
from proselflc.app.reproduction.output import (
    MISSING,
    Output,
    Table,
    difference,
    interval,
    mean_std,
)
from proselflc.app.reproduction.plan import Study, Wanted
from proselflc.app.reproduction.records import Store, resolved_table
from proselflc.app.reproduction.running import Reproduction, complete, planned
from proselflc.app.reproduction.scale import SCALES
from proselflc.app.search_space import EPSILON, SHARPNESS
from proselflc.correction.catalogue import METHODS
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.training.methods import Parameters
from proselflc.training.recipe import Recipe

CPU = SCALES["cpu"]
COMMITTED = Path(__file__).parents[3] / "benchmarks" / "results" / "paper"


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


def facts(accuracy: float | None = 0.5, validation: float | None = None) -> dict[str, Any]:
    line = {"step": 1, "epoch": 1.0, "test_accuracy": accuracy, "wrong_fitting": 0.25}
    return {
        "summary": {"test_accuracy": accuracy, "wrong_fitting": 0.25},
        "validation_accuracy": validation,
        "test": {"calibration": []},
        "history": [line, {**line, "step": 2, "epoch": 2.0}],
    }


def test_table_2_is_the_papers() -> None:
    output = computed.table2(Study(Store(Path("nowhere")), CPU, (0,)))
    numbers = [[cell.split()[0] for cell in row[1:]] for row in output.tables[""].rows]
    assert numbers == [["0.01", "0.09", "0.09"], ["0.09", "0.81", "0.81"]]
    changes = [["changes" in cell for cell in row[1:]] for row in output.tables[""].rows]
    assert changes == [[False, False, False], [False, False, True]]
    theirs = [[float(cell) for cell in row[1:]] for row in output.tables["printed"].rows]
    assert theirs == [[float(cell) for cell in row] for row in numbers]


def test_table_1_says_of_each_method_what_the_paper_says() -> None:
    rows = {
        row[0]: row for row in computed.table1(Study(Store(Path("x")), CPU, (0,))).tables[""].rows
    }
    known = {"Cross entropy": "CCE", "Label smoothing": "LS", "Confidence penalty": "CP"}
    for ours, theirs in (known | {"Boot-soft": "LC", "ProSelfLC": "LC"}).items():
        target, divergence, entropy, *others = printed.SUMMARY[theirs]
        entropy = {"penalise": "penalises", "reward": "rewards"}.get(entropy, entropy)
        _, formula, _, _, *facts = rows[ours]
        assert (formula, facts) == (target, [divergence, entropy, *others])
    assert rows["ProSelfLC"][2:4] == ("g(t)·l(p)", "(1 − ε) H(q, p) + ε H(p)")
    assert [row[2] for row in rows.values()] == ["–", "ε", "ε", "ε", "g(t)·l(p)"]


def test_figure_1_is_the_formula(tmp_path: Path) -> None:
    output = artefacts.artefact("figure1").make(Study(Store(tmp_path), CPU, (0,)))
    rows = {row[0]: [float(cell) for cell in row[1:]] for row in output.tables[""].rows}
    q, p, u = (np.array(rows[name]) for name in ("q", "p", "u"))
    np.testing.assert_allclose(rows["LS"], 0.5 * q + 0.5 * u, atol=1e-3)
    np.testing.assert_allclose(rows["CP"], 0.5 * q - 0.5 * p, atol=1e-3)
    np.testing.assert_allclose(rows["LC"], 0.5 * q + 0.5 * p, atol=1e-3)
    files = {path.name for path in output.write(tmp_path, "figure1")}
    assert files == {"figure1.md", "figure1.csv", "figure1.svg", "figure1.png"}


def test_it_says_where_it_has_put_things(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["reproduce", "figure1", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("# Figure 1")
    assert said.err == f"written: {tmp_path / 'cpu' / 'figure1.md'} and 3 files beside it\n"
    assert len(list((tmp_path / "cpu").iterdir())) == 4
    assert cli.run(["reproduce", "figure1", "--out", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_every_table_and_figure_of_the_paper_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", "--list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    numbered = {f"table{k}" for k in range(1, 8)} | {f"figure{k}" for k in range(1, 6)}
    assert found.keys() == numbered
    # Table 4: 14 trials and ten methods with three seeds under each of six noises.
    assert found["table4"]["runs"] == 6 * (3 * len(EPSILON) + len(SHARPNESS) + 10 * 3)
    assert found["table5"]["runs"] == 15 * 7
    assert found["table3"]["runs"] == 13 * 3
    assert found["table2"]["runs"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel4"], ["unknown table or figure", "table4"]),
        (["table8"], ["unknown table or figure", "table1"]),
        ([], ["--list"]),
        (["table6"], ["clothing1m", "--scale paper"]),
        (["table4", "--seeds", "0,x"], ["--seeds", "0,1,2", "0,x"]),
        (["table4", "--seeds", "1,1"], ["--seeds", "different"]),
        (["table4", "--seeds", "0,00"], ["--seeds", "different"]),
        (["table4", "--jobs", "0"], ["--jobs"]),
    ],
)
def test_mistakes_are_answered_in_a_sentence(
    arguments: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert all(word in said for word in words)


def test_data_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROSELFLC_OFFLINE", "1")
    arguments = [
        "reproduce",
        "table3",
        "--data-root",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
    ]
    assert cli.run([*arguments, "--seeds", "0", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "cifar-100" in said.lower()
    assert str(tmp_path) in said


def test_dry_run_shows_every_run_with_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "table3", "--out", str(tmp_path), "--dry-run", "--seeds", "5"]
    assert cli.run([*arguments, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["runs"]) == len({run["key"] for run in plan["runs"]}) == 13
    assert {run["config"]["seed"] for run in plan["runs"]} == {5}
    assert {run["config"]["data"] for run in plan["runs"]} == {"cifar100-small"}
    assert cli.run(arguments) == 0
    said = capsys.readouterr().out
    assert "13 runs to do" in said
    assert said.count("ProSelfLC B = ") == 3
    assert not any(tmp_path.iterdir())


def test_paper_scale_is_the_papers_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "table4", "--scale", "paper", "--dry-run", "--seeds", "0", "--json"]
    assert cli.run(arguments) == 0
    for run in json.loads(capsys.readouterr().out)["runs"]:
        c = run["config"]
        assert (c["data"], c["model"], c["steps"], c["batch_size"]) == (
            *("cifar100", "resnet44"),
            *(30_000, 256),
        )
        assert (c["lr"], c["momentum"], c["weight_decay"]) == (0.1, 0.9, 5e-4)


def test_the_key_is_of_what_a_run_depends_on_and_of_nothing_else(tmp_path: Path) -> None:
    one = small()
    assert key(one) == key(replace(one, workers=0, eval_epochs=None, eval_steps=7))
    assert key(one) == key(replace(one, request=replace(one.request, data_root=tmp_path)))
    explicit = replace(one, parameters=Parameters(sharpness=10.0, midpoint=0.5))
    assert key(one) == key(explicit)
    others = [
        small(seed=1),
        small(method="cce"),
        replace(one, parameters=Parameters(sharpness=8.0)),
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
    masks = [
        key(replace(small(method="masking"), parameters=Parameters(mask=path))) for path in paths
    ]
    for found in (weights, masks):
        assert found[0] == found[1] != found[2]
    paths[0].write_bytes(b"2")
    assert key(replace(small(), weights=paths[0])) == weights[2]


def test_table_6_starts_from_imagenets_weights_and_is_told_the_mask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "table6", "--scale", "paper", "--out", str(tmp_path / "out")]
    assert cli.run(arguments) == 2
    assert "--weights FILE" in capsys.readouterr().err
    assert cli.run([*arguments, "--weights", str(tmp_path / "none")]) == 2
    assert "there is no file" in capsys.readouterr().err
    for name in ("weights", "mask"):
        (tmp_path / name).write_bytes(b"")
    given = ["--weights", str(tmp_path / "weights"), "--dry-run", "--json", "--seeds", "0"]
    assert cli.run([*arguments, *given]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    trials = 3 * len(EPSILON) + len(SHARPNESS)  # with the four that are presumed to be chosen
    assert len(runs) == len(printed.CLOTHING) - 1 + trials - 4
    assert {run["config"]["weights"] for run in runs} == {str(tmp_path / "weights")}
    assert cli.run([*arguments, *given, "--mask", str(tmp_path / "mask")]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    methods = {run["config"]["method"]["name"]: run["config"]["method"] for run in runs}
    assert methods.keys() == printed.CLOTHING.keys()
    assert methods["masking"]["mask"] == str(tmp_path / "mask")


def test_a_run_is_recorded_whole_and_not_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    config = small()
    assert store.record(config) is None
    store.add(config, running.run(config, store.runs))
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


class Tiny:
    """A table of two runs on digits."""

    @staticmethod
    def make(study: Study) -> Output:
        cells = []
        for seed in study.seeds:
            record = study.record(Wanted(small(seed), f"seed {seed}"))
            cells.append(None if record is None else 100 * record.summary["test_accuracy"])
        return Output("tiny", {"": Table(("accuracy",), ((mean_std(cells),),))})


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    one = artefacts.Artefact("table2", "two runs", Tiny.make)
    monkeypatch.setitem(artefacts.ARTEFACTS, "table2", one)


@pytest.mark.usefixtures("tiny")
def test_what_is_missing_is_done_and_only_that(tmp_path: Path) -> None:
    one = Reproduction(artefact("table2"), CPU, (0, 1), tmp_path)
    said: list[str] = []
    output, study = one.look()
    assert output.tables[""].rows == ((MISSING,),)
    assert len(study.wanted) == 2
    complete(one, said.append)
    assert len(said) == 2
    output, study = one.look()
    assert not study.wanted
    assert "±" in output.tables[""].rows[0][0]
    assert not any(path.is_dir() for path in (tmp_path / "runs").iterdir())
    complete(replace(one, seeds=(0, 1, 2)), said.append)
    assert [text.split(" (")[0] for text in said] == ["seed 0", "seed 1", "seed 2"]


@pytest.mark.usefixtures("tiny")
def test_a_run_that_another_process_does_is_left_to_it(tmp_path: Path) -> None:
    one = Reproduction(artefact("table2"), CPU, (0,), tmp_path)
    with one.store.claimed(small(0)) as mine:
        assert mine
        with one.store.claimed(small(0)) as also:
            assert not also
        wanted = Wanted(small(0), "seed 0")
        assert not running._done(one, wanted, pytest.fail, 1)
    assert running._done(one, wanted, lambda text: None, 1)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_reproduction as t
from proselflc.app.reproduction import artefacts
artefacts.ARTEFACTS["table2"] = artefacts.Artefact("table2", "two runs", t.Tiny.make)
from dataclasses import replace
short = t.small()
epochs = int(sys.argv[3])
t.small = lambda seed: replace(
    short,
    recipe=replace(short.recipe, epochs=epochs, seed=seed),
    eval_epochs=epochs // 2,
    checkpoint_seconds=0.2,
)
from proselflc.app.reproduction.running import Reproduction, complete
seeds = tuple(range(int(sys.argv[2])))
one = Reproduction(artefacts.artefact("table2"), t.CPU, seeds, Path(sys.argv[1]), keep_runs=True)
complete(one, lambda text: print(text, flush=True))
print(one.look()[0].tables[""].rows[0][0], flush=True)
"""


def started(tmp_path: Path, folder: str, *, seeds: int, epochs: int) -> subprocess.Popen[str]:
    """Another process that reproduces the tiny table."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    arguments = [sys.executable, str(script), str(tmp_path / folder), str(seeds), str(epochs)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_processes_that_share_a_directory_do_every_run_once(tmp_path: Path) -> None:
    both = [started(tmp_path, "shared", seeds=4, epochs=2) for _ in range(2)]
    outputs = [process.communicate(timeout=240)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    said = [line for lines in outputs for line in lines[:-1]]
    done = [line.split(" (")[0] for line in said if "waiting for " not in line]
    assert sorted(done) == [f"seed {k}" for k in range(4)]
    assert outputs[0][-1] == outputs[1][-1]
    assert "±" in outputs[0][-1]


def test_an_interrupted_reproduction_goes_on_where_it_was(tmp_path: Path) -> None:
    """Killed in the middle of a run, and the same as one that was not."""
    killed = started(tmp_path, "killed", seeds=1, epochs=80)
    deadline = time.monotonic() + 240
    while not list((tmp_path / "killed").glob("runs/*/checkpoints/*")):
        assert time.monotonic() < deadline
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    assert not (tmp_path / "killed" / "records").exists()
    again, whole = (started(tmp_path, name, seeds=1, epochs=80) for name in ("killed", "whole"))
    outputs = [process.communicate(timeout=240)[0] for process in (again, whole)]
    assert again.returncode == whole.returncode == 0
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    assert float(outputs[0].splitlines()[-1]) > 10


@pytest.mark.usefixtures("tiny")
def test_a_stop_says_how_the_reproduction_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not how the run at hand would: it is one of many."""

    def stopped(config: Config, folder: Path) -> dict[str, Any]:
        raise Interrupted("stopped after step 3, go on with: proselflc train --resume")

    monkeypatch.setattr(running, "run", stopped)
    assert (
        cli.run(["reproduce", "table2", "--seeds", "0", "--out", str(tmp_path), "--quiet"]) == 130
    )
    said = capsys.readouterr().err
    assert "the same command goes on from there" in said
    assert str(tmp_path) in said
    assert "train --resume" not in said


def test_the_trusted_examples_choose_and_the_test_set_does_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    study = Study(store, CPU, (0, 1))
    assert study.chosen("cifar100", "pair:0.4", "label_smoothing") is None
    trials = list(study.wanted.values())
    assert [run.config.parameters.epsilon for run in trials] == list(EPSILON)
    assert all(run.config.trusted == "0.2" for run in trials)
    for run, validation in zip(trials, (0.5, 0.7, 0.7), strict=True):
        # The best on the trusted examples is the worst on the test set.
        store.add(run.config, facts(accuracy=1 - validation, validation=validation))
    found = Study(store, CPU, (0, 1))
    assert found.chosen("cifar100", "pair:0.4", "label_smoothing") == {"epsilon": 0.25}
    assert found.chosen("cifar100", "pair:0.4", "cce") == {}
    assert not found.wanted


def test_table_4_marks_what_is_not_run_and_compares_pair_by_pair(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = Reproduction(artefact("table4"), CPU, (0, 1), tmp_path)
    for _ in range(2):  # first the trials, then what they have chosen
        _, study = one.look()
        for run in study.wanted.values():
            config = run.config
            if config.noise == "symmetric:0.6" and config.method == "cce":
                continue
            best = config.method == "proselflc"
            value = 0.5 + 0.1 * best + 0.01 * config.recipe.seed
            store.add(config, facts(value, validation=0.5))
    output, study = one.look()
    assert len(study.wanted) == 2
    ours = {row[0]: row[1:] for row in output.tables["ours"].rows}
    assert ours["ProSelfLC"][0] == "60.5 ± 0.7"
    assert ours["Cross entropy"][-1] == MISSING
    assert ours["Cross entropy"][0] == "50.5 ± 0.7"
    less = {row[0]: row[1:] for row in output.tables["difference"].rows}
    assert less["Cross entropy"][0] == "+10.0 ± 0.0"
    assert less.keys() == ours.keys() - {"ProSelfLC"}
    learned = {row[0]: row[1:] for row in output.tables["learned"].rows}
    assert learned["Cross entropy"] == (*5 * ("25.0 ± 0.0",), MISSING)
    assert "in 23," in " ".join(output.words)
    assert "1 are not run yet" in " ".join(output.words)
    theirs = {row[0]: row[1:] for row in output.tables["printed"].rows}
    assert theirs["ProSelfLC"] == ("68.7", "68.5", "67.9", "64.8", "59.3", "47.7")
    assert theirs["D2L ¹"][0] == "62.4"
    paths = output.write(tmp_path / "out", "table4")
    written = csv.reader(io.StringIO((tmp_path / "out" / "table4-ours.csv").read_text()))
    assert next(written)[1] == "asymmetric 0.2"
    assert paths[0].name == "table4.md"


def test_dynamics_are_means_over_the_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = Reproduction(artefact("figure3"), CPU, (0, 1), tmp_path)
    for _ in range(2):
        for run in one.look()[1].wanted.values():
            store.add(run.config, facts(0.5 + 0.1 * run.config.recipe.seed, validation=0.5))
    output, study = one.look()
    assert not study.wanted
    rows = {row[0]: row[1:] for row in output.tables[""].rows}
    assert rows["ProSelfLC"][-1] == "0.550 ± 0.071"
    less = {row[0]: row[1:] for row in output.tables["difference"].rows}
    assert less.keys() == {METHODS[name].title for name in printed.OWN[:-1]}
    assert less["Cross entropy"][-1] == "+0.000 ± 0.000"
    assert {figure.name for figure in output.figures} == {
        "figure3-wrong_fitting",
        "figure3-generalisation",
    }


def test_a_run_that_diverged_is_called_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    study = Study(store, CPU, (0,))
    study.finals("cifar100", None, "cce", {})
    (run,) = study.wanted.values()
    store.add(run.config, {**facts(None), "diverged": "the loss is nan", "history": []})
    study = Study(store, CPU, (0,))
    found = study.finals("cifar100", None, "cce", {})
    assert not study.wanted
    assert mean_std(tables.accuracies(found)) == "diverged"


def test_intervals_are_students() -> None:
    from scipy.stats import ttest_rel

    ours, others = [61.0, 63.5, 60.2, 62.0], [58.0, 61.0, 60.0, 59.5]
    found = interval([a - b for a, b in zip(ours, others, strict=True)])
    expected = ttest_rel(ours, others).confidence_interval(0.95)
    assert found is not None
    assert found[0] - found[1] == pytest.approx(expected.low)
    assert found[0] + found[1] == pytest.approx(expected.high)
    assert interval([1.0]) is None
    assert interval([1.0, None]) is None
    assert difference([1.0, 2.0], [None, 2.0]) == MISSING
    assert mean_std([50.0, 52.0]) == "51.0 ± 1.4"
    assert mean_std([50.0, None]) == MISSING
    assert mean_std([50.0]) == "50.0"
    assert mean_std([50.0, math.nan]) == "diverged"


def test_printed_numbers_agree_between_tables() -> None:
    """Table 4 shows the best of Table 5, as the paper says."""
    for method in printed.OWN:
        columns = list(zip(*printed.HYPERPARAMETERS[method].values(), strict=True))
        assert tuple(max(column) for column in columns)[:6] == printed.SYNTHETIC[method]
        clean = printed.STANDARD["cifar100"][method]
        for value, accuracy in clean.items():
            assert printed.HYPERPARAMETERS[method][value][-1] == accuracy


def test_what_only_a_choice_will_settle_is_planned_too(tmp_path: Path) -> None:
    one = Reproduction(artefact("figure5"), CPU, (0, 1, 2), tmp_path)
    assert len(planned(one)) == 2 * (len(SHARPNESS) + 3)
    assert len(one.look()[1].wanted) == 2 * len(SHARPNESS)
    plan = command.plan(one)
    assert plan["estimate"].startswith("16 runs")
    later = [run for run in plan["runs"] if run["presumes"]]
    assert len(later) == 2 * 3
    assert {run["key"] for run in later} == {None}
    assert all("ProSelfLC with B still to be chosen, seed" in run["title"] for run in later)
    assert command.plan_in_words(plan).count("\nlater ") == 2 * 3


def test_clothing1m_is_chosen_by_its_own_validation_part(tmp_path: Path) -> None:
    one = Reproduction(artefact("table6"), SCALES["paper"], (0, 1), tmp_path)
    for run in one.look()[1].wanted.values():
        is_best = run.config.parameters.given() in ({"epsilon": 0.25}, {"sharpness": 14.0})
        one.store.add(run.config, facts(0.7, validation=0.8 if is_best else 0.6))
    output, study = one.look()
    assert {run.config.trusted for run in study.asked.values()} == {None}
    chosen = {row[0]: row[1] for row in output.tables[""].rows}
    assert chosen["Boot-soft"] == "ε = 0.25"
    assert chosen["ProSelfLC"] == "B = 14"
    assert chosen["Cross entropy"] == chosen["D2L ¹"] == "default"
    assert all("clean" not in run.title for run in study.asked.values())
    assert {run.config.parameters.sharpness for run in study.wanted.values()} >= {14.0}


def test_a_record_has_all_parameters_of_its_method(tmp_path: Path) -> None:
    config = CPU.config("cifar100", "gce", {}, seed=0, noise="pair:0.4")
    found = Store(tmp_path).add(config, facts(0.5)).facts["config"]
    assert found["method"] == {"name": "gce", "q": 0.7}


def test_committed_records_are_named_by_their_options() -> None:
    """But for those of an earlier store (`carried_over`), which docs/paper.md tells of."""
    paths = sorted(COMMITTED.glob("records/*.json"))
    assert len(paths) > 300
    for path in paths:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert found["key"] == path.stem
        if found["config"]["method"]["name"] == "distillation":
            continue  # its teacher is a directory, which records do not name
        config = Config.from_table(found["config"], path)
        assert found["config"]["method"] == resolved_table(config)["method"]
        assert "carried_over" in found or key(config) == path.stem


def filled(name: str, folder: Path, seeds: tuple[int, ...], value: Any) -> Output:
    """A table all of whose runs are there, their facts made up by a function of their options."""
    one = Reproduction(artefact(name), CPU, seeds, folder)
    for _ in range(2):
        for run in one.look()[1].wanted.values():
            one.store.add(run.config, value(run.config))
    output, study = one.look()
    assert not study.wanted
    return output


def test_table_3_compares_every_setting_with_cross_entropy(tmp_path: Path) -> None:
    gain = {"cce": 0.0, "proselflc": 0.02, "label_smoothing": -0.01}

    def made_up(config: Config) -> dict[str, Any]:
        k = config.recipe.seed
        swing = 0.03 * (k - 1) if config.method == "boot_soft" else 0.0
        return facts(0.5 + 0.1 * k + gain.get(config.method, 0.0) + swing)

    output = filled("table3", tmp_path, (0, 1, 2), made_up)
    less = {row[1]: row[3] for row in output.tables[""].rows}
    assert less["Cross entropy"] == ""  # it is compared with itself
    assert less["ProSelfLC, B = 8"] == "+2.0 ± 0.0"
    assert less["Label smoothing, ε = 0.5"] == "-1.0 ± 0.0"
    # Differences of −3, 0 and 3 points: t of two degrees of freedom, 4.303 · 3 / √3.
    assert less["Boot-soft, ε = 0.25"] == "+0.0 ± 7.5"
    said = " ".join(output.words)
    # Confidence penalty and Boot-soft are as good as cross entropy.
    assert "for 9 of 12 settings" in said
    assert "in 3, the opposite in 3, and in 6 nobody can tell" in said


def test_table_5_says_how_much_a_hyper_parameter_matters(tmp_path: Path) -> None:
    def made_up(config: Config) -> dict[str, Any]:
        B = config.parameters.sharpness
        return facts(0.5 if B is None else 0.6 + 0.01 * B)

    output = filled("table5", tmp_path, (0,), made_up)
    spread = {row[0]: row[1:] for row in output.tables["spread"].rows}
    assert spread["ProSelfLC, ours"] == ("8.0",) * 7
    assert spread["Label smoothing, ours"] == ("0.0",) * 7
    assert spread["ProSelfLC, printed"][5] == "15.4"
    assert "no interval" in " ".join(output.words)


def test_table_7_compares_both_readings_pair_by_pair(tmp_path: Path) -> None:
    def made_up(config: Config) -> dict[str, Any]:
        ece = {"proselflc": 0.1, "cce": 0.3}.get(config.method, 0.0) + 0.01 * config.recipe.seed
        points = [
            {"T": T, "reading": reading, "measure": measure, "ece": ece * T}
            for T in tables.TEMPERATURES.values()
            for reading in tables.READINGS
            for measure in tables.MEASURES
        ]
        return {**facts(0.5, validation=0.5), "test": {"calibration": points}}

    output = filled("table7", tmp_path, (0, 1), made_up)
    cells, less = output.tables["divide"].rows[:2]
    assert cells[1] == "10.5 ± 0.7 (30.5 ± 0.7)"
    assert less[1] == "-20.0 ± 0.0"
    assert less[3] == "-2.5 ± 0.0"


@pytest.mark.parametrize(
    "name", ["table3", "table4", "table5", "table7", "figure2", "figure3", "figure4", "figure5"]
)
def test_committed_results_are_what_the_committed_records_say(name: str) -> None:
    one = Reproduction(artefact(name), CPU, artefact(name).seeds, COMMITTED)
    text = (COMMITTED / "cpu" / f"{name}.md").read_text(encoding="utf-8")
    assert one.look()[0].markdown(pictures=True) == text


def test_every_panel_says_the_noise_rate_that_it_is_of() -> None:
    figures = {
        name: Reproduction(artefact(name), CPU, artefact(name).seeds, COMMITTED).look()[0].figures
        for name in ("figure4", "figure5")
    }
    assert [one.name for one in figures["figure4"]] == [
        f"figure4-0{rate}-{panel}"
        for rate in (2, 3, 4)
        for panel in ("generalisation", "wrong_fitting")
    ]
    assert [one.name for one in figures["figure5"]] == [
        f"figure5-0{rate}-{panel}"
        for rate in (2, 4)
        for panel in ("entropy_clean", "entropy_noisy", "trust")
    ]
    for one in (*figures["figure4"], *figures["figure5"]):
        rate = f"asymmetric 0.{one.name[9]}"
        assert one.title.endswith(f", {rate}")
        assert one.alt.startswith(f"{one.title} over 60 epochs: ")
