"""A data set: inputs, labels, class names, stable example ids and splits.

A reader of files gives `Contents`. What is learned from needs labels and names its classes itself
(`Contents.dataset`); a model that is asked for predictions needs no labels and knows its classes
already (`ModelNeeds`, `Contents.joined`). While data is being opened, `NO_LABEL` marks training
examples without a label; `separated` then sets them apart, so that nothing learns from them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, cast

import numpy as np
from typing_extensions import TypeVar

from proselflc.data.inputs import Bools, Floats, Inputs, Ints, concat
from proselflc.errors import InputError, unknown

if TYPE_CHECKING:
    from proselflc.data.labels import LabelValues
    from proselflc.data.tables.kinds import ColumnKind

_SURROGATE = re.compile("[\ud800-\udfff]")  # code points that UTF-8 cannot hold
NO_LABEL = -1  # class id of an example without a label
NAMED = 3  # skipped examples that a note names
SPLITS = ("train", "test", "validation")  # in the order in which embeddings hold them

SplitChoice: TypeAlias = Literal["test", "train", "all"] | None
L_co = TypeVar("L_co", bound="Ints | None", covariant=True, default="Ints")


@dataclass(frozen=True)
class Part(Generic[L_co]):
    """The examples of one split, row for row.

    `Part` has labels; `Part[Ints | None]`, which holds data to predict, may lack them.

    Attributes:
        inputs: n inputs.
        labels: [n] int64 class ids in 0 … C−1, or None.
        ids: n distinct strings, the same in every file about the examples.
    """

    inputs: Inputs
    labels: L_co
    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.inputs) == len(self.ids)
        assert self.labels is None or len(self.labels) == len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: Ints) -> Part[L_co]:
        """Return the examples at these positions, in this order."""
        labels = None if self.labels is None else self.labels[index]
        ids = tuple(self.ids[i] for i in index)
        return Part(self.inputs.take(index), cast(L_co, labels), ids)


@dataclass(frozen=True)
class Unlabelled:
    """Training examples without a label, which are predicted but neither learned nor judged.

    Attributes:
        part: m examples.
        before: [m] how many examples with a label precede each, ascending; so that
            `np.insert(labelled, before, unlabelled)` has the order of the data.
    """

    part: Part[None]
    before: Ints


@dataclass(frozen=True)
class Skipped:
    """An example that was left out because it could not be read.

    Attributes:
        split: the part that it belongs to, if known.
    """

    id: str
    reason: str
    split: str | None = None


def about_skipped(skipped: Sequence[Skipped]) -> str:
    """Return how many examples were left out, and the first few of them."""
    named = ", ".join(f"{one.id} ({one.reason})" for one in skipped[:NAMED])
    if len(skipped) == 1:
        return f"1 example could not be read and is skipped: {named}"
    more = f" and {len(skipped) - NAMED:,} more" if len(skipped) > NAMED else ""
    return f"{len(skipped):,} examples could not be read and are skipped: {named}{more}"


@dataclass(frozen=True)
class Dataset:
    """The data that a source provides, with its labels.

    Attributes:
        name: name for messages and pages, as the user wrote it.
        train: the examples to learn from, with the labels they were given.
        names: C class names.
        test: examples for measurement only, or None.
        validation: trusted examples for model selection, or None.
        clean: [n] the true labels of `train` if they are known beside the given ones, or None.
        coarse: [C] the coarse class of every class, or None.
        trusted: [n] whether each label of `train` is known to be right, for methods that use it;
            or None.
        sample_weight: [n] the weight of each example of `train` in the loss, at least 0 and not
            all 0; None if all weigh the same.
        skipped: examples that could not be read.
        notes: sentences about what may be unexpected in the file.
        unlabelled: training examples without a label, or None.
        label_values: the labels of the classes as the caller wrote them, whose type all returned
            labels have; None for class ids.
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
    notes: tuple[str, ...] = ()
    unlabelled: Unlabelled | None = None
    label_values: LabelValues | None = None

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""
        return len(self.names)

    @property
    def parts(self) -> dict[str, Part]:
        """Return the parts by their split: "train", and "test" and "validation" if present."""
        parts = {"train": self.train, "test": self.test, "validation": self.validation}
        return {split: part for split, part in parts.items() if part is not None}

    def with_parts(self, parts: Mapping[str, Part]) -> Dataset:
        """Return the data set with other parts of the same splits."""
        return replace(self, **cast(Any, parts))

    def with_labels(self, given: Ints, clean: Ints | None) -> Dataset:
        """Return the same examples with other given labels [n] and, if known, the true ones."""
        train = replace(self.train, labels=given)
        return replace(self, train=train, clean=clean)

    def learning_from(self, rows: Ints) -> Dataset:
        """Return the data set with these rows, ascending, as its training part."""
        clean, trusted, weight = self.clean, self.trusted, self.sample_weight
        apart = self.unlabelled
        if apart is not None:
            apart = replace(apart, before=np.searchsorted(rows, apart.before))
        return replace(
            self,
            unlabelled=apart,
            train=self.train.take(rows),
            clean=None if clean is None else clean[rows],
            trusted=None if trusted is None else trusted[rows],
            sample_weight=None if weight is None else weight[rows],
        )


