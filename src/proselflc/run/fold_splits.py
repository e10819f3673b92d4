"""How the examples of a run are divided into folds."""

from __future__ import annotations

from proselflc.data import splits as splits_of
from proselflc.data.batches import random_stream
from proselflc.data.labels import Labels
from proselflc.data.splits import Split
from proselflc.errors import InputError, invalid_option
from proselflc.wording import option


def split_examples(labels: Labels, folds: int, seed: int) -> tuple[Split, ...]:
    """Return the folds of a run's examples, a function of its labels and its seed alone."""
    n = len(labels.given)
    if folds < 2:
        raise invalid_option("folds", f"must be at least 2, got {folds}")
    stream = random_stream(seed, "folds", folds)
    # Trusted examples are few, so the split is stratified by them too.
    kinds = labels.given if labels.trusted is None else 2 * labels.given + labels.trusted
    splits = splits_of.folds(kinds, folds, generator=stream)
    if min(len(split.train) for split in splits) < 2:
        raise InputError(
            f"{folds} folds of {n} examples leave fewer than two to train on: there are too few "
            "examples for an audit by folds",
            field="folds",
        )
    masks = {} if labels.trusted is None else {"trusted": labels.trusted, "other": ~labels.trusted}
    for kind, mask in masks.items():
        if not all(mask[split.train].any() for split in splits):
            raise InputError(
                f"the method learns from trusted and other examples, and {folds} folds would leave "
                f"a model without {kind} ones: the run has {int(mask.sum())} such of {n}",
                field="folds",
                fix=f"train the run with another {option('trusted')}",
            )
    return splits
