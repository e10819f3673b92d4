"""idx files: the arrays that were written, headers that lie, and the sets by their names."""

import gzip
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Images
from proselflc.data.sources import download, small_images
from proselflc.errors import InputError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def encoded(array: np.ndarray[Any, Any]) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def images(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, 5, 4))


CONTENT = {
    "train-images-idx3-ubyte": images(30, 1),
    "train-labels-idx1-ubyte": np.arange(30) % 10,
    "t10k-images-idx3-ubyte": images(20, 2),
    "t10k-labels-idx1-ubyte": np.arange(20)[::-1] % 10,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, array in CONTENT.items():
        (tmp_path / name).write_bytes(encoded(array))
    return tmp_path


def gzipped(folder: Path) -> None:
    for name in CONTENT:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), mtime=0))
        (folder / name).unlink()


def dotted(folder: Path) -> None:
    for name in CONTENT:
        (folder / name).rename(folder / name.replace("-idx", ".idx"))


@pytest.mark.parametrize("change", [lambda _: None, gzipped, dotted])
def test_plain_and_gzipped_files_give_what_was_written(
    folder: Path, change: Callable[[Path], None]
) -> None:
    change(folder)
    dataset = small_images.load(folder, "mnist")
    assert dataset.test is not None
    for part, prefix, split in ((dataset.train, "train", "train"), (dataset.test, "t10k", "test")):
        assert isinstance(part.inputs, Images)
        assert part.inputs.pixels.dtype == np.uint8
        np.testing.assert_array_equal(
            part.inputs.pixels[..., 0], CONTENT[f"{prefix}-images-idx3-ubyte"]
        )
        assert part.inputs.pixels.shape[3] == 1
        np.testing.assert_array_equal(part.labels, CONTENT[f"{prefix}-labels-idx1-ubyte"])
        assert part.ids[7] == f"mnist/{split}/00007"
    assert dataset.names == tuple("0123456789")
    assert dataset.name == "mnist"


def test_class_names_of_fashion_mnist(folder: Path) -> None:
    dataset = small_images.load(folder, "fashion-mnist")
    assert dataset.names[0] == "T-shirt/top"
    assert dataset.names[6] == "Shirt"
    assert dataset.names[9] == "Ankle boot"
    assert len(dataset.names) == 10


LABELS = encoded(np.arange(30) % 10)
HUGE = struct.pack(">BBBBIII", 0, 0, 8, 3, 60000, 600, 60)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train-labels-idx1-ubyte", LABELS[:-1], "declares 30 = 30 bytes, but the file has 29"),
        ("train-labels-idx1-ubyte", LABELS + b"x", "declares 30 = 30 bytes, but the file has 31"),
        ("train-labels-idx1-ubyte", b"", "starts with nothing instead of 00000801"),
        ("train-labels-idx1-ubyte", b"\x00\x00\x08", "starts with 000008 instead"),
        (
            "train-labels-idx1-ubyte",
            encoded(images(3, 1)),
            "00000803 instead of 00000801",
        ),
        ("train-images-idx3-ubyte", b"\x00\x00\x0d\x03" + bytes(12), "starts with 00000d03"),
        ("train-labels-idx1-ubyte", encoded(np.zeros(29)), "has 30 images, but"),
        ("train-labels-idx1-ubyte", encoded(np.arange(30)), "has label 29, but there are 10"),
        ("train-labels-idx1-ubyte", encoded(np.zeros(30)), "examples of one class only"),
        ("train-images-idx3-ubyte", encoded(np.zeros((30, 0, 4))), "no pixels"),
        ("train-images-idx3-ubyte", encoded(np.zeros((30, 5, 5))), "do not belong together"),
        ("train-images-idx3-ubyte", HUGE, "declares 60,000 × 600 × 60 = 2,160,000,000 bytes"),
        (
            "train-images-idx3-ubyte",
            gzip.compress(HUGE, mtime=0),
            "declares 60,000 × 600 × 60 = 2,160,000,000 bytes, but the file can hold at most",
        ),
        ("train-labels-idx1-ubyte", gzip.compress(LABELS, mtime=0)[:-12], "could not be read"),
        (
            "train-labels-idx1-ubyte",
            gzip.compress(LABELS[:-1], mtime=0),
            "ends after 29 of the 30 bytes",
        ),
        (
            "train-labels-idx1-ubyte",
            gzip.compress(LABELS + b"x", mtime=0),
            "goes on after the 30 bytes",
        ),
    ],
)
def test_wrong_file_is_named_with_what_is_wrong(
    folder: Path, name: str, data: bytes, message: str
) -> None:
    (folder / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        small_images.load(folder, "mnist")
    assert message in str(caught.value)


def test_four_dimensions_of_nonsense_do_not_overflow(folder: Path) -> None:
    largest = struct.pack(">BBBBIII", 0, 0, 8, 3, *[(1 << 32) - 1] * 3)
    (folder / "train-images-idx3-ubyte").write_bytes(largest)
    with pytest.raises(InputError, match=f"{math.prod([(1 << 32) - 1] * 3):,}"):
        small_images.load(folder, "mnist")


@pytest.mark.parametrize(
    ("asked", "there", "first"),
    [
        ("mnist", "fashion-mnist", [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]),
        ("fashion-mnist", "mnist", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]),
    ],
)
def test_one_set_under_the_others_name_is_found_out(
    folder: Path, asked: str, there: str, first: list[int]
) -> None:
    labels = np.concatenate([first, np.zeros(59_990)])
    (folder / "train-labels-idx1-ubyte").write_bytes(encoded(labels))
    (folder / "train-images-idx3-ubyte").write_bytes(encoded(np.zeros((60_000, 5, 4))))
    with pytest.raises(InputError, match=f"holds {there}, but {asked} was requested"):
        small_images.load(folder, asked)
    assert len(small_images.load(folder, there).train) == 60_000


