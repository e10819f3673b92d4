"""CIFAR-100 made small enough for a CPU: a fifth of its classes, a quarter of its pixels."""

from __future__ import annotations

import numpy as np

from proselflc.data.dataset import Dataset, Images, Ints, Part, checked

COARSE_CLASSES = 4  # those kept, 0 … 3, with five classes each
POOLED = 2  # pixels by so many that become one


def made_small(dataset: Dataset) -> Dataset:
    """The examples of the first coarse classes, pixels averaged two by two.

    An example whose given label is of another coarse class is left out, as people's labels can be.

    Args:
        dataset: CIFAR-100 or CIFAR-100N, whole.
    """
    assert dataset.coarse is not None
    assert dataset.test is not None
    kept = np.flatnonzero(dataset.coarse < COARSE_CLASSES)
    number = np.full(dataset.num_classes, -1)
    number[kept] = np.arange(len(kept))
    true = dataset.train.labels if dataset.clean is None else dataset.clean
    rows = np.flatnonzero((number[true] >= 0) & (number[dataset.train.labels] >= 0))
    return checked(
        Dataset(
            f"{dataset.name}-small",
            _part(dataset.train, rows, number),
            tuple(dataset.names[k] for k in kept),
            test=_part(dataset.test, np.flatnonzero(number[dataset.test.labels] >= 0), number),
            clean=None if dataset.clean is None else number[dataset.clean[rows]],
            coarse=dataset.coarse[kept],
        )
    )


def _part(part: Part, rows: Ints, number: Ints) -> Part:
    taken = part.take(rows)
    assert isinstance(taken.inputs, Images)
    n, height, width, channels = taken.inputs.pixels.shape
    shape = n, height // POOLED, POOLED, width // POOLED, POOLED, channels
    pixels = taken.inputs.pixels.reshape(shape).mean((2, 4)).round().astype(np.uint8)
    return Part(Images(pixels), number[taken.labels], taken.ids)
