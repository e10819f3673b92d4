"""The batches of a recorded training loop, and where its epochs end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from proselflc.data.inputs import Bools, Ints
from proselflc.errors import InputError

_FORGOTTEN = 3  # epochs' worth of examples without a call of end_epoch
_REPEATS = "pass repeats=True to record and call rec.end_epoch() after each epoch"


class CurrentEpoch:
    """The examples recorded in the current epoch, and whether it has ended.

    An epoch ends by itself when all examples are recorded or one occurs again. After the first call
    of `end`, epochs end by such calls only.

    Args:
        repeats: whether an example may occur more than once, so that `end` must be called.

    Attributes:
        seen: [n] whether an example is recorded.
        count: number of examples recorded, repetitions included.
        steps: number of batches.
    """

    def __init__(self, num_examples: int, *, repeats: bool) -> None:
        self.seen: Bools = np.zeros(num_examples, np.bool_)
        self.count = 0
        self.steps = 0
        self._repeats = repeats
        self._is_explicit = False  # whether epochs end by calls of `end`
        self._ended_at: int | None = None  # the example that ended an epoch by occurring again
        self._ended_full = False  # whether one ended because all examples were recorded

    def is_over_before(self, index: Ints, processes: int) -> bool:
        """Return whether a batch belongs to the next epoch, since an example occurs again.

        Args:
            index: [N] of the batch, which is not added yet.
            processes: number of processes; none of several sees all examples.
        """
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


class RecordedBatch(NamedTuple):
    """N examples with their logits and labels.

    Attributes:
        logits: [N, C] float32 or float64, detached.
        index: [N] int64 positions in the training set, on any device.
        labels: [N] int64 given class ids, or None if they were not passed.
    """

    logits: Tensor
    index: Tensor  # type: ignore[assignment]  # shadows tuple.index, which is not needed
    labels: Tensor | None


def check_batch(
    index: object, logits: object, labels: object | None, num_classes: int
) -> RecordedBatch:
    """Return a batch whose types and shapes are right, without reading its values."""
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
    return RecordedBatch(z, _whole_numbers(index, "index", len(z)), given)


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
