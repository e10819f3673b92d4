"""Whether a run has learned from labels that a run of ours corrected and nobody reviewed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proselflc.data.request import TABLES

NO_MEASURE = (
    "these labels were corrected by a model of this kind, which cannot see what it left wrong: how "
    "many look wrong is no measure of improvement"
)
_LABEL_FILES = (*TABLES, ".npz", ".pt")


def are_unreviewed(config: Mapping[str, Any]) -> bool:
    """Whether the labels are those of another run, without `--reviewed`.

    Args:
        config: of the run, as its directory holds it.
    """
    labels = config.get("labels")
    return isinstance(labels, str) and _is_run(labels) and config.get("reviewed") is not True


def _is_run(path: str) -> bool:
    """Whether it is a run's directory rather than a file of labels; its name tells if it is gone.

    >>> _is_run("gone/run"), _is_run("gone/labels.CSV")
    (True, False)
    """
    if os.path.exists(path):
        return os.path.isdir(path)
    return bool(path) and Path(path).suffix.lower() not in _LABEL_FILES
