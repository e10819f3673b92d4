"""The neighbours of every example, and what they tell: duplicates, leakage and outliers.

The features are those of `plain_features`, which never saw the labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from proselflc.auditing.nearest import Places, nearest_of_others, nearest_rows
from proselflc.auditing.nearest import obstacle as too_many
from proselflc.auditing.plain_features import PlainFeatures, plain_features
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.inputs import Bools, Features, Floats, ImageFiles, Images, Inputs, Ints, Texts
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.sources import npz
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.files.regular import whole_file

NEAREST = 10  # neighbours of an example
NEAR = 0.13  # of the usual distance to the nearest neighbour: two examples with the same content
BY_CHANCE = 0.05  # examples of a data set that may be so near without having the same content
FAR = 3.0  # interquartile ranges above the upper quartile: an outlier

_TYPES = {
    "index": np.int32,
    "distance": np.float32,
    "first_copy": np.int32,
    "test_index": np.int32,
    "test_distance": np.float32,
    "kind": np.uint8,
}
_LONGEST_KIND = 80  # letters


@dataclass(frozen=True)
class Neighbours:
    """The k nearest examples of other content for each of n examples, nearest first.

    Examples with equal features are exact copies. They have the same neighbours, and only the first
    copy is a neighbour of others.

    Attributes:
        index: [n, k] positions of the neighbours.
        distance: [n, k] Euclidean distances.
        first_copy: [n] position of the first example with the same features, often its own.
        test_index: [n] position of the nearest test example; −1 if there is no test part.
        test_distance: [n] the distance to it; 0 if there is no test part.
        kind: what is compared, as `PlainFeatures.kind`.
    """

    index: Places
    distance: Floats
    first_copy: Places
    test_index: Places
    test_distance: Floats
    kind: str

    def __len__(self) -> int:
        return len(self.index)

    @property
    def is_first(self) -> Bools:
        """Return [n] whether an example is the first of its exact copies."""
        first: Bools = self.first_copy == np.arange(len(self))
        return first

    @property
    def duplicate_distance(self) -> float:
        """Return the distance below which two examples have the same content.

        It is `NEAR` times r, the median distance to the nearest neighbour, or less: among n
        examples in d dimensions about n x^d ln 2 are nearer than x r by chance, and these may be
        `BY_CHANCE` at most. In d dimensions the median of ln(r₂ / r₁), of the distances to the two
        nearest neighbours, is (ln 2) / d.
        """
        nearest = self.distance[self.is_first]
        if not nearest.size:
            return 0.0
        near, usual = NEAR, float(np.median(nearest[:, 0]))
        if nearest.shape[1] > 1 and usual > 0:
            growth = float(np.median(np.log(nearest[:, 1] / np.maximum(nearest[:, 0], 1e-30))))
            chance = BY_CHANCE / (len(nearest) * math.log(2))
            near = min(near, min(1.0, chance) ** (growth / math.log(2)))
        return near * usual

    def save(self, path: Path) -> None:
        """Write `neighbours.npz`, whole or not at all."""
        with whole_file(path) as file:
            np.savez_compressed(
                file,
                allow_pickle=False,
                index=self.index,
                distance=self.distance,
                first_copy=self.first_copy,
                test_index=self.test_index,
                test_distance=self.test_distance,
                kind=np.frombuffer(self.kind.encode(), np.uint8),
            )

    @classmethod
    def load(cls, path: Path, num_examples: int) -> Neighbours:
        """Read what `save` wrote for n examples.

        Raises:
            InputError: there is no such file, it is damaged, or it is of other examples.
        """
        fix = "remove the file, so that the neighbours are found again"
        try:
            found = npz.arrays(path, tuple(_TYPES))
        except InputError as error:
            raise InputError(f"{path} is damaged: {error.reason}", fix=fix) from None
        fault = _fault(found, num_examples)
        if fault is not None:
            raise InputError(f"{path} is damaged: {fault}", fix=fix)
        return cls(**{**found, "kind": found["kind"].tobytes().decode()})  # type: ignore[arg-type]


def _fault(found: dict[str, npz.Array], n: int) -> str | None:
    """Return what is wrong with the arrays of a file of n examples, or None."""
    for name, dtype in _TYPES.items():
        if name not in found:
            return f"it has no array {name}"
        if found[name].dtype != dtype:
            return f"{name} should be {np.dtype(dtype)}, got {found[name].dtype}"
    index, distance, first = found["index"], found["distance"], found["first_copy"]
    per_example = first, found["test_index"], found["test_distance"]
    if index.ndim != 2 or index.shape != distance.shape or found["kind"].ndim != 1:
        return f"index has the shape {list(index.shape)} and distance {list(distance.shape)}"
    if len(index) != n or any(array.shape != (n,) for array in per_example):
        return f"it is of {len(index):,} examples, and there are {n:,}"
    own = np.arange(n)
    if ((index < 0) | (index >= n) | (index == own[:, None])).any():
        return "an example has a neighbour that is not another example"
    if ((first < 0) | (first > own)).any() or (first[first] != first).any():
        return "an example is the copy of one that is not before it"
    if (found["test_index"] < -1).any():
        return "an example has a neighbour that is not a test example"
    for array in (distance, found["test_distance"]):
        if not (np.isfinite(array).all() and (array >= 0).all()):
            return "a distance is negative or not finite"
    if (np.diff(distance, axis=1) < 0).any():
        return "distances are not in order"
    try:
        text = found["kind"].tobytes().decode()
    except UnicodeDecodeError:
        return "the kind of features is not UTF-8"
    if len(text) > _LONGEST_KIND or not text.isprintable():
        return "the kind of features is not a short text"
    return None


@dataclass(frozen=True)
class Examination:
    """What the neighbours of n examples tell about each.

    Attributes:
        duplicate_group: [n] number of a group of examples with the same content; −1 is none.
        conflicting: [n] whether the group has different labels.
        outlier: [n] mean distance to the neighbours over its median; high is unusual.
        is_outlier: [n] whether that is far above the others'.
        in_test: [n] whether a test example has the same content; all False without a test part.
        neighbours: where it comes from.
    """

    duplicate_group: Places
    conflicting: Bools
    outlier: Floats
    is_outlier: Bools
    in_test: Bools
    neighbours: Neighbours

    @classmethod
    def of(cls, neighbours: Neighbours, given: Ints) -> Examination:
        """Return what neighbours tell about n examples with these labels; −1 is a missing label."""
        groups = duplicate_groups(neighbours)
        score = outlier_score(neighbours)
        return cls(
            groups,
            conflicting(groups, given),
            score,
            far_out(score, neighbours.is_first),
            in_test(neighbours),
            neighbours,
        )


def obstacle(inputs: Inputs, test: Inputs | None = None) -> str | None:
    """Return a sentence about why inputs cannot be compared with each other, or None."""
    if not isinstance(inputs, (Features, MixedColumns, Images, ImageFiles, Texts, Encoded)):
        return f"{inputs.kind} have no features that can be compared"
    return too_many(max(len(inputs), 0 if test is None else len(test)))


def examine(
    inputs: Inputs,
    given: Ints,
    *,
    test: Inputs | None = None,
    preprocessing: Preprocessing | None = None,
    features: PlainFeatures | None = None,
) -> Examination | None:
    """Return what the neighbours of n inputs tell, or None where `obstacle` says why not.

    Args:
        inputs: of the n training examples.
        given: [n] labels; −1 is a missing one.
        test: inputs of the test part, of the same kind.
        preprocessing: of the run, as for `plain_features`.
        features: of the training inputs followed by the test inputs, if they were computed before.
    """
    neighbours = find_neighbours(inputs, test=test, preprocessing=preprocessing, features=features)
    return None if neighbours is None else Examination.of(neighbours, given)


def find_neighbours(
    inputs: Inputs,
    *,
    test: Inputs | None = None,
    preprocessing: Preprocessing | None = None,
    features: PlainFeatures | None = None,
) -> Neighbours | None:
    """Return the neighbours of n inputs, or None where `obstacle` says why not: see `examine`."""
    features = features or features_of_both(inputs, test, preprocessing)
    if features is None:
        return None
    count = len(inputs) + (0 if test is None else len(test))
    if len(features.values) != count:
        raise InputError(
            f"there are features of {len(features.values):,} examples, and {count:,} inputs",
            fix="compute them of the training inputs followed by the test inputs",
        )
    return neighbours_of(features, len(inputs))


def features_of_both(
    inputs: Inputs, test: Inputs | None = None, preprocessing: Preprocessing | None = None
) -> PlainFeatures | None:
    """Return features of the training inputs followed by the test inputs, or None as above."""
    if obstacle(inputs, test) is not None:
        return None
    every = inputs if test is None or not len(test) else inputs.concat([test])
    return plain_features(every, preprocessing)


def neighbours_of(features: PlainFeatures, num_examples: int, k: int = NEAREST) -> Neighbours:
    """Return the k nearest neighbours of the first n rows; any others are test examples."""
    values, test = features.values[:num_examples], features.values[num_examples:]
    first = _first_copies(values)
    rows, number = np.unique(first, return_inverse=True)  # the distinct contents
    index, distance = nearest_rows(values[rows], k)
    test_index = np.full(len(values), -1, np.int32)
    test_distance = np.zeros(len(values), np.float32)
    if len(test):
        in_test, between = nearest_of_others(values[rows], test, 1)
        test_index, test_distance = in_test[number, 0], between[number, 0]
    index = rows.astype(np.int32)[index[number]]
    return Neighbours(index, distance[number], first, test_index, test_distance, features.kind)


def _first_copies(values: Floats) -> Places:
    """Return [n] the first row with the same numbers, which may be the row itself."""
    seen: dict[bytes, int] = {}
    digests = (blake2b(row + np.float32(0), digest_size=16).digest() for row in values)  # −0 is 0
    return np.array([seen.setdefault(digest, i) for i, digest in enumerate(digests)], np.int32)


def duplicate_groups(neighbours: Neighbours) -> Places:
    """Return [n] the group of examples with the same content, numbered from 0; −1 is none.

    Two examples are in the same group if they are exact copies or nearer than
    `Neighbours.duplicate_distance`, or if both are in one with a third.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(neighbours)
    row, column = np.nonzero(neighbours.distance < neighbours.duplicate_distance)
    start = np.append(np.arange(n), row)
    end = np.append(neighbours.first_copy, neighbours.index[row, column])
    pairs = coo_array((np.ones(len(start), np.bool_), (start, end)), shape=(n, n))
    _, component = connected_components(pairs, directed=False)
    _, first, inverse, size = np.unique(
        component, return_index=True, return_inverse=True, return_counts=True
    )
    number = np.full(len(first), -1, np.int32)
    kept = np.flatnonzero(size > 1)
    number[kept[np.argsort(first[kept])]] = np.arange(len(kept))
    groups: Places = number[inverse]
    return groups


