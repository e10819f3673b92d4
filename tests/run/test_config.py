"""Flags win over the file, the file over defaults; what is wrong in it is named."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from proselflc import methods
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.run import config
from proselflc.run.config import Config, differences, find, read_options, recipes
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
    found = read_options(table, tmp_path / "config.toml")
    assert (found["method.epsilon"], found["data_root"]) == (0.3, Path("/data"))
    assert found["deterministic"] is True
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


def test_a_share_may_be_a_number() -> None:
    assert read_options({"trusted": 0.2}, Path("run.toml")) == {"trusted": "0.2"}


def test_a_recipe_has_a_name() -> None:
    assert set(recipes()) >= {"cifar100", "clothing1m", "imagenet"}
    for name, path in recipes().items():
        assert find(name) == path
        assert read_options(tomllib.loads(path.read_text()), path)["deterministic"] is True
    with pytest.raises(InputError, match='did you mean "cifar100"'):
        find("cifar10")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"eval_epochs": 1, "eval_steps": 1}, "eval_steps"),
        ({"eval_steps": 0}, "eval_steps"),
        ({"image_size": 7}, "image_size"),
        ({"workers": -1}, "workers"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds"),
    ],
)
def test_an_invalid_option_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        Config(**wrong)
    assert error.value.field == field


def test_versions_are_of_what_is_installed() -> None:
    import torch

    assert config.versions()["torch"] == torch.__version__
