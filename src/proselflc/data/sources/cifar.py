"""CIFAR-10 and CIFAR-100, python version (Krizhevsky 2009): directory, `.tar.gz` or `.tar.xz`.

What was read once is kept, decoded, in a cache of plain `.npy` files that later runs map into
memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.archives import download, unpickling
from proselflc.data.archives.archive import SUFFIXES, Member, members
from proselflc.data.dataset import Bytes, Dataset, Images, Ints, Part, checked
from proselflc.errors import InputError, unknown
from proselflc.files.regular import content_of, open_regular
from proselflc.files.whole import whole_file

Name: TypeAlias = Literal["cifar10", "cifar100"]


@dataclass(frozen=True)
class _Layout:
    """Where a set keeps what, with the published md5 of each file."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: bytes
    coarse: bytes | None
    names: bytes
    checksums: Mapping[str, str]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, *self.test, self.meta)


_LAYOUTS: dict[str, _Layout] = {
    "cifar10": _Layout(
        folder="cifar-10-batches-py",
        archive="cifar-10-python",
        train=tuple(f"data_batch_{i}" for i in range(1, 6)),
        test=("test_batch",),
        meta="batches.meta",
        labels=b"labels",
        coarse=None,
        names=b"label_names",
        checksums={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
    ),
    "cifar100": _Layout(
        folder="cifar-100-python",
        archive="cifar-100-python",
        train=("train",),
        test=("test",),
        meta="meta",
        labels=b"fine_labels",
        coarse=b"coarse_labels",
        names=b"fine_label_names",
        checksums={
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "meta": "7973b15100ade9c7d40fb424638fde48",
        },
    ),
}

_LARGEST = 256 << 20  # bytes of a file of pixels; the real ones have 31 or 155 MB
_FORMAT = 1  # of the cache


@dataclass(frozen=True)
class _Decoded:
    """What the files hold, and what the cache keeps."""

    train_images: Bytes  # [n, 32, 32, 3]
    train_labels: Ints  # [n]
    test_images: Bytes  # [m, 32, 32, 3]
    test_labels: Ints  # [m]
    names: tuple[str, ...]
    coarse: tuple[int, ...] | None


def find(name: Name, path: Path, *, fetch: bool = False) -> Path:
    """The archive or the directory of files that `path` is or holds.

    Args:
        name: which of the two.
        path: the archive, the directory, or the data root that one of them is in.
        fetch: download the archive to the data root if it is in none of these places.
    """
    layout = _layout(name)
    if path.is_file():
        return path
    for folder in (path, path / layout.folder):
        if all((folder / file).is_file() for file in layout.files):
            return folder
    for suffix in SUFFIXES:
        if (path / (layout.archive + suffix)).is_file():
            return path / (layout.archive + suffix)
    if fetch:
        return download.fetch(name, path)[0]
    raise InputError(f"{name} was not found in {path}: {download.instructions(name, path)}")


def load(
    path: Path,
    name: Name,
    *,
    cache: Path | None = None,
    checksums: Mapping[str, str] | None = None,
) -> Dataset:
    """CIFAR-10 or CIFAR-100 as `Images` [n, 32, 32, 3], train and test.

    Ids are "cifar100/train/00000" and so on, by position in the python version's order.

    Args:
        path: the archive, the directory, or the data root that one of them is in.
        name: which of the two.
        cache: where decoded arrays are kept; the user's cache directory by default. A cache that
            cannot be written is done without, one that is damaged is made again.
        checksums: the md5 of each file if they are not the published ones.
    """
    layout = _layout(name)
    source = find(name, path)
    expected = dict(layout.checksums if checksums is None else checksums)
    place = default_cache() if cache is None else cache
    entry = place / f"{name}-{_fingerprint(source, layout, expected)}"
    decoded = _recall(entry)
    if decoded is None:
        decoded = _decode(_files(source, layout), layout, expected, source)
        with contextlib.suppress(OSError, InputError):
            _remember(entry, decoded)
    return checked(
        Dataset(
            name=name,
            train=_part(decoded.train_images, decoded.train_labels, f"{name}/train"),
            names=decoded.names,
            test=_part(decoded.test_images, decoded.test_labels, f"{name}/test"),
            coarse=None if decoded.coarse is None else np.array(decoded.coarse, dtype=np.int64),
        )
    )


def default_cache() -> Path:
    """`proselflc` in the user's cache directory (XDG)."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    root = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return root / "proselflc"


def _layout(name: str) -> _Layout:
    if name not in _LAYOUTS:
        raise InputError(unknown("CIFAR data set", name, _LAYOUTS))
    return _LAYOUTS[name]


def _part(images: Bytes, labels: Ints, prefix: str) -> Part:
    return Part(Images(images), labels, tuple(f"{prefix}/{i:05d}" for i in range(len(labels))))


def _files(source: Path, layout: _Layout) -> Iterator[Member]:
    """The files of a directory or of an archive, by their bare names."""
    if source.is_dir():
        for name in layout.files:
            file = source / name
            try:
                if file.stat().st_size > _LARGEST:
                    raise InputError(f"{file} has more than {_LARGEST:,} bytes: it is not CIFAR's")
                data = content_of(file)
            except OSError as error:
                raise InputError(f"{file} could not be read: {error}") from error
            yield Member(name, data, hashlib.md5(data, usedforsecurity=False).hexdigest())
        return
    wanted = {f"{layout.folder}/{name}": _LARGEST for name in layout.files}
    for member in members(source, wanted):
        yield Member(member.name.rpartition("/")[2], member.data, member.md5)


def _decode(
    files: Iterator[Member], layout: _Layout, checksums: Mapping[str, str], source: Path
) -> _Decoded:
    batches: dict[str, tuple[Bytes, Ints, Ints | None]] = {}
    names: tuple[str, ...] = ()
    for file in files:
        what = f"{file.name} of {source.name}"
        if file.md5 != checksums.get(file.name):
            raise InputError(
                f"{what} has md5 {file.md5}, but {checksums.get(file.name)} was expected: the file "
                "is damaged or another one, get it again from its official page"
            )
        content = unpickling.loads(file.data, what)
        if not isinstance(content, dict):
            raise InputError(f"{what} is not a CIFAR file: it holds a {type(content).__name__}")
        if file.name == layout.meta:
            names = _names(_entry(content, layout.names, what), what)
        else:
            batches[file.name] = _batch(content, layout, what)
    train = [batches[name] for name in layout.train]
    test = [batches[name] for name in layout.test]
    train_images, train_labels = _joined(train)
    test_images, test_labels = _joined(test)
    coarse = None
    if layout.coarse is not None:
        coarse = _coarse_of_fine([*train, *test], len(names), source)
    return _Decoded(train_images, train_labels, test_images, test_labels, names, coarse)


def _entry(content: dict[Any, Any], key: bytes, what: str) -> object:
    """An entry of a pickled dictionary, whose keys are bytes from python 2 and text from 3."""
    for spelling in (key, key.decode()):
        if spelling in content:
            return content[spelling]
    raise InputError(f"{what} has no entry {key.decode()}: get it again from its official page")


def _names(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, bytes | str) for v in value):
        raise InputError(f"{what} does not hold a list of class names: get it again")
    names = tuple(v.decode("latin1") if isinstance(v, bytes) else v for v in value)
    if len(set(names)) != len(names) or not all(n.isprintable() and n for n in names):
        raise InputError(f"{what} holds class names that are empty or double: get it again")
    return names


def _batch(content: dict[Any, Any], layout: _Layout, what: str) -> tuple[Bytes, Ints, Ints | None]:
    """(images [n, 32, 32, 3], labels [n], coarse labels [n] or None) of one file."""
    flat = unpickling.array_of(_entry(content, b"data", what), f'"data" in {what}')
    if flat.dtype != np.uint8 or flat.ndim != 2 or flat.shape[1] != 3072:
        raise InputError(
            f"{what} holds {flat.dtype} data of shape {list(flat.shape)}, but uint8 [n, 3072] was "
            "expected: get it again from its official page"
        )
    keys = [layout.labels] if layout.coarse is None else [layout.labels, layout.coarse]
    columns = []
    for key in keys:
        column = unpickling.array_of(_entry(content, key, what), f'"{key.decode()}" in {what}')
        if column.dtype.kind not in "iu" or column.shape != (len(flat),):
            raise InputError(
                f"{what} has {len(flat)} images, but {key.decode()} of type {column.dtype} and "
                f"shape {list(column.shape)}: get it again from its official page"
            )
        columns.append(column.astype(np.int64))
    return _pixels(flat), columns[0], columns[1] if len(columns) > 1 else None


def _pixels(flat: npt.NDArray[np.uint8]) -> Bytes:
    """Images [n, 32, 32, 3] from CIFAR's rows [n, 3072], a plane of 1,024 for each colour.

    Plane by plane, in blocks that stay in the processor's cache: four times faster than one
    transposition.
    """
    planes = flat.reshape(-1, 3, 1024)
    images = np.empty((len(flat), 1024, 3), dtype=np.uint8)
    for start in range(0, len(flat), 500):
        block = slice(start, start + 500)
        for colour in range(3):
            images[block, :, colour] = planes[block, colour]
    return images.reshape(-1, 32, 32, 3)


def _joined(batches: list[tuple[Bytes, Ints, Ints | None]]) -> tuple[Bytes, Ints]:
    if len(batches) == 1:
        return batches[0][0], batches[0][1]
    return np.concatenate([b[0] for b in batches]), np.concatenate([b[1] for b in batches])


def _coarse_of_fine(
    batches: list[tuple[Bytes, Ints, Ints | None]], num_classes: int, source: Path
) -> tuple[int, ...]:
    """[C] the coarse class that all examples of each fine class are in."""
    fine = np.concatenate([b[1] for b in batches])
    coarse = np.concatenate([b[2] for b in batches if b[2] is not None])
    pairs = np.unique(np.stack([fine, coarse], axis=1), axis=0)
    if not np.array_equal(pairs[:, 0], np.arange(num_classes)):
        raise InputError(
            f"{source} does not put each of its {num_classes} fine classes into exactly one coarse "
            "class: get it again from its official page"
        )
    return tuple(int(c) for c in pairs[:, 1])


_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


def _fingerprint(source: Path, layout: _Layout, checksums: Mapping[str, str]) -> str:
    """Changes whenever the source may have: place, sizes and times of its files."""
    files = [source / name for name in layout.files] if source.is_dir() else [source]
    about: list[object] = [_FORMAT, sorted(checksums.items())]
    for file in files:
        state = file.stat()
        about.append([str(file.resolve()), state.st_size, state.st_mtime_ns])
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def _remember(entry: Path, decoded: _Decoded) -> None:
    """Write the arrays and then, as the sign that they are whole, the index."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    sums = {}
    for name in _ARRAYS:
        with whole_file(_array_file(entry, name)) as file:
            np.save(file, getattr(decoded, name), allow_pickle=False)
        sums[name] = _crc(_array_file(entry, name))
    index = {"names": decoded.names, "coarse": decoded.coarse, "crc32": sums}
    line = json.dumps(index).encode()
    with whole_file(_index_file(entry)) as file:
        file.write(b"%08x\n%s" % (zlib.crc32(line), line))


def _recall(entry: Path) -> _Decoded | None:
    """What the cache keeps, if every byte of it is as it was written."""
    try:
        crc, _, line = content_of(_index_file(entry)).partition(b"\n")
        if int(crc, 16) != zlib.crc32(line):
            return None
        index = json.loads(line)
        arrays: dict[str, Any] = {}
        for name in _ARRAYS:
            file = _array_file(entry, name)
            if _crc(file) != index["crc32"][name]:
                return None
            # Copy on write: torch wants arrays that could be written to, and the file stays.
            arrays[name] = np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
        coarse = None if index["coarse"] is None else tuple(index["coarse"])
        return _Decoded(**arrays, names=tuple(index["names"]), coarse=coarse)
    except (OSError, ValueError, LookupError, TypeError, EOFError):
        return None


def _index_file(entry: Path) -> Path:
    return entry.with_name(f"{entry.name}-index.json")


def _array_file(entry: Path, name: str) -> Path:
    return entry.with_name(f"{entry.name}-{name}.npy")


def _crc(path: Path) -> int:
    with (
        open_regular(path) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return zlib.crc32(content)
