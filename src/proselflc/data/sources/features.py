"""Precomputed embeddings in place of a data set's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import SPLITS, Dataset, L_co, Part, checked
from proselflc.data.inputs import Features
from proselflc.data.sources import npz
from proselflc.errors import InputError

_KEYS = {"train": "x", "test": "x_test", "validation": "x_validation"}


def with_features(dataset: Dataset, path: Path) -> Dataset:
    """Return the data set with features [n, D] as its inputs; see `attach`."""
    return checked(dataset.with_parts(attach(dataset.parts, path, dataset.name)))


def attach(parts: Mapping[str, Part[L_co]], path: Path, name: str) -> dict[str, Part[L_co]]:
    """Return the parts with features [n, D] as their inputs, row for row.

    Args:
        parts: the examples by their split.
        path: an `.npz` with `x` for the training examples and, for each other split that there is,
            `x_test` and `x_validation`; or an `.npy` with the rows of train, test and validation
            one after the other.
        name: the data set, for errors.
    """
    values = _values(path, {split: len(parts[split]) for split in SPLITS if split in parts}, name)
    return {split: replace(part, inputs=Features(values[split])) for split, part in parts.items()}


def _values(
    path: Path, lengths: Mapping[str, int], name: str
) -> dict[str, npt.NDArray[np.float32]]:
    """Return the features of every split, of one width."""
    if path.suffix.lower() == ".npz":
        values = _by_split(path, lengths, name)
    else:
        values = _in_a_row(path, lengths, name)
    widths = {v.shape[1] for v in values.values()}
    if len(widths) > 1:
        raise InputError(
            f"{path} has splits of different widths, {sorted(widths)}: embed them alike"
        )
    return values


def _by_split(
    path: Path, lengths: Mapping[str, int], name: str
) -> dict[str, npt.NDArray[np.float32]]:
    found = npz.arrays(path, tuple(_KEYS.values()))
    values = {}
    for split, key in _KEYS.items():
        if (key in found) != (split in lengths):
            has, lacks = (path, name) if key in found else (name, path)
            raise InputError(
                f"{has} has a {split} split, but {lacks} has none: {path} must have the arrays "
                f"{', '.join(_KEYS[s] for s in lengths)}"
            )
        if split in lengths:
            values[split] = npz.features(found[key], f'"{key}" in {path}')
            _same_length(path, len(values[split]), lengths[split], f"{split} examples of {name}")
    return values


def _in_a_row(
    path: Path, lengths: Mapping[str, int], name: str
) -> dict[str, npt.NDArray[np.float32]]:
    rows: npt.NDArray[Any] = npz.features(npz.array(path), str(path))
    whole = " + ".join(f"{count} {split}" for split, count in lengths.items())
    _same_length(path, len(rows), sum(lengths.values()), f"examples ({whole}) of {name}")
    pieces = np.split(rows, np.cumsum(list(lengths.values()))[:-1])
    return dict(zip(lengths, pieces, strict=True))


def _same_length(path: Path, rows: int, examples: int, of_what: str) -> None:
    if rows != examples:
        raise InputError(
            f"{path} has {rows} rows of features for {examples} {of_what}: they must go row for row"
        )
