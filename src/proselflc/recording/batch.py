"""What a training loop shows of a batch, checked without waiting for an accelerator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from proselflc.errors import InputError


class ShownBatch(NamedTuple):
    """N examples, what a model said of them and how they are labelled.

    Attributes:
        logits: [N, C] float32 or float64, detached.
        index: [N] int64 positions in the training set, wherever they came from.
        labels: [N] int64 given class ids, or None where they did not come.
    """

    logits: Tensor
    index: Tensor  # type: ignore[assignment]  # shadows tuple.index, which nobody wants
    labels: Tensor | None


def shown_batch(
    index: object, logits: object, labels: object | None, num_classes: int
) -> ShownBatch:
    """What came, as far as its kind and shape are right; its values are not looked at.

    Raises:
        InputError: logits are not [N, C], or there is not a whole number for each of them.
    """
    z = _tensor(logits, "logits").detach()
    if z.dim() != 2 or z.size(1) != num_classes or not z.is_floating_point():
        raise InputError(
            f"logits are {z.dtype} {list(z.shape)}, but a floating-point [N, {num_classes}] is "
            "expected: a row for every example of the batch, a column for every class"
        )
    if z.dtype in (torch.float16, torch.bfloat16):
        z = z.float()
    given = None if labels is None else _whole_numbers(labels, "labels", len(z))
    return ShownBatch(z, _whole_numbers(index, "index", len(z)), given)


def _whole_numbers(values: object, what: str, n: int) -> Tensor:
    one = _tensor(values, what).detach()
    is_whole = not (one.dtype is torch.bool or one.is_floating_point() or one.is_complex())
    if one.shape != (n,) or not is_whole:
        raise InputError(
            f"{what} is {one.dtype} {list(one.shape)}, but {n} whole numbers are expected: one for "
            "every row of logits"
        )
    return one.long()


def _tensor(values: object, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"{what} is a {type(values).__name__} that cannot be made a tensor: give a tensor, an "
            "array or a list of numbers"
        ) from None
