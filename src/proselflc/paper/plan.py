"""The runs that a table or figure needs, at the paper's size or small enough for a CPU.

The paper's protocol: the labels are corrupted once; 80 % of the examples train, a stratified 20 %
with their true labels chooses ε or B; then all examples train with the chosen value, and the last
checkpoint is measured on the test set, which chooses nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proselflc import methods
from proselflc.errors import InputError, unknown
from proselflc.paper import printed
from proselflc.paper.records import RecordStore, RunRecord
from proselflc.queue.run_store import key
from proselflc.run import config as config_file
from proselflc.run.config import Config
from proselflc.training.run_directory import read_toml
from proselflc.wording import option

TRUSTED = {"cifar100": 0.2}  # of the training examples; other data has a validation part
SEARCH_SEED = 0
SYMBOLS = {"epsilon": "ε", "sharpness": "B", "trust": "trust"}


@dataclass(frozen=True)
class Scale:
    """The size at which the paper's runs are repeated, with a recipe for each of its datasets.

    `eval_epochs` is None for the recipe's own interval, and `seconds` is how long a run takes
    on `hardware`, by dataset.
    """

    name: str
    title: str
    recipes: Mapping[str, str]
    eval_epochs: int | None
    seconds: Mapping[str, float]
    hardware: str

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
        """Return the options of one run.

        `data` is one of the paper's datasets: cifar100, imagenet or clothing1m. The seed is
        also that of the noise, such as "pair:0.4", and `trusted` the share of examples held
        out with their true labels.
        """
        if data not in self.recipes:
            raise InputError(
                f"{option('scale', self.name)} does not include {data}",
                field="scale",
                fix=f"use {option('scale', 'paper')}, on a GPU",
            )
        base = _recipe(self.recipes[data])
        return replace(
            base,
            noise=noise,
            trusted=None if trusted is None else str(trusted),
            weights=weights,
            method=method,
            parameters=parameters,
            recipe=replace(base.recipe, seed=seed),
            eval_epochs=self.eval_epochs if self.eval_epochs is not None else base.eval_epochs,
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
            "one GPU (a guess)",
        ),
    )
}


def find_scale(name: str) -> Scale:
    """Return a scale by its name, or raise InputError."""
    if name not in SCALES:
        raise InputError(unknown("scale", name, SCALES), field="scale")
    return SCALES[name]


@functools.cache
def own_methods() -> tuple[str, ...]:
    """Return the methods that the paper trained itself, in its order."""
    return tuple(methods.titled(title).name for title in printed.OWN)


@functools.cache
def quoted_methods() -> tuple[str, ...]:
    """Return the methods whose results the paper quotes from other work."""
    return tuple(methods.titled(title).name for title in printed.QUOTED)


@dataclass(frozen=True)
class Grid:
    """The values that are tried for the parameter of a method."""

    parameter: str
    values: tuple[float, ...]

    @property
    def symbol(self) -> str:
        """Return the paper's symbol for the parameter."""
        return SYMBOLS[self.parameter]


@functools.cache
def grid_of(method: str) -> Grid | None:
    """Return the grid of one of the paper's own methods; None if nothing is chosen for it."""
    grid = methods.find(method).grid if method in own_methods() else {}
    found = [Grid(name, tuple(map(float, values))) for name, values in grid.items()]
    return found[0] if found else None


def title_of(method: str) -> str:
    """Return the title of a method, which is also the name of its rows in `printed`."""
    return methods.find(method).title


@dataclass(frozen=True)
class PendingRun:
    """A run that a table or figure needs.

    Its config names the run of its teacher, if it has one, by its key. `undecided` is the
    symbol of a parameter that trials have yet to choose.
    """

    config: Config
    title: str
    teacher: Config | None = None
    undecided: str = ""


