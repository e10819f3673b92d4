"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from proselflc.cli import app as cli
from proselflc.data import noise, noise_generators
from proselflc.data.corruption import Corruption, corrupt_data, write
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.data.labels import Labels
from proselflc.data.opening import DATASETS, open_data
from proselflc.data.request import Request
from proselflc.data.tables.cells import neutralize
from proselflc.errors import InputError

COMMAND = [sys.executable, "-m", "proselflc"]


Run = Callable[..., Any]


@pytest.fixture
def run(program: Any) -> Run:
    """Run the command in the current folder; its exit code must be the one expected."""

    def go(*arguments: object, code: int = 0) -> Any:
        done = program.start(*arguments, folder=Path.cwd()).wait()
        assert done.code == code, done.stderr
        assert "\x1b" not in done.stdout + done.stderr  # no colour
        return done

    return go


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [f"r{i},{i},{i * i},{('cat', 'dog', 'owl')[i % 3]}" for i in range(30)]
    path = tmp_path / "animals.csv"
    path.write_text("id,height,width,label\n" + "\n".join(rows))
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["noise", "--help"], ["train", "--help"]])
def test_help_imports_nothing_heavy(run: Run, arguments: list[str]) -> None:
    assert run(*arguments).stdout.startswith("Usage: proselflc")
    traced = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    packages = {line.rpartition("|")[2].strip() for line in traced.stderr.splitlines()}
    assert "cyclopts" in packages
    assert not packages & {"subprocess", "proselflc.cli.doctor"}
    heavy = {"torch", "sklearn", "scipy", "pyarrow", "PIL", "pydantic"}
    assert not packages & (heavy if arguments[0] == "noise" else {*heavy, "numpy"})


def test_help_shows_no_default_where_there_is_none(run: Run) -> None:
    assert '[default: ""]' not in run("predict", "--help").stdout


def test_help_names_every_kind_of_noise(run: Run) -> None:
    words = run("noise", "--help").stdout.replace("│", " ").replace(",", " ").replace(".", " ")
    kinds = {
        *noise.SHORT_NAMES,
        *noise_generators.GENERATORS,
        *noise_generators.GENERATORS_WITHOUT_RATE,
    }
    assert kinds <= set(words.split())


def test_help_flows_and_loses_no_character(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def words(command: str, form: Literal["plaintext", "markdown"]) -> str:
        command_app = cli.app[command]
        before, command_app.help_format = command_app.help_format, form
        try:
            cli.app.help_print([command], console=Console(width=100, file=sys.stdout))
        finally:
            command_app.help_format = before
        return re.sub(r"[\s│─╭╮╰╯`]", "", capsys.readouterr().out)

    for command in ("train", "search", "export", "noise", "completion", "reproduce"):
        assert words(command, "markdown") == words(command, "plaintext"), command
    lines = run("export", "--help").stdout.splitlines()
    assert not any(line.rstrip("│ ").endswith("rows and columns,") for line in lines)


def test_version(run: Run) -> None:
    from proselflc import __version__

    assert run("--version").stdout == f"{__version__}\n"


def test_datasets_lists_every_name(run: Run) -> None:
    lines = run("datasets").stdout.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(DATASETS)]] == list(DATASETS)
    assert "Section 5.3" in next(line for line in lines if line.startswith("clothing1m"))
    listed = json.loads(run("datasets", "--json").stdout)
    assert list(listed) == list(DATASETS)
    assert listed["cifar100"] == {
        "title": "32×32 photos, 20 coarse classes",
        "classes": 100,
        "train": 50000,
        "test": 10000,
        "where": "Sections 5.1, 5.2",
    }