def checked(dataset: Dataset) -> Dataset:
    """Return the data set if it can be learned from, or say why it cannot.

    Every source ends with this: at least two classes with examples, labels inside the list of
    names, distinct ids, finite features. Training examples may lack a label (`NO_LABEL`).
    """
    what = dataset.name
    if len(dataset.train) == 0:
        raise InputError(f"{what} holds no training examples")
    for split, part in dataset.parts.items():
        if len(part) == 0:
            raise InputError(f"the {split} split of {what} is empty", fix="remove it or fill it")
        low, high = int(part.labels.min()), int(part.labels.max())
        if split == "train" and high == NO_LABEL == low:
            raise InputError(
                f"none of the {len(part):,} training examples of {what} has a label",
                fix="label at least two examples of each class",
            )
        if low < (NO_LABEL if split == "train" else 0) or high >= dataset.num_classes:
            raise InputError(
                f"the {split} split of {what} has label {low if low < 0 else high}, but there are "
                f"{dataset.num_classes} classes",
                fix=f"labels must be 0 … {dataset.num_classes - 1}",
            )
        check_rows(f"the {split} split of {what}", part)
    if dataset.sample_weight is not None:
        _check_weight(what, dataset.sample_weight, len(dataset.train))
    check_unicode(what, "class", dataset.names)
    known = np.unique(dataset.train.labels)
    known = known[known != NO_LABEL]
    if len(known) < 2:
        only = dataset.names[int(known[0])]
        raise InputError(
            f'{what} has examples of one class only, "{only}": at least two are needed to learn'
        )
    return dataset


def separated(dataset: Dataset) -> Dataset:
    """Return the data set with its training examples that have no label set apart."""
    is_known = dataset.train.labels != NO_LABEL
    if is_known.all():
        return dataset
    assert dataset.unlabelled is None
    rest = np.flatnonzero(~is_known)
    some = dataset.train.take(rest)
    apart = Unlabelled(Part(some.inputs, None, some.ids), np.cumsum(is_known)[rest])
    return replace(dataset.learning_from(np.flatnonzero(is_known)), unlabelled=apart)


def check_rows(what: str, part: Part[Ints | None]) -> None:
    """Refuse repeated ids, ids that cannot be written, and inputs that cannot be learned from."""
    check_unicode(what, "id", part.ids)
    if len(set(part.ids)) != len(part.ids):
        repeated = next(name for name, count in Counter(part.ids).items() if count > 1)
        raise InputError(
            f'{what} has the id "{repeated}" more than once: ids name examples and must be distinct'
        )
    part.inputs.check(what, part.ids)


