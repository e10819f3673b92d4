"""The data of a run, opened again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from proselflc.data import opening, splits
from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Inputs, Ints, read_kept
from proselflc.data.label_files import CHOICES
from proselflc.data.opening import open_all, open_data
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.data.tables import table
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.files import typed
from proselflc.run.reader import Run
from proselflc.training.run_directory import is_recorded
from proselflc.wording import option


def request(run: Run, *, data: str | None = None) -> Request:
    """Return the data that a run was made from, as its config says."""
    if run.config.get("data") == FROM_PYTHON:
        raise InputError(
            f"the data of {run.path} was given in Python and is not on disk, so it cannot be "
            "opened again"
            + ("; record(…, inputs=…) would have kept it" if is_recorded(run.config) else "")
        )
    if "data" not in run.config:
        raise InputError(f"{run.directory.config} does not say which data the run was made from")
    # A cache may be written to, and the others choose among labels.
    ignored = ("cache", *CHOICES)
    names = [field.name for field in fields(Request) if field.name not in ignored]
    values = {name: run.config[name] for name in names if name in run.config}
    found = typed.convert(values, Request, run.directory.config)
    if found.unlabelled is None and set(run.labels.names) & set(table.UNKNOWN):
        found = replace(found, unlabelled="")  # an older version read these as classes
    return found if data is None else replace(found, data=data)


def dataset(run: Run, *, data: str | None = None) -> tuple[Dataset, Ints]:
    """Return the data set of a run with its own labels, and the positions of the run's examples.

    Examples without a label are among those of the data set, with `NO_LABEL`.

    Inputs are those of the data, if it has any, even if the run was trained on features instead.
    """
    stored = request(run, data=data)
    _check_exists(run, stored)
    plain = opening.without_labels(stored)
    try:
        found = open_all(replace(plain, features=None))
    except InputError:
        if stored.features is None:
            raise
        found = open_all(plain)  # a table of labels alone has no other inputs
    found = with_trusted(run, found)
    name = f"the data {stored.data} of {run.path}"
    return found, positions(run, found, name, own_labels=stored.labels is None)


def with_trusted(run: Run, found: Dataset) -> Dataset:
    """Return the data of a run together with trusted examples that the run has learned from.

    A share of the data is in it already; examples from a file or folder are opened again.
    """
    if run.labels.trusted is None:
        return found
    path = str(run.config.get("trusted"))
    with suppress(ValueError):
        float(path)
        return found
    if not Path(path).exists():
        raise InputError(
            f"the trusted examples of {run.path} are missing: there is no {path}, looked up from "
            f"{Path.cwd()}",
            field="trusted",
            fix="restore them, or run this in the folder where the run was trained",
        )
    own = Request() if run.config.get("data") == FROM_PYTHON else request(run)
    own = opening.for_other_table(own, path)
    mixed = found.train.inputs
    kinds = mixed.kinds if isinstance(mixed, MixedColumns) else None
    trusted = open_data(replace(own, labels=None, features=None), kinds)
    return splits.with_trusted_learned(splits.with_trusted(found, trusted))


def positions(run: Run, found: Dataset, name: str, *, own_labels: bool = True) -> Ints:
    """Return [n] the positions of a run's examples in a data set, in the order of its labels."""
    rows = find_ids(run.labels.ids, found.train.ids, name)
    if own_labels:
        _check_unchanged(run, name, found, rows)
    return rows


def inputs(run: Run, *, data: str | None = None) -> Inputs:
    """Return the inputs of a run's training examples, row for row with `run.labels.ids`.

    They are kept in the run or, if not, opened from its data.
    """
    own = run.directory
    kept = None
    if data is None:
        files = own.checked(own.inputs_table), own.checked(own.inputs_arrays)
        kept = read_kept(*files, len(run.labels.ids))
    if kept is not None:
        if len(kept) != len(run.labels.ids):
            raise InputError(
                f"{run.path} keeps {len(kept)} inputs for {len(run.labels.ids)} examples: they are "
                "of another run"
            )
        return kept
    return taken(*dataset(run, data=data))


def all_inputs(run: Run, *, data: str | None = None) -> Inputs:
    """Return the inputs of all training examples, row for row with `run.labels.all_ids`."""
    if not run.labels.rest:
        return inputs(run, data=data)
    found, _ = dataset(run, data=data)
    rows = find_ids(run.labels.all_ids, found.train.ids, f"the data {found.name}")
    return taken(found, rows)


def taken(found: Dataset, rows: Ints) -> Inputs:
    """Return the training inputs at some positions, without a copy if these are all."""
    inputs = found.train.inputs
    return inputs if np.array_equal(rows, np.arange(len(inputs))) else inputs.take(rows)


def find_ids(ids: Sequence[str], data_ids: Sequence[str], what: str) -> Ints:
    """Return [len(ids)] the position of each id of a run among the ids of data called `what`."""
    if tuple(ids) == tuple(data_ids):
        return np.arange(len(ids))
    position = {name: i for i, name in enumerate(data_ids)}
    rows = np.array([position.get(name, -1) for name in ids], dtype=np.int64)
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        raise InputError(
            f"{what} has changed since training: {len(missing):,} of {len(ids):,} examples are "
            f'missing, the first is "{ids[int(missing[0])]}"',
            field="data",
            fix="restore them",
        )
    return rows


def _check_exists(run: Run, stored: Request) -> None:
    """Refuse data that is missing; a named data set is not downloaded just to read a run."""
    if stored.data == "digits":
        return
    path = opening.root(stored) if stored.data in opening.DATASETS else Path(stored.data)
    if not path.exists():
        raise InputError(
            f"the data of {run.path} is missing: there is no {path}, looked up from {Path.cwd()}",
            field="data",
            fix="restore it, run this in the folder where the run was trained, or give its "
            f"present location with {option('data')}",
        )


def _check_unchanged(run: Run, what: str, found: Dataset, rows: Ints) -> None:
    """Refuse data whose labels have changed: its rows may have changed too."""
    labels, current = run.labels, found.train.labels[rows]
    expected: Ints | None = labels.given
    # Noise starts from the true labels, and trusted examples have them, if the data holds them.
    clean = current if found.clean is None else found.clean[rows]
    if "noise" in run.config:
        expected, current = labels.clean, clean
    elif labels.trusted is not None:
        current = np.where(labels.trusted, clean, current)
    if expected is None:
        return
    names = np.array([*found.names, ""], dtype=object)[current]  # "" for `NO_LABEL`
    own = np.array(labels.names, dtype=object)[expected]
    other = np.flatnonzero(names != own)
    if len(other):
        row = int(other[0])
        raise InputError(
            f"{what} has changed since training: "
            f'"{labels.ids[row]}" was "{own[row]}" and is "{names[row]}" now'
            f"{f', and {len(other) - 1:,} more' if len(other) > 1 else ''}",
            field="data",
            fix="restore the old data",
        )
