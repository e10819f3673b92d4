"""The examples of a recorded training loop: labels, names, ids and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from proselflc.data import kept_inputs
from proselflc.data.dataset import Part, check_rows, check_unicode
from proselflc.data.inputs import Features, Inputs, Ints
from proselflc.data.labels import label_values
from proselflc.data.labels.label_values import LabelValues
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.sources import arrays
from proselflc.errors import InputError, unknown


class RecordedExamples:
    """What is known about n examples before recording begins.

    Attributes:
        given: [n] class ids, −1 if unknown so far.
        clean: [n] true class ids, or None.
        names: C class names.
        ids: n ids of examples.
        inputs: inputs to keep in the run, or None.
        data: the data by the name that `train` takes, or None.
        title: name of the data, or None.
        source: origin of the labels, for messages; empty if batches bring them.
        label_values: labels of the classes as the caller wrote them; None for those of `data`.
    """

    def __init__(self, num_classes: int, given: Ints, names: tuple[str, ...], ids: Sequence[str]):
        self.num_classes = num_classes
        self.given = given
        self.names = names
        self.ids = tuple(ids)
        self.clean: Ints | None = None
        self.inputs: Inputs | None = None
        self.data: str | None = None
        self.title: str | None = None
        self.source = ""
        self.label_values: LabelValues | None = None

    @classmethod
    def of(
        cls,
        n: int,
        num_classes: int,
        labels: object | None,
        clean: object | None,
        names: Sequence[str] | None,
        ids: Sequence[str] | None,
        inputs: object | None,
        data: str | Path | None,
    ) -> RecordedExamples:
        """Check the arguments of `record`."""
        if data is not None:
            return cls._of_data(n, num_classes, (labels, names, ids, inputs), clean, str(data))
        known = [str(k) for k in range(num_classes)] if names is None else [str(x) for x in names]
        _check_count("names", known, num_classes, "classes")
        ids = [str(k) for k in range(n)] if ids is None else [str(value) for value in ids]
        _check_count("ids", ids, n, "examples")
        if len(set(known)) < num_classes:
            raise InputError("two classes have the same name", field="names")
        about = cls(num_classes, np.full(n, -1, np.int64), tuple(known), ids)
        about.label_values = _values(labels, about.names)
        if labels is not None:
            about.given = _class_ids(labels, about.names, n, "labels")
            about.source = "labels"
        if clean is not None:
            about.clean = _class_ids(clean, about.names, n, "clean")
        if inputs is not None:
            about.inputs = arrays.inputs(inputs, "inputs")
            _check_count("inputs", about.inputs, n, "examples")
            kept_inputs.check(about.inputs)  # now, not after the first epoch
        check_unicode("the recording", "class", about.names)
        nothing = Features(np.zeros((n, 0), np.float32))
        check_rows("the recording", Part(about.inputs or nothing, None, about.ids))
        return about

    @classmethod
    def _of_data(
        cls, n: int, num_classes: int, others: tuple[object, ...], clean: object, data: str
    ) -> RecordedExamples:
        for name, value in zip(("labels", "names", "ids", "inputs"), others, strict=True):
            if value is not None:
                raise InputError(f"data has its own {name}", field=name, fix=f"leave {name} out")
        found = open_data(Request(data=data))
        if (len(found.train), found.num_classes) != (n, num_classes):
            raise InputError(
                f"{data} has {len(found.train)} training examples of {found.num_classes} classes, "
                f"expected {n} of {num_classes}",
                field="data",
                fix="pass the data that the loop trains on",
            )
        about = cls(num_classes, found.train.labels, found.names, found.train.ids)
        about.data, about.title, about.source = data, found.name, data
        about.clean = found.clean
        if clean is not None:
            about.clean = _class_ids(clean, about.names, n, "clean")
        return about

    def check(self, index: Ints, given: Ints) -> None:
        """Refuse positions [N] or class ids [N] of a batch that do not fit these examples."""
        n, C = len(self.given), self.num_classes
        outside = index[(index < 0) | (index >= n)]
        if len(outside):
            raise InputError(
                f"index {outside[0]} is not a position among {n} examples",
                field="index",
                fix=f"pass positions in the training set, 0 … {n - 1}",
            )
        strange = given[(given < 0) | (given >= C)]
        if len(strange):
            raise InputError(
                f"label {strange[0]} is not a class id, expected 0 … {C - 1}", field="labels"
            )
        known = self.given[index]
        other = np.flatnonzero((known >= 0) & (known != given))
        if len(other):
            k = other[0]
            before = f"in {self.source}" if self.source else "before"
            raise InputError(
                f"example {index[k]} has the label {given[k]}, but had {known[k]} {before}",
                field="index",
                fix="pass each example's position in the training set, the same in every epoch",
            )

    def check_all_known(self) -> None:
        """Refuse examples whose labels are still unknown."""
        missing = np.flatnonzero(self.given < 0)
        if len(missing):
            raise InputError(
                f"{len(missing):,} of {len(self.given):,} examples did not occur in the first "
                f"epoch (such as example {missing[0]}), so their labels are unknown",
                field="labels",
                fix="pass all labels to record(…, labels=…)",
            )


def _check_count(what: str, given: Sequence[object] | Inputs, expected: int, of: str) -> None:
    if len(given) != expected:
        raise InputError(f"there are {len(given)} {what} for {expected} {of}", field=what)


def _class_ids(values: object, names: tuple[str, ...], n: int, what: str) -> Ints:
    """Return the class ids [n] of labels that are ids or names."""
    array: npt.NDArray[Any] = np.asarray(_tensor_or_self(values))
    if array.shape != (n,):
        raise InputError(f"{what} has shape {list(array.shape)}, expected {n} labels", field=what)
    if array.dtype.kind in "UO":
        place = {name: k for k, name in enumerate(names)}
        labels = [str(label) for label in array.tolist()]
        strange = [label for label in labels if label not in place]
        if strange:
            raise InputError(f"{what}: " + unknown("class", strange[0], names), field=what)
        return np.array([place[label] for label in labels], dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{what} is {array.dtype}, expected class ids or names", field=what)
    outside = array[(array < 0) | (array >= len(names))]
    if len(outside):
        raise InputError(
            f"{what} has the label {outside[0]}, expected class ids 0 … {len(names) - 1}",
            field=what,
        )
    return array.astype(np.int64)


def _values(labels: object | None, names: tuple[str, ...]) -> LabelValues:
    """Return the labels of the classes in the type of `labels`; class ids if batches bring them."""
    if labels is None:
        return label_values.class_ids(len(names))
    if np.asarray(_tensor_or_self(labels)).dtype.kind in "UO":
        return label_values.like(labels, names)
    return label_values.class_ids_like(labels, len(names))


def _tensor_or_self(values: object) -> object:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
