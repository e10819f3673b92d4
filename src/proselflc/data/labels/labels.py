"""The labels of a run: what was given, what is true where that is known, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Bools, Ints
from proselflc.data.labels import class_matrix, label_values
from proselflc.data.labels.class_matrix import ClassMatrix
from proselflc.data.labels.label_values import LabelValues
from proselflc.data.noise import (
    Noise,
    checked_transition,
    fingerprint,
    realised_transition,
)
from proselflc.data.sources import npz
from proselflc.errors import InputError
from proselflc.files.whole import whole_file


@dataclass(frozen=True)
class Labels:
    """Labels of n training examples; nobody changes them.

    Attributes:
        given: [n] the labels to learn from, 0 … C−1.
        clean: [n] the true ones, or None if unknown.
        flipped: [n] where `given` differs from `clean`; nowhere if that is unknown.
        transition: [C, C] realised, row = true class; the identity if that is unknown. Beyond
            `memory_budget.DENSE_CLASSES` classes it is a scipy.sparse.csr_array.
        names: C class names.
        ids: n distinct strings that name the examples.
        generator: the noise as `--noise` takes it with its full name, or "none" for labels as
            they came.
        fingerprint: SHA-256 of `given` and C, the same on every platform.
        trusted: [n] which of `given` are known to be right and were learned as such, or None where
            the method makes no difference.
        values: the labels of the classes as the caller wrote them; None for a list of class names,
            as all labels are that were read from files.
    """

    given: Ints
    clean: Ints | None
    flipped: Bools
    transition: ClassMatrix
    names: tuple[str, ...]
    ids: tuple[str, ...]
    generator: str
    fingerprint: str
    trusted: Bools | None = None
    values: LabelValues | None = None

    def save(self, path: Path) -> None:
        """Write `labels.npz`, whole or not at all."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "given": self.given.astype("<i8"),
            "flipped": self.flipped,
            **class_matrix.arrays("transition", self.transition),
            "names": np.array(self.names, dtype=np.str_),
            "ids": np.array(self.ids, dtype=np.str_),
            "generator": np.array(self.generator),
            "fingerprint": np.array(self.fingerprint),
        }
        if self.clean is not None:
            arrays["clean"] = self.clean.astype("<i8")
        if self.trusted is not None:
            arrays["trusted"] = self.trusted
        if self.values is not None:
            arrays["label_type"] = np.array(label_values.text_of(self.values))
        with whole_file(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> Labels:
        """Read `labels.npz` and believe nothing that its other parts contradict."""
        wanted = ("given", "flipped", "names", "ids", "generator", "fingerprint")
        of_transition = class_matrix.array_names("transition")
        arrays = npz.arrays(path, (*wanted, *of_transition, "clean", "trusted", "label_type"))
        missing = [name for name in wanted if name not in arrays]
        if not any(name in arrays for name in of_transition):
            missing.append("transition")
        if missing:
            raise InputError(
                f'{path} holds no "{missing[0]}": it is not a file of labels that proselflc wrote'
            )
        names = strings_of(path, "names", arrays["names"])
        ids = strings_of(path, "ids", arrays["ids"])
        n, C = len(ids), len(names)
        given = class_ids_of(path, "given", arrays["given"], n, C)
        clean = None
        if "clean" in arrays:
            clean = class_ids_of(path, "clean", arrays["clean"], n, C)
        flipped = _yes_or_no(path, "flipped", arrays["flipped"], n)
        trusted = None
        if "trusted" in arrays:
            trusted = _yes_or_no(path, "trusted", arrays["trusted"], n)
        try:
            transition = checked_transition(class_matrix.read(arrays, "transition", C, path), C)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        generator = _string(path, "generator", arrays["generator"])
        claimed = _string(path, "fingerprint", arrays["fingerprint"])
        if claimed != fingerprint(given, C):
            raise InputError(
                f"the labels in {path} do not match their fingerprint: the file was changed after "
                "it was written, so make it anew"
            )
        expected = np.zeros(n, dtype=np.bool_) if clean is None else given != clean
        if not np.array_equal(flipped, expected):
            raise InputError(f'"flipped" in {path} contradicts its given and clean labels')
        if len(set(ids)) != n or len(set(names)) != C:
            raise InputError(f"ids or names in {path} are not distinct")
        values = None
        if "label_type" in arrays:
            values = label_values.of_text(
                _string(path, "label_type", arrays["label_type"]), C, path
            )
        return cls(
            given, clean, flipped, transition, names, ids, generator, claimed, trusted, values
        )


def from_dataset(dataset: Dataset, noise: Noise | None) -> Labels:
    """The labels of a data set's training part, with `noise` put on them if any.

    Noise starts from the true labels where the data set knows them, else from the given ones,
    which are then taken for true.
    """
    clean = dataset.clean
    if noise is not None:
        if clean is None:
            clean = dataset.train.labels
        assert np.array_equal(noise.given != clean, noise.flipped)
    return labelled(
        dataset.train.labels if noise is None else noise.given,
        clean,
        dataset.names,
        dataset.train.ids,
        generator="none" if noise is None else noise.spec,
        trusted=dataset.trusted,
        values=None if dataset.label_values == LabelValues(dataset.names) else dataset.label_values,
    )


def labelled(
    given: Ints,
    clean: Ints | None,
    names: tuple[str, ...],
    ids: tuple[str, ...],
    *,
    generator: str = "none",
    trusted: Bools | None = None,
    values: LabelValues | None = None,
) -> Labels:
    """Labels with what follows from them; see `Labels` for the arguments."""
    C = len(names)
    return Labels(
        given=given,
        clean=clean,
        flipped=np.zeros(len(given), dtype=np.bool_) if clean is None else given != clean,
        transition=(
            class_matrix.identity(C) if clean is None else realised_transition(clean, given, C)
        ),
        names=names,
        ids=ids,
        generator=generator,
        fingerprint=fingerprint(given, C),
        trusted=trusted,
        values=values,
    )


def class_ids_of(path: Path, name: str, array: npt.NDArray[Any], n: int, C: int) -> Ints:
    """An array of a file, if it holds n class ids in 0 … C−1."""
    if array.dtype.kind not in "iu" or array.shape != (n,):
        raise InputError(
            f'"{name}" in {path} is {array.dtype} of shape {array.shape}: expected {n} class ids'
        )
    if n and not 0 <= int(array.min()) <= int(array.max()) < C:
        raise InputError(f'"{name}" in {path} has labels outside 0 … {C - 1}')
    return array.astype(np.int64)


def strings_of(path: Path, name: str, array: npt.NDArray[Any]) -> tuple[str, ...]:
    """An array of a file, if it holds strings."""
    if array.dtype.kind != "U" or array.ndim != 1:
        raise InputError(f'"{name}" in {path} is not a list of strings')
    return tuple(array.tolist())


def _yes_or_no(path: Path, name: str, array: npt.NDArray[Any], n: int) -> Bools:
    if array.dtype != np.bool_ or array.shape != (n,):
        raise InputError(f'"{name}" in {path} is not one yes or no for each of {n} labels')
    return array


def _string(path: Path, name: str, array: npt.NDArray[Any]) -> str:
    if array.dtype.kind != "U" or array.ndim != 0:
        raise InputError(f'"{name}" in {path} is not a string')
    return str(array)
