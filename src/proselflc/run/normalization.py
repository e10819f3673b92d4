"""By which mean and deviation pixels are scaled: the data's, or those that weights expect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proselflc.data.dataset import ImageFiles, Images, Inputs, kind_of
from proselflc.errors import InputError
from proselflc.models import catalogue, pixels
from proselflc.models.shape import ImageShape
from proselflc.run.config import Config
from proselflc.training.run_directory import RunDirectory, read_toml


def chosen(config: Config, inputs: Inputs, report: Callable[[str], None]) -> str | None:
    """What `--normalize` comes to; None where nothing asks for anything but the data's own.

    Args:
        config: what the user asked for.
        inputs: to learn from.
        report: is told in a sentence what the weights are taken to expect.

    Raises:
        InputError: it does not suit the inputs, or what lies beside the weights is damaged.
    """
    if isinstance(inputs, Images):
        height, width, channels = map(int, inputs.pixels.shape[1:])
    elif isinstance(inputs, ImageFiles):
        height, width, channels = config.image_size, config.image_size, 3
    elif config.normalize not in (None, pixels.DATA):
        raise InputError(
            f"--normalize {config.normalize} is for images, but these are {kind_of(inputs)}: leave "
            "it out"
        )
    else:
        return None
    if config.normalize is not None:
        said = pixels.parse(config.normalize)
        if said is not None and len(said.mean) != channels:
            raise InputError(
                f"--normalize {config.normalize} has {len(said.mean)} channels and the images have "
                f"{channels}: give {channels} means and {channels} deviations, or data"
            )
        return pixels.DATA if said is None else str(said)
    if config.weights is None or not config.weights.is_file():
        return None  # who reads the weights says that they are not there
    name = config.model or catalogue.default_name(ImageShape(channels, height, width))
    found = pixels.expected(name, config.weights)
    if found is None or len(found.mean) != channels:
        report(
            f"nothing says how pixels were scaled for the weights in {config.weights}, so they are "
            "scaled by the mean and deviation of the data: --normalize says it otherwise"
        )
        return pixels.DATA
    report(
        f"pixels are scaled as the weights in {config.weights} expect ({found.in_short()}); "
        "--normalize data scales them by the data's own mean and deviation"
    )
    return str(found)


def known(config: Config) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and deviation of every channel that the config says; None for the data's own."""
    said = None if config.normalize is None else pixels.parse(config.normalize)
    return None if said is None else (said.mean, said.std)


def as_begun(config: Config, directory: RunDirectory) -> Config:
    """The config of a run that goes on, whose pixels are scaled as they were when it began.

    A run that says nothing of it has scaled them by its data, whatever its weights.
    """
    if config.normalize is not None or config.weights is None:
        return config
    stored = read_toml(directory.config).get("normalize")
    return replace(config, normalize=stored if isinstance(stored, str) else pixels.DATA)
