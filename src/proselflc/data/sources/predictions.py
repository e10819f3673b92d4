"""Out-of-sample probabilities of any model and the labels to judge by them, from files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import class_ids
from proselflc.data.inputs import Ints
from proselflc.data.labels import strings_of
from proselflc.data.request import TABLES, is_table
from proselflc.data.sources import npz
from proselflc.data.tables import table as tables
from proselflc.data.tables.columns import find_ids
from proselflc.data.tables.table_file import open_table
from proselflc.errors import InputError
from proselflc.files.regular import lines, must_be_file
from proselflc.wording import option

_PROBABILITIES = ("pred_probs", "p", "probabilities")
_LABELS = ("labels", "given", "y")
_ARRAYS = (".npy", ".npz")


@dataclass(frozen=True)
class JudgedLabels:
    """Labels and the probabilities to judge them by, example by example.

    Attributes:
        given: [n] class ids.
        p: [n, C] probabilities as they came; they are not checked.
        names: C class names.
        ids: n names of the examples.
    """

    given: Ints
    p: npt.NDArray[np.generic]
    names: tuple[str, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True)
class _Predictions:
    p: npt.NDArray[np.generic]  # [n, C]
    names: tuple[str, ...] | None
    ids: tuple[str, ...] | None


@dataclass(frozen=True)
class _Given:
    values: tuple[str, ...]  # n labels as texts
    ids: tuple[str, ...] | None


def read_predictions(
    pred_probs: Path,
    labels: Path,
    *,
    label_column: str | None = None,
    id_column: str | None = None,
) -> JudgedLabels:
    """Return the labels and the probabilities of two files, or of two parts of one.

    Probabilities are an `.npy` file, an `.npz` file (`pred_probs`, `p`, `probabilities` or its only
    array; optionally `names` and `ids`), or a table with one column per class, named after it, and
    optionally a column of ids. Labels are an `.npy` file, an `.npz` file (`labels`, `given`, `y` or
    its only array; optionally `names` and `ids`), a table with a column of labels, or a `.txt` file
    with one label per line.

    Where the columns have names, labels are such names, or class ids if they are not. Otherwise
    labels are class ids 0 … C−1, or the C different labels are sorted, as scikit-learn does.
    Examples are matched by their ids where both files have them, otherwise by position.

    Raises:
        InputError: a file cannot be read, or the two do not fit together.
    """
    must_be_file(pred_probs, "probabilities")
    must_be_file(labels, "labels")
    judged = _read_given(labels, label_column, id_column)
    is_same = pred_probs.resolve() == labels.resolve()
    beside = (tables.label_column(labels, label_column),) if _is_table(labels) and is_same else ()
    predictions = _read_probabilities(pred_probs, id_column, beside)
    p = predictions.p
    if p.ndim != 2:
        raise InputError(
            f"{pred_probs} holds an array of shape {list(p.shape)}: expected [n, C], a row for "
            "each label and a column for each class",
            field="pred_probs",
        )
    if len(p) != len(judged.values):
        raise InputError(
            f"{pred_probs} has {len(p):,} rows, but {labels} has {len(judged.values):,} labels",
            field="labels",
            fix="give one label for each row",
        )
    if predictions.ids is not None and judged.ids is not None:
        judged = _in_order(judged, judged.ids, predictions.ids, labels, pred_probs)
    given, names = _classes(judged.values, predictions.names, p.shape[1], labels, pred_probs)
    ids = predictions.ids or judged.ids or tuple(map(str, range(len(p))))
    return JudgedLabels(given, p, names, ids)


def _is_table(path: Path) -> bool:
    return is_table(path)


def _read_probabilities(path: Path, id_column: str | None, beside: Sequence[str]) -> _Predictions:
    if not _is_table(path):
        found = _arrays(path, _PROBABILITIES, "pred_probs")
        return _Predictions(found["values"], _texts(found, "names", path), _ids(found, path))
    table = open_table(path)
    ids = find_ids(table, id_column if id_column in table.columns else None, beside)
    classes = tuple(name for name in table.columns if name != ids and name not in beside)
    if len(classes) < 2:
        raise InputError(
            f"{path} has {len(classes)} columns of probabilities: expected one for each class, "
            "named after it",
            field="pred_probs",
        )
    try:
        p = table.numbers(classes)
    except InputError as error:
        raise InputError(
            f"{error.reason}; every column but that of the ids holds the probabilities of a class",
            field="pred_probs",
            fix=f"name the column of ids with {option('id_column')}, or remove other columns",
        ) from None
    return _Predictions(p, classes, None if ids is None else tuple(table.texts(ids)))


def _read_given(path: Path, label_column: str | None, id_column: str | None) -> _Given:
    if _is_table(path):
        ids, values = tables.read_labels(path, label_column=label_column, id_column=id_column)
        return _Given(values, ids)
    if label_column is not None:
        raise InputError(
            f"{option('label_column')} names a column, but {path} is not a table",
            field="label_column",
            fix="omit it, or give the labels as a .csv or .parquet file",
        )
    if path.suffix.lower() == ".txt":
        values = tuple(lines(path))
        if "" in values:
            raise InputError(
                f"line {values.index('') + 1} of {path} is empty",
                field="labels",
                fix="give one label per line",
            )
        return _Given(values, None)
    found = _arrays(path, _LABELS, "labels")
    y = found["values"]
    if y.ndim != 1 or y.dtype.kind not in "iuU":
        raise InputError(
            f"{path} holds {y.dtype} of shape {list(y.shape)}: expected class ids or texts of "
            "shape [n]",
            field="labels",
        )
    names = _texts(found, "names", path)
    if names is None or y.dtype.kind not in "iu":
        return _Given(strings_of(path, "labels", y.astype(np.str_)), _ids(found, path))
    if len(y) and not 0 <= y.min() <= y.max() < len(names):
        raise InputError(
            f"labels in {path} range from {y.min()} to {y.max()}, but it has {len(names)} names",
            field="labels",
            fix="give a name for each class",
        )
    return _Given(tuple(names[k] for k in y), _ids(found, path))


def _arrays(path: Path, usual: Sequence[str], field: str) -> dict[str, npt.NDArray[np.generic]]:
    """Return `values` and, where an `.npz` file has them, `names` and `ids`."""
    suffix = path.suffix.lower()
    if suffix not in _ARRAYS:
        known = ", ".join((*_ARRAYS, *TABLES, *((".txt",) if field == "labels" else ())))
        raise InputError(
            f"cannot read {path}: its ending is none of {known}",
            field=field,
            fix="save it in one of these formats",
        )
    if suffix == ".npy":
        return {"values": npz.array(path)}
    there = npz.names_of_arrays(path)
    name = next((one for one in usual if one in there), None)
    if name is None:
        others = [one for one in there if one not in ("names", "ids")]
        if len(others) != 1:
            raise InputError(
                f"{path} has none of the arrays {', '.join(usual)}: it holds "
                f"{', '.join(there[:10]) or 'nothing'}",
                field=field,
                fix=f"save it as {usual[0]}, with np.savez(file, {usual[0]}=…)",
            )
        name = others[0]
    found = npz.arrays(path, (name, "names", "ids"))
    return {"values": found.pop(name), **found}


def _texts(
    found: dict[str, npt.NDArray[np.generic]], name: str, path: Path
) -> tuple[str, ...] | None:
    if name not in found:
        return None
    values = found[name]
    if values.dtype.kind in "iu" and values.ndim == 1:
        values = values.astype(np.str_)
    return strings_of(path, name, values)


def _ids(found: dict[str, npt.NDArray[np.generic]], path: Path) -> tuple[str, ...] | None:
    ids, n = _texts(found, "ids", path), len(found["values"]) if found["values"].ndim else 0
    if ids is not None and (len(ids) != n or len(set(ids)) != n):
        raise InputError(
            f"{path} has {len(ids):,} ids, {len(set(ids)):,} of them distinct, for {n:,} rows",
            fix="give one distinct id for each row",
        )
    return ids


def _in_order(
    judged: _Given, own: tuple[str, ...], wanted: tuple[str, ...], labels: Path, pred_probs: Path
) -> _Given:
    """Return the labels in the order of the probabilities, by their ids."""
    place = {name: row for row, name in enumerate(own)}
    twice = next((name for name, count in Counter(wanted).items() if count > 1), None)
    if twice is not None:
        raise InputError(
            f'{pred_probs} has the id "{twice}" twice', field="pred_probs", fix="make ids distinct"
        )
    lost = next((name for name in wanted if name not in place), None)
    if lost is not None:
        raise InputError(
            f'{labels} has no label for the id "{lost}" of {pred_probs}',
            field="labels",
            fix="give both files the same ids, or remove the column of ids to match by position",
        )
    return _Given(tuple(judged.values[place[name]] for name in wanted), wanted)


def _classes(
    values: tuple[str, ...], names: tuple[str, ...] | None, C: int, labels: Path, pred_probs: Path
) -> tuple[Ints, tuple[str, ...]]:
    """Return [n] class ids, and the class names in the order of the columns."""
    own, which = np.unique(np.array(values, dtype=np.str_), return_inverse=True)
    texts: list[str] = own.tolist()
    if names is not None:
        if len(names) != C or len(set(names)) != C:
            raise InputError(
                f"{pred_probs} has {len(names)} class names, {len(set(names))} of them distinct, "
                f"for {C} columns",
                field="pred_probs",
                fix="give one name for each column",
            )
        try:
            return class_ids(texts, names, str(labels), or_numbers=True)[which], names
        except InputError as error:
            raise InputError(
                error.reason,
                field="labels",
                fix=f"give {pred_probs} a column for each class, named as in the labels",
            ) from None
    numbers = {str(k) for k in range(C)}
    if all(text in numbers for text in texts):
        order = np.array([int(text) for text in texts], dtype=np.int64)
        return order[which], tuple(map(str, range(C)))
    if len(texts) != C:
        raise InputError(
            f"{labels} has {len(texts)} different labels, but {pred_probs} has {C} columns",
            field="labels",
            fix=f"give class ids 0 … {C - 1}, or a table of probabilities with the class names as "
            "column names",
        )
    # np.unique has sorted them as texts; scikit-learn sorts numbers by value.
    if all(re.fullmatch("-?[0-9]{1,18}", text) for text in texts):
        rank = np.argsort([int(text) for text in texts], kind="stable")
        return np.argsort(rank)[which], tuple(texts[k] for k in rank)
    return which, tuple(texts)
