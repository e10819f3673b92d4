"""Data of the onset benchmark, as arrays.

The method was developed on `digits`, `photos`, `votes`, `fashion` and `diamonds`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import real_tables
import torch
from settings import DATA_ROOT

from proselflc.data import noise
from proselflc.data.inputs import Ints
from proselflc.data.sources import cifar, small_images
from proselflc.pretrained import catalogue

Array = npt.NDArray[np.float32]
SIDE = 96  # pixels of an image whose features are computed
COMPONENTS = 100  # principal components that are kept of pixels and features


@dataclass(frozen=True)
class Task:
    """Inputs [n, …] and true labels [n] to train on, and to test on."""

    x: Array
    y: Ints
    test_x: Array
    test_y: Ints

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1

    def imbalanced(self, ratio: float) -> Task:
        """Return a part of the training data: class j has a share ratio^(−j/(C − 1)) of its own."""
        if ratio == 1:
            return self
        rng, last = np.random.default_rng(7), self.num_classes - 1
        rows = [np.flatnonzero(self.y == j) for j in range(last + 1)]
        kept = [
            rng.permutation(r)[: max(1, round(len(r) * ratio ** (-j / last)))]
            for j, r in enumerate(rows)
        ]
        every = np.sort(np.concatenate(kept))
        return Task(self.x[every], self.y[every], self.test_x, self.test_y)

    def given(self, kind: str, rate: str, seed: int) -> Ints:
        """Return labels with noise."""
        if kind == "clean":
            return self.y.copy()
        full = noise.full_name(kind, coarse_known=False)
        made = noise.corrupt(
            self.y, self.num_classes, kind=full, rate=rate, generator=noise.stream(seed)
        )
        return made.given


@functools.cache
def task(name: str) -> Task:
    """Return the data of a name."""
    return _MADE[name]()


def _digits() -> Task:
    found = small_images.load_digits()
    assert found.test is not None
    return _standardised(
        _pixels(found.train.inputs),
        found.train.labels,
        _pixels(found.test.inputs),
        found.test.labels,
    )


def _fashion(first: int) -> Task:
    """3,000 images."""
    found = small_images.load(small_images.find("fashion-mnist", DATA_ROOT), "fashion-mnist")
    assert found.test is not None
    train = found.train.take(np.arange(first, first + 3_000))
    test = found.test.take(np.arange(3_000))
    return _principal(_pixels(train.inputs), train.labels, _pixels(test.inputs), test.labels)


def _table(name: str) -> Task:
    """A table: a column for every number and every category, shifted and scaled; 60 % train."""
    table = real_tables.load(name)
    columns = pd.get_dummies(table.frame.drop(columns=table.label), dtype=np.float32)
    x = columns.fillna(columns.median()).to_numpy(np.float32)
    x = x[:, x.std(0) > 0]
    x = (x - x.mean(0)) / x.std(0)
    y = np.unique(table.frame[table.label], return_inverse=True)[1].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [round(0.6 * len(y))])
    return Task(x[train], y[train], x[test], y[test])


def _photos(coarse: tuple[int, int]) -> Task:
    """2,500 photos of two coarse classes of CIFAR-100, 16×16 pixels."""
    x, y, test_x, test_y = _cifar(coarse)
    rows = np.concatenate([np.flatnonzero(y == j)[:250] for j in range(10)])
    x, y = x[np.sort(rows)], y[np.sort(rows)]
    small = [
        np.asarray(part, np.float32).reshape(-1, 3, 16, 2, 16, 2).mean((3, 5))
        for part in (x, test_x)
    ]
    mean, std = small[0].mean((0, 2, 3), keepdims=True), small[0].std((0, 2, 3), keepdims=True)
    return Task((small[0] - mean) / std, y, (small[1] - mean) / std, test_y)


def _features() -> Task:
    """Features by EfficientNet-Lite0 of photos of the coarse classes 4 and 5 of CIFAR-100."""
    x, y, test_x, test_y = _cifar((4, 5))
    encode = catalogue.encoder("efficientnet_lite0").encode

    def features(images: npt.NDArray[np.uint8]) -> Array:
        parts = []
        for k in range(0, len(images), 100):
            pixels = torch.from_numpy(images[k : k + 100]).float()
            large = torch.nn.functional.interpolate(pixels, size=SIDE, mode="bilinear")
            parts.append(encode(large.round().clamp(0, 255).to(torch.uint8)))
        return torch.cat(parts).numpy()

    return _principal(features(x), y, features(test_x), test_y)


def _cifar(
    coarse: tuple[int, ...],
) -> tuple[npt.NDArray[np.uint8], Ints, npt.NDArray[np.uint8], Ints]:
    """Return images [n, 3, 32, 32] and labels 0 … C − 1 of the fine classes of coarse classes."""
    found = _cifar100()
    assert found.test is not None
    assert found.coarse is not None
    fine = np.flatnonzero(np.isin(found.coarse, coarse))
    parts: list[Any] = []
    for part in (found.train, found.test):
        rows = np.flatnonzero(np.isin(part.labels, fine))
        parts += [_images(part.take(rows).inputs), np.searchsorted(fine, part.labels[rows])]
    return parts[0], parts[1], parts[2], parts[3]


@functools.cache
def _cifar100() -> Any:
    return cifar.load(cifar.find("cifar100", Path(DATA_ROOT)), "cifar100")


def _images(inputs: Any) -> npt.NDArray[np.uint8]:
    """Return pixels [n, channels, height, width]."""
    pixels: npt.NDArray[np.uint8] = np.moveaxis(inputs.pixels, 3, 1)
    return pixels


def _pixels(inputs: Any) -> Array:
    images = _images(inputs)
    return images.reshape(len(images), -1).astype(np.float32)


def _standardised(x: Array, y: Ints, test_x: Array, test_y: Ints) -> Task:
    """Shift every column to mean 0 and scale all by one number."""
    mean, scale = x.mean(0), x.std()
    return Task((x - mean) / scale, y, (test_x - mean) / scale, test_y)


def _principal(x: Array, y: Ints, test_x: Array, test_y: Ints) -> Task:
    """Keep the first principal components, scaled by one number."""
    mean = x.mean(0)
    directions = np.linalg.svd(x - mean, full_matrices=False)[2][:COMPONENTS].T
    kept, test = (x - mean) @ directions, (test_x - mean) @ directions
    return Task(kept / kept.std(), y, test / kept.std(), test_y)


_MADE: dict[str, Callable[[], Task]] = {
    "digits": _digits,
    "fashion": functools.partial(_fashion, 10_000),
    "other fashion": functools.partial(_fashion, 20_000),
    "votes": functools.partial(_table, "chile"),
    "diamonds": functools.partial(_table, "diamonds"),
    "yogurt": functools.partial(_table, "yogurt"),
    "industries": functools.partial(_table, "males"),
    "photos": functools.partial(_photos, (0, 1)),
    "other photos": functools.partial(_photos, (2, 3)),
    "features": _features,
}
