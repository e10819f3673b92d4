"""The `.npz` that `proselflc export` writes and that `--labels` reads back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels.labels import class_ids_of, strings_of
from proselflc.data.sources import npz
from proselflc.errors import InputError


@dataclass(frozen=True)
class Exported:
    """Corrected labels of n examples.

    Attributes:
        ids: n distinct strings that name the examples.
        labels: [n] corrected, 0 … C−1.
        given: [n] as they were.
        names: C class names.
    """

    ids: tuple[str, ...]
    labels: Ints
    given: Ints
    names: tuple[str, ...]

    def save(
        self,
        file: IO[bytes],
        *,
        is_suspect: Bools,
        quality: Floats,
        reviewed: Bools,
        probabilities: Floats | None = None,
        classes: Ints | None = None,
    ) -> None:
        """Write it, with what is there for other programs.

        Args:
            file: to write to.
            is_suspect, quality: [n] each.
            reviewed: [n] whose labels a person has said.
            probabilities: [n, C] soft labels; or [n, 5] those of `classes`.
            classes: [n, 5] the likeliest, where there are too many for all to be written.
        """
        arrays: dict[str, npt.NDArray[Any]] = {
            "ids": np.array(self.ids, dtype=np.str_),
            "labels": self.labels.astype("<i8"),
            "given": self.given.astype("<i8"),
            "names": np.array(self.names, dtype=np.str_),
            "is_suspect": is_suspect,
            "quality": quality.astype("<f4"),
            "reviewed": reviewed,
        }
        if probabilities is not None:
            arrays["probabilities"] = probabilities.astype("<f4")
        if classes is not None:
            arrays["classes"] = classes.astype("<i8")
        np.savez_compressed(file, allow_pickle=False, **arrays)


def is_exported(path: Path) -> bool:
    """Whether an `.npz` file is one of these, rather than a run's `labels.npz`."""
    try:
        return "labels" in npz.arrays(path, ("labels",))
    except InputError:  # whatever it is, its reader says what is wrong with it
        return False


def load(path: Path) -> Exported:
    """Read the labels of such a file, and believe nothing that does not fit."""
    wanted = ("ids", "labels", "given", "names")
    arrays = npz.arrays(path, wanted)
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise InputError(f'{path} holds no "{missing[0]}": it is not what proselflc export writes')
    ids = strings_of(path, "ids", arrays["ids"])
    names = strings_of(path, "names", arrays["names"])
    n, C = len(ids), len(names)
    if len(set(ids)) != n or len(set(names)) != C:
        raise InputError(f"ids or names in {path} are not distinct")
    return Exported(
        ids,
        class_ids_of(path, "labels", arrays["labels"], n, C),
        class_ids_of(path, "given", arrays["given"], n, C),
        names,
    )
