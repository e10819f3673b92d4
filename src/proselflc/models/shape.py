"""The shape of the examples that a model takes."""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from proselflc.errors import InputError


class _Sizes:
    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                kind = KINDS[type(self)]  # type: ignore[index]
                raise InputError(f"{name} of {kind} must be at least 1, got {value}")


@dataclass(frozen=True)
class ImageShape(_Sizes):
    """Batches [N, channels, height, width] float32."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class FeatureShape(_Sizes):
    """Batches [N, width] float32."""

    width: int


@dataclass(frozen=True)
class BagShape(_Sizes):
    """Batches [N, L] int64 of numbers below `num_embeddings`, padded with 0."""

    num_embeddings: int


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
