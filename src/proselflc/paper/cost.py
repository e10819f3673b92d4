"""The time and the disk space that runs take."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proselflc.data.opening import DATASETS
from proselflc.errors import invalid_option
from proselflc.run.config import Config

# Peak operations per second in float32, by the makers' data sheets. None of these GPUs was measured
# here. The recipes train in float32, so the faster units for lower precision are left out.
GPUS: Mapping[str, float] = {"V100": 15.7e12, "A100": 19.5e12, "RTX3090": 35.6e12, "H100": 66.9e12}
UTILISATION = 0.25  # of the peak: an assumption
BACKWARD = 2.0  # cost of a backward pass, in forward passes

_RECORD = 50_000  # bytes of a record
_SIDES = {"cifar100": 32, "cifar100-small": 16, "cifar100-tiny": 16}  # pixels; photos are scaled


@dataclass(frozen=True)
class Speed:
    """How fast steps are: measured by the user, or estimated from a GPU's data sheet."""

    gpu: str = "V100"
    steps_per_second: float | None = None

    def __post_init__(self) -> None:
        rate = self.steps_per_second
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise invalid_option("steps_per_second", f"must be above 0, got {rate:g}")

    def seconds(self, config: Config) -> float:
        """Return the seconds that a run takes, without its evaluations."""
        rate = self.steps_per_second
        if rate is None:
            rate = UTILISATION * GPUS[self.gpu] / step_operations(config)
        return steps(config) / rate

    @property
    def source(self) -> str:
        """Return where the hours come from, as the end of a sentence."""
        if self.steps_per_second is not None:
            return f"at {self.steps_per_second:g} steps per second"
        return (
            f"of one {self.gpu} (an estimate, not a measurement: {UTILISATION:.0%} of the "
            "operations per second in its data sheet, without evaluations)"
        )


def steps(config: Config) -> int:
    """Return the number of optimiser steps of a run."""
    recipe = config.recipe
    if recipe.steps is not None:
        return recipe.steps
    assert recipe.epochs is not None
    assert recipe.batch_size is not None
    return math.ceil(_examples(config) / recipe.batch_size) * recipe.epochs


def step_operations(config: Config) -> float:
    """Return the floating-point operations of a step: a forward and a backward pass of a batch."""
    data = config.request.data
    assert config.recipe.batch_size is not None
    side = _SIDES.get(data, config.image_size or 224)
    forward, _ = _network(str(config.model), side, DATASETS[data].classes)
    return (1.0 + BACKWARD) * forward * config.recipe.batch_size


def disk_space(configs: Sequence[Config], workers: int, *, keep_runs: bool) -> int:
    """Return about how many bytes are used at once: by runs in training, or by all if kept."""
    from proselflc.run.resumption import needed_bytes

    sizes = []
    for config in configs:
        data, batch = DATASETS[config.request.data], config.recipe.batch_size
        assert batch is not None
        _, weights = _network(str(config.model), _SIDES.get(config.request.data, 224), data.classes)
        epochs = math.ceil(steps(config) * batch / _examples(config))
        sizes.append(needed_bytes(_examples(config), data.classes, epochs, weights=weights))
    sizes.sort(reverse=True)
    return sum(sizes if keep_runs else sizes[:workers]) + _RECORD * len(configs)


def _examples(config: Config) -> int:
    share = 1.0 - float(config.trusted or 0.0)
    return round(share * DATASETS[config.request.data].train)


@functools.cache
def _network(model: str, side: int, num_classes: int) -> tuple[float, int]:
    """Return the operations of a forward pass of one image, and the bytes of the weights."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from proselflc.models import catalogue
    from proselflc.models.shape import ImageShape

    network = catalogue.build(model, ImageShape(3, side, side), num_classes, generator_seed=0)
    network = network.to("meta").eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.empty(1, 3, side, side, device="meta"))
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    return float(counter.get_total_flops()), weights
