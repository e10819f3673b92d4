"""What a file or folder holds, split by split: to learn from, or for a model to predict.

A reader gives `Contents`. What is learned from needs a label for every example and names its
classes itself (`Contents.dataset`); a model that is asked for predictions needs no labels and knows
its classes already (`ModelNeeds`, `Contents.joined`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from proselflc.data.dataset import SPLITS, Dataset, Part, Skipped, check_rows, checked
from proselflc.data.inputs import Ints, concat
from proselflc.errors import InputError, unknown

SplitChoice: TypeAlias = Literal["test", "train", "all"] | None


@dataclass(frozen=True)
class ModelNeeds:
    """What a trained model needs to know of data that it is asked about.

    Attributes:
        names: the model's C class names; labels become positions in this list.
        split: the part to read; None for the test part if there is one, else for everything.
        columns: the columns of numbers that the model was made for, or None; other columns of a
            table may hold anything.
    """

    names: tuple[str, ...]
    split: SplitChoice = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Contents:
    """What a reader found.

    Attributes:
        name: what the user asked for.
        parts: the examples by their split, in the order of `SPLITS` or of the reader.
        names: C class names, where the contents are to be learned from.
        clean: [n] the true labels of the training part, or None.
        skipped: what could not be read.
    """

    name: str
    parts: dict[str, Part[Ints | None]]
    names: tuple[str, ...] = ()
    clean: Ints | None = None
    skipped: tuple[Skipped, ...] = ()

    def dataset(self) -> Dataset:
        """Return the contents as a data set to learn from, which every reader ensures they are."""
        parts = {}
        for split, part in self.parts.items():
            assert part.labels is not None
            parts[split] = Part(part.inputs, part.labels, part.ids)
        return checked(
            Dataset(
                self.name,
                parts["train"],
                self.names,
                test=parts.get("test"),
                validation=parts.get("validation"),
                clean=self.clean,
                skipped=self.skipped,
            )
        )

    def joined(self) -> Part[Ints | None]:
        """Return the examples of all parts, one after the other; labelled if every part is."""
        parts = list(self.parts.values())
        if not sum(map(len, parts)):
            raise InputError(f"{self.name} holds no examples")
        inputs = concat([part.inputs for part in parts], "splits")
        labels = [part.labels for part in parts if part.labels is not None]
        whole = Part(
            inputs,
            np.concatenate(labels) if len(labels) == len(parts) else None,
            tuple(name for part in parts for name in part.ids),
        )
        check_rows(self.name, whole)
        return whole


def contents_of(dataset: Dataset, names: Sequence[str]) -> Contents:
    """Return the contents of a data set, with labels as class ids of a model with these names."""
    parts: dict[str, Part[Ints | None]] = {
        split: Part(
            part.inputs, renumbered(part.labels, dataset.names, names, dataset.name), part.ids
        )
        for split, part in dataset.parts.items()
    }
    return Contents(dataset.name, parts, skipped=dataset.skipped)


def choose_splits(available: Collection[str], choice: SplitChoice, what: str) -> tuple[str, ...]:
    """Return the splits that are meant: the test part if there is one, else everything."""
    splits = tuple(split for split in SPLITS if split in available)
    if choice == "all" or (choice is None and "test" not in available):
        return splits
    split = choice or "test"
    if split not in available:
        raise InputError(
            f"{what} has no {split} part, only {' and '.join(splits)}",
            field="split",
            fix="choose another split, or all",
        )
    return (split,)


def class_ids(
    own: Sequence[str], names: Sequence[str], what: str, *, or_numbers: bool = False
) -> Ints:
    """Return [len(own)] the positions of some class names in the list of class names.

    Args:
        own: class names from outside.
        names: the known ones.
        what: where they came from, for the error.
        or_numbers: read them as class ids if they are not all names but all such numbers.
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
    """Return [n] class ids in one list of names as class ids in another; see `class_ids`.

    A class without examples need not be known.
    """
    used, which = np.unique(labels, return_inverse=True)
    there = class_ids([own[c] for c in used], names, what, or_numbers=or_numbers)
    return there[which]
