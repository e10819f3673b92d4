"""Labels from a file or a run instead of the data's own."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc.data.corrections import CHANGE, Corrections
from proselflc.data.request import PARQUET, Request
from proselflc.errors import InputError, invalid_option
from proselflc.files.regular import is_regular, must_be_file
from proselflc.wording import command, option

if TYPE_CHECKING:
    from proselflc.data.dataset import Dataset
    from proselflc.data.inputs import Ints

# The label set of each CIFAR-N file: the only one, or the hardest.
CIFAR_N_COLUMNS = {"CIFAR-10_human": "worse_label", "CIFAR-100_human": "noisy_label"}

# The options that choose among the labels of a run.
CHOICES = ("suspects", "reviewed", "min_confidence", "force", "fill")


def read_label_file(dataset: Dataset, path: Path, request: Request) -> tuple[Ints, Ints | None]:
    """Return labels [n] for the training examples from a file, and the true ones if known.

    They are for all training examples, and `NO_LABEL` for one without a label.

    A folder is a run: see `_read_run`. Rows of a file belong to examples by id if the file has the
    ids of the data set, else by position; labels are class names, or class ids if they are not
    names. The `labels.npz` of a run brings its true labels along; with a table or an export, the
    data set keeps its own true labels. Of cleanlab's tables the given labels are read. The label
    files of CIFAR-10N and CIFAR-100N are recognised by their published names.
    """
    from proselflc.data.dataset import class_ids

    if path.is_dir():
        return _read_run(dataset, path, request.corrections)
    refuse_choice(request)
    must_be_file(path, "labels")
    if path.stem in CIFAR_N_COLUMNS:
        from proselflc.data.sources import cifar_n

        human = cifar_n.with_human_labels(dataset, path, CIFAR_N_COLUMNS[path.stem], path.stem)
        return human.train.labels, human.clean
    if path.suffix.lower() == ".npz":
        from proselflc.data.labels import CorrectedLabels, Labels, holds_corrected_labels

        if holds_corrected_labels(path):
            corrected = CorrectedLabels.load(path)
            row = _rows(path, corrected.ids, len(corrected.ids), dataset)
            to_class = _or_none(class_ids(corrected.names, dataset.names, str(path)))
            return to_class[corrected.labels[row]], dataset.clean
        labels = Labels.load(path)
        row = _rows(path, labels.all_ids, len(labels.all_ids), dataset)
        to_class = _or_none(class_ids(labels.names, dataset.names, str(path), or_numbers=True))
        clean = None if labels.clean is None else to_class[labels.with_rest(labels.clean)[row]]
        return to_class[labels.with_rest(labels.given)[row]], clean

    row, labels_of_rows = read_label_table(dataset, path, request)
    return labels_of_rows[row], dataset.clean


def _or_none(to_class: Ints) -> Ints:
    """Return class ids of C classes with `NO_LABEL` after the last, where its own index is."""
    import numpy as np

    from proselflc.data.dataset import NO_LABEL

    return np.append(to_class, NO_LABEL)


def read_label_table(dataset: Dataset, path: Path, request: Request) -> tuple[Ints, Ints]:
    """Return the row of each training example [n], and the class id of each row of a table.

    This is `NO_LABEL` for a row without a label.
    """
    import numpy as np

    from proselflc.data.dataset import class_ids
    from proselflc.data.tables import table

    ids, given = table.read_labels(
        path,
        label_column=request.label_column,
        id_column=request.id_column,
        unlabelled="" if set(dataset.names) & set(table.UNKNOWN) else request.unlabelled,
        sheet=table.label_sheet(path, request),
    )
    names, which = np.unique(np.array([*given, ""], dtype=np.str_), return_inverse=True)
    own: Sequence[str] = names[1:].tolist()  # the first is "", for which there is no class
    which = which[:-1] - 1
    if path.suffix.lower() not in PARQUET:
        own = _undo_neutralizing(own, dataset.names, path)
        ids = None if ids is None else _undo_neutralizing(ids, set(dataset.train.ids), path)
    row = _rows(path, ids, len(given), dataset)
    return row, _or_none(class_ids(own, dataset.names, str(path), or_numbers=True))[which]


def _undo_neutralizing(cells: Sequence[str], known: Collection[str], path: Path) -> tuple[str, ...]:
    """Return the cells as they were before they were written for spreadsheets."""
    from proselflc.data.tables.cells import restore

    found = []
    for cell in cells:
        plain = restore(cell)
        if plain != cell and plain in known:
            if cell in known:
                raise InputError(
                    f'"{cell}" in {path} is ambiguous: "{plain}" is also known and is written like '
                    "this for spreadsheets",
                    field="labels",
                    fix="give the labels as a .parquet or .npz file",
                )
            cell = plain
        found.append(cell)
    return tuple(found)


def refuse_choice(request: Request) -> None:
    """Refuse options that choose among the labels of a run if labels come from elsewhere."""
    for field in CHOICES:
        if getattr(request, field) not in (None, False):
            raise invalid_option(
                field,
                "chooses among the labels of a run",
                fix=f"name the run with {option('labels', 'RUN')}",
            )


def _read_run(dataset: Dataset, run: Path, wanted: Corrections) -> tuple[Ints, Ints | None]:
    """Return labels [n] from the review or else the audit of a run, and the true ones.

    Validation examples of the run keep their labels. True labels of the data set take precedence
    over those of the run.
    """
    import numpy as np

    from proselflc.data.dataset import class_ids
    from proselflc.data.decisions import NAME, read_decisions
    from proselflc.data.labels import Labels
    from proselflc.data.tables import table
    from proselflc.data.tables.parquet import open_parquet
    from proselflc.files import manifest

    path = manifest.checked(run, run / "examples.parquet")
    if not is_regular(path):
        raise InputError(
            f"{run} is not a finished run: it holds no {path.name}",
            field="labels",
            fix=f"finish it with {option('resume', True)}, or give a file of labels",
        )
    place = {name: i for i, name in enumerate(dataset.train.ids)}
    own_labels = manifest.checked(run, run / "labels.npz")
    own = Labels.load(own_labels) if is_regular(own_labels) else None

    def column(name: str) -> tuple[list[str], list[str]]:
        """Return the ids and the labels of a column."""
        ids, names = table.read_labels(path, label_column=name, id_column="id", unlabelled="")
        lost = next((name for name in ids or () if name not in place), None)
        if lost is not None:
            raise InputError(
                f'{run} is a run on other data: it has labels for "{lost}", which {dataset.name} '
                "does not hold",
                field="labels",
                fix="give the data that the run was trained on",
            )
        if own is not None and tuple(ids or ()) != own.all_ids:
            raise InputError(
                f"{path} does not belong to the labels of its run: it has {len(ids or ()):,} rows "
                f"for {len(own.all_ids):,} labels, or other ids",
                field="labels",
                fix=f"restore it from a copy, or write it again with {command('audit', run)}",
            )
        return list(ids or ()), list(names)

    def replaced(ids: Sequence[str], names: Sequence[str]) -> Ints:
        labels = dataset.train.labels.copy()
        known, which = np.unique(np.array([*names, ""], dtype=np.str_), return_inverse=True)
        rows = [place[name] for name in ids]
        to_class = _or_none(class_ids(known[1:].tolist(), dataset.names, str(path)))
        labels[rows] = to_class[which[:-1] - 1]
        return labels

    ids, labels = column("suggested_label")
    if not ids:
        raise InputError(
            f"{path} has no rows",
            field="labels",
            fix=f"write it again with {command('audit', run)}",
        )
    has_actions = "action" in table.column_names(path)
    has_rest = own is not None and bool(own.rest)
    if has_rest or not (wanted.suspects or (wanted.is_default and not has_actions)):
        _, as_given = column("given_label")
        is_change = np.array(column("action")[1]) == CHANGE if has_actions else None
        is_rest = np.array(as_given, dtype=np.str_) == ""
        is_suspect = np.array(labels, dtype=np.str_) != np.array(as_given, dtype=np.str_)
        confidence = open_parquet(path).numbers(["p_suggested"])[:, 0].astype(np.float32)
        followed = wanted.followed(is_suspect & ~is_rest, confidence, is_change)
        followed |= wanted.filled(is_rest, confidence)
        labels = [
            suggested if is_followed else given
            for suggested, given, is_followed in zip(labels, as_given, followed, strict=True)
        ]
    if os.path.lexists(run / NAME):
        own = own or Labels.load(own_labels)
        decisions = read_decisions(run / NAME, own.fingerprint)
        decisions.check(set(own.all_ids), own.names)
        decided = {d.example: d.label for d in decisions.standing.values() if d.label is not None}
        labels = [decided.get(name, label) for name, label in zip(ids, labels, strict=True)]
    given = replaced(ids, labels)
    if dataset.clean is None and "clean_label" in table.column_names(path):
        return given, replaced(*column("clean_label"))
    return given, dataset.clean


def _rows(path: Path, ids: tuple[str, ...] | None, count: int, dataset: Dataset) -> Ints:
    """Return the row of the file for each training example [n]."""
    import numpy as np

    n = len(dataset.train)
    if count != n:
        raise InputError(
            f"{path} has {count} labels, but {dataset.name} has {n} training examples: "
            "there must be one label for each",
            field="labels",
        )
    where = {name: i for i, name in enumerate(ids or ())}
    found = [name in where for name in dataset.train.ids]
    if not any(found):
        return np.arange(n)
    if not all(found):
        lost = dataset.train.ids[found.index(False)]
        raise InputError(
            f'{path} has {sum(found)} of the {n} ids of {dataset.name}, but not "{lost}"',
            field="labels",
            fix="give a label for each example",
        )
    return np.array([where[name] for name in dataset.train.ids], dtype=np.int64)
