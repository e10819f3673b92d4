"""The embedded digits: the same split everywhere, the pixels that scikit-learn has."""

import hashlib

import numpy as np
from sklearn.datasets import load_digits

from proselflc.data.dataset import Part
from proselflc.data.inputs import Images
from proselflc.data.sources import small_images


def rows(part: Part) -> list[int]:
    """Positions in scikit-learn's order."""
    return [int(name.removeprefix("digits/")) for name in part.ids]


def test_split_has_1297_and_500_examples_and_loses_none() -> None:
    dataset = small_images.load_digits()
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (1297, 500)
    assert sorted(rows(dataset.train) + rows(dataset.test)) == list(range(1797))
    assert dataset.names == tuple("0123456789")


def test_pixels_and_labels_are_scikit_learns_scaled_to_bytes() -> None:
    dataset = small_images.load_digits()
    bunch = load_digits()
    for part in (dataset.train, dataset.test):
        assert part is not None
        assert isinstance(part.inputs, Images)
        pixels = part.inputs.pixels
        assert pixels.dtype == np.uint8
        assert pixels.shape == (len(part), 8, 8, 1)
        exact = bunch.images[rows(part)] * 255 / 16
        assert np.abs(pixels[..., 0] - exact).max() <= 0.5
        assert (pixels.min(), pixels.max()) == (0, 255)
        np.testing.assert_array_equal(part.labels, bunch.target[rows(part)])


def test_order_is_that_of_the_hashes_and_never_changes() -> None:
    hashes = [hashlib.sha256(b"digits/%04d" % i).hexdigest() for i in range(1797)]
    assert small_images.order_of_digits().tolist() == list(np.argsort(hashes))
    assert small_images.load_digits().train.ids[:5] == (
        "digits/0099",
        "digits/0309",
        "digits/1254",
        "digits/0064",
        "digits/0484",
    )


def test_both_splits_have_every_class() -> None:
    dataset = small_images.load_digits()
    assert dataset.test is not None
    assert np.bincount(dataset.train.labels, minlength=10).min() >= 115
    assert np.bincount(dataset.test.labels, minlength=10).min() >= 35
