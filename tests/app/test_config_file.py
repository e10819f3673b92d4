"""What a run writes down is what `--config` reads back."""

from dataclasses import replace
from pathlib import Path

import pytest

from proselflc.app import cli
from proselflc.app.config import Config
from proselflc.data.opening import Request
from proselflc.training import methods
from proselflc.training.methods import TRAINABLE, Parameters
from proselflc.training.recipe import Recipe


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_parameter_of_every_method_comes_back(name: str, tmp_path: Path) -> None:
    needed = "transition" in TRAINABLE[name].defaults
    given = Parameters(transition=Path("matrix.npy")) if needed else Parameters()
    _assert_comes_back(
        Config(method=name, parameters=methods.resolved(name, given)), tmp_path / "config.toml"
    )


def test_every_other_option_comes_back(tmp_path: Path) -> None:
    recipe = Recipe(
        steps=7, batch_size=9, optimizer="adamw", lr=1e-7, momentum=0.5, weight_decay=0.0,
        schedule="poly", warmup=3, precision="bf16", accumulate=2, clip=0.25, ema=0.9,
        channels_last=True, compile=True, deterministic=True, seed=11,
    )  # fmt: skip
    request = Request(
        data="a table.csv", data_root=Path("där"), labels=Path("l.csv"), label_column="y = 1",
        text_column='"quoted"', path_column="p", id_column="#", features=Path("f.npy"),
        on_bad_image="skip", cache=Path("c"),
    )  # fmt: skip
    config = Config(
        request=request, noise="pairflip:0.29", noise_seed=5, trusted="0.2", model="a.b:c",
        weights=Path("w.pt"), augment="flip", image_size=64, recipe=recipe, eval_steps=13,
        eval_examples=99,
        checkpoint_seconds=0.5, workers=0, tracker="tensorboard",
    )  # fmt: skip
    _assert_comes_back(config, tmp_path / "config.toml")
    other = replace(config, recipe=replace(recipe, steps=None, epochs=3), eval_steps=None)
    _assert_comes_back(replace(other, eval_epochs=2), tmp_path / "config.toml")


def _assert_comes_back(config: Config, path: Path) -> None:
    config.write(path, "0123")
    arguments = ["train", "--config", str(path)]
    cli._read_config(arguments)
    _, bound, _ = cli.app.parse_args(arguments, exit_on_error=False, print_error=False)
    assert bound.arguments["options"] == config
