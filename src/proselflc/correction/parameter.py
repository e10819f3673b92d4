"""The numbers a method is made with, checked once, where it is made."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Real

from torch import Tensor


def number(
    value: float, name: str, which: str, what: str, *, fits: Callable[[float], bool]
) -> float:
    """The number, if it is one and fits.

    Args:
        value: from the user; a 0-d tensor counts as its value.
        name: of the parameter.
        which: numbers are meant, "between 0 and 1".
        what: it is, or what to do about it.
        fits: whether a number is one of them; NaN must not be.
    """
    real = is_number(value) or (isinstance(value, Tensor) and value.dim() == 0)
    if not real or not fits(float(value)):
        error = ValueError if real else TypeError
        raise error(f"{name} must be a number {which}, got {value!r}: {what}")
    return float(value)


def share_of_training(value: float, name: str) -> float:
    """A moment in training, 0 at its beginning and 1 at its end."""
    return number(
        value, name, "between 0 and 1", "it is a share of training", fits=lambda x: 0 <= x <= 1
    )


def kept_share(momentum: float) -> float:
    """The share of an average that an update keeps."""
    return number(
        momentum,
        "momentum",
        "at least 0 and below 1",
        "it is the share of the old average that an update keeps",
        fits=lambda x: 0 <= x < 1,
    )


def factor(value: float, name: str, of: str) -> float:
    """The weight of a part of a loss."""
    return number(
        value,
        name,
        "0 or more and finite",
        f"it is the weight of {of}",
        fits=lambda x: 0 <= x < math.inf,
    )


def whole_number(value: int, name: str, what: str, *, least: int) -> int:
    """The number, if it is a whole one and not below the least."""
    try:
        whole = operator.index(value)  # numpy's integers too
    except TypeError:
        whole = least - 1
    if whole < least or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number ≥ {least}, got {value!r}: {what}")
    return whole


def is_number(value: object) -> bool:
    """Whether it is a real number, numpy's included; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)
