"""Columns of a table: which one holds what, and what is wrong with those that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from proselflc.data.request import KINDS_ASKED, Request
from proselflc.data.tables.cells import (
    MISSING,
    NotNumericError,
    decimal_mark,
    is_number,
    number_in,
    short,
)
from proselflc.data.tables.table_file import Table
from proselflc.errors import InputError, unknown
from proselflc.wording import option

# Usual names of columns, in lower case.
LABEL = ("label", "labels", "y", "class", "target", "category")
GIVEN = ("given_label",)  # cleanlab's name, which is the label if there is no other
TEXT = ("text", "sentence", "title", "news_title", "headline", "content", "document", "review")
PATH = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path")
ID = ("id", "ids", "index", "__index_level_0__", "")  # the first of these that exists
CLEAN = ("clean", "clean_label", "clean_labels")
SPLIT = ("split",)
# Columns that cleanlab writes about labels, and those that an export adds: they are not features.
OPINION = {"is_label_issue", "label_quality", "label_score", "predicted_label", "corrected_label"}
BEFORE = "label_before"  # previous labels, in a corrected copy of a table

MAX_NAMED = 10  # columns named in a message
MAX_PASTED = 2000  # characters of column names in a suggested option

MOST_MEASURED = 20  # different numbers up to which they are classes
REGRESSION = (
    "{:,} different numbers, from {:,.6g} to {:,.6g}; if they are measurements, this is "
    "regression, and you should divide them into classes first"
)
FEW_PER_NUMBER = 5  # rows per whole number below which these are measurements
NEARLY = 0.9  # share of different labels from which they look like ids
MAX_NOTED = 8  # columns, or groups of classes, named in a note
MIN_ROWS = 20  # with fewer rows, measurements are distinct by chance
FIRST_ROWS = 1000  # enough to tell most columns from ids
MANY_NUMBERS = 3  # columns of numbers beside which a text is one column of many
EXACT = 2**24  # integers up to here are exact in float32


@dataclass(frozen=True)
class NotIds:
    """A column that is named like ids but does not tell the rows apart."""

    column: str
    rows: int
    distinct: int  # number of different ids
    empty: int  # number of rows without one

    @property
    def reason(self) -> str:
        """Return why the column is not used."""
        if self.distinct == 0:
            return "named like ids, but all cells are missing"
        values = "1 value" if self.distinct == 1 else f"{self.distinct:,} different values"
        what = f"{values} in {self.rows:,} rows"
        return f"named like ids, but holds {what}{f', {self.empty:,} empty' if self.empty else ''}"

    def note(self, others: str) -> str:
        """Return the sentence about it for the start of a run, with what names the rows instead."""
        return (
            f'the column "{short(self.column)}" is {self.reason}, so it is ignored and {others}; '
            f"if it describes the examples, learn from it with "
            f"{option_for('categorical', [self.column])}"
        )


@dataclass(frozen=True)
class Roles:
    """The column of each role; None if there is none."""

    label: str | None
    ids: str | None
    files: str | None
    texts: str | None
    split: str | None
    clean: str | None
    ignored: tuple[str, ...] = ()
    not_ids: tuple[NotIds, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences about the columns that were expected to hold ids."""
        others = "rows are numbered from 0"
        if self.ids is not None:
            name = f'"{short(self.ids)}"' if self.ids else "the column without a name"
            others = f"the ids are those of {name}"
        elif self.files is not None:
            others = "the ids are the paths"
        return tuple(one.note(others) for one in self.not_ids)


