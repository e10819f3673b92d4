"""The command: what it lists, plans and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proselflc import methods as known
from proselflc.cli import app as cli
from proselflc.errors import InputError
from proselflc.paper import command, printed
from proselflc.paper.command import Reproduction, find_artefact
from proselflc.paper.plan import SCALES
from proselflc.paper.records import RecordStore
from proselflc.queue import run_store

CPU = SCALES["cpu"]


def test_it_says_where_it_has_put_things(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["reproduce", "figure1", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("# Figure 1")
    assert said.err == f"written: {tmp_path / 'cpu' / 'figure1.md'} and 4 files beside it\n"
    assert len(list((tmp_path / "cpu").iterdir())) == 5
    assert cli.run(["reproduce", "figure1", "--out", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_every_table_and_figure_of_the_paper_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", "--list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    numbered = {f"table{k}" for k in range(1, 8)} | {f"figure{k}" for k in range(1, 6)}
    assert found.keys() == numbered
    # Table 4: 14 trials, five methods with five seeds and five with three, for each of six noises.
    assert found["table4"]["runs"] == 6 * (3 * 3 + 5 + 5 * 5 + 5 * 3)
    assert found["table5"]["runs"] == 15 * 7 * 3
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


def test_results_of_an_earlier_version_are_not_mixed_with_todays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which had the runs of cpu-wide in a folder cpu."""
    old = tmp_path / "cpu" / "table3.md"
    old.parent.mkdir()
    text = f"# Table 3\n\nScale cpu: {SCALES['cpu-wide'].title}. Seeds 0, 1, 2.\n"
    old.write_text(text)
    for name in ("table3", "figure1"):
        assert cli.run(["reproduce", name, "--out", str(tmp_path), "--report"]) == 2
        said = capsys.readouterr().err
        assert len(said.strip().splitlines()) == 1
        assert f"rename the folder to {tmp_path / 'cpu-wide'}" in said
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [old]
    assert old.read_text() == text
    old.parent.rename(tmp_path / "cpu-wide")
    assert cli.run(["reproduce", "figure1", "--out", str(tmp_path), "--quiet"]) == 0


def test_an_archive_that_is_cut_off_is_one_sentence_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RecordStore(tmp_path)
    for seed in range(3):
        config = CPU.config("cifar100", "cce", {}, seed=seed)
        store.add(config, {"summary": {}, "test": {}, "history": []})
    store.pack()
    cut = store.archive.read_bytes()[:-20]
    store.archive.write_bytes(cut)
    for more in ([], ["--report"], ["--dry-run"]):
        assert cli.run(["reproduce", "table3", "--out", str(tmp_path), *more]) == 2
        said = capsys.readouterr().err
        assert len(said.strip().splitlines()) == 1
        assert "records.jsonl.xz is damaged" in said
        assert "restore the file" in said
    with pytest.raises(InputError, match="damaged"):
        store.pack()
    assert store.archive.read_bytes() == cut


def test_records_of_another_version_are_kept_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version whose training differs names its records by other keys."""
    store = RecordStore(tmp_path)
    known = {"summary": {"test_accuracy": 0.5}, "test": {}, "history": []}
    store.add(CPU.config("cifar100", "cce", {}, seed=0), known)
    monkeypatch.setattr(run_store, "_TRAINING", {"training": 2})
    one = Reproduction(find_artefact("table3"), CPU, (0,), tmp_path)
    said: list[str] = []
    monkeypatch.setattr(command, "complete", lambda reproduction, report: None)
    command.run(one, 1, said.append)
    assert len(said) == 1
    assert "has records of other options or of another version; they are kept" in said[0]
    assert len(list(store.records())) == 1
    assert store.pack() == 1


def test_dry_run_shows_every_run_with_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "table3", "--out", str(tmp_path), "--dry-run", "--seeds", "5"]
    assert cli.run([*arguments, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["runs"]) == len({run["key"] for run in plan["runs"]}) == 13
    assert {run["config"]["seed"] for run in plan["runs"]} == {5}
    assert {run["config"]["data"] for run in plan["runs"]} == {"cifar100-tiny"}
    assert cli.run(arguments) == 0
    said = capsys.readouterr().out
    assert "13 runs to do" in said
    assert said.count("ProSelfLC B = ") == 3
    assert not any(tmp_path.iterdir())


def test_seeds_that_are_given_hold_for_every_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "table4", "--out", str(tmp_path), "--dry-run", "--json"]
    for given, own, quoted in (
        ([], {0, 1, 2, 3, 4}, {0, 1, 2}),
        (["--scale", "paper"], {0, 1, 2}, {0, 1, 2}),
        (["--seeds", "3,4,5,6"], {3, 4, 5, 6}, {3, 4, 5, 6}),
    ):
        assert cli.run([*arguments, *given]) == 0
        found: dict[str, set[int]] = {}
        for run in json.loads(capsys.readouterr().out)["runs"]:
            if "trusted" not in run["config"]:
                found.setdefault(run["config"]["method"]["name"], set()).add(run["config"]["seed"])
        assert found["cce"] == found["proselflc"] == own
        assert found["gce"] == found["d2l"] == quoted


@pytest.mark.parametrize(
    ("scale", "generator"),
    [
        ("cpu", "sym_exclusive_bernoulli:0.4"),
        ("cpu-wide", "symmetric:0.4"),
        ("paper", "sym_exclusive_bernoulli:0.4"),
    ],
)
def test_symmetric_noise_flips_with_probability_r_as_in_the_paper(
    scale: str, generator: str
) -> None:
    config = SCALES[scale].config("cifar100", "cce", {}, seed=0, noise="symmetric:0.4")
    assert config.noise == generator
    assert SCALES[scale].config("cifar100", "cce", {}, seed=0, noise="pair:0.4").noise == "pair:0.4"


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
    trials = 3 * 3 + 5  # with the four that are presumed to be chosen
    assert len(runs) == len(printed.CLOTHING) - 1 + trials - 4
    assert {run["config"]["weights"] for run in runs} == {str(tmp_path / "weights")}
    assert cli.run([*arguments, *given, "--mask", str(tmp_path / "mask")]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    methods = {run["config"]["method"]["name"]: run["config"]["method"] for run in runs}
    assert {known.find(name).title for name in methods} == printed.CLOTHING.keys()
    assert methods["masking"]["mask"] == str(tmp_path / "mask")


def test_what_only_a_choice_will_settle_is_planned_too(tmp_path: Path) -> None:
    one = Reproduction(find_artefact("figure5"), CPU, (0, 1, 2), tmp_path)
    assert len(one.pending()) == 2 * (5 + 3)
    assert len(one.evaluate()[1].pending) == 2 * 5
    plan = command.plan(one)
    assert plan["estimate"].startswith("16 runs")
    later = [run for run in plan["runs"] if run["presumes"]]
    assert len(later) == 2 * 3
    assert {run["key"] for run in later} == {None}
    assert all("ProSelfLC with B still to be chosen, seed" in run["title"] for run in later)
    assert command.describe(plan).count("\nlater ") == 2 * 3
