"""`.npz` data sets: what np.savez wrote comes back; what is hostile or wrong is a plain error."""

import contextlib
import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proselflc.data.dataset import Dataset, ModelNeeds
from proselflc.data.inputs import Features, Images
from proselflc.data.sources import npz
from proselflc.errors import InputError

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path / "set.npz", **arrays)
    return path / "set.npz"


NAMES = ("cow", "dog", "cat")


def test_examples_without_labels(tmp_path: Path) -> None:
    found = npz.read(saved(tmp_path, x=X, ids=list("abcdef")), ModelNeeds(NAMES))
    assert found.name == "set.npz"
    parts = found.parts
    assert list(parts) == ["train"]
    assert parts["train"].ids == tuple("abcdef")
    assert parts["train"].labels is None
    assert isinstance(parts["train"].inputs, Features)
    np.testing.assert_array_equal(parts["train"].inputs.values, X)


def test_examples_by_name_or_by_class_id(tmp_path: Path) -> None:
    named = npz.read(
        saved(tmp_path, x=X, y=Y, names=["dog", "cat", "cow"]), ModelNeeds(NAMES)
    ).parts["train"]
    assert named.labels is not None
    assert named.labels.tolist() == [1, 2, 0, 1, 2, 0]
    numbered = npz.read(saved(tmp_path, x=X, y=Y), ModelNeeds(NAMES)).parts["train"]
    assert numbered.labels is not None
    assert numbered.labels.tolist() == Y.tolist()
    by_name = npz.read(saved(tmp_path, x=X, y=Y), ModelNeeds(("2", "1", "0"))).parts["train"]
    assert by_name.labels is not None
    assert by_name.labels.tolist() == (2 - Y).tolist()


def test_examples_by_split(tmp_path: Path) -> None:
    path = saved(tmp_path, x=X, y=Y, x_test=X[:2], x_validation=X[:1], y_validation=Y[:1])
    assert list(npz.read(path, ModelNeeds(NAMES)).parts) == ["test"]
    parts = npz.read(path, ModelNeeds(NAMES, "all")).parts
    assert {split: len(part) for split, part in parts.items()} == {
        "train": 6,
        "test": 2,
        "validation": 1,
    }
    assert parts["test"].labels is None
    assert parts["test"].ids == ("test/000000", "test/000001")
    assert parts["validation"].labels is not None
    assert parts["validation"].labels.tolist() == [0]
    only = npz.read(saved(tmp_path, x_test=X), ModelNeeds(NAMES)).parts
    assert list(only) == ["test"]


