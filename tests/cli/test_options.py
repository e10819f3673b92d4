"""What a run writes down is what `--config` reads back."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proselflc import methods
from proselflc.cli import app as cli
from proselflc.cli.options import behind_flags, flag_value, given_parameters
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.run.config import Config, OutputOptions, check_output
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import FORMAT, RunDirectory, read_toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.mark.parametrize("name", methods.names())
def test_every_parameter_of_every_method_comes_back(name: str, tmp_path: Path) -> None:
    files = {"transition": Path("matrix.npy"), "teacher": Path("runs/t"), "mask": Path("mask.csv")}
    takes = methods.find(name).takes
    given: dict[str, Any] = {key: path for key, path in files.items() if key in takes}
    _assert_comes_back(
        Config(method=name, parameters=methods.resolved(name, given).given()),
        tmp_path / "config.toml",
    )


def test_every_other_option_comes_back(tmp_path: Path) -> None:
    recipe = Recipe(
        steps=7, batch_size=9, optimizer="adamw", lr=1e-7, momentum=0.5, weight_decay=0.0,
        schedule="poly", warmup=3, precision="bf16", accumulate=2, clip=0.25, ema=0.9,
        channels_last=True, compile=True, deterministic=True, seed=11,
    )  # fmt: skip
    request = Request(
        data="a table.csv", data_root=Path("där"), labels=Path("l.csv"), label_column="y = 1",
        text_column='"quoted"', path_column="p", id_column="#", ignore_column=("a b", "c"),
        features=Path("f.npy"), on_bad_image="skip", cache=Path("c"),
    )  # fmt: skip
    config = Config(
        request=request, noise="pairflip:0.29", noise_seed=5, trusted="0.2", model="timm:a-b",
        weights=Path("w.pt"), normalize="none", augment="flip", image_size=64, recipe=recipe,
        eval_steps=13,
        eval_examples=99,
        checkpoint_seconds=0.5, workers=0, tracker="tensorboard",
    )  # fmt: skip
    _assert_comes_back(config, tmp_path / "config.toml")
    other = replace(config, recipe=replace(recipe, steps=None, epochs=3), eval_steps=None)
    _assert_comes_back(replace(other, eval_epochs=2), tmp_path / "config.toml")


def parsed(arguments: list[str]) -> Config:
    """The config that a command would be called with."""
    cli.prepare(arguments)
    _, bound, _ = cli.app.parse_args(arguments, exit_on_error=False, print_error=False)
    own = given_parameters(bound.arguments.get("parameters"))
    options: Config = bound.arguments.get("options", Config())
    return replace(options, parameters=own)


def _assert_comes_back(config: Config, path: Path) -> None:
    config.write(path, "0123")
    arguments = ["train", "--config", str(path)]
    assert parsed(arguments) == config
    assert Config.from_table(read_toml(path), path) == config


@pytest.mark.parametrize("spelling", ["A", "a"])
def test_a_parameter_may_be_spelled_as_in_the_paper(spelling: str) -> None:
    arguments = ["train", "--method", "sl", f"--method.{spelling}", "-9.21"]
    assert parsed(arguments).parameters == dict(A=-9.21)


def test_a_run_does_not_choose_the_code_that_resuming_it_runs(tmp_path: Path) -> None:
    Config(model="antigravity:factory").write(tmp_path / "config.toml", "0123")
    resume = ["train", "--out", str(tmp_path), "--resume"]
    words = r"import the Python module antigravity.* call factory .* model='antigravity:factory'$"
    with pytest.raises(InputError, match=words):
        cli.prepare(resume)
    cli.prepare([*resume, "--model", "antigravity:factory"])


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_a_hostile_file_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "hostile.toml").write_text(text)
    with pytest.raises(InputError, match="is not a TOML file"):
        cli.prepare(["train", "--config", str(tmp_path / "hostile.toml")])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("nonsense", 1, 'unknown key "nonsense"'),
        ("out", "elsewhere", 'unknown key "out"'),
        ("lr", "fast", "lr must be a number"),
        ("lr", -1.0, "must be a positive number"),
        ("augment", "zoom", "augment must be one of crop-flip, crop, flip, none"),
        ("ignore_column", "a", "ignore-column must be a list of strings"),
        ("ignore_column", [1], "ignore-column must be a list of strings"),
        ("steps", 3, "3 epochs and 3 steps"),
        ("method", {"name": 3}, "method must be a string"),
        ("format", "new", "format should be a number"),
        ("format", 0, "format should be a number"),
    ],
)
def test_a_run_that_says_what_cannot_be_is_one_sentence(
    key: str, value: object, words: str
) -> None:
    table = {**Config(recipe=Recipe(epochs=3)).table(), key: value}
    with pytest.raises(InputError) as raised:
        Config.from_table(table, Path("there/config.toml"))
    assert "there/config.toml" in str(raised.value)
    assert words in str(raised.value)
    assert "\\n" not in str(raised.value)


def test_the_format_is_written_and_no_option(tmp_path: Path) -> None:
    Config().write(tmp_path / "config.toml", "0123")
    table = read_toml(tmp_path / "config.toml")
    assert table["format"] == FORMAT == 2
    del table["format"]  # of the first version
    assert Config.from_table(table, tmp_path / "config.toml") == Config()


def test_a_run_of_a_later_format_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    Config().write(path, "0123")
    path.write_text(path.read_text().replace("format = 2", "format = 3\nbrand_new = 1"))
    words = r"a newer version of proselflc \(format 3, this one reads 2\): update"
    with pytest.raises(InputError, match=words):
        cli.prepare(["train", "--out", str(tmp_path), "--resume"])
    with pytest.raises(InputError, match=words):
        check_output(RunDirectory(tmp_path), OutputOptions(tmp_path, resume=True))
    assert check_output(RunDirectory(tmp_path), OutputOptions(tmp_path, overwrite=True))


FULL = Config(
    method="boot_soft", parameters=dict(epsilon=0.3), recipe=Recipe(steps=7, lr=1e-3), eval_steps=3
)


@pytest.mark.parametrize(
    ("flags", "dropped", "kept"),
    [
        (["--method", "cce"], {"method.epsilon"}, {"method", "steps"}),
        (["--method", "boot_soft"], set(), {"method.epsilon"}),
        (["--epochs", "3"], {"steps"}, {"eval_steps", "lr"}),
        (["--eval-epochs=1"], {"eval_steps"}, {"steps"}),
        ([], set(), {"steps", "eval_steps", "method.epsilon"}),
    ],
)
def test_a_flag_drops_what_it_contradicts_in_the_file(
    flags: list[str], dropped: set[str], kept: set[str]
) -> None:
    found = behind_flags(FULL.values(), flags).keys()
    assert not found & dropped
    assert found >= kept


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("learning_rates = 1", 'unknown key "learning-rates"'),
        ("batch = 1", 'unknown key "batch"; did you mean "batch-size"?'),
        (
            '[method]\nname = "boot_soft"\nepsilonn = 1',
            "method boot_soft has no --method.epsilonn; did you mean --method.epsilon?",
        ),
        ("[method]\nepsilon = 1", "method proselflc has no --method.epsilon: it takes --method.s"),
        ('[method]\nname = "boot"\nepsilon = 1', 'unknown method "boot"; did you mean "boot_'),
        ("[recipe]\nlr = 1", 'unknown key "recipe"'),
        ('epochs = "three"', "epochs must be a whole number, got 'three'"),
        ("epochs = 1.5", "epochs must be a whole number, got 1.5"),
        ("epochs = true", "epochs must be a whole number, got True"),
        ("lr = [0.1]", "lr must be a number, got [0.1]"),
        ("deterministic = 1", "deterministic must be true or false, got 1"),
        ("noise = 0.4", "noise must be a string, got 0.4"),
        ("lr = nan", "--lr must be a positive number, got nan"),
        ("epochs = 0", "--epochs must be at least 1, got 0"),
        ("epochs = 1\nsteps = 1", "give one of --epochs and --steps"),
        ("lr = ", "is not a TOML file"),
        ('method = "proselfc"', 'did you mean "proselflc"?'),
    ],
)
def test_a_file_that_is_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    path, out = tmp_path / "run.toml", tmp_path / "run"
    path.write_text(text)
    assert cli.run(["train", "--config", str(path), "--out", str(out), "--quiet"]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert reason in err
    assert not out.exists()


def test_what_is_no_text_is_no_config(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    assert cli.run(["train", "--config", str(tmp_path / "run.toml")]) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_the_file_stands_behind_the_flags(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "run.toml", tmp_path / "run"
    path.write_text(
        'data = "digits"\nnoise = "pair:0.4"\nmodel = "mlp"\nepochs = 9\nseed = 5\nquiet = true\n'
        '[method]\nname = "boot_soft"\nepsilon = 0.5\n'
    )
    flags = ("--config", str(path), "--steps", "2", "--method.epsilon", "0.25", "--out", str(out))
    assert cli.run(["train", *flags]) == 0
    result, said = capfd.readouterr()
    assert result == ""
    assert {line.partition(" ")[0] for line in said.splitlines()} == {"Caution:"}  # two steps
    table = tomllib.loads((out / "config.toml").read_text())
    assert table["method"] == {"name": "boot_soft", "epsilon": 0.25}
    assert (table["seed"], table["steps"], table["noise"]) == (5, 2, "pairflip:0.4")
    assert "epochs" not in table
    assert json.loads((out / "summary.json").read_text())["noise"] == "pairflip:0.4"


@given(st.lists(st.sampled_from(["--out", "--out=a", "b", "--outer", "--resume"]), max_size=6))
def test_the_value_of_a_flag(words: list[str]) -> None:
    """The last word that follows --out, by a plain reading of the words."""
    expected, position = None, 0
    while position < len(words):
        if words[position] == "--out" and position + 1 < len(words):
            position += 1
            expected = words[position]
        elif words[position] == "--out=a":
            expected = "a"
        position += 1
    assert flag_value(words, "--out") == expected
