"""Flags win over the file, the file over defaults; what is wrong in it is named."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proselflc import methods
from proselflc.cli import app as cli
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.run import config
from proselflc.run.config import Config, differences, find, flag_value, options, recipes
from proselflc.training.recipe import Recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FULL = Config(
    request=Request(data="digits", data_root=Path("/data")),
    noise="pairflip:0.4",
    noise_seed=7,
    trusted="0.2",
    method="boot_soft",
    parameters=dict(epsilon=0.3),
    model="mlp",
    recipe=Recipe(steps=7, lr=1e-3, deterministic=True, clip=1.0),
    eval_steps=3,
)


def test_a_config_comes_back_from_its_file(tmp_path: Path) -> None:
    FULL.write(tmp_path / "config.toml", "abc")
    table = tomllib.loads((tmp_path / "config.toml").read_text())
    assert table["fingerprint"] == "abc"
    assert table["versions"]["python"].startswith(f"{sys.version_info[0]}.")
    assert table["method"] == {"name": "boot_soft", "epsilon": 0.3}
    assert differences(table, FULL.table()) == []
    found = options(table, tmp_path / "config.toml", [])
    assert found["method.epsilon"] == "0.3"
    assert found["data-root"] == "/data"
    assert found["deterministic"] == "true"
    assert "fingerprint" not in found


def test_every_option_is_a_key() -> None:
    names = set(Config().values())
    for part in (Request, Recipe):
        assert names >= {field.name for field in fields(part)}
    given = {name: 1 for name in methods.find("tf_kd_self").takes}
    assert Config(parameters=given).values().keys() == names | {f"method.{name}" for name in given}
    assert names.isdisjoint({"request", "recipe", "parameters"})


def test_differences_are_named() -> None:
    other = replace(
        FULL,
        recipe=replace(FULL.recipe, lr=0.3),
        method="boot_hard",
        noise=None,
        workers=9,
        request=Request(data="digits", data_root=Path("/elsewhere")),
    )
    assert differences(FULL.table(), other.table()) == [
        "lr (0.001 there, 0.3 now)",
        "method (boot_soft there, boot_hard now)",
        "noise (pairflip:0.4 there, not set now)",
    ]


@pytest.mark.parametrize(
    ("flags", "dropped", "kept"),
    [
        (["--method", "cce"], {"method.epsilon"}, {"method", "steps"}),
        (["--method", "boot_soft"], set(), {"method.epsilon"}),
        (["--epochs", "3"], {"steps"}, {"eval-steps", "lr"}),
        (["--eval-epochs=1"], {"eval-steps"}, {"steps"}),
        ([], set(), {"steps", "eval-steps", "method.epsilon"}),
    ],
)
def test_a_flag_drops_what_it_contradicts_in_the_file(
    flags: list[str], dropped: set[str], kept: set[str]
) -> None:
    found = options(FULL.table(), Path("run.toml"), flags).keys()
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
        ("lr = ", "is no TOML file"),
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


def test_a_share_may_be_a_number() -> None:
    assert options({"trusted": 0.2}, Path("run.toml"), []) == {"trusted": "0.2"}


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
    assert capfd.readouterr() == ("", "")
    table = tomllib.loads((out / "config.toml").read_text())
    assert table["method"] == {"name": "boot_soft", "epsilon": 0.25}
    assert (table["seed"], table["steps"], table["noise"]) == (5, 2, "pairflip:0.4")
    assert "epochs" not in table
    assert json.loads((out / "summary.json").read_text())["noise"] == "pairflip:0.4"


def test_a_recipe_has_a_name() -> None:
    assert set(recipes()) >= {"cifar100", "clothing1m", "imagenet"}
    for name, path in recipes().items():
        assert find(name) == path
        assert options(tomllib.loads(path.read_text()), path, [])["deterministic"] == "true"
    with pytest.raises(InputError, match='did you mean "cifar100"'):
        find("cifar10")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"eval_epochs": 1, "eval_steps": 1}, "give one of --eval-epochs and --eval-steps"),
        ({"eval_steps": 0}, "--eval-steps must be at least 1"),
        ({"image_size": 7}, "--image-size must be at least 8"),
        ({"workers": -1}, "--workers must be at least 0"),
        ({"checkpoint_seconds": float("nan")}, "--checkpoint-seconds must be 0 or more"),
    ],
)
def test_what_cannot_be_meant(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Config(**wrong)


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


def test_versions_are_of_what_is_installed() -> None:
    import torch

    assert config.versions()["torch"] == torch.__version__
