"""CIFAR-10 and CIFAR-100, python version (Krizhevsky 2009): directory, `.tar.gz` or `.tar.xz`.

Decoded images are kept in a cache of `.npy` files that later runs map into memory. Pickles are
decoded only if their md5 is the published one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Dataset, Part, checked
from proselflc.data.inputs import Bytes, Images, Ints
from proselflc.data.sources import download
from proselflc.data.sources.untrusted import SUFFIXES, Member, read_members, to_array, unpickle
from proselflc.errors import InputError, unknown
from proselflc.files.regular import content_of, whole_file
from proselflc.files.typed import decode_json

Name: TypeAlias = Literal["cifar10", "cifar100"]


@dataclass(frozen=True)
class _Layout:
    """The files of a data set and their published md5."""

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
_AGAIN = "download it again from its official page"
_SMALLER = {"small": 4, "tiny": 2}  # the first coarse classes that stay, of five classes each
_POOL = 2  # pixels per side that become one


@dataclass(frozen=True)
class _Decoded:
    """The content of the files, which the cache keeps."""

    train_images: Bytes  # [n, 32, 32, 3]
    train_labels: Ints  # [n]
    test_images: Bytes  # [m, 32, 32, 3]
    test_labels: Ints  # [m]
    names: tuple[str, ...]
    coarse: tuple[int, ...] | None


def find(name: Name, path: Path, *, fetch: bool = False) -> Path:
    """Return the archive or the directory of files that `path` is or holds."""
    layout = _find_layout(name)
    if path.is_file():
        return path
    for folder in (path, path / layout.folder):
        if all((folder / file).is_file() for file in layout.files):
            return folder
    for suffix in SUFFIXES:
        if (path / (layout.archive + suffix)).is_file():
            return path / (layout.archive + suffix)
    missing = f"{name} was not found"
    return download.fetch_missing(name, path, allowed=fetch, missing=missing)[0]


def load(
    path: Path,
    name: Name,
    *,
    cache: Path | None = None,
    checksums: Mapping[str, str] | None = None,
) -> Dataset:
    """Return CIFAR-10 or CIFAR-100 as `Images` [n, 32, 32, 3], train and test.

    Ids are "cifar100/train/00000" and so on, by position in the order of the Python version.

    The path is that of the archive, the directory, or the data root that contains one of them.
    Decoded arrays are kept in the folder `cache`, the user's cache directory by default. Data are
    read without a cache that cannot be written, and a damaged one is written again. Checksums are
    the md5 of each file, the published ones by default.
    """
    layout = _find_layout(name)
    source = find(name, path)
    expected = dict(layout.checksums if checksums is None else checksums)
    folder = default_cache() if cache is None else cache
    entry = folder / f"{name}-{_fingerprint(source, layout, expected)}"
    decoded = _read_cache(entry)
    if decoded is None:
        decoded = _decode(_read_files(source, layout), layout, expected, source)
        with contextlib.suppress(OSError, InputError):
            _write_cache(entry, decoded)
    return checked(
        Dataset(
            name=name,
            train=_part(decoded.train_images, decoded.train_labels, f"{name}/train"),
            names=decoded.names,
            test=_part(decoded.test_images, decoded.test_labels, f"{name}/test"),
            coarse=None if decoded.coarse is None else np.array(decoded.coarse, dtype=np.int64),
        )
    )


def shrink(dataset: Dataset, size: Literal["small", "tiny"] = "small") -> Dataset:
    """Return CIFAR-100 small enough for a CPU: fewer classes, and a quarter of the pixels.

    The examples of the first four coarse classes stay, or of two for "tiny", with pixels averaged
    two by two. An example whose given label belongs to another coarse class is dropped.
    """
    assert dataset.coarse is not None
    assert dataset.test is not None
    kept = np.flatnonzero(dataset.coarse < _SMALLER[size])
    number = np.full(dataset.num_classes, -1)
    number[kept] = np.arange(len(kept))
    true = dataset.train.labels if dataset.clean is None else dataset.clean
    rows = np.flatnonzero((number[true] >= 0) & (number[dataset.train.labels] >= 0))
    return checked(
        Dataset(
            f"{dataset.name}-{size}",
            _shrink_part(dataset.train, rows, number),
            tuple(dataset.names[k] for k in kept),
            test=_shrink_part(
                dataset.test, np.flatnonzero(number[dataset.test.labels] >= 0), number
            ),
            clean=None if dataset.clean is None else number[dataset.clean[rows]],
            coarse=dataset.coarse[kept],
        )
    )


def _shrink_part(part: Part, rows: Ints, number: Ints) -> Part:
    taken = part.take(rows)
    assert isinstance(taken.inputs, Images)
    n, height, width, channels = taken.inputs.pixels.shape
    pool = _POOL
    shape = n, height // pool, pool, width // pool, pool, channels
    pixels = taken.inputs.pixels.reshape(shape).mean((2, 4)).round().astype(np.uint8)
    return Part(Images(pixels), number[taken.labels], taken.ids)


def default_cache() -> Path:
    """Return the folder `proselflc` in the user's cache directory (XDG)."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return root / "proselflc"


