"""Labels of a run, given and true; corrected ones of an export; and labels in the caller's type.

The first two are `.npz` files. Inside the package a label is a class id and a class name, which is
a string. A caller who passed integers gets integers back; otherwise comparing returned with given
labels would be False.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from proselflc.data import class_matrix
from proselflc.data.class_matrix import ClassMatrix
from proselflc.data.dataset import NO_LABEL, Dataset
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.noise import Noise, fingerprint
from proselflc.data.sources import npz
from proselflc.errors import InputError
from proselflc.files.regular import whole_file
from proselflc.files.typed import convert, damaged, decode_json

Value: TypeAlias = bool | int | float | str
Container: TypeAlias = Literal["list", "array", "tensor"]
Returned: TypeAlias = Any  # a list, an array or a tensor, as the caller passed

_NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_DTYPES = {"list": ("object",), "array": (*_NUMBERS, "str", "object"), "tensor": _NUMBERS}
_KINDS: dict[str, tuple[type, ...]] = {
    **{"bool": (bool,), "int": (int,), "uint": (int,), "float": (int, float)},
    **{"str": (str,), "object": (bool, int, float, str)},
}


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of `LabelValues` in a file, none of which may be missing."""

    container: Container
    dtype: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class LabelValues:
    """The label of each class as the caller wrote it, and the type that holds the labels.

    Attributes:
        values: C labels, one for each class.
        container: "list" for lists and tuples; "array" for NumPy arrays and pandas columns;
            "tensor" for PyTorch tensors.
        dtype: name of the dtype of the array or tensor; "str" for strings of any length.
    """

    values: tuple[Value, ...]
    container: Container = "list"
    dtype: str = "object"

    @classmethod
    def like(cls, labels: object, values: Iterable[Value]) -> LabelValues:
        """Return the values of C classes in the type of the caller's labels."""
        plain = cls(tuple(values))
        if isinstance(labels, list | tuple):
            return plain
        container: Container = "array"
        if type(labels).__module__.partition(".")[0] == "torch":
            container, dtype = "tensor", str(getattr(labels, "dtype", "")).removeprefix("torch.")
        else:
            array = np.asarray(labels)
            dtype = "str" if array.dtype.kind == "U" else array.dtype.name
        try:
            return cls(plain.values, container, dtype)._checked(len(plain.values))
        except ValueError:
            return plain  # such as a class without labels whose value does not fit in the dtype

    @classmethod
    def class_ids(cls, num_classes: int, like: object = None) -> LabelValues:
        """Return class ids in the type of the caller's class ids; as int64 if there are none."""
        kind = np.asarray(like.cpu() if hasattr(like, "cpu") else like).dtype.kind
        if like is None or (kind == "b" and num_classes > 2):
            return cls(tuple(range(num_classes)), "array", "int64")
        of_kind = {"b": bool, "f": float}.get(kind, int)
        return cls.like(like, [of_kind(k) for k in range(num_classes)])

    def of(self, classes: Ints) -> Returned:
        """Return the labels of class ids [n] in the caller's type.

        `NO_LABEL` is NaN among floating-point numbers and otherwise None, in an array of objects if
        they came in an array.
        """
        if self.container == "list":
            return [None if k == NO_LABEL else self.values[k] for k in classes]
        if (classes == NO_LABEL).any():
            is_float = self.dtype.startswith("float")
            kind, missing = (self.dtype, np.nan) if is_float else ("object", None)
            every = np.array([*self.values, missing], dtype=kind)[classes]
            if self.container == "array":
                return every
            import torch

            return torch.from_numpy(every) if is_float else every.tolist()
        if self.container == "tensor":
            import torch

            table = torch.tensor(self.values, dtype=getattr(torch, self.dtype))
            return table[torch.from_numpy(np.asarray(classes, np.int64))]
        return np.array(self.values, dtype=np.dtype(self.dtype))[classes]

    def column(self, classes: Ints) -> npt.NDArray[Any] | list[Any]:
        """Return the labels of class ids [n] as a table column, which a tensor cannot be."""
        found = self.of(classes)
        return found if isinstance(found, list | np.ndarray) else found.numpy()

    def to_json(self) -> dict[str, object]:
        """Return plain values for a JSON file."""
        return {"container": self.container, "dtype": self.dtype, "values": list(self.values)}

    @classmethod
    def from_json(cls, found: object, num_classes: int, source: object) -> LabelValues | None:
        """Return what `to_json` gave, checked; None for None, as in runs of older versions."""
        if found is None:
            return None
        where = f"the label type in {source}"
        stored = convert(found, _Stored, where)
        try:
            return cls(stored.values, stored.container, stored.dtype)._checked(num_classes)
        except ValueError as error:
            raise damaged(where, error) from None

    def _checked(self, num_classes: int) -> LabelValues:
        """Refuse fields that do not go together, before NumPy or torch sees the dtype."""
        if self.dtype not in _DTYPES[self.container]:
            raise ValueError(f"there is no {self.container} of {self.dtype[:20]}")
        if len(self.values) != num_classes:
            raise ValueError(f"expected {num_classes} values")
        kinds = _KINDS[self.dtype.rstrip("0123456789")]
        if not all(type(value) in kinds for value in self.values):
            raise ValueError(f"the values are not {self.dtype}")
        if "int" in self.dtype:
            limits = np.iinfo(self.dtype)
            if not all(limits.min <= value <= limits.max for value in self.values):  # type: ignore[operator]
                raise ValueError(f"a value does not fit in {self.dtype}")
        return self


