"""How an option is read from the command line, where that differs from what its type suggests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from cyclopts import Parameter, Token


def _whole_number(_: type, tokens: Sequence[Token]) -> int:
    """An integer as it is written; 1.5 is not rounded to one."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"expected a whole number, got {tokens[0].value}") from None


Whole: TypeAlias = Annotated[int, Parameter(converter=_whole_number)]