def find_roles(
    table: Table,
    request: Request,
    needed: Sequence[str] | None = None,
    *,
    is_predicted: bool = False,
) -> Roles:
    """Return the roles of the columns; refuse a table with both paths and texts.

    A column with a usual name of texts is one column of many if most others hold numbers, unless
    the table is to be predicted by a model of texts.
    """
    found = (find_column(table, name, ()) for name in request.ignore_column)
    ignored = tuple(dict.fromkeys(column for column in found if column is not None))
    named = (name for name in (request.path_column, request.text_column) if name is not None)
    inputs = [find_column(table, name, ()) for name in named]
    label = find_label(table, request.label_column, (*ignored, *(needed or ()), *inputs))
    taken = (label, *ignored, *(needed or ()))
    named_ids = usual_ids(table, (*taken, *asked_columns(table, request)))
    ids = named_ids[0] if named_ids else None
    if request.id_column is not None:
        ids, named_ids = find_ids(table, request.id_column, taken), []
    is_chosen = bool(inputs) or needed is not None
    paths, texts = ((), ()) if is_chosen else (PATH, TEXT)
    files_column = find_column(table, request.path_column, paths, field="path_column", taken=taken)
    asked = asked_columns(table, request)
    texts_column = find_column(
        table, request.text_column, texts, field="text_column", taken=(*taken, *asked)
    )
    if request.text_column is None and texts_column is not None and not is_predicted:
        others = [c for c in table.columns if c not in (*taken, ids, texts_column)]
        if asked or _are_measured(table, others):
            texts_column = None
    roles = {
        "label_column": label,
        "id_column": ids,
        "path_column": files_column,
        "text_column": texts_column,
    }
    _check_roles(table, roles, ignored)
    taken = (*roles.values(), *ignored)
    split = find_column(table, None, SPLIT, taken=taken)
    clean = find_column(table, None, CLEAN, taken=taken)
    not_ids = []
    for column in named_ids:
        odd = _not_ids(table, column, split)
        if odd is None:
            ids = column
            break
        ids = None
        not_ids.append(odd)
    return Roles(label, ids, files_column, texts_column, split, clean, ignored, tuple(not_ids))


def asked_columns(table: Table, request: Request) -> tuple[str, ...]:
    """Return the columns whose kind the request names, so that they are learned from."""
    found = (
        find_column(table, name, (), field=field)
        for field in KINDS_ASKED
        for name in getattr(request, field)
    )
    return tuple(name for name in found if name is not None)


def _are_measured(table: Table, columns: Sequence[str]) -> bool:
    """Return whether at least three columns, and most of them, begin with numbers."""
    measured = 0
    for column in columns:
        cells = [str(c).strip() for c in table.arrow([column])[0].slice(0, 100).to_pylist()]
        there = [cell for cell in cells if cell.lower() not in MISSING]
        measured += bool(there) and all(map(is_number, there))
    return measured >= MANY_NUMBERS and 2 * measured > len(columns)


