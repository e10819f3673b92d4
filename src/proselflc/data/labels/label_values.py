"""Labels as the caller wrote them: their values and type, so that they are returned unchanged.

Inside the package a label is a class id and a class name, which is a string. A caller who passed
integers gets integers back; otherwise comparing returned with given labels would be False.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from proselflc.files.typed import convert, damaged, decode_json

Ints: TypeAlias = npt.NDArray[np.int64]
Value: TypeAlias = bool | int | float | str
Container: TypeAlias = Literal["list", "array", "tensor"]
Returned: TypeAlias = Any  # a list, an array or a tensor, as the caller passed

_NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_DTYPES = {
    "list": ("object",),
    "array": (*_NUMBERS, "str", "object"),
    "tensor": _NUMBERS,
}
_KINDS: dict[str, tuple[type, ...]] = {
    **{"bool": (bool,), "int": (int,), "uint": (int,), "float": (int, float)},
    **{"str": (str,), "object": (bool, int, float, str)},
}


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of `LabelValues` in a file, none of which may be missing."""

    container: Container
    dtype: str
    values: tuple[Value, ...]

    def checked(self, num_classes: int, where: str) -> LabelValues:
        made = LabelValues(self.values, self.container, self.dtype)
        try:
            made._validate(num_classes)
        except ValueError as error:
            raise damaged(where, error) from None
        return made


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

    def of(self, classes: Ints) -> Returned:
        """Return the labels of class ids [n] in the caller's type."""
        if self.container == "list":
            return [self.values[k] for k in classes]
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
        """Return the fields as JSON values, which `from_json` reads."""
        return {"container": self.container, "dtype": self.dtype, "values": list(self.values)}

    @classmethod
    def from_json(cls, found: object, num_classes: int, source: object) -> LabelValues | None:
        """Return what `to_json` gave, checked; None for None, as in runs of older versions."""
        where = f"the label type in {source}"
        return None if found is None else convert(found, _Stored, where).checked(num_classes, where)

    def _validate(self, num_classes: int) -> None:
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


def to_text(found: LabelValues) -> str:
    """Return the JSON text that an .npz file holds."""
    return json.dumps(found.to_json(), ensure_ascii=False)


def from_text(text: str, num_classes: int, source: object) -> LabelValues | None:
    """Return what `to_text` gave, checked; None for an empty text."""
    where = f"the label type in {source}"
    return decode_json(text, _Stored, where).checked(num_classes, where) if text else None


def like(labels: object, values: Iterable[Value]) -> LabelValues:
    """Return the values of C classes in the type of the caller's labels."""
    plain = LabelValues(tuple(values))
    if isinstance(labels, list | tuple):
        return plain
    container: Container = "array"
    if type(labels).__module__.partition(".")[0] == "torch":
        container, dtype = "tensor", str(getattr(labels, "dtype", "")).removeprefix("torch.")
    else:
        array = np.asarray(labels)
        dtype = "str" if array.dtype.kind == "U" else array.dtype.name
    try:
        made = LabelValues(plain.values, container, dtype)
        made._validate(len(plain.values))
    except ValueError:
        return plain  # such as a class without labels whose value does not fit in the dtype
    return made


def of_classes(
    labels: object, found: Sequence[tuple[npt.NDArray[Any], Ints]], num_classes: int
) -> LabelValues:
    """Return the label of each class in the type of the caller's labels.

    `found` are pairs of labels and their class ids, row for row. Every class is in one of them, and
    the first pair that has a class decides its label.
    """
    values: dict[int, Value] = {}
    for some, classes in found:
        which, first = np.unique(classes, return_index=True)
        for k, value in zip(which.tolist(), some[first].tolist(), strict=True):
            values.setdefault(k, value.item() if hasattr(value, "item") else value)
    return like(labels, [values[k] for k in range(num_classes)])


def class_ids_like(labels: object, num_classes: int) -> LabelValues:
    """Return class ids in the type of the caller's labels, which are class ids too."""
    kind = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels).dtype.kind
    if kind == "b" and num_classes > 2:
        return class_ids(num_classes)
    of_kind = {"b": bool, "f": float}.get(kind, int)
    return like(labels, [of_kind(k) for k in range(num_classes)])


def class_ids(num_classes: int) -> LabelValues:
    """Return class ids as int64, for callers who passed class ids."""
    return LabelValues(tuple(range(num_classes)), "array", "int64")


def returned(classes: Ints, names: Sequence[str], values: LabelValues | None) -> Returned:
    """Return n labels in the caller's type, or class names if the labels came from a file."""
    return [names[k] for k in classes] if values is None else values.of(classes)
