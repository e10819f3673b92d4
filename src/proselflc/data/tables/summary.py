"""What a table's columns hold, in one table: for `proselflc columns`, and in short for a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Features, Ints
from proselflc.data.request import Request
from proselflc.data.tables.cells import short
from proselflc.data.tables.column_notes import looks_like_ids
from proselflc.data.tables.columns import (
    MAX_NOTED,
    MIN_ROWS,
    REGRESSION,
    Roles,
    asked_columns,
    find_roles,
    label_names,
    measurements,
    option_for,
    quote_names,
    usual_ids,
)
from proselflc.data.tables.kinds import CONSTANT, Column, Found
from proselflc.data.tables.mixed import MixedColumns
from proselflc.data.tables.reading import asked_kinds, find, in_blocks, read
from proselflc.data.tables.table_file import open_table
from proselflc.wording import command

_PLURAL = {
    "number": "numbers",
    "boolean": "booleans",
    "date": "dates",
    "category": "categories",
    "text": "texts",
}
_PER_VALUE = 4  # rows per value from which a value that has one label says something
LEAK = "predicts the label perfectly"
ID = "id-like: different in every row"


@dataclass(frozen=True)
class ColumnSummary:
    """One column of a table, as a person is shown it.

    Attributes:
        column: its name.
        kind: its kind, or its role, such as "label".
        missing: number of missing cells.
        distinct: number of distinct values.
        example: its most frequent value.
        note: what is unexpected about it, or an empty text.
    """

    column: str
    kind: str
    missing: int
    distinct: int
    example: str
    note: str


@dataclass(frozen=True)
class TableSummary:
    """The columns of a table.

    Attributes:
        data: path of the table.
        rows: number of rows.
        form: how the file is written.
        columns: its columns in their order.
        notes: sentences about cells that could not be read.
    """

    data: str
    rows: int
    form: str
    columns: tuple[ColumnSummary, ...]
    notes: tuple[str, ...] = ()


def summarize(path: Path, request: Request) -> TableSummary:
    """Return what the columns of a table hold; it needs no label column."""
    from proselflc.data.tables.table import label_cells, train_rows

    table = open_table(path, request.sheet, label_names(request))
    roles = find_roles(table, request)
    train = train_rows(table, roles.split)
    named = _named(roles)
    reasons = {one.column: one.reason for one in roles.not_ids}
    for name in usual_ids(table, (*named, *asked_columns(table, request))):
        named[name] = "ignored"
    asked = asked_kinds(table, [c for c in table.columns if c not in named], request)
    learned, labels = train, None
    if roles.label is not None:
        given = np.array(label_cells(table, roles.label, request.unlabelled))
        learned = train[given[train] != ""]
        classes, labels = np.unique(given[learned], return_inverse=True)
        labels, values = labels.astype(np.int64), measurements(classes.tolist())
        if values:
            reasons[roles.label] = REGRESSION.format(len(values), min(values), max(values))
    rows = []
    for name, cells in in_blocks(table, table.columns):
        role = named.get(name)
        found = find(table, name, cells, train, asked.get(name))
        notes = [reasons[name]] if name in reasons else list(found.notes)
        kind = role or found.kind.kind
        if role is None and found.kind.kind == "ignored":
            notes.insert(0, found.kind.reason)
        elif role is None:
            notes += remarks(read(table, found.kind, cells).take(learned), labels)
        rows.append(
            ColumnSummary(
                name, kind, found.missing, found.distinct, found.example, "; ".join(notes)
            )
        )
    return TableSummary(str(path), len(table), table.form, tuple(rows), table.notes)


def remarks(column: Column, labels: Ints | None) -> Iterator[str]:
    """Yield what is suspicious about a column to learn from: ids, and a copy of the labels."""
    if column.kind.kind == "number" and looks_like_ids(
        column.values[~column.is_missing].astype(np.float32, copy=False)
    ):
        yield ID
    if labels is not None and leaks(column.values, column.is_missing, labels, column.has_words):
        yield LEAK


def leaks(
    values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], labels: Ints, is_category: bool
) -> bool:
    """Return whether one column tells the label of every row.

    A value must have one label alone. Categories must repeat, and numbers must be divided into as
    many intervals as there are classes; otherwise every id would tell the labels.
    """
    there = ~missing
    values, labels = values[there], labels[there]
    if len(values) < MIN_ROWS:
        return False
    order = np.lexsort((labels, values))
    values, labels = values[order], labels[order]
    new_value = values[1:] != values[:-1]
    new_label = labels[1:] != labels[:-1]
    if (new_label & ~new_value).any() or not new_label.any():
        return False
    if is_category or _PER_VALUE * (int(new_value.sum()) + 1) <= len(values):
        return _PER_VALUE * (int(new_value.sum()) + 1) <= len(values)
    return int(new_label.sum()) + 1 == len(np.unique(labels))


def notes(dataset: Dataset) -> Iterator[str]:
    """Yield sentences about the columns that a data set is learned from, for the start of a run."""
    inputs = dataset.train.inputs
    if not isinstance(inputs, MixedColumns):
        return
    if inputs.found:
        yield in_short(inputs.found)
    yield from _about_columns(inputs.found)
    for column in inputs.cells:
        if ID in remarks(column, None):
            name = column.kind.name
            yield (
                f'the column "{short(name)}" is {ID}; ignore it with '
                f"{option_for('ignore_column', [name])}"
            )


def leaking(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of columns that predict every label perfectly."""
    inputs, labels = dataset.train.inputs, dataset.train.labels
    if isinstance(inputs, MixedColumns):
        return tuple(
            column.kind.name
            for column in inputs.cells
            if leaks(column.values, column.is_missing, labels, column.has_words)
        )
    if not isinstance(inputs, Features) or inputs.columns is None:
        return ()
    gone = np.zeros(len(inputs), np.bool_)
    return tuple(
        name
        for k, name in enumerate(inputs.columns)
        if leaks(inputs.values[:, k], gone, labels, False)
    )