def _find_layout(name: str) -> _Layout:
    if name not in _LAYOUTS:
        raise InputError(unknown("CIFAR data set", name, _LAYOUTS))
    return _LAYOUTS[name]


def _part(images: Bytes, labels: Ints, prefix: str) -> Part:
    return Part(Images(images), labels, tuple(f"{prefix}/{i:05d}" for i in range(len(labels))))


def _read_files(source: Path, layout: _Layout) -> Iterator[Member]:
    """Yield the files of a directory or an archive by their bare names."""
    if not source.is_dir():
        wanted = {f"{layout.folder}/{name}": _LARGEST for name in layout.files}
        for member in read_members(source, wanted):
            yield Member(member.name.rpartition("/")[2], member.data)
        return
    for name in layout.files:
        file = source / name
        try:
            if file.stat().st_size > _LARGEST:
                raise InputError(f"{file} has more than {_LARGEST:,} bytes: it is not CIFAR's")
            yield Member(name, content_of(file))
        except OSError as error:
            raise InputError(f"{file} could not be read: {error}") from error


def _decode(
    files: Iterator[Member], layout: _Layout, checksums: Mapping[str, str], source: Path
) -> _Decoded:
    batches: dict[str, tuple[Bytes, Ints, Ints | None]] = {}
    names: tuple[str, ...] = ()
    for file in files:
        what = f"{file.name} of {source.name}"
        md5 = file.md5
        if md5 != checksums.get(file.name):
            raise InputError(
                f"{what} has md5 {md5}, but {checksums.get(file.name)} was expected: the file is "
                "damaged or another one",
                fix=_AGAIN,
            )
        content = unpickle(file.data, what)
        if not isinstance(content, dict):
            raise InputError(f"{what} is not a CIFAR file: it holds a {type(content).__name__}")
        if file.name == layout.meta:
            names = _read_names(_entry(content, layout.names, what), what)
        else:
            batches[file.name] = _read_batch(content, layout, what)
    train = [batches[name] for name in layout.train]
    test = [batches[name] for name in layout.test]
    coarse = None
    if layout.coarse is not None:
        coarse = _coarse_of_fine([*train, *test], len(names), source)
    return _Decoded(
        np.concatenate([b[0] for b in train]),
        np.concatenate([b[1] for b in train]),
        np.concatenate([b[0] for b in test]),
        np.concatenate([b[1] for b in test]),
        names,
        coarse,
    )


def _entry(content: dict[Any, Any], key: bytes, what: str) -> object:
    """Return an entry of a pickled dictionary, whose keys are bytes (Python 2) or text (3)."""
    for spelling in (key, key.decode()):
        if spelling in content:
            return content[spelling]
    raise InputError(f"{what} has no entry {key.decode()}", fix=_AGAIN)


def _read_names(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, bytes | str) for v in value):
        raise InputError(f"{what} does not hold a list of class names", fix=_AGAIN)
    names = tuple(v.decode("latin1") if isinstance(v, bytes) else v for v in value)
    if len(set(names)) != len(names) or not all(n.isprintable() and n for n in names):
        raise InputError(f"{what} holds class names that are empty or duplicate", fix=_AGAIN)
    return names