def _check_weight(what: str, weight: Floats, n: int) -> None:
    if weight.shape != (n,):
        raise InputError(
            f"{what} has sample weights of shape {weight.shape} for {n} training examples",
            fix="give one weight for each",
        )
    if not np.isfinite(weight).all() or weight.min() < 0:
        raise InputError(
            f"{what} has a sample weight that is negative or not a number",
            fix="give finite weights of 0 or more",
        )
    if weight.max() == 0:
        raise InputError(f"{what} has sample weights that are all 0: nothing would be learned")


def check_unicode(what: str, kind: str, texts: Sequence[str]) -> None:
    """Refuse texts that could not be written to a table at the end of a run."""
    odd = next((text for text in texts if _SURROGATE.search(text)), None)
    if odd is not None:
        raise InputError(
            f'{what} has the {kind} "{odd}", which is not valid Unicode and cannot be written',
            fix="rename it",
        )


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct class names in natural order, numbers by their value.

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
    # Text and digits alternate, so like is compared with like. Digits compare by length, then by
    # value: int() refuses more than 4,300 of them.
    pieces = enumerate(re.split(r"([0-9]+)", name))
    key: list[str | tuple[int, str]] = [
        (len(piece.lstrip("0")), piece.lstrip("0")) if i % 2 else piece for i, piece in pieces
    ]
    return key, name


@dataclass(frozen=True)
class ModelNeeds:
    """The classes, the split and the columns of the data that a trained model predicts.

    Labels become positions in its list of class names. If it was made for some columns of numbers,
    other columns of a table may hold anything.
    """

    names: tuple[str, ...]
    split: SplitChoice = None  # None for the test part if there is one, else for everything
    columns: tuple[str, ...] | None = None
    kinds: tuple[ColumnKind, ...] | None = None  # of the columns, if they are of several kinds
    fill: tuple[float, ...] | None = None  # what stands for missing cells of columns of numbers
    optional: frozenset[str] = frozenset()  # columns that may be absent


@dataclass(frozen=True)
class Contents:
    """The parts that a reader has found."""

    name: str  # as the user wrote it
    parts: dict[str, Part[Ints | None]]  # in the order of `SPLITS` or of the reader
    names: tuple[str, ...] = ()  # C class names, where the contents are to be learned from
    clean: Ints | None = None  # [n] the true labels of the training part, if known
    skipped: tuple[Skipped, ...] = ()  # what could not be read
    notes: tuple[str, ...] = ()  # sentences about what may be unexpected in the file

    def dataset(self) -> Dataset:
        """Return the contents as a data set to learn from, which every reader ensures they are."""
        assert all(part.labels is not None for part in self.parts.values())
        parts = cast(Any, self.parts)
        return checked(
            Dataset(
                self.name,
                names=self.names,
                clean=self.clean,
                skipped=self.skipped,
                notes=self.notes,
                **parts,
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
        split: replace(part, labels=renumbered(part.labels, dataset.names, names, dataset.name))
        for split, part in dataset.parts.items()
    }
    return Contents(dataset.name, parts, skipped=dataset.skipped, notes=dataset.notes)


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
    """Return [len(own)] the positions of class names from outside in the list of known names.

    `what` says where they came from. With `or_numbers` they are class ids if they are not all names
    but all such numbers.
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
    labels: Ints, own: Sequence[str], names: Sequence[str], what: str, *, or_numbers: bool = False
) -> Ints:
    """Return [n] class ids in one list of names as class ids in another; see `class_ids`.

    A class without examples need not be known, and `NO_LABEL` stays what it is.
    """
    used, which = np.unique(labels, return_inverse=True)
    known = used[used != NO_LABEL]
    there = class_ids([own[c] for c in known], names, what, or_numbers=or_numbers)
    return np.insert(there, 0, [NO_LABEL] * (len(used) - len(known)))[which]
