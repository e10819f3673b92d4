"""Examples to judge: inputs with the labels they have, if they have any.

What is learned from is a `Dataset`, which needs a label for every example. A model that is asked
what it thinks of new data needs none, and knows its classes already.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from proselflc.data.dataset import (
    Dataset,
    Features,
    ImageFiles,
    Images,
    Inputs,
    Ints,
    Skipped,
    Texts,
    check_rows,
    kind_of,
)
from proselflc.errors import InputError, unknown

Wanted: TypeAlias = Literal["test", "train", "all"] | None
SPLITS = ("train", "test", "validation")  # the order in which embeddings hold them, too


@dataclass(frozen=True)
class Examples:
    """n examples, row for row.

    Attributes:
        name: what the user asked for, for people to read.
        inputs: n inputs.
        ids: n distinct strings that name the examples wherever they go.
        labels: [n] int64 class ids of the model that is asked, or None where there are no labels.
        skipped: what could not be read.
    """

    name: str
    inputs: Inputs
    ids: tuple[str, ...]
    labels: Ints | None
    skipped: tuple[Skipped, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.inputs) == len(self.ids)
        assert self.labels is None or len(self.labels) == len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


def of_dataset(dataset: Dataset, names: Sequence[str]) -> dict[str, Examples]:
    """The splits of a data set, their labels as class ids of a model with these class names."""
    parts = {"train": dataset.train, "test": dataset.test, "validation": dataset.validation}
    found: dict[str, Examples] = {}
    for split, part in parts.items():
        if part is not None:
            labels = renumbered(part.labels, dataset.names, names, dataset.name)
            skipped = () if found else dataset.skipped  # nobody knows of which split they were
            found[split] = Examples(dataset.name, part.inputs, part.ids, labels, skipped)
    return found


def chosen(available: Collection[str], wanted: Wanted, what: str) -> tuple[str, ...]:
    """Which of the splits there are is meant: the test part if there is one, else everything."""
    splits = tuple(split for split in SPLITS if split in available)
    if wanted == "all" or (wanted is None and "test" not in available):
        return splits
    one = wanted or "test"
    if one not in available:
        raise InputError(
            f"{what} has no {one} part, only {' and '.join(splits)}: choose another split, or all"
        )
    return (one,)


def joined(parts: Sequence[Examples]) -> Examples:
    """The examples of one or more splits, one after the other; labelled if every split is."""
    first = parts[0]
    ids = tuple(name for part in parts for name in part.ids)
    inputs = first.inputs if len(parts) == 1 else _concatenated([p.inputs for p in parts])
    labels = [part.labels for part in parts if part.labels is not None]
    if not ids:
        raise InputError(f"{first.name} holds no examples")
    check_rows(first.name, inputs, ids)
    return Examples(
        first.name,
        inputs,
        ids,
        np.concatenate(labels) if len(labels) == len(parts) else None,
        tuple(skip for part in parts for skip in part.skipped),
    )


def class_ids(
    own: Sequence[str], names: Sequence[str], what: str, *, or_numbers: bool = False
) -> Ints:
    """[len(own)] where each of some class names stands in the list of class names.

    Args:
        own: class names that came from outside.
        names: those that are known.
        what: where they came from, for the error.
        or_numbers: take them for class ids if they are not all names but all such numbers.
    """
    places = {name: i for i, name in enumerate(names)}
    if or_numbers and not all(name in places for name in own):
        numbers = {str(i): i for i in range(len(names))}
        if all(name in numbers for name in own):
            places = numbers
    for name in own:
        if name not in places:
            raise InputError(f"{what}: {unknown('class', name, names)}")
    return np.array([places[name] for name in own], dtype=np.int64)


def renumbered(
    labels: Ints,
    own: Sequence[str],
    names: Sequence[str],
    what: str,
    *,
    or_numbers: bool = False,
) -> Ints:
    """[n] class ids in one list of names as class ids in another; see `class_ids`.

    A class that no example has need not be known.
    """
    used, which = np.unique(labels, return_inverse=True)
    there = class_ids([own[c] for c in used], names, what, or_numbers=or_numbers)
    return there[which]


def _concatenated(inputs: Sequence[Inputs]) -> Inputs:
    images = [i.pixels for i in inputs if isinstance(i, Images)]
    features = [i for i in inputs if isinstance(i, Features)]
    files = [i.paths for i in inputs if isinstance(i, ImageFiles)]
    texts = [i.texts for i in inputs if isinstance(i, Texts)]
    if len(images) == len(inputs) and len({i.shape[1:] for i in images}) == 1:
        return Images(np.concatenate(images))
    if len(features) == len(inputs) and len({i.values.shape[1] for i in features}) == 1:
        return Features(np.concatenate([i.values for i in features]), features[0].columns)
    if len(files) == len(inputs):
        return ImageFiles(tuple(path for paths in files for path in paths))
    if len(texts) == len(inputs):
        return Texts(tuple(text for some in texts for text in some))
    kinds = " and ".join(dict.fromkeys(kind_of(i) for i in inputs))
    raise InputError(f"the splits hold {kinds} of different shapes: choose one of them")
