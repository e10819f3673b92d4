"""Reasons why an audit may not be trustworthy."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proselflc.auditing.noise_estimate import FEWEST_EPOCHS
from proselflc.data.request import TABLES
from proselflc.training.run_directory import Json
from proselflc.wording import command, option

MEMORISED = 0.98  # share of labels fitted before half of training: too late to correct any
BARELY_LEARNED = 1.5  # times the accuracy of chance
OWN_CORRECTIONS = (
    "these labels were corrected by a model of this kind, which cannot detect the errors that it "
    "left: the number of labels that look wrong does not measure improvement"
)
_LABEL_FILES = (*TABLES, ".npz", ".pt")


def caveats(
    history: Sequence[Json], num_classes: int, config: Mapping[str, Any] | None = None
) -> list[str]:
    """Return a sentence without its period for each reason not to trust the audit of a run.

    Args:
        history: evaluation points, as they were found in the run's directory.
        num_classes: C.
        config: configuration of the run, as its directory holds it.
    """
    found = label_caveats(config or {})
    epochs = max((_number(line, "epoch") for line in history), default=math.inf)
    found += epoch_caveats(epochs)
    fitted = [_number(line, "train_accuracy") for line in history]
    if fitted and fitted[-1] < BARELY_LEARNED / num_classes:
        found.append(
            f"the model fits only {fitted[-1]:.1%} of the given labels, barely more than chance "
            f"with {num_classes:,} classes, so its suspects are unreliable; raise "
            f"{option('epochs')}, lower {option('batch_size')}, or try another {option('model')} "
            f"or {option('lr')}"
        )
    early = [k for k, line in enumerate(history) if _number(line, "progress") <= 0.5]
    most = max((fitted[k] for k in early), default=0.0)
    if most > MEMORISED:
        found.append(
            f"the model fitted {most:.1%} of the given labels in the first half of training: wrong "
            f"labels were memorised and cannot be found; try fewer {option('epochs')}, a lower "
            f"{option('lr')}, a smaller {option('model')} or more {option('augment')}"
        )
    return found


def label_caveats(config: Mapping[str, Any]) -> list[str]:
    """Return the reason that is known before training: a model corrected these labels."""
    if not learns_own_corrections(config):
        return []
    return [
        f"{OWN_CORRECTIONS}; decide about the suspects with {command('review')}, and train with "
        f"{option('reviewed', True)}"
    ]


def epoch_caveats(epochs: float) -> list[str]:
    """Return the reason that follows from the number of epochs alone; NaN gives none."""
    if not epochs < FEWEST_EPOCHS:
        return []
    return [
        f"the model was trained for {epochs:.3g} epoch{'' if epochs == 1 else 's'}, but an audit "
        f"needs at least {FEWEST_EPOCHS}, so its suspects are unreliable; train for more epochs"
    ]


def learns_own_corrections(config: Mapping[str, Any]) -> bool:
    """Return whether the labels come from another run and were not reviewed."""
    labels = config.get("labels")
    return isinstance(labels, str) and _is_run(labels) and config.get("reviewed") is not True


def _is_run(path: str) -> bool:
    """Return whether a path is a run rather than a file of labels, by its name if it is gone.

    >>> _is_run("gone/run"), _is_run("gone/labels.CSV")
    (True, False)
    """
    if os.path.exists(path):
        return os.path.isdir(path)
    return bool(path) and Path(path).suffix.lower() not in _LABEL_FILES


def _number(line: Json, key: str) -> float:
    """Return a number, or NaN, for which every comparison is false."""
    value = line.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(str(value)) if is_number else math.nan
