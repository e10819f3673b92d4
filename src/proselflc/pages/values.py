"""Values of JSON files that may be damaged: a number only where there is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def finite(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of many digits
        return None


def number(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the finite number of that name, or None."""
    return finite(facts.get(name))


def share(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the number in [0, 1] of that name, or None."""
    return in_unit(facts.get(name))


def text(facts: Mapping[str, Any], name: str) -> str:
    """Return the string of that name; empty where there is none."""
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def in_unit(value: object) -> float | None:
    """Return a number in [0, 1], or None."""
    found = finite(value)
    return found if found is not None and 0 <= found <= 1 else None
