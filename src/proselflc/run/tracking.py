"""Numbers also go where the user looks at those of other programs: TensorBoard and its like."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from accelerate import Accelerator

from proselflc.errors import InputError, unknown
from proselflc.run.config import Config
from proselflc.training.run_directory import RunDirectory


def check(name: str) -> None:
    """Refuse a tracker that Accelerate does not know or that is not installed."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, LoggerType, get_available_trackers

    if name not in LOGGER_TYPE_TO_CLASS:
        raise InputError(unknown("tracker", name, LOGGER_TYPE_TO_CLASS))
    if name in LoggerType.list() and name not in map(str, get_available_trackers()):
        extra = '"proselflc[tensorboard]"' if name == "tensorboard" else name.replace("_", "-")
        raise InputError(f"the tracker {name} is not installed: pip install {extra}")


def start(
    accelerator: Accelerator,
    config: Config,
    directory: RunDirectory,
    stack: contextlib.ExitStack,
) -> None:
    """Have the numbers of every evaluation point go to the tracker; its files into the run."""
    accelerator.project_configuration.set_directories(str(directory.tracking))
    accelerator.log_with = [config.tracker]
    try:
        accelerator.init_trackers(directory.path.name, _flat(config.table()))
    except Exception as error:  # whatever a tracker of somebody else's does not like
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"the tracker {config.tracker} cannot be started: {reason}") from None
    stack.callback(lambda: [tracker.finish() for tracker in accelerator.trackers])


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """A config as trackers take it, without tables inside."""
    return {key: str(value) if isinstance(value, dict) else value for key, value in table.items()}
