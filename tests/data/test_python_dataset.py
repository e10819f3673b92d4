"""Data set objects of PyTorch and Hugging Face, and what is wrong with some of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, Subset, TensorDataset

from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Features, Images, Texts
from proselflc.data.sources import python_dataset
from proselflc.errors import InputError

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)  # [n, H, W, C]
LABELS = [1, 0, 2, 1]


class Items(TorchDataset[Any]):
    """A data set of given items."""

    def __init__(self, items: Sequence[Any], classes: Sequence[str] | None = None) -> None:
        self.items = items
        if classes is not None:
            self.classes = list(classes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


def pairs(xs: Sequence[Any], ys: Sequence[Any] = LABELS) -> Items:
    return Items(list(zip(xs, ys, strict=True)))


def pixels(data: Dataset) -> Any:
    assert isinstance(data.train.inputs, Images)
    assert data.train.inputs.pixels.dtype == np.uint8
    return data.train.inputs.pixels


@pytest.mark.parametrize(
    "convert",
    [
        Image.fromarray,
        lambda a: a,
        lambda a: a.transpose(2, 0, 1),
        lambda a: a.astype(np.int64),
        lambda a: a / 255,
        lambda a: torch.from_numpy(a).permute(2, 0, 1),
        lambda a: torch.from_numpy(a).permute(2, 0, 1).float() / 255,
        lambda a: torch.from_numpy(a).permute(2, 0, 1).double().requires_grad_() / 255,
        lambda a: torch.from_numpy(a),
        lambda a: a.tolist(),
    ],
)
def test_images_of_any_form(convert: Any) -> None:
    data = python_dataset.load(pairs([convert(a) for a in PIXELS]))
    np.testing.assert_array_equal(pixels(data), PIXELS)
    assert data.train.labels.tolist() == LABELS
    assert data.names == ("0", "1", "2")
    assert data.train.ids == ("0", "1", "2", "3")
    assert data.name == "dataset"


@pytest.mark.parametrize(
    "convert",
    [
        Image.fromarray,
        lambda a: a,
        lambda a: a[:, :, None],
        lambda a: a[None],
        lambda a: torch.from_numpy(a),
        lambda a: torch.from_numpy(a)[None].float() / 255,
    ],
)
def test_grey_images_keep_one_channel(convert: Any) -> None:
    grey = PIXELS[..., 0]
    data = python_dataset.load(pairs([convert(a) for a in grey]))
    np.testing.assert_array_equal(pixels(data), grey[..., None])


def test_black_and_white_arrays() -> None:
    bits = PIXELS[..., 0] > 99
    data = python_dataset.load(pairs(list(bits)))
    np.testing.assert_array_equal(pixels(data)[..., 0], np.where(bits, 255, 0))


def test_tensors_of_three_rows_are_channels_first() -> None:
    small = RANDOM.integers(0, 256, (4, 3, 2, 3), dtype=np.uint8)
    tensors = python_dataset.load(pairs([torch.from_numpy(a) for a in small]))
    np.testing.assert_array_equal(pixels(tensors), small.transpose(0, 2, 3, 1))
    arrays = python_dataset.load(pairs(list(small)))
    np.testing.assert_array_equal(pixels(arrays), small)


def test_grey_among_coloured_pictures() -> None:
    xs = [Image.fromarray(PIXELS[0]), *(Image.fromarray(a[:, :, 0]) for a in PIXELS[1:])]
    got = pixels(python_dataset.load(pairs(xs)))
    np.testing.assert_array_equal(got[0], PIXELS[0])
    np.testing.assert_array_equal(got[1], np.repeat(PIXELS[1][:, :, :1], 3, axis=2))


def test_transparent_pictures_lie_on_white() -> None:
    clear = Image.new("RGBA", (6, 5), (0, 0, 0, 0))
    got = pixels(python_dataset.load(pairs([clear] * 4)))
    np.testing.assert_array_equal(got, np.full((4, 5, 6, 3), 255))


def test_texts_and_class_names() -> None:
    data = python_dataset.load(pairs(["a", "b", "c", "d"], ["spam", "ham", " ham", "spam"]))
    assert isinstance(data.train.inputs, Texts)
    assert data.train.inputs.texts == ("a", "b", "c", "d")
    assert data.names == ("ham", "spam")
    assert data.train.labels.tolist() == [1, 0, 0, 1]


def test_features_of_a_tensor_dataset() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    data = python_dataset.load(TensorDataset(x, torch.tensor(LABELS)), name="mine")
    assert isinstance(data.train.inputs, Features)
    np.testing.assert_array_equal(data.train.inputs.values, x.numpy())
    assert data.train.inputs.values.dtype == np.float32
    assert data.name == "mine"
    half = python_dataset.load(TensorDataset(x.bfloat16(), torch.tensor(LABELS)))
    assert isinstance(half.train.inputs, Features)
    np.testing.assert_array_equal(half.train.inputs.values, x.numpy())


@pytest.mark.parametrize(
    "convert", [int, np.int32, torch.tensor, float, lambda y: np.array([y]), lambda y: [y, 9][0]]
)
def test_labels_of_any_form(convert: Any) -> None:
    data = python_dataset.load(pairs(list(PIXELS), [convert(y) for y in LABELS]))
    assert data.train.labels.tolist() == LABELS


def test_third_entry_is_the_index() -> None:
    items = Items([(x, y, i) for i, (x, y) in enumerate(zip(PIXELS, LABELS, strict=True))])
    assert python_dataset.load(items).train.labels.tolist() == LABELS


def test_class_names_of_the_data_set() -> None:
    items = pairs(list(PIXELS), [3, 1, 1, 3])
    assert python_dataset.load(items).names == ("1", "3")
    named = Items(items.items, classes=["a", "b", "c", "d"])
    for dataset in (named, Subset(Subset(named, [0, 1, 2, 3]), [0, 1, 2, 3])):
        data = python_dataset.load(dataset)
        assert data.names == ("a", "b", "c", "d")
        assert data.train.labels.tolist() == [3, 1, 1, 3]
    few = Items(items.items, classes=["a", "b"])
    refused(few, "example 0 of dataset has the label 3: expected one of 0, 1")


def test_test_set() -> None:
    train, test = pairs(list(PIXELS)), pairs(list(PIXELS[:2]), [2, 0])
    data = python_dataset.load(train, test=test)
    assert data.test is not None
    assert data.test.labels.tolist() == [2, 0]
    data = python_dataset.load({"train": train, "test": test, "dev": test, "unlabelled": None})
    assert data.test is not None
    assert data.validation is not None
    assert len(data.validation) == 2
    refused({"train": train, "test": test}, "has a test split and another was given", test=test)
    refused({"test": test}, 'is a dict with test: expected a data set under "train"')
    refused(train, "test split of dataset has the label 7", test=pairs([PIXELS[0]], [7]))
    refused(train, "the test split of dataset has images of 4×6", test=pairs([PIXELS[0, :4]], [1]))
    refused(train, "the test split of dataset has texts, but", test=pairs(["text"], [1]))


def refused(dataset: object, match: str, **options: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        python_dataset.load(dataset, **options)
    assert "\n" not in str(caught.value)


def test_dicts() -> None:
    items = [
        {"image": x, "label": y, "id": f"n{y}{i}"}
        for i, (x, y) in enumerate(zip(PIXELS, LABELS, strict=True))
    ]
    data = python_dataset.load(Items(items))
    np.testing.assert_array_equal(pixels(data), PIXELS)
    assert data.train.ids == ("n10", "n01", "n22", "n13")
    odd = python_dataset.load(
        Items([{"thing": x, "y": y} for x, y in zip(PIXELS, LABELS, strict=True)])
    )
    np.testing.assert_array_equal(pixels(odd), PIXELS)
    table = python_dataset.load(Items([{"a": i, "b": 0.5, "y": i % 2} for i in range(4)]))
    assert isinstance(table.train.inputs, Features)
    assert table.train.inputs.columns == ("a", "b")
    np.testing.assert_array_equal(table.train.inputs.values, [[i, 0.5] for i in range(4)])
    one = python_dataset.load(Items([{"a": i, "y": i % 2} for i in range(4)]))
    assert isinstance(one.train.inputs, Features)
    assert one.train.inputs.values.shape == (4, 1)


def test_dicts_that_say_too_little() -> None:
    refused(
        Items([{"image": 1, "lable": 2}]), "columns image, lable, of which none is called the label"
    )
    refused(Items([{"x": "t", "label": 0, "y": 1}]), "label and y could each be the label")
    refused(Items([{"u": "t", "v": "t", "label": 0}]), "keep one column to learn from")
    refused(Items([{"label": 0}]), "keep one column to learn from")
    refused(Items([{"path": "a.png", "label": 0}]), 'has paths in "path"')
    refused(
        Items([{"x": "t", "label": 0}, {"x": "t"}]), "example 1 of dataset has x: expected label"
    )


def test_what_is_no_data_set() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([(PIXELS[0], 1)])

    class Broken(Items):
        def __getitem__(self, i: int) -> Any:
            raise RuntimeError("disk\non fire")

    refused("digits", "is a str: expected a data set with __len__")
    refused(3, "is a int: expected a data set")
    refused(Stream(), "has no length, so it can only be streamed")
    refused(Items([]), "has no examples")
    refused(Items([1, 2]), "example 0 of dataset is a int: expected")
    refused(Items([(1, 2, 3, 4)]), "example 0 of dataset is a tuple: expected")
    refused(Broken([1]), r"example 0 of dataset cannot be read \(RuntimeError: disk on fire\)")


@pytest.mark.parametrize(
    "label", [-1, 0.5, float("nan"), None, [1, 0], np.array([0, 1]), torch.eye(2)[0], "", b"x"]
)
def test_labels_that_are_none(label: object) -> None:
    refused(pairs(list(PIXELS), [0, 1, label, 0]), "example 2 of dataset has the label")


def test_mixed_labels() -> None:
    refused(pairs(list(PIXELS), [0, "a", 1, 0]), "class ids and class names among its labels")


@pytest.mark.parametrize(
    ("odd", "match"),
    [
        (
            PIXELS[0, :4],
            "example 2 of dataset is an image of 4 × 6 pixels, but example 0 is .* 5 × 6",
        ),
        ("text", "example 2 of dataset is a text, but example 0 is an image"),
        ([1.0, 2.0], "a row of 2 numbers"),
        (PIXELS, r"has the shape \[4, 5, 6, 3\]: expected an image"),
        (np.zeros((5, 6, 4), np.uint8), "expected an image .* with 1 or 3 channels"),
        (PIXELS[0] / 100, r"pixels from 0 to 2\.\d+: expected floats in 0 … 1"),
        (PIXELS[0] / 255 - 0.5, "leave normalising out"),
        (np.full((5, 6, 3), np.nan), "pixels from nan to nan"),
        (PIXELS[0].astype(int) + 300, "expected floats in 0 … 1 or bytes"),
        ([[1, 2], [3]], "is a list, which is not an image"),
        (None, "is a NoneType, which is not an image"),
        (b"bytes", "is a bytes, which is not an image"),
        (np.zeros((0, 3)), "is a ndarray, which is not an image"),
        (
            Image.new("F", (6, 5)),
            "example 2 .* cannot be read as an image: its pixels have 32 bits",
        ),
    ],
)
def test_odd_inputs_are_named(odd: object, match: str) -> None:
    refused(pairs([PIXELS[0], PIXELS[1], odd, PIXELS[3]]), match)


def test_rows_of_different_lengths() -> None:
    refused(pairs([[1.0], [1.0, 2.0]], [0, 1]), "example 1 of dataset is a row of 2 numbers")


def test_infinite_features() -> None:
    refused(pairs([[1.0], [np.inf], [1e300]], [0, 1, 0]), 'infinite features in 2 rows.*id "1"')


def test_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features(
        {"image": datasets.Image(), "kind": datasets.ClassLabel(names=["cat", "dog", "eel"])}
    )
    rows = {"image": [Image.fromarray(a) for a in PIXELS], "kind": LABELS}
    train = datasets.Dataset.from_dict(rows, features=features)
    data = python_dataset.load(datasets.DatasetDict({"train": train, "validation": train}))
    np.testing.assert_array_equal(pixels(data), PIXELS)
    assert data.names == ("cat", "dog", "eel")
    assert data.train.labels.tolist() == LABELS
    assert data.validation is not None
    tensors = python_dataset.load(train.with_format("torch"))
    np.testing.assert_array_equal(pixels(tensors), PIXELS)

    words = datasets.Dataset.from_dict({"idx": [7, 8], "sentence": ["x", "y"], "label": ["b", "a"]})
    text = python_dataset.load(words)
    assert isinstance(text.train.inputs, Texts)
    assert (text.train.inputs.texts, text.names) == (("x", "y"), ("a", "b"))

    rows = {"embedding": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]}
    vectors = python_dataset.load(datasets.Dataset.from_dict(rows))
    assert isinstance(vectors.train.inputs, Features)
    np.testing.assert_array_equal(vectors.train.inputs.values, [[1, 2], [3, 4]])

    two = datasets.Dataset.from_dict({"image": [1], "fine": [0], "coarse": [0]})
    for column in ("fine", "coarse"):
        two = two.cast_column(column, datasets.ClassLabel(names=["a"]))
    refused(two, "fine and coarse could each be the label")
    missing = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, -1]})
    refused(missing, "example 1 of dataset has the label -1")
    refused(train.to_iterable_dataset(), "has no length")


ANYTHING = st.one_of(
    st.none(),
    st.integers(-2, 300),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.one_of(st.floats(), st.integers(0, 3), st.lists(st.integers(0, 3)))),
    st.sampled_from([PIXELS[0], Image.new("RGB", (2, 2)), torch.zeros(3, 2, 2), {"x": 1}]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.tuples(ANYTHING, st.integers(-1, 2)), st.tuples(ANYTHING, ANYTHING))))
def test_any_items_are_read_or_refused(items: list[Any]) -> None:
    message = ""
    try:
        data = python_dataset.load(Items(items))
    except InputError as error:
        message = str(error)
    if message:
        assert "\n" not in message
    else:
        assert len(data.train) == len(items)