def about_leaks(names: Sequence[str]) -> str:
    """Return a sentence about columns that predict every label perfectly, with the remedy."""
    are_many = len(names) > 1
    return (
        f"{quote_names(names, MAX_NOTED)} predict{'' if are_many else 's'} every label perfectly, "
        "as a copy of the labels does, so the audit can find no wrong label; if "
        f"{'these are copies' if are_many else 'it is a copy'}, train without "
        f"{'them' if are_many else 'it'}: {option_for('ignore_column', names)}"
    )


def _about_columns(found: Sequence[Found]) -> Iterator[str]:
    """Yield the notes of columns; those of constant ones together, and not too many of others."""
    constant = [one.kind.name for one in found if CONSTANT in one.notes]
    if constant:
        what = "the column" if len(constant) == 1 else f"the {len(constant):,} columns"
        verb = "is" if len(constant) == 1 else "are"
        yield f"{what} {quote_names(constant, MAX_NOTED)} {verb} constant"
    others = [(one.kind.name, note) for one in found for note in one.notes if note != CONSTANT]
    for name, note in others[:MAX_NOTED]:
        yield f'the column "{short(name)}": {note}'
    if len(others) > MAX_NOTED:
        yield f"{len(others) - MAX_NOTED:,} more such notes are shown by {command('columns')}"


def in_short(found: Sequence[Found]) -> str:
    """Return the kinds of all columns in one sentence.

    >>> from proselflc.data.tables.kinds import ColumnKind
    >>> kinds = [ColumnKind("age", "number"), ColumnKind("k", "ignored", reason="id-like")]
    >>> in_short([Found(kind, 3, 0, 3) for kind in kinds])
    'learning from 1 number (age), ignoring "k" (id-like)'
    """
    parts = []
    for kind, plural in _PLURAL.items():
        names = [short(one.kind.name) for one in found if one.kind.kind == kind]
        if names:
            more = f" and {len(names) - MAX_NOTED:,} more" if len(names) > MAX_NOTED else ""
            word = kind if len(names) == 1 else plural
            parts.append(f"{len(names):,} {word} ({', '.join(names[:MAX_NOTED])}{more})")
    left = [one.kind for one in found if one.kind.kind == "ignored"]
    shown = [f'"{short(kind.name)}" ({kind.reason})' for kind in left[:MAX_NOTED]]
    if len(left) > MAX_NOTED:
        shown.append(f"{len(left) - MAX_NOTED:,} more")
    ignoring = f", ignoring {', '.join(shown)}" if shown else ""
    return f"learning from {', '.join(parts)}{ignoring}"


def _named(roles: Roles) -> dict[str, str]:
    """Return the role of each column that has one."""
    words: dict[str | None, str] = {
        roles.label: "label",
        roles.ids: "id",
        roles.files: "image path",
        roles.texts: "text",
        roles.split: "split",
        roles.clean: "true label",
        **dict.fromkeys(roles.ignored, "ignored"),
    }
    return {name: word for name, word in words.items() if name is not None}
