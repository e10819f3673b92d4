"""The neighbours of a run's training examples: found at its end, or later from its data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from proselflc.auditing import witness
from proselflc.auditing.mapping import layout, points
from proselflc.auditing.neighbours import (
    Examination,
    Neighbours,
    features_of_both,
    find_neighbours,
    obstacle,
)
from proselflc.auditing.plain_features import PlainFeatures
from proselflc.auditing.verdict import Compared
from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Inputs, Ints
from proselflc.data.memory_budget import require
from proselflc.data.preprocessing import Preprocessing
from proselflc.errors import InputError
from proselflc.run import original
from proselflc.run.reader import Run
from proselflc.training.run_directory import RunDirectory


def write(
    directory: RunDirectory,
    inputs: Inputs,
    test: Inputs | None,
    preprocessing: Preprocessing | None,
    report: Callable[[str], None],
    *,
    features: PlainFeatures | None = None,
) -> Neighbours | None:
    """Write `neighbours.npz` and `map.npz` of an unfinished run, or report why there are none.

    Args:
        directory: of the run.
        inputs: of the n training examples.
        test: inputs of the test part, if there is one.
        preprocessing: of the run, as for `plain_features`.
        report: is given a sentence if there are no neighbours.
        features: of the training inputs followed by the test inputs, if they were computed before.
    """
    for path in (directory.neighbours, directory.map):
        path.unlink(missing_ok=True)  # of a run that was stopped while it finished
    try:
        found, features = _find(inputs, test, preprocessing, features)
    except InputError as error:
        report(f"duplicates and outliers were not looked for: {error}")
        return None
    _save(directory, found, features)
    return found


def compare(
    directory: RunDirectory,
    inputs: Inputs,
    test: Inputs | None,
    given: Ints,
    num_classes: int,
    preprocessing: Preprocessing | None,
    report: Callable[[str], None],
) -> Compared:
    """Return what the inputs of an unfinished run say about its labels, and write its neighbours.

    The features are computed once, for the neighbours and for the second opinion. The arguments
    are those of `write` and `witness.of_inputs`.
    """
    features = None
    with suppress(InputError):  # `write` says why
        features = features_of_both(inputs, test, preprocessing)
    found = write(directory, inputs, test, preprocessing, report, features=features)
    examination = None if found is None else Examination.of(found, given)
    if features is None:
        return Compared(None, examination)
    own = replace(features, values=features.values[: len(given)])
    trees = witness.by_forest(inputs, given, num_classes, preprocessing)
    second = witness.of_features(own, given, num_classes, trees)
    return Compared(second, examination, trees)


def compare_parts(
    directory: RunDirectory,
    dataset: Dataset,
    given: Ints,
    preprocessing: Preprocessing | None,
    report: Callable[[str], None],
) -> Compared:
    """Do the same for the training part of a data set, and its test part if it has one."""
    test = None if dataset.test is None else dataset.test.inputs
    inputs, C = dataset.train.inputs, dataset.num_classes
    return compare(directory, inputs, test, given, C, preprocessing, report)


def of_run(run: Run, *, data: str | None = None) -> Neighbours:
    """Return the neighbours of a finished run's examples.

    If the run has none, or its file is damaged, they are found from its data and kept in the run,
    together with the map of its examples.

    Args:
        run: a finished run.
        data: current location of its data, if it has moved.

    Raises:
        InputError: there are none, and the data is missing or cannot be compared.
    """
    try:
        if run.neighbours is not None:
            return run.neighbours
    except InputError:
        pass
    directory = run.directory
    test = None
    if data is None and (directory.inputs_table.exists() or directory.inputs_arrays.exists()):
        inputs = original.inputs(run)
    else:
        dataset, rows = original.dataset(run, data=data)
        inputs = original.taken(dataset, rows)
        test = None if dataset.test is None else dataset.test.inputs
    preprocessing = run.preprocessing if directory.model.exists() else None
    found, features = _find(inputs, test, preprocessing)
    with directory.locked(), directory.replacing(directory.neighbours, directory.map):
        _save(directory, found, features)
    for name in ("neighbours", "map"):
        vars(run).pop(name, None)  # cached before
    return found


def examination(run: Run) -> Examination | None:
    """Return what the neighbours of a run tell, or None for a run that has none."""
    found = run.neighbours
    return None if found is None else Examination.of(found, run.labels.given)


def _save(directory: RunDirectory, found: Neighbours, features: PlainFeatures) -> None:
    """Write the neighbours, and the map of the same features."""
    found.save(directory.neighbours)
    points.save(directory.map, layout.arranged(features.values[: len(found)], found))


def _find(
    inputs: Inputs,
    test: Inputs | None,
    preprocessing: Preprocessing | None,
    features: PlainFeatures | None = None,
) -> tuple[Neighbours, PlainFeatures]:
    """Return the neighbours and the features, or raise an InputError: why there are none."""
    why_not = obstacle(inputs, test)
    if why_not is not None:
        raise InputError(why_not)
    if test is not None and inputs.numbers is not None and test.numbers is not None:
        require(
            inputs.numbers.nbytes + test.numbers.nbytes,
            "the training and test inputs side by side",
            "use a machine with more memory",
        )
    features = features or features_of_both(inputs, test, preprocessing)
    found = find_neighbours(inputs, test=test, features=features)
    assert found is not None
    assert features is not None
    return found, features
