"""Splits by their counts, made here from the labels alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features, Images, Ints, Texts
from proselflc.data.noise import stream
from proselflc.data.splits import (
    Split,
    folds,
    trusted_split,
    with_split,
    with_trusted,
)
from proselflc.errors import InputError

seeds = st.integers(0, 2**32)
labels_of = st.lists(st.integers(0, 5), min_size=2, max_size=80).map(
    lambda y: np.array(y, dtype=np.int64)
)


def dataset_of(
    labels: Ints, *, names: tuple[str, ...] = ("a", "b", "c"), width: int = 2
) -> Dataset:
    n = len(labels)
    values = np.arange(n * width, dtype=np.float32).reshape(n, width)
    part = Part(Features(values), labels, tuple(f"id{i}" for i in range(n)))
    return Dataset("mine", part, names)


def covers(split: Split, n: int) -> bool:
    return sorted([*split.train, *split.validation]) == list(range(n))


@settings(max_examples=300, deadline=None)
@given(labels_of, st.integers(1, 99), seeds)
def test_trusted_split_takes_its_share_of_every_class(y: Ints, percent: int, seed: int) -> None:
    f = Fraction(percent, 100)
    sizes = Counter(y.tolist())
    try:
        split = trusted_split(y, None, fraction=f"0.{percent:02d}", generator=stream(seed))
    except InputError:
        # Nothing to take: no class has one to spare, or the whole share is below one.
        assert int(f * len(y)) == 0 or all(
            int(f * size) == 0 and size < 2 for size in sizes.values()
        )
        return
    assert covers(split, len(y))
    assert (np.diff(split.train) > 0).all()
    assert (np.diff(split.validation) > 0).all()
    taken = Counter(y[split.validation].tolist())
    for c, size in sizes.items():
        assert int(f * size) <= taken[c] <= int(f * size) + 1
        assert taken[c] < size  # never the last of its class
    assert len(split.validation) <= int(f * len(y))
    if min(sizes.values()) > 1 and len(split.validation) < int(f * len(y)):
        # Short of the whole share only where every class gave all it may.
        assert all(taken[c] in (int(f * size) + 1, size - 1) for c, size in sizes.items())
    again = trusted_split(y, None, fraction=f"0.{percent:02d}", generator=stream(seed))
    np.testing.assert_array_equal(again.validation, split.validation)


def test_the_papers_fifth_of_cifar100_is_exact_by_true_class() -> None:
    clean = np.random.default_rng(0).permutation(np.arange(50000) % 100)
    given = np.random.default_rng(1).permutation(clean)
    split = trusted_split(given, clean, fraction=0.2, generator=stream(0))
    assert len(split.validation) == 10000
    assert set(Counter(clean[split.validation].tolist()).values()) == {100}
    other = trusted_split(given, clean, fraction=0.2, generator=stream(1))
    assert not np.array_equal(other.validation, split.validation)


def test_remainders_go_to_the_largest() -> None:
    y = np.repeat([0, 1, 2], [9, 6, 5])  # shares of 0.5: 4½, 3, 2½ of 10
    split = trusted_split(y, None, fraction="0.5", generator=stream(0))
    taken = Counter(y[split.validation].tolist())
    assert len(split.validation) == 10
    assert taken[1] == 3
    assert sorted([taken[0], taken[2]]) in ([2, 5], [3, 4])
    by_seed = {
        tuple(
            np.bincount(y[trusted_split(y, None, fraction="0.5", generator=stream(s)).validation])
        )
        for s in range(20)
    }
    assert by_seed == {(5, 3, 2), (4, 3, 3)}  # the tie is drawn


def test_the_single_example_of_a_class_stays_in_training() -> None:
    y = np.array([0] * 10 + [1] * 10 + [2])
    for seed in range(10):
        split = trusted_split(y, None, fraction="0.9", generator=stream(seed))
        assert 20 in split.train
        assert len(split.validation) == 18


@pytest.mark.parametrize("fraction", ["0", "1", "1.2", "-0.1", "nan", "x", 0.0, 1.0])
def test_wrong_fractions_are_refused(fraction: str | float) -> None:
    with pytest.raises(InputError, match="trusted fraction"):
        trusted_split(np.arange(10) % 2, None, fraction=fraction, generator=stream(0))


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="there are 3 clean labels for 4 examples"):
        trusted_split(np.arange(4), np.arange(3), fraction=0.5, generator=stream(0))


def test_the_split_data_set_has_true_labels_back_for_validation_only() -> None:
    clean = np.arange(30) % 3
    given = (clean + (np.arange(30) % 4 == 0)) % 3
    dataset = dataset_of(clean).with_labels(given, clean)
    split = trusted_split(given, clean, fraction="0.2", generator=stream(0))
    result = with_split(dataset, split)
    assert result.validation is not None
    assert result.clean is not None
    np.testing.assert_array_equal(result.validation.labels, clean[split.validation])
    np.testing.assert_array_equal(result.train.labels, given[split.train])
    np.testing.assert_array_equal(result.clean, clean[split.train])
    assert result.validation.ids == tuple(f"id{i}" for i in split.validation)
    assert isinstance(result.train.inputs, Features)
    assert isinstance(result.validation.inputs, Features)
    np.testing.assert_array_equal(result.train.inputs.values[:, 0], 2 * split.train)
    np.testing.assert_array_equal(result.validation.inputs.values[:, 0], 2 * split.validation)


def test_without_true_labels_the_given_ones_are_trusted() -> None:
    given = np.arange(30) % 3
    split = trusted_split(given, None, fraction="0.2", generator=stream(0))
    result = with_split(dataset_of(given), split)
    assert result.clean is None
    assert result.validation is not None
    assert Counter(result.validation.labels.tolist()) == {0: 2, 1: 2, 2: 2}


@settings(max_examples=200, deadline=None)
@given(labels_of, st.integers(2, 10), seeds)
def test_folds_are_disjoint_cover_all_and_differ_by_one_at_most(y: Ints, k: int, seed: int) -> None:
    if k > len(y):
        with pytest.raises(InputError, match=f"cannot make {k} folds of {len(y)} examples"):
            folds(y, k, generator=stream(seed))
        return
    splits = folds(y, k, generator=stream(seed))
    assert len(splits) == k
    assert all(covers(split, len(y)) for split in splits)
    assert sorted(i for split in splits for i in split.validation) == list(range(len(y)))
    sizes = [len(split.validation) for split in splits]
    assert max(sizes) - min(sizes) <= 1
    for c in set(y.tolist()):
        of_class = [int((y[split.validation] == c).sum()) for split in splits]
        assert max(of_class) - min(of_class) <= 1
    again = folds(y, k, generator=stream(seed))
    for a, b in zip(splits, again, strict=True):
        np.testing.assert_array_equal(a.validation, b.validation)


def test_folds_differ_by_seed_and_refuse_one() -> None:
    y = np.arange(60) % 3
    a, b = (folds(y, 5, generator=stream(seed))[0].validation for seed in (0, 1))
    assert not np.array_equal(a, b)
    with pytest.raises(InputError, match="cannot make 1 folds"):
        folds(y, 1, generator=stream(0))


def test_trusted_data_of_ones_own_is_matched_by_class_name() -> None:
    dataset = dataset_of(np.arange(9) % 3, names=("ant", "bee", "cow"))
    trusted = dataset_of(np.array([0, 1, 1]), names=("cow", "ant"))
    result = with_trusted(dataset, trusted)
    assert result.validation is not None
    assert result.validation.labels.tolist() == [2, 0, 0]
    assert result.validation.inputs is trusted.train.inputs
    assert result.train is dataset.train
    relabelled = with_trusted(
        dataset, trusted.with_labels(np.array([0, 1, 0]), np.array([0, 1, 1]))
    )
    assert relabelled.validation is not None
    assert relabelled.validation.labels.tolist() == [2, 0, 0]


def test_trusted_data_of_another_form_is_refused() -> None:
    dataset = dataset_of(np.arange(9) % 3, names=("ant", "bee", "cow"))
    with pytest.raises(InputError, match='unknown class "cwo"; did you mean "cow"\\?'):
        with_trusted(dataset, dataset_of(np.arange(4) % 2, names=("ant", "cwo")))
    with pytest.raises(InputError, match="has 3 features, but mine has 2 features"):
        with_trusted(dataset, dataset_of(np.arange(4) % 2, names=("ant", "cow"), width=3))
    texts = Part(Texts(("x", "y")), np.array([0, 1]), ("0", "1"))
    with pytest.raises(InputError, match="words has texts, but mine has 2 features"):
        with_trusted(dataset, Dataset("words", texts, ("ant", "bee")))
    pixels = Part(Images(np.zeros((2, 4, 5, 3), np.uint8)), np.array([0, 1]), ("0", "1"))
    with pytest.raises(InputError, match="has images of 4×5 with 3 channels, but"):
        with_trusted(dataset, Dataset("photos", pixels, ("ant", "bee")))


def test_weights_stay_with_their_examples() -> None:
    y = np.array([0, 1, 2, 0, 1, 2])
    weighted = replace(dataset_of(y), sample_weight=np.arange(6, dtype=np.float32))
    result = with_split(weighted, Split(np.array([0, 1, 4, 5]), np.array([2, 3])))
    assert result.sample_weight is not None
    assert result.sample_weight.tolist() == [0, 1, 4, 5]
