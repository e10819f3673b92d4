"""What is measured on: data with labels known to be wrong, and how a network learns from it.

Every setting is small enough for a CPU and lets early learning come before memorising.

- digits: as `proselflc demo` has it.
- CIFAR-100: the 20 fine classes of the coarse classes 0 … 3, their pixels averaged two by two to
  16×16. Pair noise stays within a coarse class. Of CIFAR-100N the examples whose human label is
  one of the 20 classes.
- Hausa news titles, labelled by rules and by people. Learning rate, weight decay, batch and epochs
  were chosen by cross entropy's accuracy on the clean `dev.tsv`, and never by `test.tsv`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from proselflc.data import noise
from proselflc.data.corruption import corrupt_labels
from proselflc.data.dataset import Dataset, Part, checked, class_ids
from proselflc.data.inputs import Ints
from proselflc.data.sources import cifar, cifar_n, small_images
from proselflc.data.tables import table
from proselflc.errors import InputError
from proselflc.run.fit import fit
from proselflc.run.reader import Run
from proselflc.training.run_directory import Json

DATA_ROOT = Path(__file__).parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Setting:
    """Data, noise and recipe.

    Attributes:
        name: as the command line knows it.
        title: for people to read.
        data: opens it below a data root; InputError where it is not there.
        noise: as `--noise` takes it, or None for labels that are wrong already.
        model, epochs, batch_size, lr, weight_decay, augment: as `fit` takes them; SGD always.
    """

    name: str
    title: str
    data: Callable[[Path], Dataset]
    noise: str | None
    model: str
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    augment: Literal["crop-flip", "none"]

    def to_json(self) -> Json:
        """All that a result depends on."""
        every: Json = {field.name: getattr(self, field.name) for field in fields(self)}
        del every["title"]
        return {**every, "data": self.data.__name__}

    def labelled(self, root: Path, seed: int) -> Dataset:
        """The data with its noise; the true labels are beside the given ones.

        Labels are those that `fit(…, noise=…, seed=…)` would make.
        """
        dataset = self.data(root)
        if self.noise is not None:
            made = corrupt_labels(dataset, noise.parse(self.noise), seed=seed)
            dataset = dataset.with_labels(made.given, dataset.train.labels)
        assert dataset.clean is not None
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
        return fit(
            dataset,
            method=method,
            model=self.model,
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer="sgd",
            lr=self.lr,
            weight_decay=self.weight_decay,
            augment=self.augment,
            seed=seed,
            eval_epochs=eval_epochs,
            out=out,
            overwrite=out is not None,
        )


def load_digits(root: Path) -> Dataset:
    """scikit-learn's digits, which need no root."""
    return small_images.load_digits()


@functools.cache
def cifar_subset(root: Path) -> Dataset:
    """10,000 images of 16×16 in 20 classes."""
    return cifar.shrink(cifar.load(cifar.find("cifar100", root), "cifar100"))


@functools.cache
def cifar_subset_human(root: Path) -> Dataset:
    """7,867 of them, as people labelled them."""
    return cifar.shrink(cifar_n.load("cifar100n", root))


@functools.cache
def hausa_titles(root: Path) -> Dataset:
    """2,045 titles of 5 classes with rules' labels, people's labels as the truth, and a test part.

    `train_clean.tsv` and `train_clean_noisy_labels.tsv` hold the same titles row by row.
    """
    folder = root / "hausa-newsclass"
    clean, given, test = (
        _titles(folder / name)
        for name in ("train_clean.tsv", "train_clean_noisy_labels.tsv", "test.tsv")
    )
    if clean.train.inputs != given.train.inputs:
        raise InputError(f"the two training files in {folder} do not hold the same titles")
    names = clean.names
    return Dataset(
        "hausa-newsclass",
        Part(clean.train.inputs, _coded(given, names), clean.train.ids),
        names,
        test=Part(test.train.inputs, _coded(test, names), test.train.ids),
        clean=clean.train.labels,
    )


def _titles(path: Path) -> Dataset:
    if not path.is_file():
        raise InputError(f"there is no file {path}: say with --data-root where hausa-newsclass is")
    return table.read(path).dataset()


def _coded(dataset: Dataset, names: tuple[str, ...]) -> Ints:
    """[n] the labels as ids of other names of the same classes."""
    labels: Ints = class_ids(dataset.names, names, dataset.name)[dataset.train.labels]
    return labels


def _digits(kind: str, title: str) -> Setting:
    return Setting(
        name=f"digits-{kind}",
        title=f"digits, {title}",
        data=load_digits,
        noise=f"{kind}:0.4",
        model="mlp",
        epochs=60,
        batch_size=64,
        lr=0.05,
        weight_decay=0.0,
        augment="none",
    )


def _cifar(kind: str, title: str, data: Callable[[Path], Dataset], noise: str | None) -> Setting:
    return Setting(
        name=f"cifar-{kind}",
        title=title,
        data=data,
        noise=noise,
        model="convnet",
        epochs=60,
        batch_size=128,
        lr=0.05,
        weight_decay=5e-4,
        augment="crop-flip",
    )


SETTINGS = {
    setting.name: setting
    for setting in (
        _digits("symmetric", "symmetric noise 0.4"),
        _digits("pair", "pair noise 0.4"),
        _cifar("pair", "CIFAR-100 subset, pair noise 0.4", cifar_subset, "pair:0.4"),
        _cifar("symmetric", "CIFAR-100 subset, symmetric noise 0.4", cifar_subset, "symmetric:0.4"),
        _cifar("human", "CIFAR-100N subset, human noise", cifar_subset_human, None),
        Setting(
            name="hausa",
            title="Hausa news titles, labels by rules",
            data=hausa_titles,
            noise=None,
            model="embedding_bag",
            epochs=30,
            batch_size=32,
            lr=1.0,
            weight_decay=5e-4,
            augment="none",
        ),
    )
}
