"""Which column of a table is what: found by usual names, or as the user says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from proselflc.data.tables.table_file import Table, short
from proselflc.errors import InputError, unknown

# What columns are usually called, in lower case.
LABEL = ("label", "labels", "y", "class", "target", "category")
GIVEN = ("given_label",)  # the label where there is no other: cleanlab's name, and ours beside one
TEXT = ("text", "sentence", "title", "news_title", "headline", "content", "document", "review")
PATH = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path")
ID = ("id", "ids", "index", "__index_level_0__", "")  # the first of these that is there
CLEAN = ("clean", "clean_label", "clean_labels")
SPLIT = ("split",)
# What cleanlab says about labels, and what an export of ours adds to it: nothing to learn from.
OPINION = {
    "is_label_issue",
    "label_quality",
    "label_score",
    "predicted_label",
    "corrected_label",
}
BEFORE = "label_before"  # what the labels were, in a corrected copy of a table


def find(
    table: Table,
    asked: str | None,
    usual: Sequence[str],
    *,
    option: str = "",
    taken: Sequence[str | None] = (),
) -> str | None:
    """The column that was asked for, or the only one left with a usual name, or None."""
    if asked is not None:
        if asked in table.columns:
            return asked
        alike = [c for c in table.columns if plainly(c) == plainly(asked)]
        if len(alike) == 1:
            return alike[0]
        raise InputError(f"{table.path}: {unknown('column', asked, worth_showing(table, asked))}")
    found = [c for c in table.columns if plainly(c) in usual and c not in taken]
    if len(found) > 1:
        advice = f"choose one with {option}" if option else "rename one"
        raise InputError(
            f"{table.path} has several columns for one thing, {' and '.join(found)}: {advice}"
        )
    return found[0] if found else None


def plainly(name: str) -> str:
    """A name as usual names are written."""
    return name.strip().lower()


def worth_showing(table: Table, name: str) -> list[str]:
    """The columns worth showing: all, or of very many those that resemble the name."""
    if len(table.columns) <= 30:
        return list(table.columns)
    return get_close_matches(name, table.columns, n=5) or [*table.columns[:30], "…"]


@dataclass(frozen=True)
class Roles:
    """Which column is what; None where there is none."""

    label: str | None
    ids: str | None
    files: str | None
    texts: str | None
    split: str | None
    clean: str | None
    ignored: tuple[str, ...] = ()


def roles_of(
    table: Table,
    label_column: str | None,
    path_column: str | None,
    text_column: str | None,
    id_column: str | None,
    ignore: Sequence[str],
    needed: Sequence[str] | None = None,
) -> Roles:
    """Find the columns, and refuse a table with two things to learn from.

    Those that a model needs as numbers are nothing else unless they are asked for.
    """
    ignored = _ignored(table, ignore)
    inputs = [find(table, name, ()) for name in (path_column, text_column) if name is not None]
    label = label_of(table, label_column, (*ignored, *(needed or ()), *inputs))
    taken = (label, *ignored, *(needed or ()))
    ids = ids_of(table, id_column, taken)
    is_chosen = bool(inputs) or needed is not None
    files = find(table, path_column, () if is_chosen else PATH, option="--path-column", taken=taken)
    texts = find(table, text_column, () if is_chosen else TEXT, option="--text-column", taken=taken)
    _must_not_be_ignored(table, {"label": label, "id": ids, "path": files, "text": texts}, ignored)
    _must_be_one_input(table, label, files, texts)
    taken = (label, ids, files, texts, *ignored)
    split = find(table, None, SPLIT, taken=taken)
    clean = find(table, None, CLEAN, taken=taken)
    return Roles(label, ids, files, texts, split, clean, ignored)


def _must_not_be_ignored(
    table: Table, roles: Mapping[str, str | None], ignored: Sequence[str]
) -> None:
    for role, column in roles.items():
        if column is not None and column in ignored:
            raise InputError(
                f'the column "{short(column)}" of {table.path} is named by --{role}-column and '
                "by --ignore-column: leave one of them out"
            )


def _must_be_one_input(
    table: Table, label: str | None, files: str | None, texts: str | None
) -> None:
    """Refuse two things to learn from, and labels as what is learned from."""
    for role, column in {"path": files, "text": texts}.items():
        if column is not None and column == label:
            raise InputError(
                f'the column "{short(column)}" of {table.path} holds the labels, which cannot be '
                f"what is learned from: name another with --{role}-column"
            )
    if files is not None and texts is not None:
        raise InputError(
            f'{table.path} has a path column "{files}" and a text column "{texts}": choose what to '
            f'learn from with --path-column "{files}" or --text-column "{texts}"'
        )


def _ignored(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that are not to be learned from, as the table names them."""
    found = (find(table, name, ()) for name in names)
    return tuple(dict.fromkeys(column for column in found if column is not None))


def label_of(table: Table, asked: str | None, ignored: Sequence[str | None] = ()) -> str | None:
    """The column of labels, or None."""
    found = find(table, asked, LABEL, option="--label-column", taken=ignored)
    return found or find(table, None, GIVEN, option="--label-column", taken=ignored)


def needed_label(table: Table, column: str | None) -> str:
    """The column of labels, which must be there."""
    if column is not None:
        return column
    # A slip of the pen alone: at the usual cutoff "age" would be taken for "target".
    close = [c for name in LABEL for c in get_close_matches(name, table.columns, 1, cutoff=0.75)]
    hint = f'; did you mean "{close[0]}"?' if close else "."
    raise InputError(
        f"{table.path} has no label column{hint} Name it with --label-column. "
        f"Its columns: {', '.join(worth_showing(table, 'label'))}"
    )


def ids_of(table: Table, asked: str | None, taken: Sequence[str | None]) -> str | None:
    """The column of ids, or None; of several usual names the first."""
    if asked is not None:
        return find(table, asked, ())
    lower = {plainly(c): c for c in table.columns if c not in taken}
    return next((lower[name] for name in ID if name in lower), None)


def is_about_labels(table: Table, column: str) -> bool:
    """Whether a column says something about labels, so that it is not to be learned from."""
    if plainly(column) in GIVEN or re.fullmatch(rf"{BEFORE}(_[0-9]+)?", plainly(column)):
        return True
    is_of_cleanlab = any(plainly(c) == "is_label_issue" for c in table.columns)
    return is_of_cleanlab and plainly(column) in OPINION
