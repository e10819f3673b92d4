"""What in somebody's data looks like a slip: notes before training, none where nothing is odd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Features, Floats
from proselflc.data.request import Request
from proselflc.data.tables.table_file import short
from proselflc.data.tables.unusable_columns import listed, option

NAMED = 8  # so many columns, or groups of classes, are named at most
FEWEST = 20  # of fewer rows, measurements are distinct by chance
LOOKED_AT = 1000  # rows that tell most columns from ids at once
EXACT = 2**24  # whole numbers up to here are exact in float32


def notes(request: Request, dataset: Dataset) -> Iterator[str]:
    """A sentence about columns that look like ids, and one about classes that look like one."""
    inputs = dataset.train.inputs
    if isinstance(inputs, Features) and inputs.columns is not None:
        yield from _about_ids(inputs.values, inputs.columns, is_named=request.id_column is not None)
    alike = alike_classes(dataset.names)
    if alike:
        groups = ", ".join(listed(group, NAMED) for group in alike[:NAMED])
        more = f", and {len(alike) - NAMED} more such groups" if len(alike) > NAMED else ""
        yield (
            f"the classes {groups}{more} differ only by case or the spaces around them; if they "
            "are the same, write them alike"
        )


def _about_ids(values: Floats, columns: Sequence[str], *, is_named: bool) -> Iterator[str]:
    ids = [name for k, name in enumerate(columns) if looks_like_ids(values[:, k])]
    if not ids:
        return
    what = "1 column" if len(columns) == 1 else f"{len(columns):,} columns"
    names = [short(name) for name in columns[:NAMED]]
    more = f" and {len(columns) - NAMED:,} more" if len(columns) > NAMED else ""
    is_one = len(ids) == 1
    verb, which, it = (
        ("looks like an id", "it", "it") if is_one else ("look like ids", "one", "them")
    )
    name_it = "" if is_named else f"name {which} with {option('--id-column', ids[:1])}, or "
    yield (
        f"learned from {what}: {', '.join(names)}{more}; {listed(ids, NAMED)} {verb}: {name_it}"
        f"leave {it} out with {option('--ignore-column', ids)}"
    )


def looks_like_ids(column: Floats) -> bool:
    """Whether [n] numbers are whole and all distinct, as far as float32 can tell them apart."""
    if len(column) < FEWEST:
        return False
    for some in (column[:LOOKED_AT], column):
        if not np.array_equal(some, np.round(some)):
            return False
        exact = some[np.abs(some) < EXACT]
        others = len(some) - len(exact)
        distinct = len(np.unique(some))
        if len(np.unique(exact)) < len(exact) or distinct < len(exact) + 0.9 * others:
            return False
    return True


def alike_classes(names: Sequence[str]) -> list[list[str]]:
    """The names that differ only by case or the white space around them, group by group."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.strip().casefold(), []).append(name)
    return [group for group in groups.values() if len(group) > 1]