def returned(classes: Ints, names: Sequence[str], values: LabelValues | None) -> Returned:
    """Return n labels in the caller's type, or class names if the labels came from a file.

    A label is None, or NaN among floating-point numbers, where the class id is `NO_LABEL`.
    """
    return (LabelValues(tuple(names)) if values is None else values).of(classes)


@dataclass(frozen=True)
class Labels:
    """Labels of n training examples, and the names of the m others that have no label."""

    given: Ints  # [n] labels to learn from, 0 … C−1
    clean: Ints | None  # [n] true labels, or None if unknown
    flipped: Bools  # [n] whether `given` differs from `clean`; all False if that is unknown
    transition: ClassMatrix  # [C, C] realised, row = true class; the identity if unknown
    names: tuple[str, ...]  # C class names
    ids: tuple[str, ...]  # n distinct ids of the examples
    generator: str  # full name and rate of the noise, or "none" for unchanged labels
    fingerprint: str  # SHA-256 of `given` and C, the same on every platform
    trusted: Bools | None = None  # [n] known to be correct and learned as such; None if ignored
    values: LabelValues | None = None  # None for class names, as in files
    rest: tuple[str, ...] = ()  # m ids of the training examples without a label
    before: Ints | None = None  # [m] how many labels precede each of these; None if m is 0

    @property
    def all_ids(self) -> tuple[str, ...]:
        """Return the n + m ids of all training examples, in the order of the data."""
        ids = (*self.ids, *self.rest)
        return ids if self.before is None else tuple(ids[k] for k in self.order)

    @property
    def order(self) -> Ints:
        """Return [n + m] the order of the data for n examples with a label and then m without."""
        n, m = len(self.ids), len(self.rest)
        before = np.zeros(0, np.int64) if self.before is None else self.before
        return np.insert(np.arange(n), before, np.arange(n, n + m))

    def with_rest(self, classes: Ints) -> Ints:
        """Return [n + m] class ids of all training examples: given ones [n], else `NO_LABEL`."""
        return np.append(classes, [NO_LABEL] * len(self.rest)).astype(np.int64)[self.order]

    @property
    def is_labelled(self) -> Bools:
        """Return [n + m] whether each training example has a label."""
        return self.order < len(self.ids)

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
            arrays["label_type"] = np.array(json.dumps(self.values.to_json(), ensure_ascii=False))
        if self.before is not None:
            arrays["unlabelled_ids"] = np.array(self.rest, dtype=np.str_)
            arrays["unlabelled_before"] = self.before.astype("<i8")
        with whole_file(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> Labels:
        """Return the content of `labels.npz`, with its arrays checked against each other."""
        wanted = ["given", "flipped", "names", "ids", "generator", "fingerprint"]
        of_transition = class_matrix.array_names("transition")
        others = ("clean", "trusted", "label_type", "unlabelled_ids", "unlabelled_before")
        arrays = npz.arrays(path, (*wanted, *of_transition, *others))
        if not any(name in arrays for name in of_transition):
            wanted.append("transition")
        ids, names = _ids_and_names(path, arrays, wanted)
        n, C = len(ids), len(names)
        given = _class_ids(path, "given", arrays["given"], n, C)
        clean = None
        if "clean" in arrays:
            clean = _class_ids(path, "clean", arrays["clean"], n, C)
        flipped = _booleans(path, "flipped", arrays["flipped"], n)
        trusted = None
        if "trusted" in arrays:
            trusted = _booleans(path, "trusted", arrays["trusted"], n)
        try:
            transition = class_matrix.checked_transition(
                class_matrix.read(arrays, "transition", C, path), C
            )
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        generator = _string(path, "generator", arrays["generator"])
        claimed = _string(path, "fingerprint", arrays["fingerprint"])
        if claimed != fingerprint(given, C):
            raise InputError(
                f"the labels in {path} do not match their fingerprint: the file was changed after "
                "it was written, so create it again"
            )
        expected = np.zeros(n, dtype=np.bool_) if clean is None else given != clean
        if not np.array_equal(flipped, expected):
            raise InputError(f'"flipped" in {path} contradicts its given and clean labels')
        values = None
        if "label_type" in arrays:
            text, where = _string(path, "label_type", arrays["label_type"]), "the label type in"
            found = decode_json(text, dict[str, Any], f"{where} {path}") if text else None
            values = LabelValues.from_json(found, C, path)
        labels = cls(
            given, clean, flipped, transition, names, ids, generator, claimed, trusted, values
        )
        if "unlabelled_ids" not in arrays:
            return labels
        rest, before = _unlabelled(path, arrays, ids)
        return replace(labels, rest=rest, before=before)


@dataclass(frozen=True)
class CorrectedLabels:
    """Corrected labels of n examples, as an export writes them into an `.npz` file."""

    ids: tuple[str, ...]  # n distinct ids of the examples
    labels: Ints  # [n] corrected, 0 … C−1, or `NO_LABEL`
    given: Ints  # [n] original, or `NO_LABEL`
    names: tuple[str, ...]  # C class names

    def save(
        self,
        file: IO[bytes],
        *,
        is_suspect: Bools,
        quality: Floats,
        reviewed: Bools,
        action: npt.NDArray[Any] | None = None,
        probabilities: Floats | None = None,
        classes: Ints | None = None,
    ) -> None:
        """Write the labels and what other programs may use.

        Where there are too many classes for probabilities [n, C], `classes` [n, 5] are the most
        likely ones, and the probabilities [n, 5] are theirs.
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
        if action is not None:
            arrays["action"] = action.astype(np.str_)
        if probabilities is not None:
            arrays["probabilities"] = probabilities.astype("<f4")
        if classes is not None:
            arrays["classes"] = classes.astype("<i8")
        np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> CorrectedLabels:
        """Return the labels of a file, with every array checked."""
        wanted = ("ids", "labels", "given", "names")
        arrays = npz.arrays(path, wanted)
        ids, names = _ids_and_names(path, arrays, wanted)
        n, C = len(ids), len(names)
        return cls(
            ids,
            _class_ids(path, "labels", arrays["labels"], n, C, least=NO_LABEL),
            _class_ids(path, "given", arrays["given"], n, C, least=NO_LABEL),
            names,
        )


def holds_corrected_labels(path: Path) -> bool:
    """Return whether an `.npz` file is an export rather than the `labels.npz` of a run."""
    try:
        return "labels" in npz.arrays(path, ("labels",))
    except InputError:  # its reader will say what is wrong with it
        return False


def from_dataset(dataset: Dataset, noise: Noise | None) -> Labels:
    """Return the labels of the training part of a data set, with `noise` if any.

    Noise starts from the true labels if the data set has them, else from the given ones, which
    are then taken as true.
    """
    clean = dataset.clean
    if noise is not None:
        if clean is None:
            clean = dataset.train.labels
        assert np.array_equal(noise.given != clean, noise.flipped)
    apart = dataset.unlabelled
    found = labelled(
        dataset.train.labels if noise is None else noise.given,
        clean,
        dataset.names,
        dataset.train.ids,
        generator="none" if noise is None else noise.spec,
        trusted=dataset.trusted,
        values=None if dataset.label_values == LabelValues(dataset.names) else dataset.label_values,
    )
    if apart is None:
        return found
    return replace(found, rest=apart.part.ids, before=apart.before)


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
    """Return labels with what follows from them; see `Labels` for the arguments."""
    C = len(names)
    transition = class_matrix.identity(C)
    if clean is not None:
        transition = class_matrix.rows_to_1(class_matrix.counted(clean, given, C))
    return Labels(
        given=given,
        clean=clean,
        flipped=np.zeros(len(given), dtype=np.bool_) if clean is None else given != clean,
        transition=transition,
        names=names,
        ids=ids,
        generator=generator,
        fingerprint=fingerprint(given, C),
        trusted=trusted,
        values=values,
    )


def _ids_and_names(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], wanted: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids and class names of a file that has all the wanted arrays."""
    missing = next((name for name in wanted if name not in arrays), None)
    if missing is not None:
        raise InputError(f'{path} holds no "{missing}": it is not a label file of proselflc')
    ids, names = (strings_of(path, name, arrays[name]) for name in ("ids", "names"))
    if len(set(ids)) != len(ids) or len(set(names)) != len(names):
        raise InputError(f"ids or names in {path} are not distinct")
    return ids, names


def _unlabelled(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], ids: Sequence[str]
) -> tuple[tuple[str, ...], Ints]:
    """Return the ids of the examples without a label, and how many labels precede each."""
    rest = strings_of(path, "unlabelled_ids", arrays["unlabelled_ids"])
    before = arrays.get("unlabelled_before", np.zeros(0))
    before = _class_ids(path, "unlabelled_before", before, len(rest), len(ids) + 1)
    if not rest or not set(rest).isdisjoint(ids) or len(set(rest)) < len(rest):
        raise InputError(f"the ids of {path} without a label are none, or not distinct")
    if (np.diff(before) < 0).any():
        raise InputError(f'"unlabelled_before" in {path} does not ascend')
    return rest, before


