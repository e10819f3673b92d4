"""What is in memory already becomes a data set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.data.labels import from_dataset
from proselflc.data.sources import arrays
from proselflc.data.tables.mixed import MixedColumns
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


def test_columns_that_are_not_of_numbers_have_kinds() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"age": [1.0, 2.0], "city": ["Bern", "Ulm"], "sex": ["f", "m"]})
    inputs = arrays.inputs(frame)
    assert isinstance(inputs, MixedColumns)
    assert [kind.kind for kind in inputs.kinds] == ["number", "category", "category"]
    frame = pandas.DataFrame({"age": [1.0, 2.0], "size": pandas.array([1, None], "Int64")})
    inputs = arrays.inputs(frame)
    assert isinstance(inputs, MixedColumns)
    assert [inputs.cells[1].cell(k) for k in range(2)] == ["1", ""]
    with pytest.raises(InputError, match='x has two columns named "a": rename one'):
        arrays.inputs(pandas.DataFrame([["x", "y"]], columns=["a", "a"]))


def test_numbers_of_several_kinds_are_numbers() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"age": [1.5, 2.0], "ill": [True, False]})
    inputs = arrays.inputs(frame)
    assert isinstance(inputs, Features)
    assert inputs.values.tolist() == [[1.5, 1], [2, 0]]
    assert inputs.columns == ("age", "ill")


def test_what_is_missing_from_a_series_has_no_label() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for y in (
        pandas.Series(["a", None, "b"]),
        pandas.Series(["a", pandas.NA, "b"], dtype="string"),
        pandas.Series([1, None, 2], dtype="Int64"),
        pandas.Series([1, np.nan, 2]),
    ):
        data = arrays.load(np.eye(3), y)
        assert data.train.labels.tolist() == [0, 1]
        assert data.unlabelled is not None
        assert data.unlabelled.part.ids == ("train/000001",)
        assert data.unlabelled.before.tolist() == [1]


@pytest.mark.parametrize(
    ("y", "returned"),
    [
        (["a", None, "b"], ["a", None, "b"]),
        (["a", float("nan"), "b"], ["a", None, "b"]),
        ([7, None, -1], [7, None, -1]),
        (np.array(["a", None, "b"], dtype=object), np.array(["a", None, "b"], dtype=object)),
        (np.array([3, np.nan, 1]), np.array([3, np.nan, 1])),
        (torch.tensor([3, np.nan, 1]), torch.tensor([3, np.nan, 1])),
    ],
)
def test_missing_labels_are_returned_in_the_same_type(y: Any, returned: Any) -> None:
    data = arrays.load(np.eye(3), y)
    labels = from_dataset(data, None)
    assert data.label_values is not None
    found = data.label_values.of(labels.with_rest(labels.given))
    assert type(found) is type(returned)
    if isinstance(found, list):
        assert found == returned
    elif isinstance(found, torch.Tensor):
        torch.testing.assert_close(found, returned, equal_nan=True, rtol=0, atol=0)
    else:
        assert found.dtype == returned.dtype
        np.testing.assert_array_equal(found, returned)


@pytest.mark.parametrize(
    ("index", "name", "ids"),
    [
        (["p7", "p3"], None, ("p7", "p3")),
        ([7, 3], None, ("7", "3")),
        ([0, 1], "patient", ("0", "1")),
        ([0, 1], None, ("train/000000", "train/000001")),
        (["p7", "p7"], None, ("train/000000", "train/000001")),
        ([1.0, None], None, ("train/000000", "train/000001")),
    ],
)
def test_an_index_that_names_rows_gives_ids(
    index: list[object], name: str | None, ids: tuple[str, ...]
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"a": [1.0, 2.0]}, index=pandas.Index(index, name=name))
    assert arrays.load(frame, [0, 1]).train.ids == ids
    assert arrays.load(frame, [0, 1], ids=["x", "y"]).train.ids == ("x", "y")
    texts = pandas.Series(["one", "two"], index=frame.index)
    assert arrays.load(texts, [0, 1]).train.ids == ids


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
        ({"y": np.array([(1,), "a"], dtype=object)}, "neither integers nor texts"),
        ({"y": [None, None]}, "none of the 2 training examples of arrays has a label"),
        ({"y": ["a", None]}, 'one class only, "a"'),
        ({"y": [0, 1], "clean": [0, None]}, "the label of row 1 is missing from clean"),
        ({"y": [0, 5], "names": ["a", "b"]}, 'unknown class "5"'),
        ({"y": [0, 1], "clean": [0]}, "clean has 1 labels for 2"),
        ({"y": [0, 1], "ids": ["a"]}, "1 ids for 2"),
        ({"y": [0, 1], "ids": ["a", "a"]}, "more than once"),
        (
            {"y": [0, 1], "ids": ["a", "\udc80"]},
            "not valid Unicode and cannot be written",
        ),
        ({"y": ["a", "\udc80"]}, "not valid Unicode and cannot be written"),
        ({"y": [0, 1], "x_test": np.eye(2)}, "go together"),
        ({"y": [1, 1]}, "one class only"),
    ],
)
def test_labels_that_do_not_fit_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        arrays.load(np.eye(2), **arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_gaps_of_the_test_part_alone_are_filled_as_in_prediction() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x = pandas.DataFrame({"a": [1.0, 2.0, 9.0], "b": [4.0, 5.0, 6.0]})
    x_test = pandas.DataFrame({"b": [7.0, None], "a": [np.nan, 3.0]})
    data = arrays.load(x, ["u", "v", "u"], x_test=x_test, y_test=["u", "v"])
    assert data.test is not None
    assert isinstance(data.test.inputs, Features)
    assert data.test.inputs.values.tolist() == [[2, 7], [3, 5]]


def test_texts_that_end_like_image_files_are_paths() -> None:
    paths = ["a/1.png", "b/2.JPG"]
    found = arrays.inputs(paths, "x")
    assert isinstance(found, ImageFiles)
    assert found.paths == tuple(map(Path, paths))
    assert isinstance(arrays.inputs([*paths, "see 3.png for more"], "x"), Texts)