def _read_batch(
    content: dict[Any, Any], layout: _Layout, what: str
) -> tuple[Bytes, Ints, Ints | None]:
    """Return (images [n, 32, 32, 3], labels [n], coarse labels [n] or None) of one file."""
    flat = to_array(_entry(content, b"data", what), f'"data" in {what}')
    if flat.dtype != np.uint8 or flat.ndim != 2 or flat.shape[1] != 3072:
        raise InputError(
            f"{what} holds {flat.dtype} data of shape {list(flat.shape)}, but uint8 [n, 3072] was "
            "expected",
            fix=_AGAIN,
        )
    keys = [layout.labels] if layout.coarse is None else [layout.labels, layout.coarse]
    columns = []
    for key in keys:
        column = to_array(_entry(content, key, what), f'"{key.decode()}" in {what}')
        if column.dtype.kind not in "iu" or column.shape != (len(flat),):
            raise InputError(
                f"{what} has {len(flat)} images, but {key.decode()} of type {column.dtype} and "
                f"shape {list(column.shape)}",
                fix=_AGAIN,
            )
        columns.append(column.astype(np.int64))
    return _pixels(flat), columns[0], columns[1] if len(columns) > 1 else None


def _pixels(flat: npt.NDArray[np.uint8]) -> Bytes:
    """Return images [n, 32, 32, 3] from CIFAR's rows [n, 3072], a plane of 1,024 per colour.

    Copying plane by plane, in blocks that stay in the processor's cache, is four times faster than
    one transposition.
    """
    planes = flat.reshape(-1, 3, 1024)
    images = np.empty((len(flat), 1024, 3), dtype=np.uint8)
    for start in range(0, len(flat), 500):
        block = slice(start, start + 500)
        for colour in range(3):
            images[block, :, colour] = planes[block, colour]
    return images.reshape(-1, 32, 32, 3)


def _coarse_of_fine(
    batches: list[tuple[Bytes, Ints, Ints | None]], num_classes: int, source: Path
) -> tuple[int, ...]:
    """Return the coarse class of every fine class [C]."""
    fine = np.concatenate([b[1] for b in batches])
    coarse = np.concatenate([b[2] for b in batches if b[2] is not None])
    pairs = np.unique(np.stack([fine, coarse], axis=1), axis=0)
    if not np.array_equal(pairs[:, 0], np.arange(num_classes)):
        raise InputError(
            f"{source} does not put each of its {num_classes} fine classes into exactly one coarse "
            "class",
            fix=_AGAIN,
        )
    return tuple(int(c) for c in pairs[:, 1])


_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True)
class _CacheIndex:
    names: tuple[str, ...]
    coarse: tuple[int, ...] | None
    crc32: dict[str, int]


def _fingerprint(source: Path, layout: _Layout, checksums: Mapping[str, str]) -> str:
    """Return a hash of the paths, sizes and times of the source's files."""
    files = [source / name for name in layout.files] if source.is_dir() else [source]
    about: list[object] = [_FORMAT, sorted(checksums.items())]
    for file in files:
        state = file.stat()
        about.append([str(file.resolve()), state.st_size, state.st_mtime_ns])
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def _write_cache(entry: Path, decoded: _Decoded) -> None:
    """Write the arrays, and last the index, which marks them as complete."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    sums = {}
    for name in _ARRAYS:
        with whole_file(_array_file(entry, name)) as file:
            np.save(file, getattr(decoded, name), allow_pickle=False)
        sums[name] = zlib.crc32(content_of(_array_file(entry, name)))
    line = json.dumps(asdict(_CacheIndex(decoded.names, decoded.coarse, sums))).encode()
    with whole_file(_index_file(entry)) as file:
        file.write(b"%08x\n%s" % (zlib.crc32(line), line))


def _read_cache(entry: Path) -> _Decoded | None:
    """Return what the cache holds if every byte is as it was written, else None."""
    try:
        crc, _, line = content_of(_index_file(entry)).partition(b"\n")
        if int(crc, 16) != zlib.crc32(line):
            return None
        index = decode_json(line, _CacheIndex, entry)
        arrays: dict[str, Any] = {}
        for name in _ARRAYS:
            file = _array_file(entry, name)
            if zlib.crc32(content_of(file)) != index.crc32[name]:
                return None
            # Copy on write: torch wants writable arrays, and the file stays as it is.
            arrays[name] = np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
        return _Decoded(**arrays, names=index.names, coarse=index.coarse)
    except (OSError, ValueError, LookupError, TypeError, EOFError):
        return None


def _index_file(entry: Path) -> Path:
    return entry.with_name(f"{entry.name}-index.json")


def _array_file(entry: Path, name: str) -> Path:
    return entry.with_name(f"{entry.name}-{name}.npy")
