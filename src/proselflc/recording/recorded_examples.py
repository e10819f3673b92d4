"""The examples of a recorded training loop, its batches, and where its epochs end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc.data import kept_inputs
from proselflc.data.dataset import Part, check_rows, check_unicode
from proselflc.data.inputs import Bools, Features, Inputs, Ints
from proselflc.data.labels import label_values
from proselflc.data.labels.label_values import LabelValues
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.sources import arrays
from proselflc.errors import InputError, unknown

_FORGOTTEN = 3  # epochs' worth of examples without a call of end_epoch
_REPEATS = "pass repeats=True to record and call rec.end_epoch() after each epoch"


@dataclass
class RecordedExamples:
    """What is known about n examples of C classes before recording begins."""

    given: Ints  # [n] class ids, −1 if unknown so far
    names: tuple[str, ...]
    ids: tuple[str, ...]
    clean: Ints | None = None  # [n] true class ids
    inputs: Inputs | None = None  # to keep in the run
    data: str | None = None  # the data by the name that `train` takes
    title: str | None = None  # name of the data
    source: str = ""  # origin of the labels, for messages; empty if batches bring them
    label_values: LabelValues | None = None  # as the caller wrote them; None for those of `data`

    @property
    def num_classes(self) -> int:
        return len(self.names)

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


def checked_examples(
    n: int,
    num_classes: int,
    labels: object | None,
    clean: object | None,
    names: Sequence[str] | None,
    ids: Sequence[str] | None,
    inputs: object | None,
    data: str | Path | None,
) -> RecordedExamples:
    """Return the examples that the arguments of `record` describe."""
    if data is not None:
        others = {"labels": labels, "names": names, "ids": ids, "inputs": inputs}
        return _examples_of_data(n, num_classes, others, clean, str(data))
    known = tuple(str(name) for name in (range(num_classes) if names is None else names))
    _check_count("names", known, num_classes, "classes")
    own_ids = tuple(str(value) for value in (range(n) if ids is None else ids))
    _check_count("ids", own_ids, n, "examples")
    if len(set(known)) < num_classes:
        raise InputError("two classes have the same name", field="names")
    about = RecordedExamples(np.full(n, -1, np.int64), known, own_ids)
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


def _examples_of_data(
    n: int, num_classes: int, others: Mapping[str, object], clean: object, data: str
) -> RecordedExamples:
    for name, value in others.items():
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
    return RecordedExamples(
        found.train.labels,
        found.names,
        found.train.ids,
        found.clean if clean is None else _class_ids(clean, found.names, n, "clean"),
        data=data,
        title=found.name,
        source=data,
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


class CurrentEpoch:
    """The examples recorded in the current epoch, and whether it has ended.

    An epoch ends by itself when all examples are recorded or one occurs again. After the first call
    of `end`, epochs end by such calls only, as from the beginning if examples may be repeated.
    """

    def __init__(self, num_examples: int, *, repeats: bool) -> None:
        self.seen: Bools = np.zeros(num_examples, np.bool_)  # [n] whether an example is recorded
        self.count = 0  # of recorded examples, repetitions included
        self.steps = 0  # batches
        self._repeats = repeats
        self._is_explicit = False  # whether epochs end by calls of `end`
        self._ended_at: int | None = None  # the example that ended an epoch by occurring again
        self._ended_full = False  # whether one ended because all examples were recorded

    def is_over_before(self, index: Ints, processes: int) -> bool:
        """Return whether a batch [N] belongs to the next epoch, since an example occurs again."""
        if not self._ends_by_itself:
            return False
        again = index[self.seen[index]]
        if not len(again) and len(np.unique(index)) == len(index):
            return False
        if processes > 1:
            raise InputError(
                "an example occurred again, and no single one of several processes can tell where "
                "an epoch ends",
                fix="call rec.end_epoch() there, in all of them",
            )
        if not len(again):
            raise InputError(
                "an example occurred twice in one batch", field="repeats", fix=_REPEATS
            )
        seen, n = int(self.seen.sum()), len(self.seen)
        if 2 * seen < n:
            raise InputError(
                f"example {again[0]} occurred again after {seen:,} of {n:,} examples, so it is not "
                "clear where an epoch ends",
                field="repeats",
                fix=_REPEATS,
            )
        self._ended_at = int(again[0])
        return True

    def add(self, index: Ints) -> None:
        """Add a batch."""
        self.steps += 1
        self.count += len(index)
        self.seen[index] = True
        if self._repeats and not self._is_explicit and self.count > _FORGOTTEN * len(self.seen):
            raise InputError(
                f"{self.count:,} examples were recorded without a call of rec.end_epoch(), which "
                "repeats=True needs",
                fix="call it after each epoch",
            )

    def is_full(self, processes: int) -> bool:
        """Return whether the epoch has ended because all examples are recorded."""
        is_over = self._ends_by_itself and processes == 1 and bool(self.seen.all())
        self._ended_full |= is_over
        return is_over

    def expect_end(self) -> None:
        """Let no epoch end by itself from now on."""
        self._is_explicit = True

    def end(self) -> None:
        """End the epoch by the caller's request."""
        went_on = self._ended_full and self.seen.any() and not self._is_explicit
        if self._ended_at is not None or went_on:
            again = int(np.argmax(self.seen)) if self._ended_at is None else self._ended_at
            raise InputError(
                "rec.end_epoch() was called after an epoch had ended by itself, when example "
                f"{again} occurred again",
                field="repeats",
                fix="if examples occur more than once in an epoch, pass repeats=True to record",
            )
        self._is_explicit = True

    def begin_next(self) -> None:
        """Begin the next epoch."""
        self.seen[:] = False
        self.count = self.steps = 0

    @property
    def _ends_by_itself(self) -> bool:
        return not self._repeats and not self._is_explicit


def checked_batch(
    index: object, logits: object, labels: object | None, num_classes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return index [N], logits [N, C] and labels [N] as detached tensors on any device.

    Types and shapes are checked without reading the values.
    """
    z = _tensor(logits, "logits").detach()
    if z.dim() != 2 or z.size(1) != num_classes or not z.is_floating_point():
        raise InputError(
            f"expected floating-point logits [N, {num_classes}], a row per example and a column "
            f"per class, got {z.dtype} {list(z.shape)}",
            field="logits",
        )
    if z.dtype in (torch.float16, torch.bfloat16):
        z = z.float()
    given = None if labels is None else _whole_numbers(labels, "labels", len(z))
    return _whole_numbers(index, "index", len(z)), z, given


def _whole_numbers(values: object, what: str, n: int) -> Tensor:
    tensor = _tensor(values, what).detach()
    is_whole = not (tensor.dtype is torch.bool or tensor.is_floating_point() or tensor.is_complex())
    if tensor.shape != (n,) or not is_whole:
        raise InputError(
            f"expected {n} whole numbers as {what}, one per row of logits, got {tensor.dtype} "
            f"{list(tensor.shape)}",
            field=what,
        )
    return tensor.long()


def _tensor(values: object, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"{what} is a {type(values).__name__} that cannot be converted to a tensor",
            field=what,
            fix="pass a tensor, an array or a list of numbers",
        ) from None
