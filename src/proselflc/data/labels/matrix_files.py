"""Matrices of classes from a file: transitions, and which of them are possible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proselflc.errors import InputError
from proselflc.files.text import decoded, must_be_file

if TYPE_CHECKING:
    from proselflc.data.noise import Matrix


def read_transition(path: Path) -> Matrix:
    """A matrix from an .npy, .npz or .csv file; its rows are checked where it is used.

    An .npz holds it as `transition` or `T`; a .csv has one row per line and no heading.
    """
    return _read_matrix(path, "transition matrix", ("transition", "T"))


def read_mask(path: Path, num_classes: int) -> Matrix:
    """A [C, C] matrix of 0 and 1 from an .npy, .npz or .csv file; an .npz holds it as `mask`.

    Raises:
        InputError: it is no such file, or is of other classes or values.
    """
    mask, C = _read_matrix(path, "mask", ("mask",)), num_classes
    if mask.shape != (C, C):
        raise InputError(
            f"the mask in {path} has shape {mask.shape}, but there are {C} classes: it must be "
            f"[{C}, {C}], row = true class"
        )
    if not ((mask == 0) | (mask == 1)).all():
        raise InputError(f"the mask in {path} must hold nothing but 0 and 1")
    return mask


def _read_matrix(path: Path, what: str, names: tuple[str, ...]) -> Matrix:
    import numpy as np

    from proselflc.data.sources import npz

    must_be_file(path, f"a {what}")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        matrix = next(iter(npz.arrays(path, names).values()))
    elif suffix == ".npy":
        matrix = npz.array(path)
    elif suffix == ".csv":
        matrix = _read_numbers(path)
    else:
        raise InputError(f"a {what} is an .npy, .npz or .csv file, got {path}")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {matrix.dtype} values: expected a matrix of numbers")
    return matrix.astype(np.float64)


def _read_numbers(path: Path) -> Matrix:
    """[rows, columns] from a text file with commas."""
    import numpy as np

    try:
        rows = [line.split(",") for line in decoded(path).splitlines() if line.strip()]
        return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # text, other encodings, rows of different lengths
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} does not hold a matrix of numbers: {reason}") from None
