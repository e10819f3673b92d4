"""Splits of the training data: the paper's trusted fifth, a user's own trusted data, K folds.

scikit-learn's stratified splitters are not used: they refuse or warn about classes with fewer
examples than parts, which real label-noise data has, and round part sizes at random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from proselflc.data.dataset import Dataset, Part, checked, class_ids
from proselflc.data.inputs import Ints
from proselflc.data.noise import exact
from proselflc.errors import InputError


@dataclass(frozen=True)
class Split:
    """Positions in the training set, ascending: every example is in exactly one of the two."""

    train: Ints
    validation: Ints


def trusted_split(
    labels: Ints,
    clean: Ints | None,
    *,
    fraction: float | str | Decimal,
    generator: np.random.Generator,
) -> Split:
    """Set a stratified share of the examples aside for validation, as the paper does with 20 %.

    The share is taken from every class by its true labels, or by the given ones where the truth is
    not known. Class c of n_c examples gives ⌊f·n_c⌋ of them; what is then missing to ⌊f·n⌋ comes
    from the classes with the largest remainders, one each, equal remainders in random order. A
    class never gives its last example: one with a single example stays in training, and where
    such classes leave too few to reach ⌊f·n⌋ the validation set is smaller.

    f is read as the decimal it is written as; `random_stream(seed, purpose)` makes the generator.
    """
    if clean is not None and len(clean) != len(labels):
        raise InputError(
            f"there are {len(clean)} clean labels for {len(labels)} examples: "
            "they must correspond row for row"
        )
    f = exact(fraction, "trusted fraction")
    if not 0 < f < 1:
        raise InputError(
            f"trusted fraction {fraction} leaves nothing to learn from or nothing to trust: "
            "choose one between 0 and 1, such as 0.2"
        )
    y = labels if clean is None else clean
    numerator, denominator = f.as_integer_ratio()
    sizes = np.unique(y, return_counts=True)[1]
    shares = [divmod(numerator * int(size), denominator) for size in sizes]
    take = [share for share, _ in shares]
    missing = numerator * len(y) // denominator - sum(take)
    tie = generator.random(len(sizes))
    by_remainder = sorted(range(len(sizes)), key=lambda c: (-shares[c][1], tie[c]))
    for c in [c for c in by_remainder if take[c] < sizes[c] - 1][:missing]:
        take[c] += 1
    validation = np.concatenate(
        [members[:k] for members, k in zip(_shuffled_classes(y, generator), take, strict=True)]
    )
    if len(validation) == 0:
        raise InputError(
            f"trusted fraction {fraction} of {len(y)} examples is not one example: "
            "choose a larger fraction or give a trusted folder or file"
        )
    return _split(len(y), validation)


def folds(labels: Ints, k: int, *, generator: np.random.Generator) -> tuple[Split, ...]:
    """Return k stratified splits whose validation parts are disjoint and cover all examples.

    The shuffled classes are dealt out one after the other like cards, so that part sizes, and the
    examples of any class in them, differ by one at most.
    """
    if not 2 <= k <= len(labels):
        raise InputError(
            f"cannot make {k} folds of {len(labels)} examples: choose 2 … {len(labels)}"
        )
    cards = np.concatenate(_shuffled_classes(labels, generator))
    return tuple(_split(len(labels), cards[fold::k]) for fold in range(k))


def with_split(dataset: Dataset, split: Split) -> Dataset:
    """Return the data set with its trusted validation part cut out of the training part.

    The validation part has its true labels back, where they are known.
    """
    clean = dataset.clean
    validation = dataset.train.take(split.validation)
    if clean is not None:
        validation = Part(validation.inputs, clean[split.validation], validation.ids)
    return checked(replace(dataset.learning_from(split.train), validation=validation))


def with_trusted(dataset: Dataset, trusted: Dataset) -> Dataset:
    """Return the data set with the user's own trusted examples as its validation part.

    Classes are matched by name; `trusted` may lack some of them. Its true labels count where it
    has them beside the given ones.
    """
    what = f"the trusted data {trusted.name} does not fit {dataset.name}"
    to_class = class_ids(trusted.names, dataset.names, what)
    expected, came = dataset.train.inputs.describe(), trusted.train.inputs.describe()
    if came != expected:
        raise InputError(
            f"the trusted data {trusted.name} has {came}, but {dataset.name} has {expected}: "
            "give trusted examples of the same form"
        )
    labels = trusted.train.labels if trusted.clean is None else trusted.clean
    validation = Part(trusted.train.inputs, to_class[labels], trusted.train.ids)
    return checked(replace(dataset, validation=validation))


def with_trusted_learned(dataset: Dataset) -> Dataset:
    """Return the data set with its trusted validation part at the end of the training part instead.

    An id that is in both parts names two examples, so then all of the trusted ones are renamed.
    """
    train, trusted = dataset.train, dataset.validation
    assert trusted is not None
    ids, rest = trusted.ids, dataset.unlabelled
    if not set(ids).isdisjoint((*train.ids, *(() if rest is None else rest.part.ids))):
        ids = tuple(f"trusted/{one}" for one in ids)
    joined = Part(
        train.inputs.concat([trusted.inputs]),
        np.concatenate((train.labels, trusted.labels)),
        (*train.ids, *ids),
    )
    clean, weight = dataset.clean, dataset.sample_weight
    ones = np.ones(len(trusted), np.float32)
    return checked(
        replace(
            dataset,
            train=joined,
            validation=None,
            clean=None if clean is None else np.concatenate((clean, trusted.labels)),
            trusted=np.arange(len(joined)) >= len(train),
            sample_weight=None if weight is None else np.concatenate((weight, ones)),
        )
    )


def _shuffled_classes(labels: Ints, generator: np.random.Generator) -> list[Ints]:
    """Return the positions of each class that occurs, in class order, each in random order."""
    order = np.argsort(generator.random(len(labels)), kind="stable")
    by_class = order[np.argsort(labels[order], kind="stable")]
    starts = np.flatnonzero(np.diff(labels[by_class])) + 1
    return np.split(by_class, starts)


def _split(n: int, validation: Ints) -> Split:
    in_validation = np.zeros(n, dtype=np.bool_)
    in_validation[validation] = True
    return Split(np.flatnonzero(~in_validation), np.flatnonzero(in_validation))
