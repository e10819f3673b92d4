"""The options of every criterion and function of the algebra, each typed once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

if TYPE_CHECKING:
    from torch import Tensor


class Options(TypedDict, total=False):
    """The options that mean what they mean in `F.cross_entropy`.

    Attributes:
        weight: [C] class weights.
        ignore_index: class id of examples to leave out.
        reduction: "mean", "sum" or "none".
    """

    weight: Tensor | None
    ignore_index: int
    reduction: str


class TargetOptions(Options, total=False):
    """The options where the target is one of the algebra.

    Attributes:
        log_offset: δ in log(p + δ). 0 is the paper; 1e-6 is what its published code computes.
        fused: whether to use the closed-form gradient where there is one; it is only slower
            without.
    """

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

    Its signature then shows the options and their defaults, and any other keyword is refused as
    Python refuses one.

    Args:
        options: the class above that lists them.

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
