"""Examples to judge: which split is meant, how splits are joined, how class names are matched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proselflc.data.dataset import (
    Contents,
    Dataset,
    Part,
    Skipped,
    SplitChoice,
    choose_splits,
    class_ids,
    contents_of,
    renumbered,
)
from proselflc.data.inputs import Features, ImageFiles, Images, Inputs, Ints, Texts
from proselflc.errors import InputError


@pytest.mark.parametrize(
    ("available", "wanted", "splits"),
    [
        ({"train"}, None, ("train",)),
        ({"train", "test"}, None, ("test",)),
        ({"test", "validation", "train"}, None, ("test",)),
        ({"validation", "train"}, None, ("train", "validation")),
        ({"train", "test"}, "train", ("train",)),
        ({"test"}, "test", ("test",)),
        ({"validation", "test", "train"}, "all", ("train", "test", "validation")),
    ],
)
def test_which_split_is_meant(
    available: set[str], wanted: SplitChoice, splits: tuple[str, ...]
) -> None:
    assert choose_splits(available, wanted, "x") == splits
    assert choose_splits(splits, wanted, "x") == splits  # choosing twice is choosing once


def test_a_split_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="pets has no test part, only train and validation: choo"):
        choose_splits(("train", "validation"), "test", "pets")


def joined(*parts: Part[Ints | None]) -> Part[Ints | None]:
    return Contents("t", dict(zip(("train", "test"), parts, strict=False))).joined()


def test_splits_are_joined_in_order() -> None:
    first = Part(Texts(("a", "b")), np.array([0, 1]), ("1", "2"))
    second = Part(Texts(("c",)), np.array([1]), ("3",))
    whole = joined(first, second)
    assert whole.inputs == Texts(("a", "b", "c"))
    assert whole.ids == ("1", "2", "3")
    assert whole.labels is not None
    assert whole.labels.tolist() == [0, 1, 1]
    assert len(whole) == 3


def test_of_splits_with_and_without_labels_none_has_labels() -> None:
    first = Part(Texts(("a",)), np.array([0]), ("1",))
    second = Part(Texts(("b",)), None, ("2",))
    assert joined(first).labels is not None
    assert joined(first, second).labels is None


PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Images(PIXELS), Images(PIXELS[:1])),
        (ImageFiles((Path("a"), Path("b"))), ImageFiles((Path("c"),))),
        (
            Features(np.eye(2, dtype=np.float32), ("h", "w")),
            Features(np.ones((1, 2), np.float32), ("h", "w")),
        ),
    ],
)
def test_every_kind_of_input_can_be_joined(one: Inputs, other: Inputs) -> None:
    whole = joined(Part(one, None, ("1", "2")), Part(other, None, ("3",)))
    assert type(whole.inputs) is type(one)
    for index, expected in ((np.array([0, 1]), one), (np.array([2]), other)):
        assert repr(whole.inputs.take(index)) == repr(expected)


@pytest.mark.parametrize(
    "other",
    [Images(np.zeros((1, 3, 3, 3), np.uint8)), Features(np.zeros((1, 2), np.float32))],
)
def test_splits_that_differ_in_shape_are_not_joined(other: Inputs) -> None:
    parts = Part(Images(PIXELS), None, ("1", "2")), Part(other, None, ("3",))
    with pytest.raises(InputError, match=r"the splits hold images of 2×2 .* cannot be joined"):
        joined(*parts)


def test_joined_examples_are_checked() -> None:
    part = Part(Texts(("a",)), None, ("1",))
    with pytest.raises(InputError, match='t has the id "1" more than once'):
        joined(part, part)
    with pytest.raises(InputError, match="t holds no examples"):
        joined(Part(Texts(()), None, ()))
    endless = Features(np.array([[1.0], [np.inf]], np.float32))
    with pytest.raises(InputError, match=r'NaN or infinite features in 1 rows.*id "b"'):
        joined(Part(endless, None, ("a", "b")))


@given(st.permutations(["cat", "dog", "cow", "hen"]), st.lists(st.integers(0, 3), max_size=9))
def test_classes_keep_their_names_under_other_numbers(names: list[str], labels: list[int]) -> None:
    own = ["cow", "hen", "dog", "cat"]
    new = renumbered(np.array(labels, np.int64), own, names, "t.csv")
    assert [names[c] for c in new] == [own[c] for c in labels]


def test_a_class_without_examples_need_not_be_known() -> None:
    new = renumbered(np.array([1, 1]), ["zebra", "dog"], ["cat", "dog"], "t")
    assert new.tolist() == [1, 1]
    with pytest.raises(InputError, match='t: unknown class "zebra"; known: cat, dog'):
        renumbered(np.array([1, 0]), ["zebra", "dog"], ["cat", "dog"], "t")


def test_numbers_are_class_ids_only_where_they_are_no_names_and_may_be() -> None:
    words, digits = ["cat", "dog", "cow"], ["0", "2", "5"]
    assert class_ids(["2", "0"], words, "t", or_numbers=True).tolist() == [2, 0]
    assert class_ids(["2", "0"], digits, "t", or_numbers=True).tolist() == [1, 0]
    with pytest.raises(InputError, match='unknown class "2"'):
        class_ids(["2", "0"], words, "t")
    with pytest.raises(InputError, match='unknown class "3"'):
        class_ids(["3", "0"], words, "t", or_numbers=True)


def test_a_data_set_is_read_by_a_model_with_its_own_classes() -> None:
    def part(prefix: str, labels: list[int]) -> Part:
        ids = tuple(f"{prefix}{i}" for i in range(len(labels)))
        return Part(Texts(ids), np.array(labels), ids)

    skip = Skipped("z", "broken")
    dataset = Dataset(
        "pets", part("a", [0, 1]), ("dog", "cat"), test=part("b", [1]), skipped=(skip,)
    )
    contents = contents_of(dataset, ("cat", "cow", "dog"))
    parts = contents.parts
    assert list(parts) == ["train", "test"]
    assert parts["train"].labels is not None
    assert parts["train"].labels.tolist() == [2, 0]
    assert parts["test"].labels is not None
    assert parts["test"].labels.tolist() == [0]
    assert parts["test"].ids == ("b0",)
    assert contents.skipped == (skip,)
    with pytest.raises(InputError, match='pets: unknown class "dog"'):
        contents_of(dataset, ("cat", "cow"))
