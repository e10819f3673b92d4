"""The plain JSON in which preprocessing is saved, checked as any file from outside is."""

from __future__ import annotations

from typing import TypeAlias

from proselflc.errors import InputError

Json: TypeAlias = dict[str, object]


def broken(why: str) -> InputError:
    return InputError(f"the saved preprocessing is not what proselflc writes: {why}")


def fields_of(value: object, kind: str, names: tuple[str, ...]) -> Json:
    """The object itself, if it is of this kind and has exactly these fields."""
    if not isinstance(value, dict) or value.get("kind") != kind:
        raise broken(f'it must be an object of kind "{kind}"')
    if set(value) != {"kind", *names}:
        raise broken(f"it must have the fields {', '.join(names)}")
    return value


def integer(value: object, what: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise broken(f"{what} must be a whole number from {low} to {high}")
    return value


def pair(fields: Json, name: str, low: int, high: int) -> tuple[int, int]:
    value = fields[name]
    if not isinstance(value, list) or len(value) != 2:
        raise broken(f"{name} must be two whole numbers")
    return integer(value[0], name, low, high), integer(value[1], name, low, high)


def numbers(fields: Json, name: str) -> tuple[float, ...]:
    value = fields[name]
    if not isinstance(value, list) or not value:
        raise broken(f"{name} must be a list of numbers")
    if not all(type(v) in (int, float) and abs(v) < 1e300 for v in value):
        raise broken(f"{name} must hold finite numbers only")
    return tuple(map(float, value))
