"""What models predict for examples that they have not seen, as files of [n, C] float16."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.analysis.records import HeldOut
from proselflc.data import manifest
from proselflc.data.labels import Labels
from proselflc.data.writing import whole_file
from proselflc.errors import InputError
from proselflc.training.observations import mapped
from proselflc.training.run_directory import RunDirectory

Halves: TypeAlias = npt.NDArray[np.float16]


def write(path: Path, shape: tuple[int, int], pieces: Iterable[npt.NDArray[np.floating]]) -> None:
    """Write probabilities piece by piece, whole or not at all.

    Args:
        path: an .npy file.
        shape: (n, C).
        pieces: [rows, C] each, n rows in all.
    """
    with whole_file(path) as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        rows = 0
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype="<f2").data)
            rows += len(piece)
        assert rows == shape[0]


def read(path: Path, shape: tuple[int, int]) -> Halves:
    """[n, C] of a file that `write` wrote, memory-mapped.

    Raises:
        InputError: there is none, or it holds something else.
    """
    array = mapped(path)
    if array.dtype != np.dtype("<f2") or array.shape != shape:
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