def test_an_npy_file_is_an_x_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 4, 4), np.uint8))
    found = npz.read(tmp_path / "x.npy", ModelNeeds(NAMES)).parts["train"]
    assert isinstance(found.inputs, Images)
    assert found.inputs.pixels.shape == (2, 4, 4, 1)
    assert found.labels is None


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"y": Y}, "has no array x, only"),
        ({"names": ["a"]}, "has no array x, only"),
        ({"x": X, "y_test": Y}, "has no array x_test"),
        ({"x": X, "y": Y[:5]}, "5 labels in y, but 6 rows in x"),
        ({"x": X, "y": Y - 2}, "integers 0 … C−1"),
        ({"x": X, "y": Y + 1}, 'unknown class "1"'),
        ({"x": X, "y": Y, "names": ["cow", "dog"]}, "label 2 in y, but 2 classes"),
        ({"x": X, "y": Y, "names": ["0", "1", "2"]}, 'unknown class "0"'),
        ({"x": X, "ids": ["a"]}, "1 ids, but 6 rows"),
        ({"x": [*X.tolist(), [0, 0]], "ids": [[1]]}, "texts of shape"),
        ({"x": X[0]}, "numbers of shape"),
        ({"x": np.float64(3)}, "numbers of shape"),
    ],
)
def test_wrong_examples_are_said_in_a_sentence(
    tmp_path: Path, arrays: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        npz.read(saved(tmp_path, **arrays), ModelNeeds(NAMES))


def test_splits_of_examples_are_alike(tmp_path: Path) -> None:
    path = saved(tmp_path, x=X, x_test=X[:, :1])
    with pytest.raises(InputError, match="2 features in x, but 1 features in x_test"):
        npz.read(path, ModelNeeds(NAMES, "all"))


@pytest.mark.parametrize("kind", ["f8", "f4", ">f8", "f2", "i4", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_features_become_float32(tmp_path: Path, kind: str, order: Any) -> None:
    x = np.asarray(X % 2 if kind == "?" else X, dtype=kind, order=order)
    dataset = npz.read(saved(tmp_path, x=x, y=Y)).dataset()
    assert isinstance(dataset.train.inputs, Features)
    assert dataset.train.inputs.values.dtype == np.float32
    np.testing.assert_array_equal(dataset.train.inputs.values, x.astype(np.float64))
    np.testing.assert_array_equal(dataset.train.labels, Y)
    assert dataset.train.labels.dtype == np.int64
    assert dataset.names == ("0", "1", "2")
    assert dataset.train.ids[5] == "train/000005"
    assert dataset.test is None
    assert dataset.clean is None


PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (PIXELS, PIXELS),
        (np.asfortranarray(PIXELS), PIXELS),
        (PIXELS.transpose(0, 3, 1, 2), PIXELS),
        (PIXELS[..., 0], PIXELS[..., :1]),
        (PIXELS[..., :1], PIXELS[..., :1]),
        (PIXELS[:, None, :, :, 0], PIXELS[..., :1]),
        # Both ends could be the channels: the last one is.
        (PIXELS[:, :3], PIXELS[:, :3]),
    ],
)
def test_images_come_as_nhwc(tmp_path: Path, x: Any, expected: Any) -> None:
    dataset = npz.read(saved(tmp_path, x=x, y=Y)).dataset()
    assert isinstance(dataset.train.inputs, Images)
    pixels = dataset.train.inputs.pixels
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("compressed", [False, True])
def test_everything_optional_is_read(tmp_path: Path, compressed: bool) -> None:
    save = np.savez_compressed if compressed else np.savez
    save(
        tmp_path / "set.npz",
        x=X,
        y=Y.astype(np.uint8),
        x_test=X[:2] + 1,
        y_test=Y[:2],
        ids=np.array(["a", "b", "ç", "d", "e", "f"]),
        clean=Y[::-1],
        names=np.array(["cat", "dog", "owl", "never seen"]),
        flipped=np.array([None], dtype=object),  # not wanted, so not looked at
    )
    dataset = npz.read(tmp_path / "set.npz").dataset()
    assert dataset.name == "set.npz"
    assert dataset.names == ("cat", "dog", "owl", "never seen")
    assert dataset.train.ids == ("a", "b", "ç", "d", "e", "f")
    assert dataset.clean is not None
    np.testing.assert_array_equal(dataset.clean, Y[::-1])
    assert dataset.test is not None
    assert isinstance(dataset.test.inputs, Features)
    np.testing.assert_array_equal(dataset.test.inputs.values, X[:2] + 1)
    assert dataset.test.ids == ("test/000000", "test/000001")
    np.testing.assert_array_equal(dataset.test.labels, Y[:2])


def test_ids_may_be_numbers_or_bytes(tmp_path: Path) -> None:
    assert npz.read(saved(tmp_path, x=X, y=Y, ids=np.arange(10, 16))).dataset().train.ids[0] == "10"
    ids = np.array([b"a", b"b", b"c", b"d", b"e", b"\xc3\xa9"])
    assert npz.read(saved(tmp_path, x=X, y=Y, ids=ids)).dataset().train.ids[5] == "é"


NAN = np.array([[0.0, 1.0]] * 5 + [[np.nan, 0.0]])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, 'has no array y, only "x"'),
        ({"X": X, "y": Y}, 'has no array x, only "y"'),
        ({"inputs": X, "targets": Y}, 'it holds "inputs", "targets"'),
        ({}, "has none of the arrays x, y, x_test, y_test, ids, names, clean: it holds nothing"),
        ({"x": X, "y": Y, "x_test": X}, "has no array y_test"),
        ({"x": X, "y": Y, "y_test": Y}, "has no array x_test"),
        ({"x": X, "y": np.append(Y, 0)}, "has 7 labels in y, but 6 rows in x"),
        ({"x": X, "y": Y[:5]}, "has 5 labels in y, but 6 rows in x"),
        ({"x": X, "y": Y.astype(float)}, "integers 0 … C−1 of shape [n] in y, got float64"),
        ({"x": X, "y": Y > 0}, "got bool"),
        ({"x": X, "y": np.array(list("abcabc"))}, "got <U1"),
        ({"x": X, "y": Y[:, None]}, "got shape [6, 1]"),
        ({"x": X, "y": Y - 2}, "got -2"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y - 1}, "in y_test, got -1"),
        ({"x": X, "y": 0 * Y - 1}, "none of the 6 training examples"),
        ({"x": X, "y": Y + 10**12}, "got 1000000000002"),
        ({"x": X, "y": Y.astype(np.uint64) + 2**63}, "got 9223372036854775810"),
        ({"x": X, "y": Y * 1000}, "has label 2000, but fewer examples than that"),
        ({"x": X, "y": Y * 0}, "examples of one class only"),
        ({"x": X[:0], "y": Y[:0]}, "holds no training examples"),
        ({"x": X, "y": Y, "x_test": X[:0], "y_test": Y[:0]}, "test split of set.npz is empty"),
        (
            {"x": NAN, "y": Y},
            'NaN or infinite features in 1 rows, the first with id "train/000005"',
        ),
        ({"x": X * 1e300, "y": Y}, "NaN or infinite features in 6 rows"),
        ({"x": X.astype(complex), "y": Y}, "holds complex128 of shape [6, 2]"),
        ({"x": X.astype(str), "y": Y}, "features must be numbers"),
        ({"x": X[:, 0], "y": Y}, "holds float64 of shape [6], but features must be"),
        ({"x": X[:, :0], "y": Y}, "of shape [6, 0]"),
        ({"x": np.float64(3), "y": Y}, "has 6 labels in y, but 0 rows in x"),
        ({"x": PIXELS / 255, "y": Y}, "and images uint8"),
        ({"x": PIXELS[..., [0, 1, 2, 2]], "y": Y}, "with 1 or 3 channels C"),
        ({"x": PIXELS[:, :0], "y": Y}, "images must be"),
        ({"x": np.array([None] * 6), "y": Y}, "holds Python objects, which can run code"),
        ({"x": np.zeros(6, dtype=[("a", "f4")]), "y": Y}, "is a structured array"),
        ({"x": X, "y": Y, "x_test": PIXELS, "y_test": Y}, "has 2 features in x, but images of"),
        ({"x": X, "y": Y, "x_test": X[:, :1], "y_test": Y}, "but 1 features in x_test"),
        ({"x": X, "y": Y, "ids": np.array(list("abc"))}, "has 3 ids, but 6 rows"),
        ({"x": X, "y": Y, "ids": np.array(list("abcabc"))}, 'the id "a" more than once'),
        ({"x": X, "y": Y, "ids": X[:, 0]}, "must have texts of shape [n] in ids, got float64"),
        ({"x": X, "y": Y, "ids": np.array([b"\xff"] * 6)}, "not UTF-8"),
        ({"x": X, "y": Y, "names": np.array(["a", "b"])}, "has label 2, but there are 2 classes"),
        ({"x": X, "y": Y, "names": np.array(["a", "b", "a"])}, "empty or repeated in names"),
        ({"x": X, "y": Y, "names": np.array(["a", "b", ""])}, "empty or repeated in names"),
        ({"x": X, "y": Y, "clean": Y[:5]}, "has 5 labels in clean, but 6 rows in x"),
        (
            {"x": X, "y": Y, "clean": Y + 1, "names": np.array(list("abc"))},
            "has label 3 in clean, but 3 classes",
        ),
    ],
)
def test_wrong_arrays_are_said_in_a_sentence(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    path = saved(tmp_path, **arrays)
    with pytest.raises(InputError) as caught:
        npz.read(path).dataset()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def npy(descr: str, shape: str, data: bytes = b"", fortran: str = "False") -> bytes:
    """A `.npy` file with any header."""
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path / "set.npz", "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name + ".npy", data)
    return path / "set.npz"


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (npy("'<f8'", "(1000000000, 2)", bytes(96)), "= 16,000,000,000 bytes, but only"),
        (npy("'<f8'", "(6, 2)", bytes(95)), "ends after 95 of 96 bytes"),
        (npy("'<f8'", "(6, 2)", bytes(97)), "goes on after the 96 bytes"),
        (npy("'<f8'", "(-6, -2)", bytes(96)), "of shape [-6, -2]"),
        (npy("'<U0'", "(1000000000000,)"), "of shape [1000000000000]"),
        (npy("'<f8'", "(0, 100000000000000000000)"), "damaged"),
        (npy("'|O'", "(6,)", b"cos\nsystem\n(S'touch made'\ntR."), "holds Python objects"),
        (npy("[('a', '|O')]", "(6,)"), "holds Python objects"),
        (npy("'<f8'", "[" * 90 + "]" * 90), "damaged"),
        (npy("__import__('os').system('touch made')", "(6, 2)"), "damaged"),
        (b"\x93NUMPY\x03\x00" + bytes(100), "unknown format (3, 0)"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "unknown format (9, 0)"),
        (b"not numpy", "damaged"),
        (b"", "damaged"),
    ],
)
def test_lying_headers_are_refused_before_anything_is_made(
    tmp_path: Path, x: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    np.save(buffer, Y)
    path = zipped(tmp_path, {"x": x, "y": buffer.getvalue()})
    with pytest.raises(InputError) as caught:
        npz.read(path).dataset()
    assert message in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["set.npz"]


def test_old_python_2_headers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.npy"
    path.write_bytes(npy("'<f8'", "(6L, 2L)", X.tobytes()))
    np.testing.assert_array_equal(npz.array(path), X)


def test_zip_bomb_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    bomb = npy("'|u1'", f"({80 << 20}, 1)", bytes(80 << 20))
    path = zipped(tmp_path, {"x": bomb}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match="more than 200 times is refused"):
        npz.arrays(path, ("x",))


def test_well_packed_but_small_arrays_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "set.npz", x=np.zeros((20_000, 100)), y=np.arange(20_000) % 2)
    assert len(npz.read(tmp_path / "set.npz").dataset().train) == 20_000


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"x,y\n1,2\n", bytes(500)])
def test_what_is_no_npz_is_a_plain_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "set.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"is not an \.npz file or is damaged"):
        npz.read(tmp_path / "set.npz").dataset()
    with pytest.raises(InputError, match="No such file"):
        npz.read(tmp_path / "absent.npz").dataset()
    with pytest.raises(InputError, match=r"is not an \.npy file or is damaged"):
        npz.array(tmp_path / "set.npz")


