"""`map.npz`: the points of a run's training examples on the map, as `layout` arranges them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proselflc.data.inputs import Floats
from proselflc.data.sources import npz
from proselflc.errors import InputError
from proselflc.files.regular import whole_file


def save(path: Path, xy: Floats) -> None:
    """Write the points [n, 2], whole or not at all."""
    with whole_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, xy=xy.astype(np.float32))


def load(path: Path, num_examples: int) -> Floats:
    """Return the points [n, 2] of n examples, which are finite.

    Raises:
        InputError: there is no such file, it is damaged, or it is of other examples.
    """
    try:
        xy = npz.arrays(path, ("xy",))["xy"]
    except InputError as error:
        raise _damaged(path, error.reason) from None
    if xy.dtype != np.float32:
        raise _damaged(path, f"xy should be float32, got {xy.dtype}")
    if xy.shape != (num_examples, 2):
        raise _damaged(path, f"xy should be [{num_examples}, 2], got {list(xy.shape)}")
    if not np.isfinite(xy).all():
        raise _damaged(path, "a point is not finite")
    return xy


def _damaged(path: Path, fault: str) -> InputError:
    return InputError(f"{path} is damaged: {fault}", fix="remove the file, and audit the run again")
