"""What every source gives: inputs, labels, class names, stable example ids and splits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.labels.label_values import LabelValues
from proselflc.errors import InputError

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]
_SURROGATE = re.compile("[\ud800-\udfff]")  # what Python has and UTF-8 has not


@dataclass(frozen=True)
class Images:
    """Decoded images of one size, kept as bytes."""

    pixels: Bytes  # [n, H, W, channels], channels 1 or 3

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, index: Ints) -> Images:
        return Images(self.pixels[index])


@dataclass(frozen=True)
class ImageFiles:
    """Images that stay on disk until a batch needs them."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, index: Ints) -> ImageFiles:
        return ImageFiles(tuple(self.paths[i] for i in index))


@dataclass(frozen=True)
class Texts:
    """One text per example."""

    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, index: Ints) -> Texts:
        return Texts(tuple(self.texts[i] for i in index))


@dataclass(frozen=True)
class Features:
    """Numbers: a table's columns, or precomputed embeddings. Finite."""

    values: Floats  # [n, D]
    columns: tuple[str, ...] | None = None  # D names, where the source has them

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Ints) -> Features:
        return Features(self.values[index], self.columns)


Inputs: TypeAlias = Images | ImageFiles | Texts | Features


def kind_of(inputs: Inputs) -> str:
    """What they are, in words."""
    names = {Images: "images", ImageFiles: "image files", Texts: "texts", Features: "features"}
    return names[type(inputs)]


@dataclass(frozen=True)
class Part:
    """The examples of one split, row for row.

    Attributes:
        inputs: n inputs.
        labels: [n] int64 class ids in 0 … C−1.
        ids: n distinct strings that name the examples wherever they go.
    """

    inputs: Inputs
    labels: Ints
    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.inputs) == len(self.labels) == len(self.ids)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Ints) -> Part:
        """The examples at these positions, in this order."""
        return Part(self.inputs.take(index), self.labels[index], tuple(self.ids[i] for i in index))


@dataclass(frozen=True)
class Skipped:
    """An example that was left out because it could not be read."""

    id: str
    reason: str


@dataclass(frozen=True)
class Dataset:
    """What a source gives.

    Attributes:
        name: what the user asked for, for people to read.
        train: the examples to learn from, with the labels they were given.
        names: C class names.
        test: for measuring only, or None.
        validation: trusted examples for choosing, or None.
        clean: [n] the true labels of `train` where they are known beside the given ones, or None.
        coarse: [C] the coarse class of every class, or None.
        trusted: [n] whose labels of `train` are known to be right, for a method that learns from
            them as such; or None.
        sample_weight: [n] how much each example of `train` counts in the loss, none below 0 and
            some above; or None for all alike.
        skipped: what could not be read.
        label_values: the labels of the classes as the caller wrote them, in whose type labels come
            back; None for class ids.
    """

    name: str
    train: Part
    names: tuple[str, ...]
    test: Part | None = None
    validation: Part | None = None
    clean: Ints | None = None
    coarse: Ints | None = None
    trusted: Bools | None = None
    sample_weight: Floats | None = None
    skipped: tuple[Skipped, ...] = ()
    label_values: LabelValues | None = None

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.names)

    def with_labels(self, given: Ints, clean: Ints | None) -> Dataset:
        """The same examples with other given labels [n], and the truth about them if known."""
        train = Part(self.train.inputs, given, self.train.ids)
        return replace(self, train=train, clean=clean)

    def learning_from(self, rows: Ints) -> Dataset:
        """The data set whose training part is these rows of it, with all that is known of them."""
        clean, trusted, weight = self.clean, self.trusted, self.sample_weight
        return replace(
            self,
            train=self.train.take(rows),
            clean=None if clean is None else clean[rows],
            trusted=None if trusted is None else trusted[rows],
            sample_weight=None if weight is None else weight[rows],
        )


