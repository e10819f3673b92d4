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
from proselflc.errors import InputError
from proselflc.paper import printed
from proselflc.paper.records import RecordStore, RunRecord
from proselflc.queue.run_store import key
from proselflc.run import config as config_file
from proselflc.run.config import Config
from proselflc.training.method import Value
from proselflc.training.run_directory import read_toml
from proselflc.wording import option

TRUSTED = {"cifar100": 0.2}  # of the training examples; other data has a validation part
SEARCH_SEED = 0
SYMBOLS = {"epsilon": "ε", "sharpness": "B", "trust": "trust"}


@dataclass(frozen=True)
class Scale:
    """The size at which the paper's runs are repeated, with a recipe for each of its datasets.

    `eval_epochs` is None for the recipe's own interval, and `seconds` is how long a run takes
    on one core, by dataset; at the paper's scale, which needs a GPU, it is empty. `symmetric` is
    the generator of symmetric noise. `seeds` has the number of seeds of a table or figure, by its
    name, where it is not 3.
    """

    name: str
    title: str
    recipes: Mapping[str, str]
    eval_epochs: int | None
    seconds: Mapping[str, float]
    symmetric: str = "sym_exclusive_bernoulli"
    seeds: Mapping[str, int] = field(default_factory=dict)

    def default_seeds(self, name: str) -> tuple[int, ...]:
        """Return the seeds of the committed results of a table or figure."""
        return tuple(range(self.seeds.get(name, 3)))

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
        also that of the noise, such as "pair:0.4" or "symmetric:0.4", and `trusted` the share
        of examples held out with their true labels.
        """
        kind, _, rate = (noise or "").partition(":")
        if data not in self.recipes:
            raise InputError(
                f"{option('scale', self.name)} does not include {data}",
                field="scale",
                fix=f"use {option('scale', 'paper')}, on a GPU",
            )
        base = _recipe(self.recipes[data])
        return replace(
            base,
            noise=f"{self.symmetric}:{rate}" if kind == "symmetric" else noise,
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
            "10 classes of CIFAR-100 at 16×16, a small convolutional network, 40 epochs",
            {"cifar100": "cifar100-tiny"},
            2,
            {"cifar100": 30},
            seeds={"table4": 5},
        ),
        Scale(
            "cpu-wide",
            "20 classes of CIFAR-100 at 16×16, a small convolutional network, 60 epochs",
            {"cifar100": "cifar100-small"},
            3,
            {"cifar100": 90},
            symmetric="symmetric",
            seeds={"table5": 1},
        ),
        Scale(
            "paper",
            "the paper's own: ResNet-44 for 30,000 steps on CIFAR-100, ResNet-50 elsewhere",
            {name: name for name in ("cifar100", "imagenet", "clothing1m")},
            None,
            {},
            seeds={"table5": 1},
        ),
    )
}


@functools.cache
def own_methods() -> tuple[str, ...]:
    """Return the methods that the paper trained itself, in its order."""
    return tuple(methods.titled(title).name for title in printed.OWN)


@functools.cache
def quoted_methods() -> tuple[str, ...]:
    """Return the methods whose results the paper quotes from other work."""
    return tuple(methods.titled(title).name for title in printed.QUOTED)


def grid_of(method: str) -> Mapping[str, tuple[Value, ...]]:
    """Return the values to try for the parameter of one of the paper's own methods, if any."""
    return methods.find(method).grid if method in own_methods() else {}


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
    transitions that it allows. The methods that the paper quotes have the first `quoted` seeds.
    """

    store: RecordStore
    scale: Scale
    seeds: Sequence[int]
    assume_first: bool = False
    weights: Path | None = None
    mask: Path | None = None
    quoted: int | None = None
    pending: dict[str, PendingRun] = field(default_factory=dict)
    requested: dict[str, PendingRun] = field(default_factory=dict)
    _undecided: set[tuple[str, str | None, str]] = field(default_factory=set)

    def seeds_of(self, method: str) -> Sequence[int]:
        """Return the seeds of a method's final runs."""
        return self.seeds[: self.quoted] if method in quoted_methods() else self.seeds

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
    ) -> dict[Value, float | None]:
        """Return the accuracy on the trusted examples for each value of the method's grid.

        A trial trains on the other examples. Its accuracy is None if it is not done, and
        NaN if it diverged.
        """
        accuracies: dict[Value, float | None] = {}
        for parameter, value in ((name, v) for name, vs in grid_of(method).items() for v in vs):
            own, trusted = {parameter: value}, TRUSTED.get(data)
            run = self._run(data, noise, method, own, SEARCH_SEED, "trial", trusted=trusted)
            record = self.record(run)
            accuracy = None if record is None else record.validation_accuracy
            accuracies[value] = math.nan if record is not None and accuracy is None else accuracy
        return accuracies

    def _run(
        self,
        data: str,
        noise: str | None,
        method: str,
        parameters: Mapping[str, Any],
        seed: int,
        what: str,
        *,
        trusted: float | None = None,
        undecided: str = "",
    ) -> PendingRun:
        config = self.scale.config(
            data,
            method,
            parameters,
            seed=seed,
            noise=noise,
            trusted=trusted,
            weights=self.weights if data == "clothing1m" else None,
        )
        known = [f"{SYMBOLS[k]} = {_plain(v)}" for k, v in parameters.items() if k in SYMBOLS]
        setting = f"with {undecided} still to be chosen" if undecided else ", ".join(known)
        labels = "original labels" if data == "clothing1m" else noise_title(noise)
        title = f"{labels}, {title_of(method)}{' ' + setting if setting else ''}, {what}"
        return PendingRun(config, title, undecided=undecided)

    def chosen_parameters(self, data: str, noise: str | None, method: str) -> dict[str, Any] | None:
        """Return the parameters chosen by the trusted examples; None while trials are missing.

        Ties go to the first value of the grid. A value that diverged is chosen only if all did. A
        method without a grid keeps its defaults.
        """
        grid = grid_of(method)
        if not grid:
            return {}
        ((parameter, values),) = grid.items()
        accuracies = self.trial_accuracies(data, noise, method)
        if None in accuracies.values():
            if not self.assume_first:
                return None
            self._undecided.add((data, noise, method))
            return {parameter: values[0]}
        known = {k: v for k, v in accuracies.items() if v is not None and not math.isnan(v)}
        return {parameter: max(known, key=lambda k: known[k], default=values[0])}

    def final_runs(
        self, data: str, noise: str | None, method: str, parameters: dict[str, Any]
    ) -> list[RunRecord | None]:
        """Return the records of the runs on all examples, one for each seed."""
        undecided = ""
        if (data, noise, method) in self._undecided:
            undecided = ", ".join(SYMBOLS[name] for name in grid_of(method))
        runs = (
            self._run(data, noise, method, parameters, seed, f"seed {seed}", undecided=undecided)
            for seed in self.seeds_of(method)
        )
        return list(map(self.record, runs))

    def chosen_runs(self, data: str, noise: str | None, method: str) -> list[RunRecord | None]:
        """Return the final runs with the chosen parameters; None for each if trials are missing."""
        parameters = self.chosen_parameters(data, noise, method)
        if parameters is None:
            return [None] * len(self.seeds_of(method))
        return self.final_runs(data, noise, method, parameters)

    @property
    def setting(self) -> str:
        """Return a sentence that describes the scale and the seeds."""
        several = "; mean ± standard deviation" if len(self.seeds) > 1 else ""
        return f"Scale {self.scale.name}: {self.scale.title}. Seeds {self.seed_list}{several}."

    @property
    def quoted_seeds(self) -> str:
        """Return how many of several seeds the quoted methods have, as the end of a sentence."""
        if self.quoted is None or self.quoted >= len(self.seeds):
            return ""
        return f", with the first {self.quoted} seeds"

    @property
    def seed_list(self) -> str:
        """Return the seeds, separated by commas."""
        return ", ".join(map(str, self.seeds))


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def noise_title(noise: str | None) -> str:
    """Return the paper's name for a kind of noise and its rate."""
    if noise is None:
        return "clean"
    kind, _, rate = noise.partition(":")
    return f"{'asymmetric' if kind == 'pair' else kind} {rate}"