def test_methods_lists_every_method(run: Run) -> None:
    from proselflc import methods

    lines = run("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(methods.every())
    listed = json.loads(run("methods", "--json").stdout)
    assert listed["proselflc"]["where"] == "Eq. 7"
    assert listed["proselflc"]["needs"] is None
    assert listed["pseudo_label"]["needs"] == "a trusted part"
    for one in listed.values():
        assert 0.5 < one["cost"] < 20
    assert lines[0].split() == ["name", "paper", "needs", "cost", "loss", "title"]
    assert set(listed) == set(methods.names())
    assert "× 1.0" in lines[1]  # cross entropy, beside itself


def test_one_method_is_shown_in_full(run: Run) -> None:
    shown = run("methods", "boot_hard").stdout
    assert "(1 − ε) q + ε argmax p" in shown
    assert re.search(r"^--method\.epsilon  0\.2 +0\.125, 0\.25, 0\.5  ε, how much", shown, re.M)
    found = json.loads(run("methods", "distillation", "--json").stdout)
    assert found["title"] == "Knowledge distillation"
    teacher = found["parameters"].pop("teacher")
    assert teacher["required"]
    assert teacher["default"] is None
    assert {k: (v["default"], v["searched"]) for k, v in found["parameters"].items()} == {
        "epsilon": (0.5, [0.125, 0.25, 0.5]),
        "temperature": (1.0, []),
    }
    assert 'did you mean "boot_hard"?' in run("methods", "bot_hard", code=2).stderr


def test_methods_without_measured_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from proselflc import methods

    monkeypatch.setattr(methods, "COSTS", "nothing.json")
    assert methods.costs() == {}
    assert cli.run(["methods"]) == 0
    assert "×" not in capsys.readouterr().out
    assert cli.run(["methods", "cce"]) == 0
    assert "cost" not in capsys.readouterr().out


def test_help_shows_the_parameters_of_the_chosen_method(run: Run, tmp_path: Path) -> None:
    def shown(*arguments: str) -> str:
        return " ".join(run(*arguments, "--help").stdout.replace("│", " ").split())

    default = shown("train")
    assert "--method.sharpness FLOAT B of the global trust, how abruptly it rises." in default
    assert "it rises. [default: 10.0]" in default
    assert "--method NAME --help shows those of another method" in default
    joint = shown("train", "--method", "joint_soft")
    assert "--method.alpha FLOAT α, the weight of the class prior. [default: 1.0]" in joint
    assert "--method.sharpness" not in joint
    both = shown("search", "--method", "joint_soft,sl")
    assert "For joint_soft: α, the weight of the class prior. For sl: α, the weight of H" in both
    (tmp_path / "run.toml").write_text('method = { name = "elr", momentum = 0.8 }')
    assert "--method.momentum FLOAT β, the share" in shown(
        "train", "--config", str(tmp_path / "run.toml")
    )


def test_options_of_all_methods_are_completed(run: Run) -> None:
    script = run("completion", "bash").stdout
    for option in ("sharpness", "epsilon", "teacher", "window", "multiplier"):
        assert f"--method.{option}" in script


def test_methods_in_a_terminal_without_greek() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*COMMAND, "methods"], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "\\u03b5" in done.stdout


