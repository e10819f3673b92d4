"""Small grey images: MNIST (LeCun 1998), Fashion-MNIST (Xiao 2017) and scikit-learn's digits.

The first two are idx files, plain or gzipped. The 1,797 digits need no download.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np

from proselflc.data.dataset import Dataset, Part, checked
from proselflc.data.inputs import Bytes, Images, Ints
from proselflc.data.sources import download
from proselflc.errors import InputError, unknown
from proselflc.files.regular import open_regular
from proselflc.wording import option

NAMES: dict[str, tuple[str, ...]] = {
    "mnist": tuple(str(digit) for digit in range(10)),
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}

# Both sets use the same file names; their first training labels tell them apart.
_FIRST_LABELS = {
    "mnist": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
    "fashion-mnist": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
}
_FOLDERS = {
    "mnist": ("mnist", "MNIST/raw", "."),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", "."),
}
_SYSTEM = {
    "mnist": (),
    "fashion-mnist": (Path("/usr/share/datasets/fashion-mnist"),),  # Debian's package
}
_SPLITS = {"train": "train", "test": "t10k"}
_RATIO = 1032  # the best compression that deflate can reach
_LARGEST = 1 << 30  # unpacked; MNIST has 47 MB
_BLOCK = 1 << 20


def find(name: str, data_root: Path | None, *, fetch: bool = False) -> Path:
    """Return the directory with the four files of a data set."""
    _check_name(name)
    places = [] if data_root is None else [data_root / folder for folder in _FOLDERS[name]]
    for place in (*places, *_SYSTEM[name]):
        if all(_existing(place, split, what) for split in _SPLITS for what in ("images", "labels")):
            return place
    missing = f"{name} was not found"
    return download.fetch_missing(name, data_root, allowed=fetch, missing=missing)[0].parent


def load(directory: Path, name: str) -> Dataset:
    """Return MNIST or Fashion-MNIST as `Images` [n, H, W, 1], train and test.

    Ids are "mnist/train/00000" and so on, by position in the file.
    """
    _check_name(name)
    train, test = (_part(directory, split, name) for split in _SPLITS)
    for other, first in _FIRST_LABELS.items():
        if other != name and tuple(train.labels[:10]) == first and len(train) == 60_000:
            raise InputError(
                f"{directory} holds {other}, but {name} was requested",
                field="data",
                fix=f"use {option('data', other)}, or put {name} there",
            )
    sizes = [cast("Images", part.inputs).pixels.shape[1:3] for part in (train, test)]
    if sizes[0] != sizes[1]:
        raise InputError(
            f"{directory} has training images of {sizes[0][0]}×{sizes[0][1]} pixels and test "
            f"images of {sizes[1][0]}×{sizes[1][1]}: they do not belong together"
        )
    return checked(Dataset(name=name, train=train, names=NAMES[name], test=test))


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise InputError(unknown("idx data set", name, NAMES))


def _part(directory: Path, split: str, name: str) -> Part:
    files = {}
    for what in ("images", "labels"):
        file = _existing(directory, split, what)
        if file is None:
            raise InputError(
                f"{directory} has no {_stems(split, what)[0]}, with or without .gz",
                fix=f"put it there, from {download.FILES[name][0].urls[0].rpartition('/')[0]}",
            )
        files[what] = file
    images = read(files["images"], 3)
    labels = read(files["labels"], 1)
    if len(images) != len(labels):
        raise InputError(
            f"{files['images']} has {len(images)} images, but {files['labels']} has {len(labels)} "
            "labels: they do not belong together"
        )
    if 0 in images.shape:
        raise InputError(f"{files['images']} holds no pixels: its shape is {list(images.shape)}")
    ids = tuple(f"{name}/{split}/{i:05d}" for i in range(len(labels)))
    return Part(Images(images[..., None]), labels.astype(np.int64), ids)


def _stems(split: str, what: str) -> tuple[str, str]:
    """Return the published file name and the one that some copies have."""
    dimensions = 3 if what == "images" else 1
    prefix = _SPLITS[split]
    return f"{prefix}-{what}-idx{dimensions}-ubyte", f"{prefix}-{what}.idx{dimensions}-ubyte"


def _existing(directory: Path, split: str, what: str) -> Path | None:
    for stem in _stems(split, what):
        for suffix in ("", ".gz"):
            if (directory / (stem + suffix)).is_file():
                return directory / (stem + suffix)
    return None


def read(path: Path, dimensions: int) -> Bytes:
    """Return the array of an idx file of bytes with that many dimensions, plain or gzipped.

    The sizes in the header are compared with the size of the file before memory is allocated.
    """
    try:
        with open_regular(path) as raw:
            size = os.fstat(raw.fileno()).st_size
            if raw.read(2) == b"\x1f\x8b":
                raw.seek(0)
                with gzip.GzipFile(fileobj=raw, mode="rb") as stream:
                    room = min(size * _RATIO, _LARGEST)
                    return _read(cast("IO[bytes]", stream), path, dimensions, room, False)
            raw.seek(0)
            return _read(raw, path, dimensions, size, True)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise InputError(f"{path} could not be read: {error}; download it again") from error


def _read(stream: IO[bytes], path: Path, dimensions: int, room: int, exact: bool) -> Bytes:
    """Return the array; `room` is the number of bytes in the stream, exactly or at most."""
    length = 4 + 4 * dimensions
    header = stream.read(length)
    if len(header) < length or header[:4] != bytes([0, 0, 8, dimensions]):
        raise InputError(
            f"{path} is not an idx file of bytes with {dimensions} dimensions: it starts with "
            f"{header[:4].hex() or 'nothing'} instead of 000008{dimensions:02x}"
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    declared = math.prod(shape)
    if declared + length > room or (exact and declared + length != room):
        raise InputError(
            f"{path} declares {' × '.join(f'{s:,}' for s in shape)} = {declared:,} bytes, but the "
            f"file {'has' if exact else 'can hold at most'} {max(room - length, 0):,}",
            fix="download it again",
        )
    values = np.empty(declared, dtype=np.uint8)
    filled = 0
    while block := stream.read(_BLOCK):
        if filled + len(block) > declared:
            raise InputError(f"{path} goes on after the {declared:,} bytes it declares")
        values[filled : filled + len(block)] = np.frombuffer(block, dtype=np.uint8)
        filled += len(block)
    if filled != declared:
        raise InputError(f"{path} ends after {filled:,} of the {declared:,} bytes it declares")
    return values.reshape(shape)


DIGITS_TRAIN = 1297
_DIGITS = 1797


def load_digits() -> Dataset:
    """Return the digits as `Images` [n, 8, 8, 1], split 1,297 / 500.

    The order is that of the SHA-256 of the ids, "digits/0000" … "digits/1796" by scikit-learn's
    order, so it is the same on every platform and with every version of numpy.
    """
    from sklearn import datasets

    bunch = datasets.load_digits()
    # 0 … 16 becomes 0 … 255, rounded half up in whole numbers.
    pixels = ((bunch.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int64)
    order = order_of_digits()
    ids = tuple(_digit_id(i) for i in range(_DIGITS))
    everything = Part(Images(pixels), labels, ids)
    return checked(
        Dataset(
            name="digits",
            train=everything.take(order[:DIGITS_TRAIN]),
            names=tuple(str(digit) for digit in range(10)),
            test=everything.take(order[DIGITS_TRAIN:]),
        )
    )


def order_of_digits() -> Ints:
    """Return [1797] the fixed order of the examples: training ones first."""
    numbers = range(_DIGITS)
    ordered = sorted(numbers, key=lambda i: hashlib.sha256(_digit_id(i).encode()).digest())
    return np.array(ordered, dtype=np.int64)


def _digit_id(number: int) -> str:
    return f"digits/{number:04d}"
