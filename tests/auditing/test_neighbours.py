"""What neighbours tell: copies, conflicts, leakage and outliers, on data where they are known."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from proselflc.auditing import nearest
from proselflc.auditing.neighbours import (
    BY_CHANCE,
    NEAR,
    Examination,
    Neighbours,
    conflicting,
    duplicate_groups,
    examine,
    find_neighbours,
    neighbours_of,
    obstacle,
)
from proselflc.auditing.plain_features import PlainFeatures, plain_features
from proselflc.data.inputs import Features, Floats, Images, Inputs, Ints, Preview, Texts
from proselflc.data.sources.small_images import load_digits
from proselflc.errors import InputError

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Floats:
    return RNG.standard_normal(shape).astype(np.float32)


def found(values: Floats, test: Floats | None = None, k: int = 10) -> Neighbours:
    every = values if test is None else np.concatenate([values, test])
    return neighbours_of(PlainFeatures(every, "test columns"), len(values), k)


def examined(inputs: Inputs, given: Any, test: Inputs | None = None) -> Examination:
    result = examine(inputs, np.asarray(given, np.int64), test=test)
    assert result is not None
    n = len(inputs)
    assert result.duplicate_group.shape == result.conflicting.shape == (n,)
    assert result.outlier.shape == result.is_outlier.shape == result.in_test.shape == (n,)
    assert result.duplicate_group.dtype == np.int32
    assert result.outlier.dtype == np.float32
    return result


def test_neighbours_are_the_nearest_of_other_content() -> None:
    x = normal(50, 3)
    x[[20, 30]] = x[7]
    neighbours = found(x, k=4)
    distinct = np.delete(np.arange(50), [20, 30])
    every = cdist(x, x[distinct])
    every[every < 1e-6] = np.inf
    np.testing.assert_array_equal(neighbours.index, distinct[np.argsort(every, axis=1)[:, :4]])
    np.testing.assert_array_equal(np.flatnonzero(~neighbours.is_first), [20, 30])
    np.testing.assert_array_equal(neighbours.first_copy[[7, 20, 30]], 7)
    first, second = np.sort(every, axis=1)[distinct, :2].T
    dimensions = np.log(2) / np.median(np.log(second / first))
    near = (BY_CHANCE / (48 * np.log(2))) ** (1 / dimensions)
    assert near < NEAR
    assert neighbours.duplicate_distance == pytest.approx(near * np.median(first), rel=1e-4)


@pytest.mark.parametrize("columns", [1, 2, 4, 40])
def test_different_rows_of_a_narrow_table_are_no_duplicates(columns: int) -> None:
    """With few columns some rows are near each other by chance; with many none are."""
    generator = np.random.default_rng(3)
    counted = 0
    for _ in range(40):
        x = generator.normal(size=(300, columns)).astype(np.float32)
        neighbours = found(x)
        counted += int((neighbours.distance[:, 0] < neighbours.duplicate_distance).sum())
        if columns == 40:
            usual = np.median(neighbours.distance[:, 0])
            assert neighbours.duplicate_distance == pytest.approx(NEAR * usual, rel=1e-5)
    assert counted <= 40 * 4 * BY_CHANCE  # two rows of a pair, and twice the expected number


def test_minus_zero_is_zero() -> None:
    neighbours = found(np.array([[0.0, 1], [-0.0, 1], [3, 1]], np.float32))
    np.testing.assert_array_equal(neighbours.first_copy, [0, 0, 2])


def test_exact_and_near_duplicates_and_conflicts() -> None:
    x = normal(200, 5)
    x[150] = x[3]
    x[151] = x[3]
    x[160] = x[8] + np.float32(1e-3)
    given = np.zeros(200, np.int64)
    given[151] = 1
    result = examined(Features(x), given)
    groups = {
        number: set(np.flatnonzero(result.duplicate_group == number))
        for number in range(result.duplicate_group.max() + 1)
    }
    assert groups == {0: {3, 150, 151}, 1: {8, 160}}
    np.testing.assert_array_equal(np.flatnonzero(result.conflicting), [3, 150, 151])
    assert not result.in_test.any()


def test_duplicates_are_in_one_group_through_a_third() -> None:
    """0, 1 and 2 lie in a row, where the ends are further apart than duplicates are."""
    x = np.array([[0], [0.1], [0.2], *([k] for k in range(10, 40))], np.float32)
    np.testing.assert_array_equal(duplicate_groups(found(x))[:4], [0, 0, 0, -1])


def test_a_missing_label_conflicts_with_none() -> None:
    groups = np.array([0, 0, 0, 1, 1, -1], np.int32)
    given = np.array([2, -1, 2, 0, 1, 3])
    np.testing.assert_array_equal(conflicting(groups, given), [0, 0, 0, 1, 1, 0])
    given[1] = 3
    np.testing.assert_array_equal(conflicting(groups, given), [1, 1, 1, 1, 1, 0])


def test_a_single_class_has_no_conflicts() -> None:
    x = np.repeat(normal(20, 2), 2, axis=0)
    result = examined(Features(x), np.zeros(40))
    assert (result.duplicate_group >= 0).all()
    assert not result.conflicting.any()


def test_all_rows_identical() -> None:
    result = examined(Features(np.ones((30, 4), np.float32)), [0, 1] * 15, Features(normal(3, 4)))
    assert (result.duplicate_group == 0).all()
    assert result.conflicting.all()
    assert not result.is_outlier.any()
    assert (result.outlier == 0).all()
    assert result.neighbours.index.shape == (30, 0)


def test_one_example() -> None:
    result = examined(Features(normal(1, 4)), [0])
    assert result.duplicate_group[0] == -1
    assert not result.conflicting[0]
    assert not result.is_outlier[0]


def test_more_neighbours_than_examples() -> None:
    assert found(normal(4, 2), k=10).index.shape == (4, 3)


def test_an_outlier_is_far_from_all() -> None:
    x = normal(300, 4)
    x[17] = 30
    neighbours = found(x)
    result = Examination.of(neighbours, np.zeros(300, np.int64))
    assert result.outlier.argmax() == 17
    assert result.is_outlier[17]
    assert result.is_outlier.mean() < 0.02
    mean = neighbours.distance.mean(axis=1)
    np.testing.assert_allclose(result.outlier, mean / np.median(mean), rtol=1e-5)


def test_leakage_of_exact_and_near_copies() -> None:
    x, test = normal(200, 5), normal(40, 5)
    test[3] = x[10]
    test[4] = x[20] + np.float32(1e-3)
    result = examined(Features(x), np.zeros(200), Features(test))
    np.testing.assert_array_equal(np.flatnonzero(result.in_test), [10, 20])
    np.testing.assert_array_equal(result.neighbours.test_index[[10, 20]], [3, 4])


def test_images_and_texts() -> None:
    pixels = load_digits().train.inputs
    assert isinstance(pixels, Images)
    images = pixels.take(np.append(np.arange(120), 5))
    given = np.append(np.zeros(120, np.int64), 1)
    result = examined(images, given)
    np.testing.assert_array_equal(np.flatnonzero(result.conflicting), [5, 120])
    words = ["the", "a", "quick", "lazy", "dog", "fox", "jumps", "over", "red", "blue", "sky"]
    texts = [" ".join(RNG.choice(words, 9)) for _ in range(60)]
    texts += [texts[4].upper()]
    result = examined(Texts(tuple(texts)), np.append(np.zeros(60), 1))
    assert set(np.flatnonzero(result.conflicting)) == {4, 60}


def test_features_that_were_computed_before() -> None:
    x, test = Features(normal(50, 3)), Features(normal(9, 3))
    features = plain_features(x.concat([test]))
    assert features is not None
    own, given = find_neighbours(x, test=test), find_neighbours(x, test=test, features=features)
    assert own is not None
    assert given is not None
    np.testing.assert_array_equal(own.index, given.index)
    np.testing.assert_array_equal(own.test_index, given.test_index)
    with pytest.raises(InputError, match="features of 59 examples, and 50 inputs"):
        find_neighbours(x, features=features)


def test_inputs_with_nan_are_refused() -> None:
    x = normal(20, 3)
    x[4, 1] = np.nan
    with pytest.raises(InputError, match="1 of 20 rows have NaN or infinity, the first is row 4"):
        examine(Features(x), np.zeros(20, np.int64))


@dataclass(frozen=True)
class Sounds(Inputs):
    """A kind of input that cannot be compared."""

    count: int
    kind = "sounds"
    medium = "table"

    def __len__(self) -> int:
        return self.count

    def take(self, index: Ints) -> Sounds:
        return Sounds(len(index))

    def concat(self, others: Sequence[Sounds]) -> Sounds:
        return Sounds(self.count + sum(other.count for other in others))

    def preview(self, row: int, side: int) -> Preview:
        return Preview()


def test_inputs_that_cannot_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert obstacle(Sounds(3)) == "sounds have no features that can be compared"
    assert examine(Sounds(3), np.zeros(3, np.int64)) is None
    many = Features(normal(30, 2))
    assert obstacle(many) is None
    monkeypatch.setattr(nearest, "LARGEST_EXACT", 20)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    assert "usearch, which is not installed" in str(obstacle(many))
    assert "usearch, which is not installed" in str(obstacle(Features(normal(3, 2)), many))
    assert examine(many, np.zeros(30, np.int64)) is None


def test_neighbours_are_kept(tmp_path: Path) -> None:
    neighbours = found(normal(60, 3), normal(5, 3))
    path = tmp_path / "neighbours.npz"
    neighbours.save(path)
    again = Neighbours.load(path, 60)
    assert again.kind == "test columns"
    for name in ("index", "distance", "first_copy", "test_index", "test_distance"):
        np.testing.assert_array_equal(getattr(again, name), getattr(neighbours, name))
        assert getattr(again, name).dtype == getattr(neighbours, name).dtype
    assert [one.name for one in tmp_path.iterdir()] == ["neighbours.npz"]
    with pytest.raises(InputError, match="it is of 60 examples, and there are 61"):
        Neighbours.load(path, 61)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda g: {"index": g.index.astype(np.int64)}, "index should be int32, got int64"),
        (lambda g: {"index": g.index[:, 0]}, r"index has the shape \[20\]"),
        (lambda g: {"index": g.index + 20}, "not another example"),
        (lambda g: {"index": g.index * 0}, "not another example"),
        (lambda g: {"distance": -g.distance}, "negative or not finite"),
        (lambda g: {"distance": g.distance * np.float32(np.nan)}, "negative or not finite"),
        (lambda g: {"distance": g.distance[:, ::-1]}, "not in order"),
        (lambda g: {"first_copy": g.first_copy + 1}, "not before it"),
        (lambda g: {"test_index": g.test_index - 9}, "not a test example"),
        (lambda g: {"test_distance": g.test_distance[:3]}, "it is of 20 examples"),
        (lambda g: {"kind": "x" * 81}, "not a short text"),
        (lambda g: {"kind": "a\nb"}, "not a short text"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any, what: str) -> None:
    neighbours = found(normal(20, 3))
    replace(neighbours, **damage(neighbours)).save(tmp_path / "neighbours.npz")
    with pytest.raises(InputError, match=f"neighbours.npz is damaged: .*{what}.*remove the file"):
        Neighbours.load(tmp_path / "neighbours.npz", 20)


def test_a_file_that_is_not_a_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "neighbours.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(InputError, match="is damaged"):
        Neighbours.load(path, 20)
    np.savez(path, index=np.zeros((20, 2), np.int32))
    with pytest.raises(InputError, match="it has no array distance"):
        Neighbours.load(path, 20)
