"""CSV, TSV and Parquet: a label column and image paths, texts or numbers, one example per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal

import numpy as np

from proselflc.data.dataset import (
    NO_LABEL,
    Contents,
    ModelNeeds,
    Part,
    Skipped,
    choose_splits,
    in_order,
)
from proselflc.data.image import sift
from proselflc.data.inputs import Features, ImageFiles, Inputs, Ints, Texts
from proselflc.data.request import EXCEL, Request, table_suffix
from proselflc.data.tables.cells import is_number, short
from proselflc.data.tables.columns import (
    PATH,
    Roles,
    asked_columns,
    check_labels,
    find_column,
    find_ids,
    find_label,
    find_roles,
    is_about_labels,
    label_names,
    normalize,
    option_for,
    require_label,
    usual_ids,
)
from proselflc.data.tables.kinds import ColumnKind
from proselflc.data.tables.loaded import sheet_names
from proselflc.data.tables.reading import (
    file_notes,
    known_columns,
    learned_columns,
    needed_numbers,
    require_columns,
    without_constants,
)
from proselflc.data.tables.table_file import Table, open_table
from proselflc.errors import InputError, unknown

# Cells that mean "no label" unless the request says what does, as pandas writes and reads them.
# Not among them is "nan" beside other texts, which may be a name.
UNKNOWN = ("NA", "N/A", "NaN", "NULL", "null", "None", "<NA>", "?")
ALL_COLUMNS = Request()  # every column is found by its usual name
SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
}


def read(
    path: Path,
    request: Request = ALL_COLUMNS,
    needs: ModelNeeds | None = None,
    kinds: tuple[ColumnKind, ...] | None = None,
) -> Contents:
    """Return the contents of a table with a label column and image paths, texts or numbers.

    Columns that the request does not name are found by their usual names, but for ignored ones.
    Without a path or a text column, every remaining column is a feature: numbers, booleans, dates,
    categories and texts, some of which may be missing. Their kinds are those of the request, or
    `kinds`, or are found from the training part.
    Labels lose the white space around them; classes are in natural order, integers by value. A
    column `split` tells train, test and validation apart; a column `clean` or `clean_label` gives
    the true labels of train. Ids come from the id column (or pandas' unnamed first column), else
    they are the paths, else the row numbers from 0.

    Of cleanlab's columns `given_label` is the label if there is no other, and none is a feature;
    those with general names are cleanlab's where `is_label_issue` is beside them.

    Image paths are relative to the table's folder; absolute ones and `..` are followed, since the
    table is the user's own list and only images are read from where it points.

    If the request names embeddings, what is left of the columns is not read: the examples get no
    features, for the caller to put embeddings in their place.

    Training rows whose label is empty, or stands for that, get `NO_LABEL`; see `label_cells`.

    For a model, there need not be a label column, and its cells may be empty; a split in which all
    are has no labels.
    """
    needed = None if needs is None else needs.columns
    table = open_table(path, request.sheet, needed or label_names(request))
    roles = find_roles(table, request, needed, is_predicted=needs is not None)
    label = roles.label if needs else require_label(table, roles.label)
    if len(table) == 0:
        raise InputError(f"{path} has column names but no rows: add one row per example")
    given = [] if needs or label is None else label_cells(table, label, request.unlabelled)
    if label is not None and needs is None:
        check_labels(table, label, [cell for cell in given if cell])
    rows_of = _split_rows(table, roles.split)
    for split, rows in rows_of.items() if given else ():
        if split != "train" and not all(given[i] for i in rows):
            raise _missing(table, label or "", "label", [i for i in rows if not given[i]])
    true = [] if needs else _true_labels(table, roles.clean, rows_of["train"], given)
    if needs is not None:
        names = needs.names
        filled = {split: rows for split, rows in rows_of.items() if len(rows)}
        rows_of = {split: filled[split] for split in choose_splits(filled, needs.split, str(path))}
    else:
        names = in_order([*(given[i] for i in rows_of["train"] if given[i]), *filter(None, true)])
    clean = _encode(table, true, names, roles.clean or "") if true else None
    class_ids = None if needs else _encode(table, given, names, label or "")
    reader = (
        None
        if request.features is not None
        else _Reader(request, rows_of["train"], kinds=kinds)
        if needs is None
        else _Reader(request, None, needs)
    )
    inputs, ids = _inputs(table, roles, reader)
    about = () if reader is None else tuple(reader.notes)
    notes = (*file_notes(table, inputs), *roles.notes, *about)
    skipped: list[Skipped] = []
    parts: dict[str, Part[Ints | None]] = {}
    for split, rows in rows_of.items():
        if class_ids is None:
            labels = _known_labels(table, label, rows, names, request.unlabelled)
        else:
            labels = class_ids[rows]
        if len(rows) == len(table):  # all of them, in their order
            part = Part(inputs, labels, tuple(ids))
        else:
            part = Part(inputs.take(rows), labels, tuple(ids[i] for i in rows))
        if isinstance(part.inputs, ImageFiles):
            classes = None if needs else [given[i] for i in rows]
            keep, bad = sift(
                part.inputs.paths, part.ids, classes, on_bad_image=request.on_bad_image
            )
            skipped += bad
            part = part.take(keep)
            if split == "train" and clean is not None:
                clean = clean[keep]
        parts[split] = part
    return Contents(str(path), parts, names, clean, tuple(skipped), notes)


def read_labels(
    path: Path,
    *,
    label_column: str | None = None,
    id_column: str | None = None,
    unlabelled: str | None = None,
    sheet: str | None = None,
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the ids and the label names of a table that replaces the labels of another.

    The ids come from the id column or the path column; they are None if there is neither and
    labels follow row by row. A missing label is "".
    """
    table = open_table(path, sheet)
    label = require_label(table, find_label(table, label_column))
    labels = label_cells(table, label, unlabelled)
    column = find_ids(table, id_column, (label,))
    if column is None:
        column = find_column(table, None, PATH, field="id_column", taken=(label,))
    if column is None:
        return None, tuple(labels)
    ids = _filled(table, column, "id")
    seen: set[str] = set()
    for row, name in enumerate(ids):
        if name in seen:
            raise InputError(
                f'{path} has the id "{name}" twice, again in {table.where(row)}: ids name examples '
                "and must be distinct"
            )
        seen.add(name)
    return tuple(ids), tuple(labels)


def label_cells(table: Table, column: str, unlabelled: str | None = None) -> list[str]:
    """Return the labels in a column, "" where there is none.

    There is none in an empty cell, and in a cell that holds the text `unlabelled`, or if that is
    None, one of `UNKNOWN`. Where all other labels are numbers, NaN is none in any spelling.
    """
    unknown = set(UNKNOWN if unlabelled is None else (unlabelled,))
    cells = ["" if cell in unknown else cell for cell in table.texts(column)]
    empty = _empty(cells, label=True)
    for i in empty:
        cells[i] = ""
    return cells


def words_for_no_label(path: Path, request: Request) -> list[str]:
    """Return which of `UNKNOWN` a table has among its labels, each read as no label."""
    if request.unlabelled is not None:
        return []
    table = open_table(path, request.sheet)
    cells = set(table.texts(require_label(table, find_roles(table, request).label)))
    return [word for word in UNKNOWN if word in cells]


@dataclass(frozen=True)
class LabelCells:
    """The cells of a table that hold the training labels."""

    table: Table
    column: str
    rows: Ints  # [n] rows of the training examples
    ids: tuple[str, ...]  # of these rows


def find_label_cells(path: Path, request: Request) -> LabelCells:
    """Return the cells that `read` takes training labels from, without opening images."""
    table = open_table(path, request.sheet)
    roles = find_roles(table, request)
    label = require_label(table, roles.label)
    rows = _split_rows(table, roles.split)["train"]
    ids = _inputs(table, roles, None)[1]
    return LabelCells(table, label, rows, tuple(ids[i] for i in rows))


def label_column(path: Path, asked: str | None = None, sheet: str | None = None) -> str:
    """Return the column that `read_labels` takes labels from."""
    table = open_table(path, sheet)
    return require_label(table, find_label(table, asked))


def label_sheet(path: Path, request: Request) -> str | None:
    """Return the sheet of a table of labels beside the data.

    The request names that of the data and of the labels at once, where both are Excel files; then
    the labels need not have it.
    """
    if request.sheet is None or table_suffix(path) not in EXCEL:
        return None
    if table_suffix(request.data) in EXCEL and request.sheet not in sheet_names(path):
        return None
    return request.sheet


def columns_there(path: Path, names: Sequence[str], sheet: str | None = None) -> tuple[str, ...]:
    """Return the names that `read` would find in a table."""
    there = {normalize(column) for column in open_table(path, sheet, names).columns}
    return tuple(name for name in names if normalize(name) in there)


def column_names(path: Path, sheet: str | None = None) -> tuple[str, ...]:
    """Return the names of a table's columns."""
    return open_table(path, sheet).columns


@dataclass(frozen=True)
class _Reader:
    """How the columns that have no role are read."""

    request: Request
    train: Ints | None = None  # [n] rows of the training part
    needs: ModelNeeds | None = None  # of a model
    kinds: tuple[ColumnKind, ...] | None = None  # of a table beside this one
    notes: list[str] = field(default_factory=list)  # about the cells

    def __call__(self, table: Table, roles: Roles) -> Inputs:
        needs = self.needs or ModelNeeds(())
        kinds = needs.kinds or self.kinds
        needed = needs.columns if kinds is None else tuple(kind.name for kind in kinds)
        if needed is not None:
            absent = require_columns(table, needed, needs.optional)
            if absent:
                self.notes.append(without_constants(table, absent))
            if kinds is not None:
                return known_columns(table, [kind for kind in kinds if kind.name not in absent])
            there = [k for k, name in enumerate(needed) if name not in absent]
            fill = None if needs.fill is None else [needs.fill[k] for k in there]
            return needed_numbers(table, [needed[k] for k in there], fill, self.notes.append)
        apart = {c for c in table.columns if is_about_labels(table, c)}
        apart |= {c for c in usual_ids(table, ()) if c not in asked_columns(table, self.request)}
        known = (roles.label, roles.ids, roles.split, roles.clean, *roles.ignored)
        left = [c for c in table.columns if c not in apart and c not in known]
        return learned_columns(table, left, self.request, self.train)


def _inputs(table: Table, roles: Roles, reader: _Reader | None) -> tuple[Inputs, Sequence[str]]:
    """Return the inputs and the ids of all rows; without a reader, columns are not read."""
    inputs: Inputs
    ids = [str(i) for i in range(len(table))]
    if roles.files is not None:
        cells = _filled(table, roles.files, "path")
        inputs = ImageFiles(tuple(table.path.parent / cell for cell in cells))
        ids = [PurePath(cell).as_posix() for cell in cells]
    elif roles.texts is not None:
        inputs = Texts(tuple(_filled(table, roles.texts, "text")))
    elif reader is None:
        inputs = Features(np.zeros((len(table), 0), np.float32))
    else:
        inputs = reader(table, roles)
    return inputs, ids if roles.ids is None else _filled(table, roles.ids, "id")


def _filled(table: Table, column: str, what: Literal["id", "path", "split", "text"]) -> list[str]:
    """Return the cells of a column in which every cell must be filled."""
    cells = table.texts(column)
    empty = _empty(cells, label=False)
    if empty:
        raise _missing(table, column, what, empty)
    if what == "path":
        for i, cell in enumerate(cells):
            if "\n" in cell or "\r" in cell:
                raise InputError(
                    f'{table.where(i)} of {table.path} has a line break in its path, "'
                    f'{short(cell)}"',
                    fix="look for a quotation mark that is not closed",
                )
    return cells


def _empty(cells: Sequence[str], *, label: bool) -> list[int]:
    """Return the rows of empty cells; among labels that are numbers, NaN is empty too."""
    if label and all(is_number(cell) for cell in cells if cell):
        return [i for i, cell in enumerate(cells) if not cell or math.isnan(float(cell))]
    return [i for i, cell in enumerate(cells) if not cell]


def _missing(table: Table, column: str, what: str, rows: Sequence[int]) -> InputError:
    rest = len(rows) - 1
    more = f" (and {rest:,} more row{'s' * (rest != 1)})" if rest else ""
    return InputError(
        f"{table.where(rows[0])}{more} of {table.path} has no {what} in the column "
        f'"{column}": fill it in or drop the row'
    )


def _known_labels(
    table: Table,
    column: str | None,
    rows: Ints,
    names: Sequence[str],
    unlabelled: str | None,
) -> Ints | None:
    """Return the class ids of these rows for a model, or None if they have no labels."""
    if column is None:
        return None
    cells = label_cells(table, column, "" if set(names) & set(UNKNOWN) else unlabelled)
    if not any(cells[row] for row in rows):
        return None
    places = {name: k for k, name in enumerate(names)} | {"": NO_LABEL}
    for row in rows:
        if cells[row] not in places:
            raise InputError(
                f'the column "{column}" of {table.path}, {table.where(int(row))}: '
                f"{unknown('class', short(cells[row]), names)}",
                field="label_column",
                fix="if these are not labels, ignore the column with "
                f"{option_for('ignore_column', [column])}",
            )
    return np.array([places[cells[row]] for row in rows], dtype=np.int64)


def _split_rows(table: Table, column: str | None) -> dict[str, Ints]:
    """Return the rows of every split."""
    if column is None:
        return {"train": np.arange(len(table), dtype=np.int64)}
    rows: dict[str, list[int]] = {"train": []}
    for row, cell in enumerate(_filled(table, column, "split")):
        split = SPLITS.get(cell.lower())
        if split is None:
            raise InputError(
                f"{table.where(row)} of {table.path}: {unknown('split', short(cell), SPLITS)}"
            )
        rows.setdefault(split, []).append(row)
    return {split: np.array(where, dtype=np.int64) for split, where in rows.items()}


def train_rows(table: Table, split: str | None) -> Ints:
    """Return the rows of the training part; all if no column tells the splits apart."""
    return _split_rows(table, split)["train"]


def _true_labels(table: Table, column: str | None, train: Ints, given: Sequence[str]) -> list[str]:
    """Return the true labels of the training rows, or nothing if they are not known.

    That of a row without a label may be empty.
    """
    if column is None or len(train) == 0:
        return []
    cells = table.texts(column)
    empty = [int(i) for i in train if given[i] and not cells[i]]
    if empty:
        raise _missing(table, column, "true label", empty)
    true = [cells[i] for i in train]
    if not set(true) & {given[i] for i in train if given[i]}:
        raise InputError(
            f'the column "{column}" of {table.path} shares no class with the labels: it should '
            "hold the true label of every row",
            fix="rename it if it holds something else",
        )
    return true


def _encode(table: Table, labels: Sequence[str], names: Sequence[str], column: str) -> Ints:
    """Return the class id of every label; `NO_LABEL` for an empty one."""
    class_ids = {name: k for k, name in enumerate(names)} | {"": NO_LABEL}
    for row, label in enumerate(labels):
        if label not in class_ids:
            raise InputError(
                f'the column "{column}" of {table.path} has "{short(label)}" in '
                f"{table.where(row)}, a class without training examples: add some or drop the row"
            )
    return np.array([class_ids[label] for label in labels], dtype=np.int64)