def conflicting(groups: Places, given: Ints) -> Bools:
    """Return [n] whether an example is in a group of duplicates with different labels.

    Args:
        groups: as `duplicate_groups` returns them.
        given: [n] labels; those below 0 are missing and conflict with none.
    """
    labelled = (groups >= 0) & (given >= 0)
    count = int(groups.max(initial=-1)) + 1
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(least, groups[labelled], given[labelled])
    np.maximum.at(most, groups[labelled], given[labelled])
    differs = np.append(least < most, False)  # the last is that of group −1
    result: Bools = differs[groups] & labelled
    return result


def outlier_score(neighbours: Neighbours) -> Floats:
    """Return [n] the mean distance to the neighbours over its median; high is unusual.

    It is 0 for all examples if none has a neighbour.
    """
    if neighbours.distance.size == 0:
        return np.zeros(len(neighbours), np.float32)
    mean = neighbours.distance.mean(axis=1, dtype=np.float64)
    usual = float(np.median(mean[neighbours.is_first]))
    score: Floats = (mean / usual if usual > 0 else mean).astype(np.float32)
    return score


def far_out(score: Floats, is_first: Bools) -> Bools:
    """Return [n] whether a score is `FAR` interquartile ranges above the upper quartile."""
    lower, upper = np.quantile(score[is_first], (0.25, 0.75))
    result: Bools = score > upper + FAR * (upper - lower)
    return result


def in_test(neighbours: Neighbours) -> Bools:
    """Return [n] whether an example has a duplicate in the test part."""
    nearest = neighbours.test_distance
    near = (nearest == 0) | (nearest < neighbours.duplicate_distance)
    result: Bools = (neighbours.test_index >= 0) & near
    return result
