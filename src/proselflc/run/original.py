"""The data of a run, opened anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from proselflc.data import kept_inputs, opening, splits
from proselflc.data.dataset import Dataset, Inputs, Ints
from proselflc.data.labels.labels import Labels
from proselflc.data.opening import open_data
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.errors import InputError
from proselflc.run.reader import Run
from proselflc.training.run_directory import is_recorded


def request(run: Run, *, data: str | None = None) -> Request:
    """What data a run was made from, as its config says.

    Args:
        run: finished.
        data: where the data is now, if it has moved.

    Raises:
        InputError: it came from Python, or the config is damaged.
    """
    came = run.config.get("data")
    if came == FROM_PYTHON:
        raise InputError(
            f"the data of {run.path} was given in Python and is not on disk, so it cannot be "
            "opened anew"
            + ("; record(…, inputs=…) would have kept it" if is_recorded(run.config) else "")
        )
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(Request)):
        value = run.config.get(name)
        # A cache makes reading faster, and may be written to; others choose among labels.
        if value is None or name in ("cache", "reviewed", "min_confidence"):
            continue
        if name == "ignore_column":
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise InputError(f"{run.directory.config} is damaged: {name} should be texts")
        elif not isinstance(value, str):
            raise InputError(f"{run.directory.config} is damaged: {name} should be a text")
        values[name] = value
    if "data" not in values or values.get("on_bad_image", "error") not in ("error", "skip"):
        raise InputError(f"{run.directory.config} does not say which data the run was made from")
    found = Request(**values)  # it makes paths of the texts itself
    return found if data is None else replace(found, data=data)


def dataset(run: Run, *, data: str | None = None) -> tuple[Dataset, Ints]:
    """The data set of a run with its own labels, and where in it the run's examples are.

    Inputs are those of the data, even if the run learned from `--features` in their place, wherever
    the data has any.

    Returns:
        The data set, and [n] positions in its training part, in the order of the run's labels.

    Raises:
        InputError: the data is gone, has changed, or came from Python.
    """
    wanted = request(run, data=data)
    _must_be_there(run, wanted)
    plain = opening.without_labels(wanted)
    try:
        found = open_data(replace(plain, features=None))
    except InputError:
        if wanted.features is None:
            raise
        found = open_data(plain)  # a table of labels alone has no other inputs
    found = with_trusted(run, found)
    what = f"the data {wanted.data} of {run.path}"
    return found, rows(run, found, what, own_labels=wanted.labels is None)


def with_trusted(run: Run, found: Dataset) -> Dataset:
    """The data of a run with the trusted examples that it has learned from too.

    A share of the data is in it already; what came from a place of its own is opened anew.

    Args:
        run: finished.
        found: its data.

    Raises:
        InputError: the trusted examples are gone.
    """
    place = str(run.config.get("trusted"))
    if run.labels.trusted is None or _is_number(place):
        return found
    if not Path(place).exists():
        raise InputError(
            f"the trusted examples of {run.path} are not there any more: there is no {place}, seen "
            f"from {Path.cwd()}; put them back, or go where the run was trained"
        )
    came = Request() if run.config.get("data") == FROM_PYTHON else request(run)
    came = opening.for_other_table(came, place)
    trusted = open_data(replace(came, labels=None, features=None))
    return splits.with_trusted_learned(splits.with_trusted(found, trusted))


def rows(run: Run, found: Dataset, what: str, *, own_labels: bool = True) -> Ints:
    """[n] where in a data set's training part a run's examples are, in the order of its labels.

    Args:
        run: finished.
        found: its data.
        what: the data, for the error.
        own_labels: whether the run has its labels from this data.

    Raises:
        InputError: the data has changed.
    """
    there = places(run.labels.ids, found.train.ids, what)
    if own_labels:
        _must_be_unchanged(run, what, found, there)
    return there


def inputs(run: Run, *, data: str | None = None) -> Inputs:
    """The inputs of a run's training examples, row for row with `run.labels.ids`.

    Those that are kept in the run, else those of its data.

    Args:
        run: finished.
        data: where the data is now, if it has moved.

    Raises:
        InputError: the data is gone, has changed, or came from Python.
    """
    own = run.directory
    kept = None
    if data is None:
        files = own.checked(own.inputs_table), own.checked(own.inputs_arrays)
        kept = kept_inputs.read(*files, len(run.labels.ids))
    if kept is not None:
        if len(kept) != len(run.labels.ids):
            raise InputError(
                f"{run.path} keeps {len(kept)} inputs of {len(run.labels.ids)} examples: they are "
                "of another run"
            )
        return kept
    found, there = dataset(run, data=data)
    if np.array_equal(there, np.arange(len(found.train))):
        return found.train.inputs
    return found.train.inputs.take(there)


def places(ids: Sequence[str], there: Sequence[str], what: str) -> Ints:
    """[len(ids)] where each of the ids is among those that are there.

    Args:
        ids: of a run.
        there: of data.
        what: the data, for the error.
    """
    if tuple(ids) == tuple(there):
        return np.arange(len(ids))
    place = {name: i for i, name in enumerate(there)}
    rows = np.array([place.get(name, -1) for name in ids], dtype=np.int64)
    lost = np.flatnonzero(rows < 0)
    if len(lost):
        raise InputError(
            f"{what} has changed since training: {len(lost):,} of {len(ids):,} examples are gone, "
            f'the first is "{ids[int(lost[0])]}"; put them back'
        )
    return rows


def _must_be_there(run: Run, wanted: Request) -> None:
    """Refuse data that is gone; a named set must not be downloaded for having a look at it."""
    if wanted.data == "digits":
        return
    path = opening.root(wanted) if wanted.data in opening.DATASETS else Path(wanted.data)
    if not path.exists():
        raise InputError(
            f"the data of {run.path} is not there any more: there is no {path}, seen from "
            f"{Path.cwd()}; put it back, go where the run was trained, or say with --data where "
            "it is now"
        )


def _must_be_unchanged(run: Run, what: str, found: Dataset, rows: Ints) -> None:
    """Refuse data whose labels are others now: its rows need not be those of the run either."""
    expected, there = _labels_of_data(run.labels, found, rows, is_noisy="noise" in run.config)
    if expected is None:
        return
    names = np.array(found.names, dtype=object)[there]
    own = np.array(run.labels.names, dtype=object)[expected]
    other = np.flatnonzero(names != own)
    if len(other):
        row = int(other[0])
        raise InputError(
            f"{what} has changed since training: "
            f'"{run.labels.ids[row]}" was "{own[row]}" and is "{names[row]}" now'
            f"{f', and {len(other) - 1:,} more' if len(other) > 1 else ''}; put the old data back"
        )


def _labels_of_data(
    labels: Labels, found: Dataset, rows: Ints, *, is_noisy: bool
) -> tuple[Ints | None, Ints]:
    """[n] the labels that the run has had from its data, and those of the data now.

    Noise starts from the true labels, and trusted examples have them, if the data knows them.
    """
    given = found.train.labels[rows]
    clean = given if found.clean is None else found.clean[rows]
    if is_noisy:
        return labels.clean, clean
    return labels.given, given if labels.trusted is None else np.where(labels.trusted, clean, given)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