def _class_ids(
    path: Path, name: str, array: npt.NDArray[Any], n: int, C: int, *, least: int = 0
) -> Ints:
    """Return an array of a file that holds n class ids in 0 … C−1."""
    if array.dtype.kind not in "iu" or array.shape != (n,):
        raise InputError(
            f'"{name}" in {path} is {array.dtype} of shape {array.shape}: expected {n} class ids'
        )
    if n and not least <= int(array.min()) <= int(array.max()) < C:
        raise InputError(f'"{name}" in {path} has labels outside 0 … {C - 1}')
    return array.astype(np.int64)


def strings_of(path: Path, name: str, array: npt.NDArray[Any]) -> tuple[str, ...]:
    """Return an array of a file that holds strings."""
    if array.dtype.kind != "U" or array.ndim != 1:
        raise InputError(f'"{name}" in {path} is not a list of strings')
    return tuple(array.tolist())


def _booleans(path: Path, name: str, array: npt.NDArray[Any], n: int) -> Bools:
    if array.dtype != np.bool_ or array.shape != (n,):
        raise InputError(f'"{name}" in {path} does not hold one boolean for each of {n} labels')
    return array


def _string(path: Path, name: str, array: npt.NDArray[Any]) -> str:
    if array.dtype.kind != "U" or array.ndim != 0:
        raise InputError(f'"{name}" in {path} is not a string')
    return str(array)
