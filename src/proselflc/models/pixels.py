"""How pixels must be scaled for trained weights: by the mean and deviation of their training.

Pixels that are scaled otherwise reach the first layer shifted and stretched, and the weights are
worth less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proselflc.errors import InputError, invalid_option
from proselflc.wording import option

_RESNETS = ("resnet18", "resnet50")  # with torchvision's names of their weights
_FROM_A_HUB = ("model.safetensors", "pytorch_model.bin")  # a run's weights have the first name too
_LARGEST = 1 << 20  # bytes of a description that is read


@dataclass(frozen=True)
class Pixels:
    """The mean and the deviation of pixels / 255, one number for every channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise InputError(
                f"pixels have {len(self.mean)} means and {len(self.std)} deviations: expected 3 of "
                "each, or 1 for grey images"
            )
        if not all(0 <= m <= 1 for m in self.mean) or not all(1e-6 <= s <= 1e3 for s in self.std):
            raise InputError(
                f"pixels have the means {_listed(self.mean)} and the deviations "
                f"{_listed(self.std)}: expected means from 0 to 1 and positive deviations, of "
                "pixels / 255"
            )

    def in_short(self) -> str:
        """Return a short description."""
        if self in (IMAGENET, AS_THEY_ARE):
            return str(self)
        mean, std = (", ".join(f"{one:.3f}" for one in some) for some in (self.mean, self.std))
        return f"mean {mean}, deviation {std}"

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        known = {IMAGENET: "imagenet", AS_THEY_ARE: "none"}
        return known.get(self) or f"{_listed(self.mean)}/{_listed(self.std)}"


# What nearly every published image model was trained with.
IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
AS_THEY_ARE = Pixels((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # from 0 to 1
DATA = "data"  # measured on the training images


def parse(text: str) -> Pixels | None:
    """Return the scaling that a value of the option `normalize` means; None for "data".

    >>> parse("0.5,0.5,0.5/0.25,0.25,0.25")
    Pixels(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    """
    if text == DATA:
        return None
    for known in (IMAGENET, AS_THEY_ARE):
        if text == str(known):
            return known
    mean, _, std = text.partition("/")
    try:
        numbers = [tuple(float(one) for one in part.split(",")) for part in (mean, std)]
    except ValueError:
        raise invalid_option(
            "normalize",
            f'is "{text[:80]}": expected data, imagenet, none, or means and deviations of '
            "pixels / 255 such as 0.5,0.5,0.5/0.5,0.5,0.5",
        ) from None
    return Pixels(*numbers)


def expected(model: str, weights: Path) -> Pixels | None:
    """Return the scaling that weights in a file expect; None if it is unknown.

    A description beside the file comes first: the `model.json` of a run, or the configuration that
    Hugging Face and timm write. Then the model: timm describes its own, and all of torchvision's
    were trained with ImageNet's scaling.
    """
    beside = _beside(weights) if weights.name in _FROM_A_HUB else None
    if beside is not None:
        return beside
    kind, _, name = model.partition(":")
    if kind == "timm":
        return of_timm(name)
    return IMAGENET if kind == "torchvision" or model in _RESNETS else None


def of_timm(name: str) -> Pixels:
    """Return the scaling with which timm's weights of a model were trained."""
    from proselflc.models.factory import import_timm

    found = import_timm(name).get_pretrained_cfg(name)
    mean, std = getattr(found, "mean", None), getattr(found, "std", None)
    return IMAGENET if mean is None or std is None else Pixels(tuple(mean), tuple(std))


def _beside(weights: Path) -> Pixels | None:
    """Return the scaling in a description in the same folder."""
    path = weights.parent / "model.json"  # of a run
    ours = _read(path).get("preprocessing")
    if isinstance(ours, Mapping) and ours.get("kind") == "images":
        return _made(path, ours.get("mean"), ours.get("std"))
    path = weights.parent / "preprocessor_config.json"  # of Hugging Face
    processor = _read(path)
    if "image_mean" in processor:
        return _made(path, processor["image_mean"], processor.get("image_std"))
    path = weights.parent / "config.json"  # of timm
    timm = _read(path).get("pretrained_cfg")
    if isinstance(timm, Mapping) and "mean" in timm:
        return _made(path, timm["mean"], timm.get("std"))
    return None


def _made(path: Path, mean: Any, std: Any) -> Pixels:
    try:
        return Pixels(tuple(map(float, mean)), tuple(map(float, std)))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not say how pixels are scaled ({error})",
            field="normalize",
            fix=f"give the scaling with {option('normalize')}",
        ) from None


def _read(path: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one if there is no such file."""
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"cannot read {path}, which says how pixels are scaled: {str(error)[:200]}"
        ) from None
    return found if isinstance(found, dict) else {}


def _listed(numbers: tuple[float, ...]) -> str:
    return ",".join(map(repr, numbers))