def checked(dataset: Dataset) -> Dataset:
    """The data set, if it can be learned from; otherwise a sentence on why not.

    Every source ends with this: at least two classes with examples, labels inside the list of
    names, distinct ids, finite features.
    """
    what = dataset.name
    if len(dataset.train) == 0:
        raise InputError(f"{what} holds no training examples")
    for split, part in _parts(dataset):
        if len(part) == 0:
            raise InputError(f"the {split} split of {what} is empty: remove it or fill it")
        low, high = int(part.labels.min()), int(part.labels.max())
        if low < 0 or high >= dataset.num_classes:
            wrong = low if low < 0 else high
            raise InputError(
                f"the {split} split of {what} has label {wrong}, but there are "
                f"{dataset.num_classes} classes: labels must be 0 … {dataset.num_classes - 1}"
            )
        check_rows(f"the {split} split of {what}", part.inputs, part.ids)
    if dataset.sample_weight is not None:
        _check_weight(what, dataset.sample_weight, len(dataset.train))
    check_unicode(what, "class", dataset.names)
    if len(np.unique(dataset.train.labels)) < 2:
        only = dataset.names[int(dataset.train.labels[0])]
        raise InputError(
            f'{what} has examples of one class only, "{only}": at least two are needed to learn'
        )
    return dataset


def check_rows(what: str, inputs: Inputs, ids: Sequence[str]) -> None:
    """Refuse examples with one id twice or an odd one, and features that are not finite."""
    check_unicode(what, "id", ids)
    if len(set(ids)) != len(ids):
        raise InputError(
            f'{what} has the id "{_first_duplicate(ids)}" more than once: ids name examples and '
            "must be distinct"
        )
    if isinstance(inputs, Features):
        finite = np.isfinite(inputs.values).all(axis=1)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise InputError(
                f"{what} has NaN or infinite features in {int((~finite).sum())} rows, the first "
                f'with id "{ids[row]}": fill them in or drop those rows'
            )


def _check_weight(what: str, weight: Floats, n: int) -> None:
    if weight.shape != (n,):
        raise InputError(
            f"{what} has sample weights of the shape {weight.shape}, but {n} training examples: "
            "give one weight for each"
        )
    if not np.isfinite(weight).all() or weight.min() < 0:
        raise InputError(
            f"{what} has a sample weight that is no number or below 0: a weight is 0 or more"
        )
    if weight.max() == 0:
        raise InputError(f"{what} has sample weights that are all 0: nothing would be learned")


def check_unicode(what: str, kind: str, texts: Sequence[str]) -> None:
    """Refuse now what no table could hold when a run is over."""
    odd = next((text for text in texts if _SURROGATE.search(text)), None)
    if odd is not None:
        raise InputError(
            f'{what} has the {kind} "{odd}", which is no Unicode and cannot be written: rename it'
        )


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct class names as people sort them, numbers by their value.

    >>> in_order(["class 10", "class 9", "class 10"])
    ('class 9', 'class 10')
    >>> in_order(["10", "-1", "9"])
    ('-1', '9', '10')
    """
    distinct = set(names)
    if all(re.fullmatch(r"[+-]?[0-9]{1,18}", name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct, key=_natural))


def _natural(name: str) -> tuple[list[str | tuple[int, str]], str]:
    # Text and digits alternate, so like meets like. Digits compare by length, then by value: int()
    # refuses more than 4,300 of them.
    pieces = enumerate(re.split(r"([0-9]+)", name))
    key: list[str | tuple[int, str]] = [
        (len(piece.lstrip("0")), piece.lstrip("0")) if i % 2 else piece for i, piece in pieces
    ]
    return key, name


def _parts(dataset: Dataset) -> list[tuple[str, Part]]:
    parts = [("train", dataset.train), ("test", dataset.test), ("validation", dataset.validation)]
    return [(name, part) for name, part in parts if part is not None]


def _first_duplicate(ids: Sequence[str]) -> str:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no duplicate")
