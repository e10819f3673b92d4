"""Files of held-out predictions: [n, C] float16, or the largest alone for many classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from proselflc.auditing.records import KEPT_CLASSES, HeldOut, largest_probabilities
from proselflc.data.inputs import Ints
from proselflc.data.labels import Labels
from proselflc.data.memory_budget import is_dense
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.regular import whole_file
from proselflc.training.observations import TOP, mapped
from proselflc.training.run_directory import RunDirectory
from proselflc.wording import option

Stored: TypeAlias = npt.NDArray[Any]  # [n, C] float16, or [n, 1 + k] of TOP


@dataclass(frozen=True)
class FoldsFile:
    """The content of `folds.json`.

    Attributes:
        folds: number of folds.
        fingerprint: fingerprint of the labels that they were made from.
        is_calibrated: see `HeldOut`.
    """

    folds: Annotated[int, msgspec.Meta(ge=2)]
    fingerprint: str
    is_calibrated: bool = False


def form(num_examples: int, num_classes: int) -> tuple[np.dtype[Any], tuple[int, int]]:
    """Return the dtype and the shape of a file for n examples of C classes."""
    if is_dense(num_classes):
        return np.dtype("<f2"), (num_examples, num_classes)
    return TOP, (num_examples, 1 + min(KEPT_CLASSES, num_classes - 1))


def kept(p: npt.NDArray[np.floating], given: Ints) -> Stored:
    """Return the part of probabilities [N, C] for labels [N] that a file keeps."""
    return p.astype(np.float16) if is_dense(p.shape[1]) else largest_probabilities(p, given)


def write(path: Path, shape: tuple[int, int], pieces: Iterable[npt.NDArray[Any]]) -> None:
    """Write probabilities piece by piece, whole or not at all.

    Args:
        path: an .npy file.
        shape: (n, C).
        pieces: arrays from `kept`, n rows in all.
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


def read(path: Path, shape: tuple[int, int]) -> Stored:
    """Return the memory-mapped array that `write` wrote for (n, C)."""
    array = mapped(path)
    # A run of an earlier version may have all of many classes.
    if (array.dtype, array.shape) not in ((np.dtype("<f2"), shape), form(*shape)):
        raise InputError(
            f"{path} holds {array.dtype} {list(array.shape)}, expected float16 {list(shape)}"
        )
    return array


def of_run(directory: RunDirectory, labels: Labels) -> HeldOut | None:
    """Return the predictions of a run's folds; None if the folds are missing or incomplete."""
    directory.check_folds()
    if not manifest.lists(directory.path, directory.folds_done):
        return None
    fix = f"remove it, or audit with {option('folds', 0)}, which does not use it"
    directory.checked(directory.folds_done)
    try:
        facts = directory.read(directory.folds_done, FoldsFile)
    except InputError as error:
        raise InputError(error.reason, field="folds", fix=fix) from None
    if facts.fingerprint != labels.fingerprint:
        raise InputError(
            f"{directory.folds} was not made from the labels in {directory.labels}",
            field="folds",
            fix=fix,
        )
    path = directory.checked(directory.folds_p)
    p = read(path, (len(labels.given), len(labels.names)))
    return HeldOut(facts.folds, p, facts.is_calibrated)
