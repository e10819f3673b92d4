"""Types of options, and checks that hold wherever an option comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter, Token

from proselflc.errors import InputError, invalid_option
from proselflc.wording import option


def _whole_number(_: type, tokens: Sequence[Token]) -> int:
    """Return the integer on a command line; 1.5 is refused, not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"expected a whole number, got {tokens[0].value}") from None


Whole: TypeAlias = Annotated[int, Parameter(converter=_whole_number)]
Required: TypeAlias = Annotated[str, Parameter(show_default=False)]  # "" stands for none
Several: TypeAlias = Annotated[
    tuple[str, ...], Parameter(consume_multiple=True, show_default=False)
]
LabelColumn: TypeAlias = Annotated[
    str | None, Parameter(name=("label-column", "label"), show_default=False)
]


def make_plain(options: object) -> None:
    """Replace NumPy's numbers in a frozen dataclass by Python's, which every file can hold."""
    for name, value in vars(options).items():
        if hasattr(value, "item"):
            object.__setattr__(options, name, value.item())


MOST_PROCESSES = 1024  # the limit of options that set a number of processes
LARGEST_WHOLE = 2**63 - 1  # the largest number that files and arrays can hold


def check_least(
    options: object, least: Mapping[str, int], most: Mapping[str, int] | None = None
) -> None:
    """Refuse options that are not whole numbers in their range; None passes."""
    for name, low in least.items():
        value = getattr(options, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise invalid_option(name, f"must be a whole number, got {value!r}")
        value = int(value)
        if value < low:
            raise invalid_option(name, f"must be at least {low}, got {value}")
        high = (most or {}).get(name, LARGEST_WHOLE)
        if value > high:
            bound = f"at most {high:,}" if high < LARGEST_WHOLE else "below 2^63"
            raise invalid_option(name, f"must be {bound}, got {value}")


def check_out(out: Path, overwrite: bool, suffixes: Sequence[str], field: str = "out") -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if not out.name.lower().endswith(tuple(suffixes)):
        raise invalid_option(field, f'must end in {", ".join(suffixes)}, got "{out.name}"')
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}", field=field, fix="create it")
    if out.exists() and not overwrite:
        fix = f"choose another name or pass {option('overwrite', True)}"
        raise InputError(f"{out} exists", field=field, fix=fix)
