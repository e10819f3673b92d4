"""Shapes: what a model is tried out with."""

import pytest
import torch

from proselflc.errors import InputError
from proselflc.models.shape import KINDS, BagShape, FeatureShape, ImageShape, Shape, example


@pytest.mark.parametrize(
    ("shape", "size", "dtype"),
    [
        (ImageShape(3, 5, 7), (2, 3, 5, 7), torch.float32),
        (FeatureShape(11), (2, 11), torch.float32),
        (BagShape(100), (2, 1), torch.int64),
    ],
)
def test_an_example_is_two_rows_of_zeros(
    shape: Shape, size: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = example(shape)
    assert x.shape == size
    assert x.dtype == dtype
    assert not x.any()


def test_every_kind_has_a_word() -> None:
    assert {ImageShape: "images", FeatureShape: "features", BagShape: "texts"} == KINDS


@pytest.mark.parametrize(
    ("kind", "numbers", "message"),
    [
        (ImageShape, (3, 0, 8), "height of images must be at least 1, got 0"),
        (FeatureShape, (0,), "width of features must be at least 1, got 0"),
        (BagShape, (-1,), "num_embeddings of texts must be at least 1, got -1"),
    ],
)
def test_empty_shapes_are_refused(
    kind: type[Shape], numbers: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        kind(*numbers)
