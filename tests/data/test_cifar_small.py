"""CIFAR-100 made small: which examples stay, and what becomes of their pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from proselflc.data.dataset import Dataset, Images, Part
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.sources.cifar_small import made_small

SHARED = Path(__file__).parents[3] / "shared" / "data"


def fabricated(clean: bool) -> Dataset:
    """Ten classes of five coarse ones, two each: 0 and 5 are of coarse class 0, and so on."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 3)
    pixels = generator.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    part = Part(Images(pixels), labels, tuple(f"train/{k}" for k in range(30)))
    given = part
    if clean:  # one label of another coarse class, one within
        wrong = labels.copy()
        wrong[0], wrong[3] = 9, 6
        given = Part(part.inputs, wrong, part.ids)
    names = tuple(f"class {k}" for k in range(10))
    coarse = np.arange(10) % 5
    return Dataset("ten", given, names, test=part, clean=labels if clean else None, coarse=coarse)


def test_the_classes_of_the_first_coarse_ones_stay_at_half_the_size() -> None:
    whole = fabricated(clean=False)
    small = made_small(whole)
    kept = [0, 1, 2, 3, 5, 6, 7, 8]
    assert small.names == tuple(f"class {k}" for k in kept)
    assert small.coarse is not None
    assert small.coarse.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert small.train.labels.tolist() == np.repeat(np.arange(8), 3).tolist()
    assert isinstance(small.train.inputs, Images)
    assert isinstance(whole.train.inputs, Images)
    assert small.train.inputs.pixels.shape == (24, 16, 16, 3)
    row = small.train.ids.index("train/15")  # of class 5
    before, after = whole.train.inputs.pixels[15], small.train.inputs.pixels[row]
    for i, j in ((0, 0), (7, 3), (15, 15)):
        square = before[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].astype(float)
        assert np.abs(after[i, j] - square.mean((0, 1))).max() <= 0.5
    assert small.test is not None
    assert len(small.test) == 24


def test_a_label_of_another_coarse_class_is_left_out() -> None:
    small = made_small(fabricated(clean=True))
    assert len(small.train) == 23
    assert "train/0" not in small.train.ids
    row = small.train.ids.index("train/3")
    assert small.clean is not None
    assert small.names[small.train.labels[row]] == "class 6"
    assert small.names[small.clean[row]] == "class 1"


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real CIFAR-100 in ../shared/data")
def test_the_real_one_has_the_numbers_that_are_listed() -> None:
    small = open_data(Request("cifar100-small", data_root=SHARED))
    assert (len(small.train), small.num_classes) == (10_000, 20)
    assert small.test is not None
    assert len(small.test) == 2_000
    assert set(np.bincount(small.train.labels)) == {500}