def packed(compressed: bool) -> bytes:
    buffer = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(buffer, x=X, y=Y, ids=np.array(list("abcdef")), names=np.array(["k", "l", "m"]))
    return buffer.getvalue()


PACKED = {compressed: packed(compressed) for compressed in (False, True)}
LENGTH = max(len(p) for p in PACKED.values())


@given(
    compressed=st.booleans(),
    edits=st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, 255)), max_size=5),
    keep=st.integers(0, 3 * LENGTH),
)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fuzzed_files_give_a_data_set_or_a_plain_error(
    tmp_path: Path, compressed: bool, edits: list[tuple[int, int]], keep: int
) -> None:
    damaged = bytearray(PACKED[compressed])
    for position, value in edits:
        damaged[position % len(damaged)] = value
    (tmp_path / "set.npz").write_bytes(damaged[:keep])
    result = outcome(tmp_path / "set.npz")
    if isinstance(result, Dataset):
        assert len(result.train.ids) == len(result.train.labels) > 0
    else:
        assert "set.npz" in str(result)


HEADER = npy("'<f8'", "(6, 2)")


@given(
    edits=st.lists(st.tuples(st.integers(6, len(HEADER) - 1), st.integers(0, 255)), max_size=4),
    keep=st.integers(0, 400),
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fuzzed_headers_give_an_array_of_what_is_there_or_a_plain_error(
    tmp_path: Path, edits: list[tuple[int, int]], keep: int
) -> None:
    damaged = bytearray(HEADER + X.tobytes())
    for position, value in edits:
        damaged[position] = value
    (tmp_path / "x.npy").write_bytes(damaged[:keep])
    result = outcome_of_array(tmp_path / "x.npy")
    if isinstance(result, InputError):
        assert "x.npy" in str(result)
    else:
        assert result.nbytes <= keep


def outcome(path: Path) -> Dataset | InputError:
    with contextlib.suppress(InputError):
        npz.read(path, ModelNeeds(NAMES, "all"))
    try:
        return npz.read(path).dataset()
    except InputError as error:
        return error


def outcome_of_array(path: Path) -> npz.Array | InputError:
    try:
        return npz.array(path)
    except InputError as error:
        return error
