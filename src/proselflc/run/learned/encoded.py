"""The data of a run with the features of a pretrained model, and the size of its images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from proselflc.data.dataset import Dataset, Part
from proselflc.data.encoded.encoding import Encoding, Progress
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.image import usual_length
from proselflc.data.inputs import ImageFiles, Inputs
from proselflc.errors import InputError
from proselflc.pretrained import catalogue
from proselflc.run.config import Config
from proselflc.wording import option

FINE_TUNED = 160  # pixels of images that a pretrained network is fine-tuned on
LARGE, SMALL = 224, 64  # pixels: of large image files, and up to which they keep their size


def encoded(config: Config, dataset: Dataset, progress: Progress | None = None) -> Dataset:
    """Return the data set with the features of the pretrained model that the config names."""
    name = config.backbone
    if name in (None, "auto", "none") or isinstance(dataset.train.inputs, Encoded):
        return dataset
    assert name is not None
    if dataset.train.inputs.medium == "table":
        raise InputError(
            f"{option('backbone', name)} is for photos and texts, but these are "
            f"{dataset.train.inputs.kind}",
            field="backbone",
            fix="leave it out",
        )
    given = of_scratch(config)
    if given is not None:
        raise InputError(
            f"{option(given)} is for a network that learns from scratch, and "
            f"{option('backbone', name)} computes features",
            field=given,
            fix="leave one of them out",
        )
    how = Encoding(name)
    if dataset.train.inputs.medium == "image":
        how = Encoding(name, config.image_size or how.usual_side)
    options: dict[str, Any] = {"cache": config.request.cache, "threads": config.workers}

    def part_of(part: Part) -> Part:
        return replace(part, inputs=how(part.inputs, progress=progress, **options))

    parts = {split: part_of(part) for split, part in dataset.parts.items()}
    found = dataset.with_parts(parts)
    rest = dataset.unlabelled
    if rest is None:
        return found
    part = replace(rest.part, inputs=how(rest.part.inputs, progress=progress, **options))
    return replace(found, unlabelled=replace(rest, part=part))


def of_scratch(config: Config) -> str | None:
    """Return an option that the user has set and that only training from scratch follows."""
    if config.weights is not None:
        return "weights"
    if config.normalize not in (None, "data"):
        return "normalize"
    return "augment" if config.augment not in (None, "none") else None


def located(config: Config) -> Config:
    """Return the config with the whole path of a local pretrained model."""
    kind, colon, path = (config.backbone or "").partition(":")
    if kind == "hf" and colon and Path(path).is_dir():
        return replace(config, backbone=f"hf:{Path(path).absolute()}")
    return config


def image_size(config: Config, inputs: Inputs) -> int:
    """Return the side that image files are resized to: their own if they are small, else 224."""
    if isinstance(inputs, Encoded):
        return inputs.how.side or LARGE
    if config.image_size is not None or not isinstance(inputs, ImageFiles):
        return config.image_size or LARGE
    if config.model in catalogue.BACKBONES:
        return FINE_TUNED
    longer = usual_length(inputs.paths)
    return LARGE if longer > SMALL or config.model not in (None, "auto") else max(16, longer)