@dataclass
class RunPlan:
    """The runs that a reproduction needs, and the records of those that are done.

    Asking for a run without a record adds it to `pending`. So a table is computed as if all
    runs were done, and what it asks for in vain is what remains to be trained. With
    `assume_first`, an undecided parameter takes the first value of its grid, so that every run
    is requested. Clothing1M needs a file of ImageNet weights and, for Masking, a file of the
    transitions that it allows.
    """

    store: RecordStore
    scale: Scale
    seeds: Sequence[int]
    assume_first: bool = False
    weights: Path | None = None
    mask: Path | None = None
    pending: dict[str, PendingRun] = field(default_factory=dict)
    requested: dict[str, PendingRun] = field(default_factory=dict)
    _undecided: set[tuple[str, str | None, str]] = field(default_factory=set)

    def record(self, run: PendingRun) -> RunRecord | None:
        """Return the record of a run; without one, return None and add the run to `pending`."""
        name = key(run.config)
        self.requested.setdefault(name, run)
        record = self.store.record(run.config)
        if record is None:
            self.pending.setdefault(name, run)
        return record

    def trial_accuracies(
        self, data: str, noise: str | None, method: str
    ) -> dict[float, float | None]:
        """Return the accuracy on the trusted examples for each value of the method's grid.

        A trial trains on the other examples. Its accuracy is None if it is not done, and
        NaN if it diverged.
        """
        accuracies: dict[float, float | None] = {}
        grid = grid_of(method)
        if grid is None:
            return accuracies
        for value in grid.values:
            config = self.scale.config(
                data,
                method,
                {grid.parameter: value},
                seed=SEARCH_SEED,
                noise=noise,
                trusted=TRUSTED.get(data),
                weights=self._weights(data),
            )
            setting = _format_parameter(grid.parameter, value)
            title = f"{_labels_title(data, noise)}, {title_of(method)} {setting}, trial"
            record = self.record(PendingRun(config, title))
            accuracy = None if record is None else record.validation_accuracy
            accuracies[value] = math.nan if record is not None and accuracy is None else accuracy
        return accuracies

    def _weights(self, data: str) -> Path | None:
        return self.weights if data == "clothing1m" else None

    def chosen_parameters(self, data: str, noise: str | None, method: str) -> dict[str, Any] | None:
        """Return the parameters chosen by the trusted examples; None while trials are missing.

        Ties go to the first value of the grid. A value that diverged is chosen only if all did. A
        method without a grid keeps its defaults.
        """
        grid = grid_of(method)
        if grid is None:
            return {}
        accuracies = self.trial_accuracies(data, noise, method)
        if None in accuracies.values():
            if not self.assume_first:
                return None
            self._undecided.add((data, noise, method))
            return {grid.parameter: grid.values[0]}
        known = {k: v for k, v in accuracies.items() if v is not None and not math.isnan(v)}
        return {grid.parameter: max(known, key=lambda k: known[k], default=grid.values[0])}

    def final_runs(
        self, data: str, noise: str | None, method: str, parameters: dict[str, Any]
    ) -> list[RunRecord | None]:
        """Return the records of the runs on all examples, one for each seed."""
        setting = ", ".join(_format_parameter(k, v) for k, v in parameters.items() if k in SYMBOLS)
        undecided = ""
        grid = grid_of(method)
        if grid is not None and (data, noise, method) in self._undecided:
            undecided = grid.symbol
            setting = f"with {undecided} still to be chosen"
        title = (
            f"{_labels_title(data, noise)}, {title_of(method)}{' ' + setting if setting else ''}"
        )
        records = []
        for seed in self.seeds:
            config = self.scale.config(
                data, method, parameters, seed=seed, noise=noise, weights=self._weights(data)
            )
            run = PendingRun(config, f"{title}, seed {seed}", undecided=undecided)
            records.append(self.record(run))
        return records

    def chosen_runs(self, data: str, noise: str | None, method: str) -> list[RunRecord | None]:
        """Return the final runs with the chosen parameters; None for each if trials are missing."""
        parameters = self.chosen_parameters(data, noise, method)
        if parameters is None:
            return [None] * len(self.seeds)
        return self.final_runs(data, noise, method, parameters)

    @property
    def setting(self) -> str:
        """Return a sentence that describes the scale and the seeds."""
        several = "; mean ± standard deviation" if len(self.seeds) > 1 else ""
        return f"Scale {self.scale.name}: {self.scale.title}. Seeds {self.seed_list}{several}."

    @property
    def seed_list(self) -> str:
        """Return the seeds, separated by commas."""
        return ", ".join(map(str, self.seeds))


def _format_parameter(parameter: str, value: float | str) -> str:
    return f"{SYMBOLS[parameter]} = {value if isinstance(value, str) else f'{value:g}'}"


def _labels_title(data: str, noise: str | None) -> str:
    return "original labels" if data == "clothing1m" else noise_title(noise)


def noise_title(noise: str | None) -> str:
    """Return the paper's name for a kind of noise and its rate."""
    if noise is None:
        return "clean"
    kind, _, rate = noise.partition(":")
    return f"{'asymmetric' if kind == 'pair' else kind} {rate}"
