"""What a table or figure needs: runs, and settings that are chosen by runs before them.

The paper's protocol: the labels are corrupted once; 80 % of the examples train, a stratified 20 %
with their true labels chooses ε or B; then all examples train with the chosen value, and the last
checkpoint is measured on the test set, which chooses nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proselflc import methods
from proselflc.paper import printed
from proselflc.paper.records import Record, Store
from proselflc.paper.scale import Scale
from proselflc.queue.run_store import key
from proselflc.run.config import Config

TRUSTED = {"cifar100": 0.2}  # of the training examples; other data has a validation part
SEARCH_SEED = 0
LETTERS = {"epsilon": "ε", "sharpness": "B", "trust": "trust"}


@functools.cache
def own_methods() -> tuple[str, ...]:
    """Return the methods of the paper's own rows, in its order."""
    return tuple(methods.titled(title).name for title in printed.OWN)


@functools.cache
def quoted_methods() -> tuple[str, ...]:
    """Return the methods of the rows that the paper quotes from elsewhere."""
    return tuple(methods.titled(title).name for title in printed.QUOTED)


@dataclass(frozen=True)
class Grid:
    """What is chosen for one of the paper's own rows.

    Attributes:
        parameter: the name of the parameter.
        values: those that are tried.
    """

    parameter: str
    values: tuple[float, ...]

    @property
    def letter(self) -> str:
        """The parameter in the paper's letter."""
        return LETTERS[self.parameter]


@functools.cache
def grid_of(method: str) -> Grid | None:
    """Return what is chosen for a method; None for one without a grid, or of another's row."""
    grid = methods.find(method).grid if method in own_methods() else {}
    found = [Grid(name, tuple(map(float, values))) for name, values in grid.items()]
    return found[0] if found else None


def title_of(method: str) -> str:
    """Return the title of a method, which is also the name of its rows in `printed`."""
    return methods.find(method).title


@dataclass(frozen=True)
class Wanted:
    """A run that a table or figure needs.

    Attributes:
        config: its options.
        title: for people to read.
        taught_by: the options of its teacher's run, which the config names by its key; or None.
        presumes: the letter of a parameter that trials are still to choose; empty if none is.
    """

    config: Config
    title: str
    taught_by: Config | None = None
    presumes: str = ""


@dataclass
class Study:
    """One reproduction: what it wants, and what there is of it.

    Asking for a run that is not there notes that it is wanted. So a table is written as if all were
    there, and what it asks for in vain is what remains to be done.

    Attributes:
        store: where runs are kept.
        scale: at which size.
        seeds: of the runs that are measured.
        presumes: whether a choice that is still open is taken to be the first value of its grid,
            so that all runs are asked for.
        weights: a file of ImageNet's, to start from on Clothing1M; None where nobody gave one.
        mask: a file of the transitions that Masking is told are possible there; None likewise.
        wanted: runs that were asked for and are not there, by their key.
        asked: all runs that were asked for, by their key.
    """

    store: Store
    scale: Scale
    seeds: Sequence[int]
    presumes: bool = False
    weights: Path | None = None
    mask: Path | None = None
    wanted: dict[str, Wanted] = field(default_factory=dict)
    asked: dict[str, Wanted] = field(default_factory=dict)
    _open: set[tuple[str, str | None, str]] = field(default_factory=set)

    def record(self, wanted: Wanted) -> Record | None:
        """What a run came to, or None: then it is noted as wanted."""
        name = key(wanted.config)
        self.asked.setdefault(name, wanted)
        found = self.store.record(wanted.config)
        if found is None:
            self.wanted.setdefault(name, wanted)
            return None
        return found

    def trial(self, data: str, noise: str | None, method: str, value: float) -> Record | None:
        """A run on 80 % of the examples, measured on the trusted rest."""
        grid = grid_of(method)
        assert grid is not None
        config = self.scale.config(
            data,
            method,
            {grid.parameter: value},
            seed=SEARCH_SEED,
            noise=noise,
            trusted=TRUSTED.get(data),
            weights=self._weights(data),
        )
        title = f"{_labels(data, noise)}, {title_of(method)} {_value(grid.parameter, value)}, trial"
        return self.record(Wanted(config, title))

    def _weights(self, data: str) -> Path | None:
        return self.weights if data == "clothing1m" else None

    def trials(self, data: str, noise: str | None, method: str) -> dict[float, float | None]:
        """Accuracy on the trusted examples by the values of a grid; NaN for one that diverged."""
        found: dict[float, float | None] = {}
        grid = grid_of(method)
        for value in () if grid is None else grid.values:
            one = self.trial(data, noise, method, value)
            accuracy = None if one is None else one.validation_accuracy
            found[value] = math.nan if one is not None and accuracy is None else accuracy
        return found

    def chosen(self, data: str, noise: str | None, method: str) -> dict[str, Any] | None:
        """The parameters that the trusted examples choose; None while trials are missing.

        Of equal values the first of the grid; one that diverged is not chosen where another did
        not. A method without a grid has its defaults.
        """
        grid = grid_of(method)
        if grid is None:
            return {}
        accuracies = self.trials(data, noise, method)
        if None in accuracies.values():
            if not self.presumes:
                return None
            self._open.add((data, noise, method))
            return {grid.parameter: grid.values[0]}
        known = {k: v for k, v in accuracies.items() if v is not None and not math.isnan(v)}
        return {grid.parameter: max(known, key=lambda k: known[k], default=grid.values[0])}

    def finals(
        self,
        data: str,
        noise: str | None,
        method: str,
        parameters: dict[str, Any],
    ) -> list[Record | None]:
        """A run on all examples with every seed."""
        shown = ", ".join(_value(k, v) for k, v in parameters.items() if k in LETTERS)
        presumes = ""
        grid = grid_of(method)
        if grid is not None and (data, noise, method) in self._open:
            presumes = grid.letter
            shown = f"with {presumes} still to be chosen"
        title = f"{_labels(data, noise)}, {title_of(method)}{' ' + shown if shown else ''}"
        return [
            self.record(
                Wanted(
                    self.scale.config(
                        data,
                        method,
                        parameters,
                        seed=seed,
                        noise=noise,
                        weights=self._weights(data),
                    ),
                    f"{title}, seed {seed}",
                    presumes=presumes,
                )
            )
            for seed in self.seeds
        ]


def _value(parameter: str, value: float | str) -> str:
    said = value if isinstance(value, str) else f"{value:g}"
    return f"{LETTERS[parameter]} = {said}"


def _labels(data: str, noise: str | None) -> str:
    """Which labels are learned."""
    return "labels as they came" if data == "clothing1m" else named(noise)


def named(noise: str | None) -> str:
    """Noise as the paper calls it."""
    if noise is None:
        return "clean"
    kind, _, rate = noise.partition(":")
    return f"{'asymmetric' if kind == 'pair' else kind} {rate}"
