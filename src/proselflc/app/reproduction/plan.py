"""What a table or figure needs: runs, and settings that are chosen by runs before them.

The paper's protocol: the labels are corrupted once; 80 % of the examples train, a stratified 20 %
with their true labels chooses ε or B; then all examples train with the chosen value, and the last
checkpoint is measured on the test set, which chooses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proselflc.app.config import Config
from proselflc.app.kept_runs import key
from proselflc.app.reproduction.records import Record, Store
from proselflc.app.reproduction.scale import Scale
from proselflc.app.search_space import EPSILON, SHARPNESS
from proselflc.correction.catalogue import METHODS

TRUSTED = 0.2
SEARCH_SEED = 0
# What is chosen for each of the paper's own rows: the parameter and its grid.
GRIDS: dict[str, tuple[str, tuple[float, ...]]] = {
    "label_smoothing": ("epsilon", EPSILON),
    "confidence_penalty": ("epsilon", EPSILON),
    "boot_soft": ("epsilon", EPSILON),
    "proselflc": ("sharpness", SHARPNESS),
}
LETTERS = {"epsilon": "ε", "sharpness": "B", "trust": "trust"}


@dataclass(frozen=True)
class Wanted:
    """A run that a table or figure needs.

    Attributes:
        config: its options.
        title: for people to read.
        taught_by: the options of its teacher's run, which the config names by its key; or None.
    """

    config: Config
    title: str
    taught_by: Config | None = None


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

    def record(self, wanted: Wanted) -> Record | None:
        """What a run came to, or None: then it is noted as wanted."""
        name = key(wanted.config)
        self.asked.setdefault(name, wanted)
        found = self.store.record(wanted.config)
        if found is None:
            self.wanted[name] = wanted
            return None
        return found

    def trial(self, data: str, noise: str | None, method: str, value: float) -> Record | None:
        """A run on 80 % of the examples, measured on the trusted rest."""
        parameter, _ = GRIDS[method]
        config = self.scale.config(
            data, method, {parameter: value}, seed=SEARCH_SEED, noise=noise, trusted=TRUSTED
        )
        title = f"{named(noise)}, {METHODS[method].title} {LETTERS[parameter]} = {value:g}, trial"
        return self.record(Wanted(config, title))

    def chosen(self, data: str, noise: str | None, method: str) -> dict[str, Any] | None:
        """The parameters that the trusted examples choose; None while trials are missing.

        Of equal values the first of the grid; one that diverged is not chosen where another did
        not. A method without a grid has its defaults.
        """
        if method not in GRIDS:
            return {}
        parameter, grid = GRIDS[method]
        found = [self.trial(data, noise, method, value) for value in grid]
        if any(one is None for one in found):
            return {parameter: grid[0]} if self.presumes else None
        accuracies = [0.0 if one is None else one.validation_accuracy or 0.0 for one in found]
        best = max(range(len(grid)), key=lambda k: (accuracies[k], -k))
        return {parameter: grid[best]}

    def finals(
        self,
        data: str,
        noise: str | None,
        method: str,
        parameters: dict[str, Any],
        weights: Path | None = None,
    ) -> list[Record | None]:
        """A run on all examples with every seed."""
        shown = ", ".join(f"{LETTERS[k]} = {v}" for k, v in parameters.items() if k in LETTERS)
        title = f"{named(noise)}, {METHODS[method].title}{' ' + shown if shown else ''}"
        return [
            self.record(
                Wanted(
                    self.scale.config(
                        data, method, parameters, seed=seed, noise=noise, weights=weights
                    ),
                    f"{title}, seed {seed}",
                )
            )
            for seed in self.seeds
        ]


def named(noise: str | None) -> str:
    """Noise as the paper calls it."""
    if noise is None:
        return "clean"
    kind, _, rate = noise.partition(":")
    return f"{'asymmetric' if kind == 'pair' else kind} {rate}"
