"""Labels from a file or a run beside the data, and which of them are sure enough."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc.data.request import PARQUET, Request
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.files.text import must_be_file

if TYPE_CHECKING:
    from proselflc.data.dataset import Dataset
    from proselflc.data.inputs import Ints

# Which labels of a CIFAR-N file stand for it: all there are, or the hardest.
CIFAR_N_COLUMNS = {"CIFAR-10_human": "worse_label", "CIFAR-100_human": "noisy_label"}


def read_label_file(dataset: Dataset, path: Path, request: Request) -> tuple[Ints, Ints | None]:
    """Labels [n] for the data set's training examples from a file, and the true ones if known.

    A folder is a run: see `_read_run`. Rows of a file belong to examples by their id if the file
    has the data set's ids, else by their place; labels are class names, or class ids where those
    are no names. A `labels.npz` of ours brings its true labels along; with a table, and with what
    `export` has written, the data set keeps what it knew about the truth. Of a table of cleanlab's
    it is the given labels that are read. The label files of CIFAR-10N and CIFAR-100N, by their
    published names, go with CIFAR.
    """
    from proselflc.data import contents

    if path.is_dir():
        return _read_run(dataset, path, least_confidence(request.reviewed, request.min_confidence))
    must_not_choose(request)
    must_be_file(path, "labels")
    if path.stem in CIFAR_N_COLUMNS:
        from proselflc.data.sources import cifar_n

        human = cifar_n.with_human_labels(dataset, path, CIFAR_N_COLUMNS[path.stem], path.stem)
        return human.train.labels, human.clean
    if path.suffix.lower() == ".npz":
        from proselflc.data.labels import exported
        from proselflc.data.labels.labels import Labels

        if exported.is_exported(path):
            corrected = exported.load(path)
            row = _rows(path, corrected.ids, len(corrected.ids), dataset)
            class_ids = contents.class_ids(corrected.names, dataset.names, str(path))
            return class_ids[corrected.labels[row]], dataset.clean
        labels = Labels.load(path)
        row = _rows(path, labels.ids, len(labels.ids), dataset)
        class_ids = contents.class_ids(labels.names, dataset.names, str(path), or_numbers=True)
        clean = None if labels.clean is None else class_ids[labels.clean[row]]
        return class_ids[labels.given[row]], clean

    row, labels_there = read_label_table(dataset, path, request)
    return labels_there[row], dataset.clean


def read_label_table(dataset: Dataset, path: Path, request: Request) -> tuple[Ints, Ints]:
    """The labels of a table beside a data set.

    Returns:
        [n] the row of each training example, and as many class ids as there are rows.
    """
    import numpy as np

    from proselflc.data import contents
    from proselflc.data.tables import table

    ids, given = table.read_labels(
        path, label_column=request.label_column, id_column=request.id_column
    )
    names, which = np.unique(np.array(given, dtype=np.str_), return_inverse=True)
    own: Sequence[str] = names.tolist()
    if path.suffix.lower() not in PARQUET:
        own = _as_known(own, dataset.names, path)
        ids = None if ids is None else _as_known(ids, set(dataset.train.ids), path)
    row = _rows(path, ids, len(given), dataset)
    return row, contents.class_ids(own, dataset.names, str(path), or_numbers=True)[which]


def _as_known(cells: Sequence[str], known: Collection[str], path: Path) -> tuple[str, ...]:
    """Cells with those as they are known that were neutralised for a spreadsheet."""
    from proselflc.data.tables import spreadsheet

    found = []
    for cell in cells:
        plain = spreadsheet.original(cell)
        if plain != cell and plain in known:
            if cell in known:
                raise InputError(
                    f'"{cell}" in {path} could be "{plain}" as it is written for spreadsheets, and '
                    "both are known: give the labels as a .parquet or .npz file"
                )
            cell = plain
        found.append(cell)
    return tuple(found)


def least_confidence(reviewed: bool | None, min_confidence: float | None) -> float:
    """How sure a run must be of a suggestion for that to be followed; infinity for never.

    Raises:
        InputError: it is no probability.
    """
    if min_confidence is None:
        return float("inf") if reviewed else 0.0
    if not 0 <= min_confidence <= 1:
        raise InputError(f"--min-confidence must be from 0 to 1, got {min_confidence}")
    return min_confidence


def must_not_choose(request: Request) -> None:
    """Refuse to choose among the labels of a file, which says nothing about them."""
    chosen = {
        "--reviewed": bool(request.reviewed),
        "--min-confidence": request.min_confidence is not None,
    }
    for flag, is_set in chosen.items():
        if is_set:
            raise InputError(
                f"{flag} chooses among the labels of a run: say with --labels RUN which one"
            )


def _read_run(dataset: Dataset, run: Path, least: float) -> tuple[Ints, Ints | None]:
    """Labels [n] as people decided or else a finished run suggests, and the true ones if known.

    Examples that the run set aside for validation keep their labels. What the data set knows about
    the truth stays; otherwise it is what the run knew, with the labels that were kept.

    Args:
        dataset: whose labels are replaced.
        run: its directory.
        least: a suggestion that the run is less sure of is not followed.
    """
    import numpy as np

    from proselflc.data.contents import class_ids
    from proselflc.data.labels.decisions import NAME, read_decisions
    from proselflc.data.labels.labels import Labels
    from proselflc.data.tables import table, table_file
    from proselflc.files import manifest

    path = manifest.checked(run, run / "examples.parquet")
    if not is_regular(path):
        raise InputError(
            f"{run} is not a finished run: it holds no {path.name}; finish it with --resume, or "
            "give a file of labels"
        )
    place = {name: i for i, name in enumerate(dataset.train.ids)}
    own_labels = manifest.checked(run, run / "labels.npz")
    own = Labels.load(own_labels) if is_regular(own_labels) else None

    def column(name: str) -> tuple[list[str], list[str]]:
        """The ids and the labels of a column."""
        ids, names = table.read_labels(path, label_column=name, id_column="id")
        lost = next((name for name in ids or () if name not in place), None)
        if lost is not None:
            raise InputError(
                f'{run} is a run on other data: it has labels for "{lost}", which {dataset.name} '
                "does not hold; give the data that it was made from"
            )
        if own is not None and tuple(ids or ()) != own.ids:
            raise InputError(
                f"{path} is not of the same run as its labels, it has {len(ids or ()):,} rows for "
                f"{len(own.ids):,} labels, or others: restore it from a copy, or make it anew with "
                f"proselflc audit {run}"
            )
        return list(ids or ()), list(names)

    def replaced(ids: Sequence[str], names: Sequence[str]) -> Ints:
        labels = dataset.train.labels.copy()
        known, which = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
        rows = [place[name] for name in ids]
        labels[rows] = class_ids(known.tolist(), dataset.names, str(path))[which]
        return labels

    ids, labels = column("suggested_label")
    if not ids:
        raise InputError(f"{path} has no rows: write it again with proselflc audit {run}")
    if least > 0:
        _, as_given = column("given_label")
        sure = (
            table_file.open_parquet(path).numbers(["p_suggested"])[:, 0].astype(np.float32) >= least
        )
        labels = [
            one if enough else other
            for one, other, enough in zip(labels, as_given, sure, strict=True)
        ]
    if os.path.lexists(run / NAME):
        own = own or Labels.load(own_labels)
        decided = read_decisions(run / NAME, own.fingerprint)
        decided.check(set(own.ids), own.names)
        standing = decided.standing
        labels = [
            other if (one := standing.get(name)) is None or one.label is None else one.label
            for name, other in zip(ids, labels, strict=True)
        ]
    given = replaced(ids, labels)
    if dataset.clean is None and "clean_label" in table.column_names(path):
        return given, replaced(*column("clean_label"))
    return given, dataset.clean


def _rows(path: Path, ids: tuple[str, ...] | None, count: int, dataset: Dataset) -> Ints:
    """[n] which row of the file belongs to each training example."""
    import numpy as np

    n = len(dataset.train)
    if count != n:
        raise InputError(
            f"{path} has {count} labels, but {dataset.name} has {n} training examples: "
            "there must be one for each"
        )
    where = {name: i for i, name in enumerate(ids or ())}
    found = [name in where for name in dataset.train.ids]
    if not any(found):
        return np.arange(n)
    if not all(found):
        lost = dataset.train.ids[found.index(False)]
        raise InputError(
            f'{path} knows {sum(found)} of the {n} ids of {dataset.name}, but not "{lost}": '
            "give a label for each of its examples"
        )
    return np.array([where[name] for name in dataset.train.ids], dtype=np.int64)
