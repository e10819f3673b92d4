"""Which preprocessing suits some inputs, and which loader serves them to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from proselflc.data.batches import Batches, Loader, Order, PadCropFlip
from proselflc.data.dataset import Part
from proselflc.data.images.image_scaling import ImageScaling
from proselflc.data.inputs import Inputs
from proselflc.data.preprocessing import Preprocessing, Standardization, TextHashing
from proselflc.data.streaming import FileLoader, RandomCrop
from proselflc.errors import InputError, unknown
from proselflc.files.typed import convert, damaged

_KINDS: dict[str, type[Preprocessing]] = {
    kind.kind: kind for kind in (ImageScaling, TextHashing, Standardization)
}
_FITS: dict[str, Callable[[Any], Preprocessing]] = {
    "image": ImageScaling.fit,
    "text": TextHashing.fit,
    "table": Standardization.fit,
}
_SOURCE = "the saved preprocessing"


def fit(train: Inputs) -> Preprocessing:
    """Return the preprocessing that suits these training inputs, fitted on them."""
    return _FITS[train.medium](train)


def from_json(value: object) -> Preprocessing:
    """Return the preprocessing that `Preprocessing.to_json` wrote; every value is checked."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise InputError(f"{_SOURCE} is damaged: expected an object with a kind")
    if kind not in _KINDS:
        raise InputError(unknown("preprocessing", kind, _KINDS))
    names = [field.name for field in fields(_KINDS[kind])]  # type: ignore[arg-type]
    if set(value) != {"kind", *names}:
        raise InputError(f"{_SOURCE} is damaged: expected the fields kind, {', '.join(names)}")
    found = convert({name: value[name] for name in names}, _KINDS[kind], _SOURCE)
    try:
        found.validate()
    except ValueError as error:
        raise damaged(_SOURCE, error) from None
    return found


def loader(
    part: Part,
    preprocessing: Preprocessing,
    order: Order,
    *,
    augment: str = "none",
    workers: int = 2,
    channels_last: bool = False,
) -> Batches:
    """Return the loader that serves a part, from memory or from files."""
    crop, flip = "crop" in augment, "flip" in augment
    if not part.inputs.in_memory:
        assert isinstance(preprocessing, ImageScaling)
        random = RandomCrop(flip) if crop else None
        return FileLoader(
            part, preprocessing, order, random, workers=workers, channels_last=channels_last
        )
    # 4 pixels of 32, as is usual for CIFAR, and in proportion for other sizes.
    room = 1
    if isinstance(preprocessing, ImageScaling):
        room = max(1, round(min(preprocessing.size) / 8))
    padding = PadCropFlip(room if crop else 0, flip) if crop or flip else None
    return Loader(part, preprocessing, order, padding, channels_last=channels_last)
