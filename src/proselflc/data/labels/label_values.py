"""Labels as the caller wrote them: their values and type, so that they come back the same.

Inside the package a label is a class id and a class name, which is a text. A caller who gave
integers gets integers: otherwise comparing what comes back with what was given is False everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError

Ints: TypeAlias = npt.NDArray[np.int64]
Value: TypeAlias = bool | int | float | str
Container: TypeAlias = Literal["list", "array", "tensor"]
Returned: TypeAlias = Any  # a list, an array or a tensor, as the caller has; they know which

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


@dataclass(frozen=True)
class LabelValues:
    """The label of each class as the caller wrote it, and what the caller keeps labels in.

    Attributes:
        values: C labels, one for each class.
        container: "list" for lists and tuples; "array" for NumPy's arrays and pandas' columns;
            "tensor" for PyTorch's.
        dtype: of the array or the tensor, by its name; "str" for texts of any length.
    """

    values: tuple[Value, ...]
    container: Container = "list"
    dtype: str = "object"

    def of(self, classes: Ints) -> Returned:
        """[n] the labels of these class ids, in the caller's type.

        Args:
            classes: [n] class ids, 0 … C−1.
        """
        if self.container == "list":
            return [self.values[k] for k in classes]
        if self.container == "tensor":
            import torch

            table = torch.tensor(self.values, dtype=getattr(torch, self.dtype))
            return table[torch.from_numpy(np.asarray(classes, np.int64))]
        return np.array(self.values, dtype=np.dtype(self.dtype))[classes]

    def column(self, classes: Ints) -> npt.NDArray[Any] | list[Any]:
        """[n] the same for a column of a table, which a tensor cannot be."""
        found = self.of(classes)
        return found if isinstance(found, list | np.ndarray) else found.numpy()

    def to_json(self) -> dict[str, object]:
        return {"container": self.container, "dtype": self.dtype, "values": list(self.values)}

    @classmethod
    def from_json(cls, found: object, num_classes: int, source: object) -> LabelValues | None:
        """What `to_json` gave, after it was written and read; None where a file says nothing.

        Args:
            found: the value in the file.
            num_classes: C.
            source: the file, for messages.

        Raises:
            InputError: it is no such thing.
        """
        if found is None:
            return None
        try:
            made = cls._checked(found, num_classes)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{source} says of which type its labels were, and that is damaged: {error}"
            ) from None
        return made

    @classmethod
    def _checked(cls, found: object, num_classes: int) -> LabelValues:
        if not isinstance(found, dict) or set(found) != {"container", "dtype", "values"}:
            raise ValueError("expected container, dtype and values")
        container, dtype, values = found["container"], found["dtype"], found["values"]
        if container not in _DTYPES or dtype not in _DTYPES[container]:
            raise ValueError(f"there is no {str(container)[:20]} of {str(dtype)[:20]}")
        if not isinstance(values, list) or len(values) != num_classes:
            raise ValueError(f"expected {num_classes} values")
        kinds = _KINDS[dtype.rstrip("0123456789")]
        if not all(type(value) in kinds for value in values):
            raise ValueError(f"the values are not {dtype}")
        if "int" in dtype:
            limits = np.iinfo(dtype)
            if not all(limits.min <= value <= limits.max for value in values):
                raise ValueError(f"a value does not fit in {dtype}")
        return cls(tuple(values), container, dtype)


def text_of(found: LabelValues | None) -> str:
    """The JSON that an .npz file holds; empty where the type is not known."""
    return "" if found is None else json.dumps(found.to_json(), ensure_ascii=False)


def of_text(text: str, num_classes: int, source: object) -> LabelValues | None:
    """What `text_of` gave.

    Raises:
        InputError: it is no such thing.
    """
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = ()  # which is refused as damaged
    return LabelValues.from_json(found, num_classes, source)


def like(labels: object, values: Iterable[Value]) -> LabelValues:
    """What classes are called in the type of the caller's labels.

    Args:
        labels: n of the caller's labels: a list or tuple, an array, a column of a data frame or a
            tensor.
        values: C of them, one for each class.
    """
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
        return LabelValues._checked(
            {**plain.to_json(), "container": container, "dtype": dtype}, len(plain.values)
        )
    except (TypeError, ValueError):
        return plain  # a class that no label of theirs is of does not fit in their dtype


def of_classes(
    labels: object, found: Sequence[tuple[npt.NDArray[Any], Ints]], num_classes: int
) -> LabelValues:
    """The label of each class, in the type of the caller's labels.

    Args:
        labels: n of the caller's labels, in the type they came in.
        found: pairs of labels and their class ids, row for row; every class is in one of them, and
            what an earlier pair says of a class counts.
        num_classes: C.
    """
    values: dict[int, Value] = {}
    for some, classes in found:
        which, first = np.unique(classes, return_index=True)
        for k, value in zip(which.tolist(), some[first].tolist(), strict=True):
            values.setdefault(k, value.item() if hasattr(value, "item") else value)
    return like(labels, [values[k] for k in range(num_classes)])


def class_ids_like(labels: object, num_classes: int) -> LabelValues:
    """Class ids in the type of the caller's labels, which are class ids too."""
    kind = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels).dtype.kind
    if kind == "b" and num_classes > 2:
        return class_ids(num_classes)
    of_kind = {"b": bool, "f": float}.get(kind, int)
    return like(labels, [of_kind(k) for k in range(num_classes)])


def class_ids(num_classes: int) -> LabelValues:
    """Class ids as int64, for callers who gave those."""
    return LabelValues(tuple(range(num_classes)), "array", "int64")


def returned(classes: Ints, names: Sequence[str], values: LabelValues | None) -> Returned:
    """[n] labels in the caller's type; a list of class names where the labels came from a file."""
    return [names[k] for k in classes] if values is None else values.of(classes)
