"""The numbers a method is made with, checked once, where it is made.

Nothing here needs torch until a tensor comes, so that a command line can check without it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Real


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
    real = is_number(value) or _is_scalar(value)
    if not real or not fits(float(value)):
        error = ValueError if real else TypeError
        raise error(f"{name} must be a number {which}, got {value!r}: {what}")
    return float(value)


def share_of_target(value: float, name: str) -> float:
    """Return ε, how much of a target is the reference."""
    what = "it is the share of the target that does not come from the annotation"
    return number(value, name, "between 0 and 1", what, fits=lambda x: 0 <= x <= 1)


def steepness(value: float, name: str) -> float:
    """Return B of the global trust."""
    what = "it is the paper's B, which was searched in 8, 10, 12, 14, 16"
    return number(value, name, "≥ 0 and finite", what, fits=lambda x: 0 <= x < math.inf)


def halfway(value: float, name: str) -> float:
    """Return the share of training after which the global trust is ½."""
    what = "it is the share of training after which the learner is half trusted"
    return number(value, name, "between 0 and 1", what, fits=lambda x: 0 <= x <= 1)


def softmax_temperature(value: float, name: str) -> float:
    """Return the temperature of a softmax."""
    return number(
        value,
        name,
        "above 0 and finite",
        "logits are divided by it",
        fits=lambda x: x > 0 and x * x < math.inf,  # its square is used too
    )


def power(value: float, name: str) -> float:
    """Return q of the generalised cross entropy."""
    what = "near 0 the loss is cross entropy, at 1 the mean absolute error"
    return number(value, name, "above 0 and at most 1", what, fits=lambda x: 0 < x <= 1)


def log_of_zero(value: float, name: str) -> float:
    """Return A of the symmetric cross entropy."""
    what = "it stands for log 0, −4 in the paper"
    return number(value, name, "below 0 and finite", what, fits=lambda x: -math.inf < x < 0)


def share_of_training(value: float, name: str) -> float:
    """A moment in training, 0 at its beginning and 1 at its end."""
    return number(
        value, name, "between 0 and 1", "it is a share of training", fits=lambda x: 0 <= x <= 1
    )


def kept_share(value: float, name: str = "momentum") -> float:
    """The share of an average that an update keeps."""
    return number(
        value,
        name,
        "at least 0 and below 1",
        "it is the share of the old average that an update keeps",
        fits=lambda x: 0 <= x < 1,
    )


def factor(value: float, name: str, of: str) -> float:
    """The weight of a part of a loss."""
    return number(
        value,
        name,
        "≥ 0 and finite",
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


def _is_scalar(value: object) -> bool:
    from torch import Tensor

    return isinstance(value, Tensor) and value.dim() == 0


def is_number(value: object) -> bool:
    """Whether it is a real number, numpy's included; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)
