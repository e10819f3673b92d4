"""How data comes to a model: what it looks like there, and who brings it."""

from __future__ import annotations

from proselflc.data.batches import Batches, Loader, Order, PadCropFlip
from proselflc.data.dataset import Part
from proselflc.data.inputs import ImageFiles
from proselflc.data.preprocessing import (
    ImageScaling,
    Preprocessing,
    Standardization,
    TextHashing,
)
from proselflc.data.streaming import FileLoader, RandomCrop
from proselflc.models.shape import BagShape, FeatureShape, ImageShape, Shape


def shape_of(scaling: Preprocessing) -> Shape:
    """What a model sees after this preprocessing."""
    if isinstance(scaling, ImageScaling):
        return ImageShape(scaling.channels, *scaling.size)
    if isinstance(scaling, TextHashing):
        return BagShape(scaling.num_embeddings)
    assert isinstance(scaling, Standardization)
    return FeatureShape(len(scaling.mean))


def loader(
    part: Part,
    scaling: Preprocessing,
    order: Order,
    *,
    augment: str = "none",
    workers: int = 2,
    channels_last: bool = False,
) -> Batches:
    """The loader that suits a part, in memory or from files."""
    crop, flip = "crop" in augment, "flip" in augment
    if isinstance(part.inputs, ImageFiles):
        assert isinstance(scaling, ImageScaling)
        random = RandomCrop(flip) if crop else None
        return FileLoader(
            part, scaling, order, random, workers=workers, channels_last=channels_last
        )
    # 4 pixels of 32, as everybody does for CIFAR, and in proportion for other sizes.
    room = max(1, round(min(scaling.size) / 8)) if isinstance(scaling, ImageScaling) else 1
    padding = PadCropFlip(room if crop else 0, flip) if crop or flip else None
    return Loader(part, scaling, order, padding, channels_last=channels_last)
