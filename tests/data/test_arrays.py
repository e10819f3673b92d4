"""What is in memory already becomes a data set."""

from pathlib import Path

import numpy as np
import pytest
import torch

from proselflc.data.dataset import Features, ImageFiles, Images, Texts
from proselflc.data.sources import arrays
from proselflc.errors import InputError

GENERATOR = np.random.default_rng(0)


def test_numbers_become_features() -> None:
    x = GENERATOR.normal(size=(4, 3))
    for given in (x, x.tolist(), torch.from_numpy(x).requires_grad_()):
        inputs = arrays.inputs(given)
        assert isinstance(inputs, Features)
        np.testing.assert_array_equal(inputs.values, x.astype(np.float32))


def test_a_data_frame_keeps_its_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    inputs = arrays.inputs(pandas.DataFrame({"width": [1.0, 2.0], "height": [3.0, 4.0]}))
    assert isinstance(inputs, Features)
    assert inputs.columns == ("width", "height")
    assert inputs.values.tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize("shape", [(2, 8, 9), (2, 8, 9, 3), (2, 3, 8, 9)])
def test_images_in_any_order_and_as_floats(shape: tuple[int, ...]) -> None:
    pixels = GENERATOR.integers(256, size=shape, dtype=np.uint8)
    as_bytes, as_floats = arrays.inputs(pixels), arrays.inputs(pixels / 255)
    assert isinstance(as_bytes, Images)
    assert isinstance(as_floats, Images)
    assert as_bytes.pixels.shape[1:3] == (8, 9)
    np.testing.assert_array_equal(as_bytes.pixels, as_floats.pixels)
    first = pixels[0, 0, 0] if len(shape) == 4 and shape[1] == 3 else pixels[0, 0, 0].ravel()[0]
    assert as_bytes.pixels[0, 0, 0, 0] == np.ravel(first)[0]


def test_texts_and_paths() -> None:
    assert arrays.inputs(["a b", "c"]) == Texts(("a b", "c"))
    assert arrays.inputs(np.array(["a b", "c"], dtype=object)) == Texts(("a b", "c"))
    assert arrays.inputs([Path("a.png")]) == ImageFiles((Path("a.png"),))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ("text", "a list of them"),
        (np.zeros(3), "shape [3]"),
        (np.zeros((2, 8, 8)) - 1.0, "from -1 to -1"),
        (np.full((2, 8, 8), np.nan), "nan"),
        ([[1.0], [1.0, 2.0]], "cannot be made an array"),
        (np.array([object()]), "object"),
    ],
)
def test_what_is_no_input_is_refused(x: object, words: str) -> None:
    with pytest.raises(InputError, match="x ") as caught:
        arrays.inputs(x)
    assert words in str(caught.value)


def test_labels_of_any_kind() -> None:
    x = np.eye(4)
    texts = arrays.load(x, ["b", "a", "b", "c"], clean=["b", "a", "a", "c"])
    assert texts.names == ("a", "b", "c")
    assert texts.train.labels.tolist() == [1, 0, 1, 2]
    assert texts.clean is not None
    assert texts.clean.tolist() == [1, 0, 0, 2]
    numbers = arrays.load(x, np.array([10, 9, 10, 2]))
    assert numbers.names == ("2", "9", "10")
    assert numbers.train.labels.tolist() == [2, 1, 2, 0]
    floats = arrays.load(x, torch.tensor([0.0, 1.0, 1.0, 0.0]))
    assert floats.names == ("0", "1")
    named = arrays.load(x, [0, 1, 1, 0], names=["cat", "dog", "bird"], ids=["p", "q", "r", "s"])
    assert named.names == ("cat", "dog", "bird")
    assert named.train.ids == ("p", "q", "r", "s")
    booleans = arrays.load(x, [True, False, True, False])
    assert booleans.train.labels.tolist() == [1, 0, 1, 0]


def test_a_test_part_may_have_classes_of_its_own() -> None:
    data = arrays.load(np.eye(2), ["a", "b"], x_test=np.eye(2)[:1], y_test=["c"])
    assert data.names == ("a", "b", "c")
    assert data.test is not None
    assert data.test.labels.tolist() == [2]
    assert data.test.ids == ("test/000000",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"y": ["a"]}, "1 labels for 2 train examples"),
        ({"y": [0.5, 1.0]}, "integers or texts"),
        ({"y": [np.inf, 1.0]}, "integers or texts"),
        ({"y": [[0], [1]]}, "one label per example"),
        ({"y": [None, "a"]}, "neither integers nor texts"),
        ({"y": [0, 5], "names": ["a", "b"]}, 'unknown class "5"'),
        ({"y": [0, 1], "clean": [0]}, "clean has 1 labels for 2"),
        ({"y": [0, 1], "ids": ["a"]}, "1 ids for 2"),
        ({"y": [0, 1], "ids": ["a", "a"]}, "more than once"),
        ({"y": [0, 1], "ids": ["a", "\udc80"]}, "no Unicode and cannot be written: rename it"),
        ({"y": ["a", "\udc80"]}, "no Unicode and cannot be written: rename it"),
        ({"y": [0, 1], "x_test": np.eye(2)}, "go together"),
        ({"y": [1, 1]}, "one class only"),
    ],
)
def test_labels_that_do_not_fit_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        arrays.load(np.eye(2), **arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)
