"""CIFAR in the published layout, fabricated small and, where it is, the real CIFAR-100."""

import gzip
import hashlib
import io
import lzma
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Images
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.sources import cifar, cifar_n, download
from proselflc.errors import InputError

SHARED = Path(__file__).parents[2] / "../shared/data"

Name = Literal["cifar10", "cifar100"]
FOLDER = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
ARCHIVE = {"cifar10": "cifar-10-python", "cifar100": "cifar-100-python"}
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".tar.gz": gzip.compress,
    ".tar.xz": lzma.compress,
    ".tar": bytes,
}
FINE = ["apple", "bear", "cloud", "deer"]
COARSE_OF_FINE = [1, 0, 1, 2]


def flat(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def contents(name: Name) -> dict[str, dict[Any, Any]]:
    """Small files with CIFAR's entries; keys as bytes or text, as python 2 and 3 leave them."""
    if name == "cifar10":
        files: dict[str, dict[Any, Any]] = {
            f"data_batch_{i}": {b"data": flat(4, i), b"labels": [(i + j) % 10 for j in range(4)]}
            for i in range(1, 6)
        }
        files["test_batch"] = {"data": flat(3, 9), "labels": [9, 8, 7]}
        files["batches.meta"] = {b"label_names": [b"class %d" % i for i in range(10)]}
        return files
    labels = {"train": [3, 2, 1, 0, 0, 1], "test": [2, 0, 3]}
    files = {
        split: {
            b"data": flat(len(fine), len(fine)),
            b"fine_labels": fine,
            b"coarse_labels": [COARSE_OF_FINE[f] for f in fine],
        }
        for split, fine in labels.items()
    }
    files["meta"] = {b"fine_label_names": [f.encode() for f in FINE], b"coarse_label_names": []}
    return files


def pickled(files: dict[str, dict[Any, Any]]) -> dict[str, bytes]:
    return {name: pickle.dumps(content, 2) for name, content in files.items()}


def sums(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.md5(data).hexdigest() for name, data in files.items()}


def as_folder(root: Path, name: Name, files: dict[str, bytes]) -> Path:
    folder = root / FOLDER[name]
    folder.mkdir(exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return folder


def as_archive(root: Path, name: Name, files: dict[str, bytes], suffix: str = ".tar.gz") -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file, data in reversed(files.items()):
            info = tarfile.TarInfo(f"{FOLDER[name]}/{file}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    path = root / (ARCHIVE[name] + suffix)
    path.write_bytes(PACK[suffix](buffer.getvalue()))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def pixels(dataset: Dataset, split: Literal["train", "test"]) -> Any:
    part = dataset.train if split == "train" else dataset.test
    assert part is not None
    assert isinstance(part.inputs, Images)
    return part.inputs.pixels


def test_cifar10_images_are_nhwc_in_the_order_of_the_batches(tmp_path: Path, cache: Path) -> None:
    files = contents("cifar10")
    data = pickled(files)
    as_archive(tmp_path, "cifar10", data)
    dataset = cifar.load(tmp_path, "cifar10", cache=cache, checksums=sums(data))
    assert pixels(dataset, "train").shape == (20, 32, 32, 3)
    assert pixels(dataset, "train").dtype == np.uint8
    # CIFAR's description: 1,024 red, then green, then blue values, row by row.
    row = files["data_batch_2"][b"data"][1]
    assert pixels(dataset, "train")[5, 7, 9].tolist() == [
        row[7 * 32 + 9],
        row[1024 + 7 * 32 + 9],
        row[2048 + 7 * 32 + 9],
    ]
    assert dataset.train.labels.tolist() == [(i + j) % 10 for i in range(1, 6) for j in range(4)]
    assert dataset.test is not None
    assert dataset.test.labels.tolist() == [9, 8, 7]
    assert dataset.names == tuple(f"class {i}" for i in range(10))
    assert dataset.train.ids[5] == "cifar10/train/00005"
    assert dataset.test.ids[2] == "cifar10/test/00002"
    assert dataset.coarse is None


@pytest.mark.parametrize("form", ["folder", ".tar", ".tar.gz", ".tar.xz"])
@pytest.mark.parametrize("named", [True, False])
def test_cifar100_is_found_as_directory_and_archive(
    tmp_path: Path, cache: Path, form: str, named: bool
) -> None:
    data = pickled(contents("cifar100"))
    path = (
        as_folder(tmp_path, "cifar100", data)
        if form == "folder"
        else as_archive(tmp_path, "cifar100", data, form)
    )
    assert cifar.find("cifar100", tmp_path) == path
    where = path if named else tmp_path
    dataset = cifar.load(where, "cifar100", cache=cache, checksums=sums(data))
    assert dataset.names == tuple(FINE)
    assert dataset.train.labels.tolist() == [3, 2, 1, 0, 0, 1]
    assert dataset.coarse is not None
    assert dataset.coarse.tolist() == COARSE_OF_FINE
    expected = flat(6, 6).reshape(6, 3, 32, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(pixels(dataset, "train"), expected)


def wrong(change: Callable[[dict[str, dict[Any, Any]]], None]) -> dict[str, bytes]:
    files = contents("cifar100")
    change(files)
    return pickled(files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f["train"].update({b"data": flat(5, 1)}), "has 5 images, but fine_labels of"),
        (
            lambda f: f["train"].update({b"data": flat(6, 1)[:, 1:]}),
            "of shape [6, 3071], but",
        ),
        (lambda f: f["train"].update({b"data": flat(6, 1) * 1.0}), "holds float64 data"),
        (lambda f: f["train"].update({b"data": [1, 2]}), "holds int64 data of shape [2]"),
        (lambda f: f["train"].update({b"data": "x"}), "got str"),
        (lambda f: f["train"].pop(b"data"), "train of cifar-100-python has no entry data"),
        (lambda f: f["train"].pop(b"coarse_labels"), "has no entry coarse_labels"),
        (lambda f: f["train"].update({b"fine_labels": [3, 2, 1, 0, 0, 4]}), "fine classes into"),
        (lambda f: f["train"].update({b"fine_labels": [3, 2, 1, 0, 0, -1]}), "fine classes into"),
        (lambda f: f["train"].update({b"coarse_labels": [0] * 6}), "into exactly one coarse class"),
        (lambda f: f["train"].update({b"fine_labels": None}), "got NoneType"),
        (lambda f: f["meta"].update({b"fine_label_names": [b"a"] * 4}), "empty or duplicate"),
        (lambda f: f["meta"].update({b"fine_label_names": 4}), "does not hold a list of class"),
        (lambda f: f["meta"].clear(), "has no entry fine_label_names"),
    ],
)
def test_wrong_content_is_named(
    tmp_path: Path, cache: Path, change: Callable[[dict[str, dict[Any, Any]]], None], message: str
) -> None:
    data = wrong(change)
    as_folder(tmp_path, "cifar100", data)
    with pytest.raises(InputError) as caught:
        cifar.load(tmp_path, "cifar100", cache=cache, checksums=sums(data))
    assert message in str(caught.value)
    assert not cache.exists(), "what is wrong was kept"


def test_published_checksums_are_demanded(tmp_path: Path, cache: Path) -> None:
    data = pickled(contents("cifar100"))
    as_folder(tmp_path, "cifar100", data)
    with pytest.raises(InputError, match="16019d7e3df5f24257cddd939b257f8d was expected") as caught:
        cifar.load(tmp_path, "cifar100", cache=cache)
    assert sums(data)["train"] in str(caught.value)


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch made",)


def test_hostile_pickle_is_refused_even_with_the_right_checksum(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickled(contents("cifar100"))
    data["train"] = pickle.dumps({b"data": Hostile()}, 2)
    path = as_archive(tmp_path, "cifar100", data)
    with pytest.raises(InputError, match=rf'"{os.system.__module__}\.system"'):
        cifar.load(path, "cifar100", cache=cache, checksums=sums(data))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_missing_set_says_which_file_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cifar10 was not found in") as caught:
        cifar.load(tmp_path, "cifar10")
    assert (
        "put https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz at "
        f"{tmp_path / 'cifar-10-python.tar.gz'}" in str(caught.value)
    )
    with pytest.raises(InputError, match="unknown CIFAR data set"):
        cifar.find("cifar1000", tmp_path)  # type: ignore[arg-type]


def test_missing_set_is_fetched_if_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "fetch", lambda name, root: (root / f"{name}.tar.gz",))
    assert cifar.find("cifar10", tmp_path, fetch=True) == tmp_path / "cifar10.tar.gz"


def load(path: Path, cache: Path, data: dict[str, bytes]) -> Dataset:
    return cifar.load(path, "cifar100", cache=cache, checksums=sums(data))


def same(a: Dataset, b: Dataset) -> bool:
    assert a.test is not None
    assert b.test is not None
    return (
        np.array_equal(pixels(a, "train"), pixels(b, "train"))
        and np.array_equal(pixels(a, "test"), pixels(b, "test"))
        and np.array_equal(a.train.labels, b.train.labels)
        and np.array_equal(a.test.labels, b.test.labels)
        and (a.names, a.train.ids, a.test.ids) == (b.names, b.train.ids, b.test.ids)
        and np.array_equal(np.array(a.coarse), np.array(b.coarse))
    )


@pytest.fixture
def remembered(tmp_path: Path, cache: Path) -> tuple[Path, dict[str, bytes], Dataset]:
    data = pickled(contents("cifar100"))
    path = as_archive(tmp_path, "cifar100", data)
    return path, data, load(path, cache, data)


def test_second_load_maps_the_cache_and_does_not_read_the_archive(
    remembered: tuple[Path, dict[str, bytes], Dataset], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data, first = remembered
    monkeypatch.setattr(cifar, "read_members", None)
    second = load(path, cache, data)
    assert same(first, second)
    base = pixels(second, "train")
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    # Writable without touching the file, so that torch takes it without a copy.
    before = {p.name: p.read_bytes() for p in cache.iterdir()}
    pixels(second, "train")[:] = 0
    assert {p.name: p.read_bytes() for p in cache.iterdir()} == before
    assert all(p.suffix in (".npy", ".json") for p in cache.iterdir())


def test_changed_source_is_read_again(
    remembered: tuple[Path, dict[str, bytes], Dataset], tmp_path: Path, cache: Path
) -> None:
    path, _, first = remembered
    changed = wrong(lambda f: f["test"].update({b"data": flat(3, 77)}))
    as_archive(tmp_path, "cifar100", changed)
    os.utime(path, ns=(0, 0))
    assert not same(load(path, cache, changed), first)
    with pytest.raises(InputError, match="md5"):
        cifar.load(path, "cifar100", cache=cache)


@given(
    which=st.integers(0, 4),
    position=st.integers(0, 1 << 20),
    value=st.integers(0, 255),
    cut=st.booleans(),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damaged_cache_is_made_again_silently(
    remembered: tuple[Path, dict[str, bytes], Dataset],
    cache: Path,
    which: int,
    position: int,
    value: int,
    cut: bool,
) -> None:
    path, data, first = remembered
    file = sorted(cache.iterdir())[which]
    good = file.read_bytes()
    damaged = bytearray(good)
    damaged[position % len(good)] = value
    file.write_bytes(damaged[: position % len(good)] if cut else damaged)
    assert same(load(path, cache, data), first)
    if file.read_bytes() != good:
        # A header can be written in other ways that mean the same, such as =i8 for <i8.
        assert not cut
        assert position % len(good) < 128
        file.write_bytes(good)
    assert len(list(cache.iterdir())) == 5


def test_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    data = pickled(contents("cifar100"))
    path = as_archive(tmp_path, "cifar100", data)
    (tmp_path / "file").write_text("not a directory")
    assert len(load(path, tmp_path / "file" / "cache", data).train) == 6


def test_cache_is_in_the_users_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cifar.default_cache() == tmp_path / "proselflc"
    data = pickled(contents("cifar10"))
    cifar.load(as_archive(tmp_path, "cifar10", data), "cifar10", checksums=sums(data))
    assert len(list((tmp_path / "proselflc").glob("cifar10-*.npy"))) == 4
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cifar.default_cache() == tmp_path / ".cache" / "proselflc"


SMALL = pickled(contents("cifar100"))


@given(
    file=st.sampled_from(sorted(SMALL)),
    edits=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=4),
    near_start=st.booleans(),
    near_end=st.booleans(),
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fuzzed_files_are_refused_by_their_checksum(
    tmp_path: Path,
    file: str,
    edits: list[tuple[int, int]],
    near_start: bool,
    near_end: bool,
) -> None:
    damaged = bytearray(SMALL[file])
    for position, value in edits:
        at = position % min(300 if near_start else len(damaged), len(damaged))
        damaged[-at if near_end else at] = value
    data = {**SMALL, file: bytes(damaged)}
    cache = tmp_path / "fuzz"
    result = outcome(as_folder(tmp_path, "cifar100", data), cache, SMALL)
    shutil.rmtree(cache, ignore_errors=True)
    if data == SMALL:
        assert isinstance(result, Dataset)
    else:
        assert f"{file} of cifar-100-python has md5" in str(result)


def outcome(path: Path, cache: Path, data: dict[str, bytes]) -> Dataset | InputError:
    try:
        return load(path, cache, data)
    except InputError as error:
        return error


def test_real_cifar100_is_what_is_published(cifar100: Dataset) -> None:
    assert pixels(cifar100, "train").shape == (50_000, 32, 32, 3)
    assert pixels(cifar100, "test").shape == (10_000, 32, 32, 3)
    assert cifar100.test is not None
    assert np.bincount(cifar100.train.labels).tolist() == [500] * 100
    assert np.bincount(cifar100.test.labels).tolist() == [100] * 100
    # Channel means that everybody normalises with.
    means = pixels(cifar100, "train").reshape(-1, 3).mean(axis=0) / 255
    np.testing.assert_allclose(means, [0.5071, 0.4865, 0.4409], atol=5e-5)
    assert cifar100.coarse is not None
    assert np.bincount(cifar100.coarse).tolist() == [5] * 20
    group = {cifar100.names[i] for i in np.flatnonzero(cifar100.coarse == 0)}
    assert group == {"beaver", "dolphin", "otter", "seal", "whale"}


def test_real_cifar100_comes_from_the_cache(
    cifar100: Dataset, cifar100_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar, "_decode", None)  # decoding again would fail
    again = cifar.load(SHARED, "cifar100", cache=cifar100_cache)
    assert same(again, cifar100)


@pytest.mark.skipif(not (SHARED / "cifar-n").is_dir(), reason="the real CIFAR-100N is not there")
def test_real_human_labels_are_in_the_order_of_the_real_images(
    cifar100: Dataset, cifar100_cache: Path
) -> None:
    dataset = cifar_n.load("cifar100n", SHARED, cache=cifar100_cache)
    assert dataset.clean is not None
    np.testing.assert_array_equal(dataset.clean, cifar100.train.labels)
    rate = float((dataset.train.labels != dataset.clean).mean())
    assert abs(rate - 0.402) < 0.0005
    assert dataset.coarse is not None
    assert dataset.name == "cifar100n"


def fabricated(clean: bool) -> Dataset:
    """Ten classes of five coarse ones, two each: 0 and 5 are of coarse class 0, and so on."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 3)
    pixels = generator.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    part = Part(Images(pixels), labels, tuple(f"train/{k}" for k in range(30)))
    given = part
    if clean:  # one label of another coarse class, one within
        wrong = labels.copy()
        wrong[0], wrong[3] = 9, 6
        given = Part(part.inputs, wrong, part.ids)
    names = tuple(f"class {k}" for k in range(10))
    coarse = np.arange(10) % 5
    return Dataset("ten", given, names, test=part, clean=labels if clean else None, coarse=coarse)


def test_the_classes_of_the_first_coarse_ones_stay_at_half_the_size() -> None:
    whole = fabricated(clean=False)
    small = cifar.shrink(whole)
    kept = [0, 1, 2, 3, 5, 6, 7, 8]
    assert small.names == tuple(f"class {k}" for k in kept)
    assert small.coarse is not None
    assert small.coarse.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert small.train.labels.tolist() == np.repeat(np.arange(8), 3).tolist()
    assert isinstance(small.train.inputs, Images)
    assert isinstance(whole.train.inputs, Images)
    assert small.train.inputs.pixels.shape == (24, 16, 16, 3)
    row = small.train.ids.index("train/15")  # of class 5
    before, after = whole.train.inputs.pixels[15], small.train.inputs.pixels[row]
    for i, j in ((0, 0), (7, 3), (15, 15)):
        square = before[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].astype(float)
        assert np.abs(after[i, j] - square.mean((0, 1))).max() <= 0.5
    assert small.test is not None
    assert len(small.test) == 24


def test_a_label_of_another_coarse_class_is_left_out() -> None:
    small = cifar.shrink(fabricated(clean=True))
    assert len(small.train) == 23
    assert "train/0" not in small.train.ids
    row = small.train.ids.index("train/3")
    assert small.clean is not None
    assert small.names[small.train.labels[row]] == "class 6"
    assert small.names[small.clean[row]] == "class 1"


def test_the_real_one_has_the_numbers_that_are_listed(cifar100_cache: Path) -> None:
    small = open_data(Request("cifar100-small", data_root=SHARED, cache=cifar100_cache))
    assert (len(small.train), small.num_classes) == (10_000, 20)
    assert small.test is not None
    assert len(small.test) == 2_000
    assert set(np.bincount(small.train.labels)) == {500}
    tiny = open_data(Request("cifar100-tiny", data_root=SHARED, cache=cifar100_cache))
    assert small.coarse is not None
    assert tiny.names == tuple(
        name for name, coarse in zip(small.names, small.coarse, strict=True) if coarse < 2
    )
    assert set(np.bincount(tiny.train.labels)) == {500}
