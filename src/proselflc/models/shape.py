"""The shape of the examples that a model takes."""

from dataclasses import dataclass, fields
from typing import TypeAlias

import torch
from torch import Tensor

from proselflc.errors import InputError


@dataclass(frozen=True)
class ImageShape:
    """Batches [N, channels, height, width] float32."""

    channels: int
    height: int
    width: int

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True)
class FeatureShape:
    """Batches [N, width] float32."""

    width: int

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True)
class BagShape:
    """Batches [N, L] int64 of numbers below `num_embeddings`, padded with 0."""

    num_embeddings: int

    def __post_init__(self) -> None:
        _check_positive(self)


Shape: TypeAlias = ImageShape | FeatureShape | BagShape

KINDS: dict[type[Shape], str] = {
    ImageShape: "images",
    FeatureShape: "features",
    BagShape: "texts",
}


def example(shape: Shape) -> Tensor:
    """Return two examples of zeros, to try a model.

    They are [2, channels, height, width] float32, [2, width] float32, or [2, 1] int64.
    """
    if isinstance(shape, ImageShape):
        return torch.zeros(2, shape.channels, shape.height, shape.width)
    if isinstance(shape, FeatureShape):
        return torch.zeros(2, shape.width)
    return torch.zeros(2, 1, dtype=torch.int64)


def _check_positive(shape: Shape) -> None:
    for field in fields(shape):
        value = getattr(shape, field.name)
        if value < 1:
            kind = KINDS[type(shape)]
            raise InputError(f"{field.name} of {kind} must be at least 1, got {value}")