@pytest.mark.parametrize("below", [".", "mnist", "MNIST/raw"])
def test_files_are_found_in_the_data_root_and_the_usual_folders(folder: Path, below: str) -> None:
    place = folder / below
    place.mkdir(parents=True, exist_ok=True)
    for name in CONTENT:
        (folder / name).rename(place / name)
    assert small_images.find("mnist", folder).resolve() == place.resolve()


def test_missing_file_says_which_one_and_where(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match="mnist was not found in") as caught:
        small_images.find("mnist", folder)
    assert f"t10k-labels-idx1-ubyte.gz at {folder / 'mnist'}" in str(caught.value)
    with pytest.raises(InputError, match=r"has no t10k-labels-idx1-ubyte, with or without \.gz"):
        small_images.load(folder, "mnist")
    with pytest.raises(InputError, match="DIR/mnist") as caught:
        small_images.find("mnist", None)
    assert caught.value.field == "data_root"


def test_missing_set_is_fetched_to_the_data_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(name: str, root: Path) -> tuple[Path, ...]:
        return (root / name / "train-images-idx3-ubyte.gz",)

    monkeypatch.setattr(download, "fetch", fetch)
    assert small_images.find("mnist", tmp_path, fetch=True) == tmp_path / "mnist"


def test_unknown_name_is_answered_with_the_likely_one(folder: Path) -> None:
    with pytest.raises(InputError, match='did you mean "fashion-mnist"'):
        small_images.find("fashion_mnist", folder)
    with pytest.raises(InputError, match="unknown idx data set"):
        small_images.load(folder, "emnist")


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_debians_fashion_mnist_is_found_without_being_told(tmp_path: Path) -> None:
    assert small_images.find("fashion-mnist", None) == DEBIAN
    assert small_images.find("fashion-mnist", tmp_path) == DEBIAN
    dataset = small_images.load(DEBIAN, "fashion-mnist")
    assert dataset.test is not None
    assert isinstance(dataset.train.inputs, Images)
    assert dataset.train.inputs.pixels.shape == (60_000, 28, 28, 1)
    assert np.bincount(dataset.train.labels).tolist() == [6000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    # 0.2860 and 0.3530 are the mean and deviation that are usually used to normalise.
    pixels = dataset.train.inputs.pixels
    assert abs(float(pixels.mean()) / 255 - 0.2860) < 5e-5
    assert abs(float(pixels.std()) / 255 - 0.3530) < 5e-5
    with pytest.raises(InputError, match="holds fashion-mnist, but mnist was requested"):
        small_images.load(DEBIAN, "mnist")


@given(
    name=st.sampled_from(sorted(CONTENT)),
    edits=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=4),
    keep=st.integers(0, 700),
    zipped=st.booleans(),
)
@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fuzzed_files_give_a_data_set_or_a_plain_error(
    folder: Path, name: str, edits: list[tuple[int, int]], keep: int, zipped: bool
) -> None:
    original = encoded(CONTENT[name])
    damaged = bytearray(gzip.compress(original, mtime=0) if zipped else original)
    for position, value in edits:
        damaged[position % len(damaged)] = value
    (folder / name).write_bytes(damaged[: keep if keep < 600 else None])
    result = outcome(folder)
    (folder / name).write_bytes(original)
    if isinstance(result, Dataset):
        assert result.test is not None
        assert (len(result.train), len(result.test)) == (30, 20)
    else:
        assert str(folder) in str(result) or "mnist" in str(result)


def outcome(folder: Path) -> Dataset | InputError:
    try:
        return small_images.load(folder, "mnist")
    except InputError as error:
        return error
