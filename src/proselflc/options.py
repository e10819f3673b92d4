"""How options are read from the command line, and checked wherever they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Annotated, TypeAlias

from cyclopts import Parameter, Token

from proselflc.errors import InputError


def _whole_number(_: type, tokens: Sequence[Token]) -> int:
    """An integer as it is written; 1.5 is not rounded to one."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"expected a whole number, got {tokens[0].value}") from None


Whole: TypeAlias = Annotated[int, Parameter(converter=_whole_number)]
Several: TypeAlias = Annotated[
    tuple[str, ...], Parameter(consume_multiple=True, show_default=False)
]


def flag(name: str) -> str:
    """An option as it is typed.

    >>> flag("batch_size")
    '--batch-size'
    """
    return "--" + name.replace("_", "-")


def make_plain(options: object) -> None:
    """Make numpy's numbers Python's own in a frozen dataclass: not every file can hold theirs."""
    for name, value in vars(options).items():
        if hasattr(value, "item"):
            object.__setattr__(options, name, value.item())


MOST_PROCESSES = 1024  # that an option may ask for
LARGEST_WHOLE = 2**63 - 1  # what files and arrays can hold


def check_least(
    options: object, least: Mapping[str, int], most: Mapping[str, int] | None = None
) -> None:
    """Refuse whole numbers below their least value; those that are not set are let through.

    Args:
        options: a dataclass that has them as attributes.
        least: the least value of each.
        most: the largest value of those that have one of their own.

    Raises:
        InputError: one is below or above, or is no whole number.
    """
    for name, low in least.items():
        value = getattr(options, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InputError(f"{flag(name)} must be a whole number, got {value!r}")
        value = int(value)
        if value < low:
            raise InputError(f"{flag(name)} must be at least {low}, got {value}")
        high = (most or {}).get(name, LARGEST_WHOLE)
        if int(value) > high:
            bound = f"at most {high:,}" if high < LARGEST_WHOLE else "below 2^63"
            raise InputError(f"{flag(name)} must be {bound}, got {value}")