def test_noise_on_digits_goes_round(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "noisy.npz"
    done = run("noise", "--kind", "symmetric", "--rate", 0.4, "--seed", 3, "--out", out, "--json")
    result = json.loads(done.stdout)
    assert result["kind"] == "sym_exclusive_exact"
    assert result["noise"] == "sym_exclusive_exact:0.4"
    assert result["flips"] == 518  # ⌊0.4 · 1297⌋
    assert result["examples"] == 1297
    assert result["realised_rate"] == 518 / 1297
    assert result["out"] == str(out)
    clean = open_data(Request("digits"))
    back = open_data(Request(str(out)))
    expected = noise.corrupt(
        clean.train.labels, 10, kind="symmetric", rate="0.4", generator=noise.stream(3)
    )
    assert result["fingerprint"] == expected.fingerprint
    assert noise.fingerprint(back.train.labels, back.num_classes) == expected.fingerprint
    assert_same_data(back, clean.with_labels(expected.given, clean.train.labels))
    assert os.listdir(tmp_path) == ["noisy.npz"]


def test_prose_without_json_is_on_stdout_alone(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "labels.npz"
    done = run("noise", "--kind", "symmetric:0.4", "--out", out)
    assert done.stderr == ""
    labels = Labels.load(out)
    assert done.stdout == (
        "sym_exclusive_exact:0.4 with seed 0: 518 of 1,297 labels of digits flipped, realised rate "
        f"0.399383\nfingerprint {labels.fingerprint}\nwritten to {out}\n"
    )
    again = open_data(Request("digits", labels=out))
    np.testing.assert_array_equal(again.train.labels, labels.given)
    np.testing.assert_array_equal(again.clean, open_data(Request("digits")).train.labels)


def test_the_same_seed_writes_the_same_bytes(run: Run, tmp_path: Path, table: Path) -> None:
    for name in ("a.csv", "b.csv", "a-labels.npz", "b-labels.npz"):
        run("noise", "--data", table, "--kind", "pair:0.5", "--out", tmp_path / name)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert (tmp_path / "a-labels.npz").read_bytes() == (tmp_path / "b-labels.npz").read_bytes()
    run("noise", "--data", table, "--kind", "pair:0.5", "--seed", 1, "--out", tmp_path / "c.csv")
    assert (tmp_path / "a.csv").read_bytes() != (tmp_path / "c.csv").read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npz"])
def test_a_table_of_numbers_goes_round(run: Run, tmp_path: Path, table: Path, suffix: str) -> None:
    out = tmp_path / f"noisy{suffix}"
    result = json.loads(
        run("noise", "--data", table, "--kind", "pair:0.4", "--out", out, "--json").stdout
    )
    assert result["kind"] == "pairflip"
    source = open_data(Request(str(table)))
    expected = noise.corrupt(
        source.train.labels, 3, kind="pairflip", rate="0.4", generator=noise.stream(0)
    )
    back = open_data(Request(str(out)))
    assert_same_data(back, source.with_labels(expected.given, source.train.labels))
    assert noise.fingerprint(back.train.labels, 3) == result["fingerprint"]


def test_a_folder_of_images_goes_round(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "pets"
    for i in range(24):
        place = root / ("train", "test")[i % 2] / ("cat", "dog", "owl")[i % 3] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (i, i, i)).save(place)
    for out in (tmp_path / "noisy.csv", root / "inside.csv"):
        run("noise", "--data", root, "--kind", "symmetric:0.5", "--out", out)
        back = open_data(Request(str(out)))
        source = open_data(Request(str(root)))
        expected = noise.corrupt(
            source.train.labels, 3, kind="symmetric", rate="0.5", generator=noise.stream(0)
        )
        assert_same_data(back, source.with_labels(expected.given, source.train.labels))
    assert "pets/train/cat/0.png" in (tmp_path / "noisy.csv").read_text()  # can be moved along


def test_cells_that_a_spreadsheet_would_execute_are_neutralised(run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "texts.csv", tmp_path / "noisy.csv"
    rows = "".join(f'=ID{k},"@SUM(1,{k})",{("+a", "b")[k % 2]}\n' for k in range(10))
    source.write_text("id,text,label\n" + rows)
    done = run("noise", "--data", source, "--kind", "pair:0.5", "--out", out)
    assert "cells begin like a spreadsheet formula" in done.stderr
    cells = [cell for row in csv.reader(out.read_text().splitlines()) for cell in row]
    assert "'=ID3" in cells
    assert "'@SUM(1,3)" in cells
    assert "'+a" in cells
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]
    assert open_data(Request(str(out))).names == ("'+a", "b")
    places = tmp_path / "places"
    for k in range(4):
        place = places / ("cat", "dog")[k % 2] / f"{k}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (k, k, k)).save(place)
    (places / "cat").rename(places / "=cat")
    run("noise", "--data", places, "--kind", "pair:0.5", "--out", places / "noisy.csv")
    found = open_data(Request(str(places / "noisy.csv"))).train
    assert "./=cat/0.png" in (places / "noisy.csv").read_text()
    assert isinstance(found.inputs, ImageFiles)
    assert all(path.is_file() for path in found.inputs.paths)


def test_noise_starts_from_the_truth_where_it_is_known(
    run: Run, tmp_path: Path, table: Path
) -> None:
    once, twice = tmp_path / "once.csv", tmp_path / "twice.csv"
    run("noise", "--data", table, "--kind", "symmetric:0.5", "--out", once)
    done = run("noise", "--data", once, "--kind", "symmetric:0.2", "--seed", 9, "--out", twice)
    assert done.stderr.startswith("note: noise starts from the true labels, so the 15 wrong ")
    assert str(once) in done.stderr
    back = open_data(Request(str(twice)))
    assert back.clean is not None
    np.testing.assert_array_equal(back.clean, open_data(Request(str(table))).train.labels)
    assert int((back.train.labels != back.clean).sum()) == 6


def test_what_kinds_need_comes_from_options(run: Run, tmp_path: Path, table: Path) -> None:
    def noisy(*options: object) -> Dataset:
        out = tmp_path / "noisy.csv"
        run("noise", "--data", table, "--out", out, "--overwrite", *options)
        return open_data(Request(str(out)))

    clean = open_data(Request(str(table))).train.labels
    np.save(tmp_path / "T.npy", np.eye(3)[[1, 2, 0]])
    turned = noisy("--kind", "transition", "--transition", tmp_path / "T.npy")
    np.testing.assert_array_equal(turned.train.labels, (clean + 1) % 3)

    (tmp_path / "people.csv").write_text("label\n" + "owl\n" * 29 + "cat\n")
    people = noisy("--kind", "human", "--human", tmp_path / "people.csv")
    assert people.train.labels.tolist() == [2] * 29 + [0]

    pairs = noisy("--kind", "confusable_pairs", "--rate", "0.29", "--pairs", "cat:owl")
    flipped = pairs.train.labels != clean
    assert int(flipped.sum()) == 4  # ⌊2.9⌋ of ten, both ways
    assert 1 not in clean[flipped]

    estimated = noisy("--kind", "confusable_pairs:0.5")
    assert int((estimated.train.labels != clean).sum()) == 10

    instance = noisy("--kind", "instance_dependent:0.5")
    assert 0 < int((instance.train.labels != clean).sum()) < 30


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nois"], 'Unknown command "nois". Did you mean "noise"?'),
        (["noise", "--kind", "pair:0.2"], 'Command "noise" parameter --out requires an argument'),
        (
            ["noise", "--kind", "pair:0.2", "--uot", "x.npz"],
            'Command "noise" parameter --out requires an argument. Did you mean --out instead of',
        ),
        (
            ["noise", "--kind", "pair:0.2", "--out", "x.npz", "--dta", "digits"],
            "Unknown option: --dta. Did you mean --data?",
        ),
        (
            ["noise", "--kind", "pair:0.2", "--out", "x.npz", "--seed", "a"],
            "Invalid value for --se",
        ),
        (["noise", "--kind", "pair:0.2", "--out", "x.npz", "--seed=-1"], "the seed is -1"),
        (["noise", "--kind", "par:0.2", "--out", "x.npz"], 'unknown kind of noise "par"; did you'),
        (["noise", "--kind", "pair", "--out", "x.npz"], 'noise "pair" needs a rate'),
        (["noise", "--kind", "pair:2", "--out", "x.npz"], "noise rate '2' is not a number between"),
        (
            ["noise", "--kind", "pair:0.2", "--rate", "0.3", "--out", "x.npz"],
            "the rate is given twice",
        ),
        (["noise", "--kind", "pair:0.2", "--out", "x.docx"], "--out must end in .npz, .csv"),
        (["noise", "--kind", "pair:0.2", "--out", "no/x.npz"], "there is no folder no"),
        (["noise", "--kind", "pair:0.2", "--out", "x.csv"], "a table cannot hold images: write x."),
        (
            ["noise", "--data", "TABLE", "--kind", "human", "--out", "x.npz"],
            "noise human needs labels",
        ),
        (
            ["noise", "--data", "TABLE", "--kind", "human", "--human", "no.csv", "--out", "x.npz"],
            "no.csv does not exis",
        ),
        (
            [
                "noise",
                "--data",
                "TABLE",
                "--kind",
                "transition",
                "--transition",
                "no.npy",
                "--out=x.npz",
            ],
            "no.npy does not exist",
        ),
        (
            ["noise", "--data", "digitss", "--kind", "pair:0.2", "--out", "x.npz"],
            "there is no file or folder digitss, and as a name it is an unknown data set",
        ),
        (
            [
                "noise",
                "--data",
                "TABLE",
                "--kind",
                "confusable_pairs:0.2",
                "--pairs=cat:dg",
                "--out=x.npz",
            ],
            'unknown class "dg"; did you mean "dog"?',
        ),
        (["datasets", "--jsn"], "Unknown option: --jsn. Did you mean"),
        (
            ["embed", "--data", "digits", "--model", "x", "--out", "e.npz"],
            'unknown pretrained model "x"; known: efficientnet_lite0, minilm, wordllama',
        ),
    ],
)
def test_wrong_input_is_one_plain_line_and_exit_code_2(
    run: Run,
    arguments: list[str],
    sentence: str,
    table: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    done = run(*(str(table) if word == "TABLE" else word for word in arguments), code=2)
    assert done.stdout == ""
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("\n")
    assert os.listdir(here) == []


def test_a_file_that_is_there_is_not_replaced_unasked(
    run: Run, tmp_path: Path, table: Path
) -> None:
    before = table.read_text()
    done = run("noise", "--data", table, "--kind", "pair:0.4", "--out", table, code=2)
    assert done.stderr == f"{table} exists: choose another name or pass --overwrite\n"
    assert table.read_text() == before
    run("noise", "--data", table, "--kind", "pair:0.4", "--out", table, "--overwrite")
    assert open_data(Request(str(table))).clean is not None


PATCHED = """
import sys
import proselflc.data.opening as opening

def open_data(request):
    print("opening", file=sys.stderr, flush=True)
    {action}

opening.open_data = open_data
from proselflc.cli.app import main
sys.argv = ["proselflc", "noise", "--kind", "pair:0.2", "--out", "never.npz"]
main()
"""


def test_an_interrupt_leaves_with_130(tmp_path: Path) -> None:
    script = PATCHED.format(action="import time; time.sleep(60)")
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "opening\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "interrupted\n"


def test_a_fault_of_ours_leaves_with_1_and_says_where(tmp_path: Path) -> None:
    script = PATCHED.format(action="raise KeyError('ours')")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.endswith("KeyError: 'ours'\n")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    with subprocess.Popen(
        [*COMMAND, "datasets", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(timeout=60) == 0
    assert errors == b""


def test_run_gives_the_code_that_main_leaves_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.run(["datasets"]) == 0
    assert capsys.readouterr().out.startswith("name")
    monkeypatch.setattr(sys, "argv", ["proselflc", "no-such-command"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2


def assert_same_data(a: Dataset, b: Dataset) -> None:
    """The same examples, labels, truth, ids, names and splits."""
    assert a.names == b.names
    assert a.clean is not None
    np.testing.assert_array_equal(a.clean, b.clean)
    assert_same_part(a.train, b.train)
    assert (a.test is None) == (b.test is None)
    if a.test is not None and b.test is not None:
        np.testing.assert_array_equal(a.test.labels, b.test.labels)
        assert_same_inputs(a.test, b.test)


def assert_same_part(a: Part, b: Part) -> None:
    np.testing.assert_array_equal(a.labels, b.labels)
    assert a.ids == b.ids
    assert_same_inputs(a, b)


def assert_same_inputs(a: Part, b: Part) -> None:
    assert type(a.inputs) is type(b.inputs)
    if isinstance(a.inputs, Images) and isinstance(b.inputs, Images):
        np.testing.assert_array_equal(a.inputs.pixels, b.inputs.pixels)
    elif isinstance(a.inputs, Features) and isinstance(b.inputs, Features):
        assert a.inputs.values.dtype == np.float32
        np.testing.assert_array_equal(a.inputs.values, b.inputs.values)
    elif isinstance(a.inputs, ImageFiles) and isinstance(b.inputs, ImageFiles):
        assert [p.resolve() for p in a.inputs.paths] == [p.resolve() for p in b.inputs.paths]
    else:
        assert a.inputs == b.inputs


# What a table's cells can hold: any text that is not empty and has no white space around it.
cells = (
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
    .map(str.strip)
    .filter(bool)
)


@st.composite
def labelled(draw: st.DrawFn, inputs: str) -> Dataset:
    n = draw(st.integers(3, 12))
    names = ("ant", "bee", "cow")[: draw(st.integers(2, 3))]
    ids = tuple(draw(st.lists(cells, min_size=n, max_size=n, unique=True)))
    y = np.arange(n) % len(names)
    if inputs == "texts":
        part = Part(Texts(tuple(draw(cells) for _ in range(n))), y, ids)
    else:
        numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
        values = [[draw(numbers) for _ in range(2)] for _ in range(n)]
        part = Part(Features(np.array(values, np.float32), ("height", "b c")), y, ids)
    return Dataset("mine", part, names)


@pytest.mark.parametrize("inputs", ["texts", "features"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_texts_and_numbers_go_round(
    inputs: str,
    suffix: str,
    data: st.DataObject,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    dataset = data.draw(labelled(inputs))
    C = dataset.num_classes
    result = noise.corrupt(
        dataset.train.labels, C, kind="symmetric", rate="0.5", generator=noise.stream(seed)
    )
    out = tmp_path_factory.getbasetemp() / f"round{suffix}"
    if len(set(result.given.tolist())) < 2:
        with pytest.raises(InputError, match="examples of one class only"):
            write(dataset, result, out)
        return
    expected = as_written(dataset)
    notes = write(dataset, result, out)
    assert len(notes) == (expected is not dataset)
    assert all("spreadsheet formula" in note for note in notes)
    back = open_data(Request(str(out)))
    assert_same_data(back, expected.with_labels(result.given, dataset.train.labels))


def as_written(dataset: Dataset) -> Dataset:
    """The data with the cells that a spreadsheet would execute as they are written; else itself."""
    part = dataset.train
    ids = tuple(neutralize(name) for name in part.ids)
    inputs = part.inputs
    if isinstance(inputs, Texts):
        inputs = Texts(tuple(neutralize(text) for text in inputs.texts))
    if ids == part.ids and (not isinstance(inputs, Texts) or inputs == part.inputs):
        return dataset
    return replace(dataset, train=Part(inputs, part.labels, ids))


def test_classes_that_a_table_would_sort_otherwise_are_noted(tmp_path: Path) -> None:
    part = Part(Texts(tuple("abcd")), np.array([0, 1, 0, 1]), tuple("wxyz"))
    dataset = Dataset("mine", part, ("zebra", "ant"))
    result = noise.corrupt(part.labels, 2, kind="symmetric", rate="0.5", generator=noise.stream(0))
    notes = write(dataset, result, tmp_path / "a.csv")
    assert len(notes) == 1
    assert "fingerprint will differ" in notes[0]
    back = open_data(Request(str(tmp_path / "a.csv")))
    assert [back.names[c] for c in back.train.labels] == [dataset.names[c] for c in result.given]


def test_what_a_table_or_an_npz_cannot_hold_is_refused(tmp_path: Path) -> None:
    y = np.array([0, 1])
    result = noise.corrupt(y, 2, kind="symmetric", rate="0", generator=noise.stream(0))
    texts = Dataset("mine", Part(Texts(("a", "b")), y, ("0", "1")), ("x", "y"))
    with pytest.raises(InputError, match=r"the data are texts: write a\.csv"):
        write(texts, result, tmp_path / "a.npz")
    values = Features(np.zeros((2, 2), np.float32), ("height", "Label"))
    clash = Dataset("mine", Part(values, y, ("0", "1")), ("x", "y"))
    with pytest.raises(InputError, match='has a column "label"'):
        write(clash, result, tmp_path / "a.csv")
    files = ImageFiles((Path("caf\udce9.png"), Path("b.png")))
    unnamable = Dataset("mine", Part(files, y, ("0", "1")), ("x", "y"))
    with pytest.raises(InputError, match="a table is UTF-8 text"):
        write(unnamable, result, tmp_path / "a.csv")
    assert os.listdir(tmp_path) == []


def test_coarse_classes_make_pair_noise_and_are_noted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = np.arange(80) % 4
    part = Part(Images(np.zeros((80, 2, 2, 3), np.uint8)), y, tuple(map(str, range(80))))
    dataset = Dataset("mine", part, tuple("abcd"), coarse=np.array([0, 1, 0, 1]))
    monkeypatch.setattr("proselflc.data.corruption.open_data", lambda request: dataset)
    done = corrupt_data(Request(), Corruption("pair:0.4", tmp_path / "a.npz"))
    assert done.kind == "asym_cifar100_pair"
    assert done.realised_rate == 0.4
    assert done.notes == ("an .npz file cannot hold coarse classes, which are left out",)
    back = open_data(Request(str(tmp_path / "a.npz")))
    moved = {(int(a), int(b)) for a, b in zip(y, back.train.labels, strict=True) if a != b}
    assert moved == {(0, 2), (2, 0), (1, 3), (3, 1)}


def test_a_seed_is_not_rounded(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("noise", "--kind", "symmetric:0.4", "--seed", "1.5", "--out", "n.npz", code=2)
    assert "1.5" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "n.npz").exists()


def test_noise_that_leaves_one_class_does_not_blame_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\na b,pos\nc d,neg\n")
    kind = ("noise", "--data", "t.csv", "--kind", "symmetric:0.5")
    done = run(*kind, "--out", "n.csv", code=2)
    assert 'after sym_exclusive_exact:0.5 all 2 labels are "' in done.stderr
    assert not (tmp_path / "n.csv").exists()


def test_what_may_surprise_is_noted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "gaps.npz", x=np.zeros((20, 2), np.float32), y=np.arange(20) % 2 * 5)
    kind = ("noise", "--data", "gaps.npz", "--kind", "symmetric:0.4")
    done = run(*kind, "--out", "n.npz")
    assert "note: no example has the true class 1, 2, 3, 4, but" in done.stderr
    names = np.array(list("abcdefghij"))
    x = np.zeros((20, 2), np.float32)
    np.savez(tmp_path / "ten.npz", x=x, y=np.arange(20) % 10, names=names)
    kind = ("noise", "--data", "ten.npz", "--kind", "asym_cifar10:0.1")
    done = run(*kind, "--out", "m.npz")
    assert "note: asym_cifar10 is defined for the classes airplane, " in done.stderr
    assert "note: no label was flipped" in done.stderr


def test_a_folder_with_a_line_break_is_refused_before_a_table_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b\nc"):
        (tmp_path / "img" / name).mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (4, 4)).save(tmp_path / "img" / name / f"{i}.png")
    kind = ("noise", "--data", "img", "--kind", "symmetric:0.3")
    done = run(*kind, "--out", "n.csv", code=2)
    assert "which has a line break" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "n.csv").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "datasets"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == "cannot write the output: no space left on the device\n"
