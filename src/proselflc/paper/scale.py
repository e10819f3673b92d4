"""At which size the paper is reproduced: as it was published, or small enough for a CPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proselflc.errors import InputError, unknown
from proselflc.run import config as config_file
from proselflc.run.config import Config
from proselflc.training.run_directory import read_toml


@dataclass(frozen=True)
class Scale:
    """How the paper's runs are made.

    Attributes:
        name: as --scale takes it.
        title: for people to read.
        recipes: the recipe of each of the paper's data sets that there is at this size.
        eval_epochs: evaluate every so many epochs; None for as often as the recipe says.
        seconds: what a run takes, about, by data set.
        on: what such a run takes so long on.
    """

    name: str
    title: str
    recipes: Mapping[str, str]
    eval_epochs: int | None
    seconds: Mapping[str, float]
    on: str

    def config(
        self,
        data: str,
        method: str,
        parameters: Mapping[str, Any],
        *,
        seed: int,
        noise: str | None = None,
        trusted: float | None = None,
        weights: Path | None = None,
    ) -> Config:
        """The options of one run.

        Args:
            data: one of the paper's data sets: cifar100, imagenet or clothing1m.
            method: by name.
            parameters: of the method; what is left out is its default.
            seed: of the run and of its noise.
            noise: as --noise takes it.
            trusted: the share that is kept aside with its true labels.
            weights: a file of those to start from.

        Raises:
            InputError: there is no such data set at this size.
        """
        if data not in self.recipes:
            raise InputError(
                f"--scale {self.name} has nothing as large as {data}: use --scale paper, on a GPU"
            )
        plain = _recipe(self.recipes[data])
        return replace(
            plain,
            noise=noise,
            trusted=None if trusted is None else str(trusted),
            weights=weights,
            method=method,
            parameters=parameters,
            recipe=replace(plain.recipe, seed=seed),
            eval_epochs=self.eval_epochs if self.eval_epochs is not None else plain.eval_epochs,
        )


@functools.cache
def _recipe(name: str) -> Config:
    path = config_file.find(name)
    return Config.from_table(read_toml(path), path)


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "cpu",
            "20 classes of CIFAR-100 at 16×16, a small convolutional network, 60 epochs",
            {"cifar100": "cifar100-small"},
            3,
            {"cifar100": 90},
            "one core",
        ),
        Scale(
            "paper",
            "the paper's own: ResNet-44 for 30,000 steps on CIFAR-100, ResNet-50 elsewhere",
            {name: name for name in ("cifar100", "imagenet", "clothing1m")},
            None,
            {"cifar100": 2.0 * 3600, "imagenet": 80.0 * 3600, "clothing1m": 2.0 * 3600},
            "one GPU, a guess",
        ),
    )
}


def scale(name: str) -> Scale:
    """A scale by its name.

    Raises:
        InputError: there is none.
    """
    if name not in SCALES:
        raise InputError(unknown("--scale", name, SCALES))
    return SCALES[name]


def located(config: Config, data_root: Path | None) -> Config:
    """The same run with its data elsewhere."""
    return replace(config, request=replace(config.request, data_root=data_root))
