"""The index of a data frame as ids of its rows, where it names them."""

from __future__ import annotations

from collections.abc import Iterable


def ids_of(x: object, n: int) -> list[str] | None:
    """What the index calls n rows; None where it only counts them, or two are called alike.

    Args:
        x: anything; a data frame or a series of pandas has such an index.
        n: how many rows it has.
    """
    index = getattr(x, "index", None)
    if not isinstance(index, Iterable) or getattr(index, "names", None) is None:
        return None  # a list has a method of that name
    named = any(name is not None for name in index.names)  # type: ignore[attr-defined]
    ids = [str(one) for one in index]
    counts_only = not named and ids == [str(k) for k in range(n)]
    has_missing = bool(getattr(index, "hasnans", False))
    return None if counts_only or has_missing or len(set(ids)) != n else ids