def _not_ids(table: Table, column: str, split: str | None) -> NotIds | None:
    """Return why a column cannot name the rows; None if it names each row of a split apart."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = table.arrow([column])[0]
    if pa.types.is_nested(cells.type):
        return None  # which is refused where it is read
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        cells = pc.utf8_trim_whitespace(cells)
        cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
    names, keys = ["id"], [cells]
    if split is not None:
        names, keys = ["id", "split"], [cells, table.arrow([split])[0]]
    empty = cells.null_count
    pairs = pa.Table.from_arrays(keys, names=names).group_by(names).aggregate([]).num_rows
    if not empty and pairs == len(cells):
        return None
    return NotIds(column, len(cells), pc.count_distinct(cells, mode="only_valid").as_py(), empty)


def find_column(
    table: Table,
    name: str | None,
    usual: Sequence[str],
    *,
    field: str | None = None,
    taken: Sequence[str | None] = (),
) -> str | None:
    """Return the named column, or the only other one with a usual name, or None."""
    if name is not None:
        if name in table.columns:
            return name
        similar = [c for c in table.columns if normalize(c) == normalize(name)]
        if len(similar) == 1:
            return similar[0]
        known = names_to_show(table, name)
        raise InputError(f"{table.path}: {unknown('column', name, known)}", field=field)
    found = [c for c in table.columns if normalize(c) in usual and c not in taken]
    if len(found) > 1:
        raise InputError(
            f"{table.path} has several columns for one purpose, {' and '.join(found)}",
            field=field,
            fix=f"choose one with {option(field)}" if field else "rename one",
        )
    return found[0] if found else None


def normalize(name: str) -> str:
    """Return a name as usual names are written."""
    return name.strip().lower()


def names_to_show(table: Table, name: str) -> list[str]:
    """Return all column names, or of very many those that resemble `name`."""
    if len(table.columns) <= 30:
        return [column or '""' for column in table.columns]  # pandas' index has no name
    return get_close_matches(name, table.columns, n=5) or [*table.columns[:30], "…"]


def _check_roles(table: Table, roles: Mapping[str, str | None], ignored: Sequence[str]) -> None:
    """Refuse ignored columns that have a role, labels as inputs, and two kinds of inputs."""
    for field, column in roles.items():
        if column is not None and column in ignored:
            raise InputError(
                f'the column "{short(column)}" of {table.path} is given by {option(field)} and by '
                f"{option('ignore_column')}",
                field="ignore_column",
                fix="drop one of them",
            )
    for field in ("path_column", "text_column"):
        if roles[field] is not None and roles[field] == roles["label_column"]:
            raise InputError(
                f'the column "{short(roles[field] or "")}" of {table.path} holds the labels and '
                "cannot be the input",
                field=field,
                fix=f"name another with {option(field)}",
            )
    files, texts = roles["path_column"], roles["text_column"]
    if files is not None and texts is not None:
        raise InputError(
            f'{table.path} has a path column "{files}" and a text column "{texts}"',
            field="path_column",
            fix=f"choose one with {option('path_column', files)} or {option('text_column', texts)}",
        )


def find_label(table: Table, name: str | None, taken: Sequence[str | None] = ()) -> str | None:
    """Return the column of labels, or None."""
    found = find_column(table, name, LABEL, field="label_column", taken=taken)
    return found or find_column(table, None, GIVEN, field="label_column", taken=taken)


def label_names(request: Request) -> tuple[str, ...]:
    """Return the names that the column of labels may have."""
    return (*LABEL, *GIVEN) if request.label_column is None else (request.label_column,)


def check_labels(table: Table, column: str, cells: Sequence[str]) -> None:
    """Refuse a column of labels that holds ids or measurements."""
    distinct = set(cells)
    many, n = len(distinct), len(cells)
    values = measurements(distinct)
    if values and (many < n or any(value != round(value) for value in values)):
        is_whole = all(value == round(value) for value in values)
        if not is_whole or n < FEW_PER_NUMBER * many:
            raise InputError(
                f'the column "{short(column)}" of {table.path} holds {many:,} different numbers '
                f"in {n:,} rows, such as {short(cells[0])}, so this looks like regression, and "
                "proselflc learns classes",
                field="label_column",
                fix="divide the numbers into classes, or name another column with "
                f"{option('label_column')}",
            )
    is_usual = normalize(column) in ID
    if many < n and (many <= NEARLY * n or n < MIN_ROWS or all(map(is_number, distinct))):
        return
    if n < MIN_ROWS and not is_usual:
        return
    what = "a different label in every row" if many == n else f"{many:,} labels in {n:,} rows"
    usual = [c for c in table.columns if normalize(c) in (*LABEL, *GIVEN) and c != column]
    named = option_for("label_column", usual[:1]) if usual else option("label_column")
    looks = "looks like an id"
    if all(map(is_number, distinct)):
        looks += " or like regression, and proselflc learns classes"
    raise InputError(
        f'the column "{short(column)}" of {table.path} holds {what}, so it {looks}',
        field="label_column",
        fix=f"name the column of the labels with {named}",
    )


def measurements(labels: Collection[str]) -> list[float]:
    """Return the values of distinct labels that look like measurements; empty for classes.

    More than `MOST_MEASURED` numbers do, unless they count classes from 0 or 1.

    >>> ages = [str(k) for k in range(18, 90)]
    >>> measurements([str(k) for k in range(100)]), len(measurements(ages))
    ([], 72)
    """
    if len(labels) <= MOST_MEASURED:
        return []
    mark = decimal_mark(list(labels))
    values = [value for label in labels if (value := number_in(label, mark)) is not None]
    if len(values) < len(labels):
        return []
    first, last = min(values), max(values)
    counts = first in (0, 1) and last - first + 1 == len(set(values)) == len(values)
    return [] if counts and all(value == round(value) for value in values) else values


def require_label(table: Table, column: str | None) -> str:
    """Return the column of labels; refuse a table without one."""
    if column is not None:
        return column
    # At the usual cutoff "age" would be suggested for "target".
    close = [c for name in LABEL for c in get_close_matches(name, table.columns, 1, cutoff=0.75)]
    hint = f'; did you mean "{close[0]}"?' if close else "."
    raise InputError(
        f"{table.path} has no label column{hint} Name it with {option('label_column')}. "
        f"Its columns: {', '.join(names_to_show(table, 'label'))}",
        field="label_column",
    )


def find_ids(table: Table, name: str | None, taken: Sequence[str | None]) -> str | None:
    """Return the column of ids, or None; of several usual names the first one counts."""
    if name is not None:
        return find_column(table, name, (), field="id_column")
    return next(iter(usual_ids(table, taken)), None)


def usual_ids(table: Table, taken: Sequence[str | None]) -> list[str]:
    """Return the columns with a usual name of ids, the most usual first."""
    lower = {normalize(c): c for c in table.columns if c not in taken}
    return [lower[usual] for usual in ID if usual in lower]


def is_about_labels(table: Table, column: str) -> bool:
    """Return whether a column describes labels, so that it is not a feature."""
    if normalize(column) in GIVEN or re.fullmatch(rf"{BEFORE}(_[0-9]+)?", normalize(column)):
        return True
    names = {normalize(c) for c in table.columns}
    if normalize(column) == "action":  # which only an export writes, beside its corrected labels
        return {"is_label_issue", "corrected_label"} <= names
    return "is_label_issue" in names and normalize(column) in OPINION


def quote_names(names: Sequence[str], most: int) -> str:
    """Return names as a quoted, comma-separated list, shortened where there are many."""
    quoted = [f'"{short(name)}"' for name in names[:most]]
    if len(names) > most:
        quoted.append(f"{len(names) - most} more")
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def option_for(field: str, columns: Sequence[str]) -> str:
    """Return an option with column names to paste, cut if they are very long."""
    kept, length = 0, 0
    while kept < len(columns) and (kept == 0 or length + len(columns[kept]) < MAX_PASTED):
        length += len(columns[kept]) + 1
        kept += 1
    return option(field, tuple(columns[:kept])) + (" …" if kept < len(columns) else "")


def refusal(table: Table, columns: Sequence[str], *, with_gaps: bool = False) -> InputError:
    """Return the error about columns that a model of numbers needs and that do not hold any.

    With gaps, missing cells are no fault.
    """
    found = [name for name in columns if not _holds(table, name, with_gaps)]
    first, others = found[0], found[1:]
    cells = table.texts(first)
    row = next(row for row, cell in enumerate(cells) if not _is_fine(cell, with_gaps))
    content = f'"{short(cells[row])}", which is not a number,' if cells[row] else "nothing"
    also = ""
    if others:
        verb = "have" if len(others) > 1 else "has"
        also = f", and {quote_names(others, MAX_NAMED - 1)} {verb} cells that are not numbers too"
    is_gap = cells[row].lower() in MISSING
    return InputError(
        f'the column "{short(first)}" of {table.path} holds {content} in {table.where(row)}{also}',
        fix="fill it in or drop the row" if is_gap else "fix the cells",
    )


def _is_fine(cell: str, with_gaps: bool) -> bool:
    return is_number(cell) or (with_gaps and cell.lower() in MISSING)


def _holds(table: Table, column: str, with_gaps: bool) -> bool:
    """Return whether all cells of a column are numbers, or missing where there may be gaps."""
    try:
        table.numbers([column])
    except NotNumericError:
        return with_gaps and all(_is_fine(cell, True) for cell in table.texts(column))
    return True
