"""Notes about the columns of a table: ids among the features, classes that are numbers or alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Floats
from proselflc.data.request import Request, is_table
from proselflc.data.tables.cells import short
from proselflc.data.tables.columns import (
    EXACT,
    FIRST_ROWS,
    MAX_NOTED,
    MIN_ROWS,
    REGRESSION,
    measurements,
    option_for,
    quote_names,
)
from proselflc.data.tables.mixed import MixedColumns
from proselflc.wording import option


def notes(request: Request, dataset: Dataset) -> Iterator[str]:
    """Yield notes about ids among the features, and classes that are numbers or look alike."""
    inputs = dataset.train.inputs
    if inputs.columns is not None and inputs.numbers is not None:
        yield from _note_ids(inputs.numbers, inputs.columns, is_named=request.id_column is not None)
    if isinstance(inputs, MixedColumns) and all(kind.kind == "text" for kind in inputs.kinds):
        yield (
            "the table is learned as columns of text; if one text says it all, name it with "
            f"{option('text_column', inputs.kinds[0].name)}, which learns it better"
        )
    values = measurements(dataset.names) if is_table(request.data) else []
    if values:
        yield f"the labels are {REGRESSION.format(len(values), min(values), max(values))}"
    groups = similar_classes(dataset.names)
    if groups:
        shown = ", ".join(quote_names(group, MAX_NOTED) for group in groups[:MAX_NOTED])
        rest = len(groups) - MAX_NOTED
        more = f", and {rest} more such groups" if rest > 0 else ""
        yield (
            f"the classes {shown}{more} differ only in case or surrounding spaces; if they are the "
            "same class, give them one name"
        )


def _note_ids(values: Floats, columns: Sequence[str], *, is_named: bool) -> Iterator[str]:
    ids = [name for k, name in enumerate(columns) if looks_like_ids(values[:, k])]
    if not ids:
        return
    count = "1 column" if len(columns) == 1 else f"{len(columns):,} columns"
    names = [short(name) for name in columns[:MAX_NOTED]]
    more = f" and {len(columns) - MAX_NOTED:,} more" if len(columns) > MAX_NOTED else ""
    is_one = len(ids) == 1
    verb = "looks like an id" if is_one else "look like ids"
    use = f"use {'it' if is_one else 'one'} as ids with {option_for('id_column', ids[:1])}, or "
    yield (
        f"learning from {count}: {', '.join(names)}{more}; {quote_names(ids, MAX_NOTED)} {verb}: "
        f"{'' if is_named else use}"
        f"ignore {'it' if is_one else 'them'} with {option_for('ignore_column', ids)}"
    )


def looks_like_ids(column: Floats) -> bool:
    """Return whether [n] numbers are integers and all distinct, as far as float32 can tell."""
    if len(column) < MIN_ROWS:
        return False
    for some in (column[:FIRST_ROWS], column):
        if not np.array_equal(some, np.round(some)):
            return False
        exact = some[np.abs(some) < EXACT]
        others = len(some) - len(exact)
        distinct = len(np.unique(some))
        if len(np.unique(exact)) < len(exact) or distinct < len(exact) + 0.9 * others:
            return False
    return True


def similar_classes(names: Sequence[str]) -> list[list[str]]:
    """Return groups of names that differ only in case or surrounding white space."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.strip().casefold(), []).append(name)
    return [group for group in groups.values() if len(group) > 1]
