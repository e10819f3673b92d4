"""The numbers and options a method is made with: their types, their defaults, and their checks.

Nothing here needs torch until a tensor comes, so that a command line can check without it.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Collection
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar

from proselflc.errors import unknown

if TYPE_CHECKING:
    from torch import Tensor

# Takes a number and its name, and returns the number to keep or raises an error.
Check: TypeAlias = Callable[[float, str], float]

# ProSelfLC, as in the paper's experiments (Wang et al. 2021).
SHARPNESS = 10.0
MIDPOINT = 0.5
TRUST = "global*local"

# Its low-temperature successor (2022).
LOW_TEMPERATURE = 0.5
LOW_TEMPERATURE_SHARPNESS = 12.0
LOW_TEMPERATURE_TRUST = "global*max_p"

TEMPERATURE = 1.0  # of distillation

POWER = 0.7  # q of the generalised cross entropy (Zhang & Sabuncu 2018)

# Symmetric cross entropy, as for CIFAR-100 (Wang et al. 2019).
ALPHA = 6.0
BETA = 0.1
LOG_ZERO = -4.0


def number(allowed: str, meaning: str, fits: Callable[[float], bool]) -> Check:
    """Return the check for a number, which may be a 0-d tensor.

    `allowed` names the numbers that fit, such as "between 0 and 1", and `meaning` says what the
    number is, as a clause for the error. `fits` must be False for NaN.
    """

    def check(value: float, name: str) -> float:
        real = is_number(value) or _is_scalar(value)
        if not real or not fits(float(value)):
            error = ValueError if real else TypeError
            raise error(f"{name} must be a number {allowed}, got {value!r}: {meaning}")
        return float(value)

    return check


def probability(meaning: str) -> Check:
    """Return the check for a number between 0 and 1."""
    return number("between 0 and 1", meaning, lambda x: 0 <= x <= 1)


def positive(meaning: str) -> Check:
    """Return the check for a number above 0."""
    return number("above 0 and finite", meaning, lambda x: 0 < x < math.inf)


def _not_negative(meaning: str) -> Check:
    return number("≥ 0 and finite", meaning, lambda x: 0 <= x < math.inf)


def loss_weight(part: str) -> Check:
    """Return the check for the weight of a part of a loss."""
    return _not_negative(f"it is the weight of {part}")


share_of_target = probability("it is the share of the target that does not come from the label")
share_of_training = probability("it is a share of training")
halfway = probability("it is the share of training after which the global trust is ½")
steepness = _not_negative("it is the paper's B, which was searched in 8, 10, 12, 14, 16")
softmax_temperature = number(
    "above 0 and finite", "logits are divided by it", lambda x: x > 0 and x * x < math.inf
)  # its square is used too
power = number(  # q of the generalised cross entropy
    "above 0 and at most 1",
    "near 0 the loss is cross entropy, at 1 the mean absolute error",
    lambda x: 0 < x <= 1,
)
log_of_zero = number(  # A of the symmetric cross entropy
    "below 0 and finite", "it stands for log 0, −4 in the paper", lambda x: -math.inf < x < 0
)
kept_share = number(
    "at least 0 and below 1",
    "it is the share of the old average that an update keeps",
    lambda x: 0 <= x < 1,
)


def one_of(known: Collection[str]) -> Callable[[str, str], str]:
    """Return the check for one of the known names."""

    def check(value: str, name: str) -> str:
        if value not in known:
            raise ValueError(unknown(name, str(value), known))
        return value

    return check


def whole_number(value: int, name: str, meaning: str, *, least: int) -> int:
    """Return the number, if it is a whole one and not below the least."""
    try:
        whole = operator.index(value)  # numpy's integers too
    except TypeError:
        whole = least - 1
    if whole < least or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number ≥ {least}, got {value!r}: {meaning}")
    return whole


def is_number(value: object) -> bool:
    """Return whether it is a real number, including numpy's; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_scalar(value: object) -> bool:
    from torch import Tensor

    return isinstance(value, Tensor) and value.dim() == 0


class Options(TypedDict, total=False):
    """The options that mean what they mean in `F.cross_entropy`."""

    weight: Tensor | None
    ignore_index: int
    reduction: str


class TargetOptions(Options, total=False):
    """The options where the target is one of the algebra; see `Criterion`."""

    log_offset: float
    fused: bool


DEFAULTS: TargetOptions = {
    "weight": None,
    "ignore_index": -100,
    "reduction": "mean",
    "log_offset": 0.0,
    "fused": True,
}
F = TypeVar("F", bound=Callable[..., Any])


def takes(options: type) -> Callable[[F], F]:
    """Return a decorator for a function that forwards its `**options`.

    Its signature then shows the options of one of the classes above and their defaults, and any
    other keyword is refused as Python refuses one.

    >>> @takes(Options)
    ... def loss(logits, **options): ...
    >>> list(inspect.signature(loss).parameters)
    ['logits', 'weight', 'ignore_index', 'reduction']
    >>> loss(1, wieght=None)
    Traceback (most recent call last):
    TypeError: loss() got an unexpected keyword argument 'wieght'
    """
    hints = options.__annotations__

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        known = frozenset([*hints, *(one.name for one in own)])

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    raise TypeError(
                        f"{function.__qualname__}() got an unexpected keyword argument {name!r}"
                    )
            return function(*args, **given)

        shown = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=dict(DEFAULTS)[name],
                annotation=getattr(hint, "__forward_arg__", hint),
            )
            for name, hint in hints.items()
        ]
        every = [*own, *shown]
        vars(checked)["__signature__"] = signature.replace(parameters=every)
        annotated = {one.name: one.annotation for one in every if one.annotation is not one.empty}
        checked.__annotations__ = annotated | {"return": signature.return_annotation}
        return checked  # type: ignore[return-value]

    return decorate
