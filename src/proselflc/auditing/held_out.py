"""What models predict for examples that they have not seen, as files of [n, C] float16.

Beyond `memory_budget.DENSE_CLASSES` classes a file holds the largest alone: see `few_classes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.auditing import few_classes
from proselflc.auditing.records import HeldOut
from proselflc.data.inputs import Ints
from proselflc.data.labels.labels import Labels
from proselflc.data.memory_budget import is_dense
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.whole import whole_file
from proselflc.training.observations import TOP, mapped
from proselflc.training.run_directory import RunDirectory

Halves: TypeAlias = npt.NDArray[Any]  # [n, C] float16, or [n, 1 + k] of TOP


def form(num_examples: int, num_classes: int) -> tuple[np.dtype[Any], tuple[int, int]]:
    """Return the dtype and the shape of a file for n examples of C classes."""
    if is_dense(num_classes):
        return np.dtype("<f2"), (num_examples, num_classes)
    return TOP, (num_examples, 1 + min(few_classes.KEPT, num_classes - 1))


def kept(p: npt.NDArray[np.floating], given: Ints) -> Halves:
    """Return what a file holds of probabilities [N, C] for examples with labels [N]."""
    return p.astype(np.float16) if is_dense(p.shape[1]) else few_classes.largest(p, given)


def write(path: Path, shape: tuple[int, int], pieces: Iterable[npt.NDArray[Any]]) -> None:
    """Write probabilities piece by piece, whole or not at all.

    Args:
        path: an .npy file.
        shape: (n, C).
        pieces: as `kept` gives them, n rows in all.
    """
    kind, whole = form(*shape)
    with whole_file(path) as file:
        descr = np.lib.format.dtype_to_descr(kind)
        header = {"descr": descr, "fortran_order": False, "shape": whole}
        np.lib.format.write_array_header_1_0(file, header)
        rows = 0
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype=kind).tobytes())
            rows += len(piece)
        assert rows == shape[0]


def read(path: Path, shape: tuple[int, int]) -> Halves:
    """Return what `write` wrote of [n, C], memory-mapped.

    Raises:
        InputError: there is none, or it holds something else.
    """
    array = mapped(path)
    # A run of before may have all of many classes.
    if (array.dtype, array.shape) not in ((np.dtype("<f2"), shape), form(*shape)):
        raise InputError(
            f"{path} holds {array.dtype} {list(array.shape)}, expected float16 {list(shape)}"
        )
    return array


def of_run(directory: RunDirectory, labels: Labels) -> HeldOut | None:
    """What the folds of a run have predicted; None where they are not all there.

    Raises:
        InputError: they are damaged, elsewhere, or of other labels.
    """
    directory.check_folds()
    if not manifest.lists(directory.path, directory.folds_done):
        return None
    facts = directory.read_json(directory.folds_done)
    folds = facts.get("folds")
    if not isinstance(folds, int) or folds < 2 or facts.get("fingerprint") != labels.fingerprint:
        raise InputError(
            f"{directory.folds} is not of the labels in {directory.labels}: remove it, or audit "
            "with --folds 0, which does without"
        )
    path = directory.checked(directory.folds_p)
    return HeldOut(folds, read(path, (len(labels.given), len(labels.names))))
