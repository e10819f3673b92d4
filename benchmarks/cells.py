"""Data with a known share of wrong labels, and the default recipe that a network learns it by.

A cell is a data set, a kind of noise and a rate. Nothing here was tuned: model, optimiser, rate,
epochs and augmentation are those that `proselflc train` chooses for the data.

| data | examples | classes |
|---|---|---|
| `digits`, `wine`, `breast-cancer`, `iris` | all of scikit-learn's (digits: its training part) | |
| `fashion` | 3,000 of Fashion-MNIST's training images, from Debian's package | 10 |
| `cifar` | 5,000 images of CIFAR-100's coarse classes 0 … 3, 16×16 pixels | 20 |
| `cifar-human` | of the images above, those with a human label of the 20 classes | 20 |
| `hausa` | 2,045 news titles with the labels of people | 5 |
| `hausa-rules` | the same titles with the labels of rules | 5 |
| `cifar-other` | 5,000 images of coarse classes 8 … 11 | 20 |
| `fashion-other` | 3,000 other training images | 10 |

`iris`, `cifar-other` and `fashion-other` were held back: no rule of the audit was chosen on them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from settings import hausa_titles

from proselflc.data import noise
from proselflc.data.corruption import corrupt_labels
from proselflc.data.dataset import Dataset, Part, checked
from proselflc.data.inputs import Features, Images, Ints
from proselflc.data.sources import cifar, cifar_n, small_images
from proselflc.errors import InputError
from proselflc.run.fit import fit
from proselflc.run.reader import Run
from proselflc.training.run_directory import Json

HELD_BACK = ("iris", "cifar-other", "fashion-other")
DEVELOPMENT_SEEDS = (100, 1, 2, 3)  # the rules were chosen on them
SEEDS = (4, 5, 6)  # the reported ones
RATES = (0.02, 0.05, 0.1, 0.2, 0.4)
FEWER_RATES = (0.1, 0.4)


@dataclass(frozen=True)
class Data:
    """A data set and the defaults for its kind of input."""

    open: Callable[[Path], Dataset]  # below a data root
    model: str
    augment: str = "none"
    optimizer: str = "sgd"
    lr: float = 0.05
    weight_decay: float = 0.0
    kinds: tuple[str, ...] = ("symmetric", "pairflip")
    rates: tuple[float, ...] = RATES


@dataclass(frozen=True)
class Cell:
    """A data set with noise; `noise` is None for labels as they come."""

    data: str
    noise: str | None = None
    epochs: int = 30
    batch_size: int = 128

    @property
    def name(self) -> str:
        return self.data if self.noise is None else f"{self.data}-{self.noise.replace(':', '-')}"

    def to_json(self) -> Json:
        """Return everything that a result depends on."""
        data = DATA[self.data]
        return {
            "data": self.data,
            "noise": self.noise,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "model": data.model,
            "augment": data.augment,
            "optimizer": data.optimizer,
            "lr": data.lr,
            "weight_decay": data.weight_decay,
        }

    def labelled(self, root: Path, seed: int) -> Dataset:
        """Return the data with its noise; the true labels are beside the given ones."""
        dataset = DATA[self.data].open(root)
        if dataset.clean is None:
            dataset = replace(dataset, clean=dataset.train.labels)
        if self.noise is not None:
            made = corrupt_labels(dataset, noise.parse(self.noise), seed=seed)
            dataset = dataset.with_labels(made.given, dataset.train.labels)
        return checked(dataset)

    def fit(
        self,
        dataset: Dataset,
        *,
        method: str,
        seed: int,
        out: Path | None = None,
        eval_epochs: int | None = None,
    ) -> Run:
        """Train; what an interrupted run has left in `out` is replaced."""
        data = DATA[self.data]
        options: dict[str, Any] = {"optimizer": data.optimizer, "augment": data.augment}
        return fit(
            dataset,
            method=method,
            model=data.model,
            epochs=self.epochs,
            batch_size=min(self.batch_size, len(dataset.train)),
            lr=data.lr,
            weight_decay=data.weight_decay,
            seed=seed,
            eval_epochs=eval_epochs,
            out=out,
            overwrite=out is not None,
            notes=False,
            **options,
        )


def _table(name: str) -> Callable[[Path], Dataset]:
    def load(root: Path) -> Dataset:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        labels: Ints = found.target.astype(np.int64)
        ids = tuple(str(k) for k in range(len(labels)))
        inputs = Features(found.data.astype(np.float32))
        return Dataset(name, Part(inputs, labels, ids), tuple(map(str, found.target_names)))

    return load


def _digits(root: Path) -> Dataset:
    return replace(small_images.load_digits(), test=None)


def _fashion(first: int) -> Callable[[Path], Dataset]:
    @functools.cache
    def load(root: Path) -> Dataset:
        found = small_images.load(small_images.find("fashion-mnist", root), "fashion-mnist")
        rows = np.arange(first, first + 3000)
        return replace(found, train=found.train.take(rows), test=None)

    return load


@functools.cache
def _cifar100(root: Path) -> Dataset:
    return cifar.load(cifar.find("cifar100", root), "cifar100")


def _cifar(first: int) -> Callable[[Path], Dataset]:
    @functools.cache
    def load(root: Path) -> Dataset:
        return _small(_cifar100(root), first)

    return load


@functools.cache
def _cifar_human(root: Path) -> Dataset:
    return _small(cifar_n.load("cifar100n", root), 0)


def _small(dataset: Dataset, first: int) -> Dataset:
    """Return half of the images whose true and given labels are in four coarse classes, 16×16."""
    assert dataset.coarse is not None
    kept = np.flatnonzero((dataset.coarse >= first) & (dataset.coarse < first + 4))
    number = np.full(dataset.num_classes, -1)
    number[kept] = np.arange(len(kept))
    true = dataset.train.labels if dataset.clean is None else dataset.clean
    rows = np.flatnonzero((number[true] >= 0) & (number[dataset.train.labels] >= 0))[::2]
    part = dataset.train.take(rows)
    assert isinstance(part.inputs, Images)
    pixels = part.inputs.pixels  # [n, 32, 32, 3]
    n = len(pixels)
    halved = pixels.reshape(n, 16, 2, 16, 2, -1).mean((2, 4)).round().astype(np.uint8)
    return Dataset(
        dataset.name,
        Part(Images(halved), number[part.labels], part.ids),
        tuple(dataset.names[k] for k in kept),
        clean=number[true[rows]],
    )


@functools.cache
def _hausa(root: Path) -> Dataset:
    found = hausa_titles(root)
    assert found.clean is not None
    part = Part(found.train.inputs, found.clean, found.train.ids)
    return replace(found, train=part, test=None)


def _hausa_rules(root: Path) -> Dataset:
    return replace(hausa_titles(root), test=None)


_IMAGES: dict[str, Any] = {"model": "convnet", "weight_decay": 5e-4}
_TEXTS: dict[str, Any] = {"model": "embedding_bag", "optimizer": "adamw", "lr": 0.005}
DATA = {
    "digits": Data(_digits, **_IMAGES),
    "wine": Data(_table("wine"), "mlp"),
    "breast-cancer": Data(_table("breast_cancer"), "mlp", kinds=("symmetric",)),
    "fashion": Data(_fashion(0), **_IMAGES),
    "cifar": Data(_cifar(0), augment="crop-flip", **_IMAGES),
    "cifar-human": Data(_cifar_human, augment="crop-flip", **_IMAGES, rates=()),
    "hausa": Data(_hausa, **_TEXTS),
    "hausa-rules": Data(_hausa_rules, **_TEXTS, rates=()),
    "iris": Data(_table("iris"), "mlp", rates=FEWER_RATES),
    "fashion-other": Data(_fashion(30_000), **_IMAGES, rates=FEWER_RATES),
    "cifar-other": Data(_cifar(8), augment="crop-flip", **_IMAGES, rates=FEWER_RATES),
}
CELLS = {
    cell.name: cell
    for name, data in DATA.items()
    for cell in (
        Cell(name),
        *(Cell(name, f"{kind}:{rate:g}") for kind in data.kinds for rate in data.rates),
    )
}


def available(cell: Cell, root: Path) -> bool:
    """Return whether the data of a cell is on this machine."""
    try:
        DATA[cell.data].open(root)
    except InputError:
        return False
    return True
