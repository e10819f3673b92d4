"""How inputs become tensors: fitted on the training part, saved with the run, used to predict.

Images are scaled by the mean and deviation of every channel, texts become bags of hashed n-grams,
the columns of a table are standardised. Each is a frozen record that `to_json` writes as plain
JSON and `from_json` reads back, checking it as it would any file from outside.
"""

from __future__ import annotations

from typing import TypeAlias

from proselflc.data.images.image_scaling import ImageScaling, Window, warped
from proselflc.data.inputs import Features, ImageFiles, Images, Inputs, Texts
from proselflc.data.saved_form import Json, broken
from proselflc.data.standardization import Standardization
from proselflc.data.text_hashing import Bags, TextHashing
from proselflc.errors import InputError, unknown

__all__ = [
    "Bags",
    "ImageScaling",
    "Json",
    "Preprocessing",
    "Standardization",
    "TextHashing",
    "Window",
    "fit",
    "from_json",
    "warped",
]

Preprocessing: TypeAlias = ImageScaling | TextHashing | Standardization

_KINDS: dict[str, type[Preprocessing]] = {
    "images": ImageScaling,
    "texts": TextHashing,
    "features": Standardization,
}


def fit(train: Inputs) -> Preprocessing:
    """The preprocessing that suits these training inputs, fitted on them."""
    if isinstance(train, Texts):
        return TextHashing.fit(train)
    if isinstance(train, Features):
        return Standardization.fit(train)
    assert isinstance(train, Images | ImageFiles)
    return ImageScaling.fit(train)


def from_json(value: object) -> Preprocessing:
    """What `to_json` gave, after it was written and read; every value is checked."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise broken("it must be an object with a kind")
    if kind not in _KINDS:
        raise InputError(unknown("preprocessing", kind, _KINDS))
    preprocessing: Preprocessing = _KINDS[kind].from_json(value)
    return preprocessing
