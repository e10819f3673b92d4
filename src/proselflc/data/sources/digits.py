"""scikit-learn's 1,797 handwritten digits: real data without a download."""

from __future__ import annotations

import hashlib

import numpy as np

from proselflc.data.dataset import Dataset, Part, checked
from proselflc.data.inputs import Images, Ints

TRAIN = 1297
TEST = 500


def load() -> Dataset:
    """Return the digits as `Images` [n, 8, 8, 1], split 1,297 / 500.

    The order is that of the SHA-256 of the ids, "digits/0000" … "digits/1796" by scikit-learn's
    order, so it is the same on every platform and with every version of numpy.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # 0 … 16 becomes 0 … 255, rounded half up in whole numbers.
    pixels = ((bunch.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int64)
    order = permutation()
    ids = tuple(_id(i) for i in range(TRAIN + TEST))
    everything = Part(Images(pixels), labels, ids)
    return checked(
        Dataset(
            name="digits",
            train=everything.take(order[:TRAIN]),
            names=tuple(str(digit) for digit in range(10)),
            test=everything.take(order[TRAIN:]),
        )
    )


def permutation() -> Ints:
    """Return [1797] the fixed order of the examples: training ones first."""
    numbers = range(TRAIN + TEST)
    ordered = sorted(numbers, key=lambda i: hashlib.sha256(_id(i).encode()).digest())
    return np.array(ordered, dtype=np.int64)


def _id(number: int) -> str:
    return f"digits/{number:04d}"
