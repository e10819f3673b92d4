"""Clothing1M (Xiao et al. 2015) as published: lists of keys, key-value label files, images.

It has a million images with labels taken from the surrounding text, about 38 % of them wrong, and
small sets labelled by hand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proselflc.data.dataset import Contents, Dataset, Part, Skipped
from proselflc.data.image import OnBadImage
from proselflc.data.inputs import ImageFiles, Ints
from proselflc.errors import InputError
from proselflc.files.regular import lines
from proselflc.wording import option

NAMES = (
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker", "Jacket"),
    *("Down Coat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
)

_PARTS = {
    "train": ("noisy_train_key_list.txt", "noisy_label_kv.txt"),
    "validation": ("clean_val_key_list.txt", "clean_label_kv.txt"),
    "test": ("clean_test_key_list.txt", "clean_label_kv.txt"),
}


def load(path: Path, *, on_bad_image: OnBadImage = "error") -> Dataset:
    """Read Clothing1M: train with noisy labels, validation and test with clean ones.

    The lists are in `path` or in `path/annotations`; their keys are image paths below `path` and
    become the ids. Images are listed, not opened: reading a million headers takes too long. A key
    without a label or an image is an error or is skipped, as `on_bad_image` says.
    """
    folder = path / "annotations" if (path / "annotations").is_dir() else path
    wanted = sorted({name for pair in _PARTS.values() for name in pair})
    for file in wanted:
        if not (folder / file).is_file():
            raise InputError(
                f"{folder / file} does not exist: Clothing1M as published has "
                f"{', '.join(wanted)} in {path} or {path / 'annotations'}",
                field="data_root",
            )
    labels = {file: _key_values(folder / file) for file in wanted if file.endswith("_kv.txt")}
    parts: dict[str, Part[Ints | None]] = {}
    skipped: list[Skipped] = []
    present: dict[str, frozenset[str]] = {}  # file names by folder
    for split, (list_file, label_file) in _PARTS.items():
        keys = _keys(folder / list_file)
        known = labels[label_file]
        good, bad = _split_by_usable(path, keys, known, present, label_file)
        if bad and on_bad_image == "error":
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise InputError(
                f"the key {bad[0].id}{more} of {folder / list_file} cannot be used: "
                f"{bad[0].reason}",
                field="on_bad_image",
                fix=f"complete the data, or skip such keys with {option('on_bad_image', 'skip')}",
            )
        skipped += bad
        parts[split] = Part(
            ImageFiles(tuple(path / key for key in good)),
            np.array([known[key] for key in good], dtype=np.int64),
            tuple(good),
        )
    names = _names(folder / "category_names_eng.txt")
    return Contents("clothing1m", parts, names, skipped=tuple(skipped)).dataset()


def _keys(path: Path) -> list[str]:
    keys = [line for line in lines(path) if line]
    for key in keys:
        if key.startswith("/") or ".." in key.split("/"):
            raise InputError(
                f'{path} holds the key "{key}", which leads out of the data folder: expected '
                "paths like images/0/00/1.jpg"
            )
    return keys


def _key_values(path: Path) -> dict[str, int]:
    """Return the label of every key; each line is a key, a space and 0 … 13."""
    labels: dict[str, int] = {}
    known = {str(k): k for k in range(len(NAMES))}
    for number, line in enumerate(lines(path), start=1):
        if not line:
            continue
        key, _, value = line.rpartition(" ")
        label = known.get(value)
        if label is None or not key:
            raise InputError(
                f'line {number} of {path} is "{line[:80]}": expected a key, a space and a label '
                f"from 0 to {len(NAMES) - 1}"
            )
        if labels.setdefault(key, label) != label:
            raise InputError(
                f'line {number} of {path} gives the key "{key}" label {label}, but another line '
                f"says {labels[key]}: keep one of them"
            )
    return labels


def _split_by_usable(
    root: Path,
    keys: Sequence[str],
    labels: dict[str, int],
    present: dict[str, frozenset[str]],
    label_file: str,
) -> tuple[list[str], list[Skipped]]:
    """Return the keys with a label and an image, and the rest with the reason."""
    good: list[str] = []
    bad: list[Skipped] = []
    for key in keys:
        folder, _, name = key.rpartition("/")
        if folder not in present:  # listing a folder once is faster than asking for every file
            present[folder] = _listing(root / folder)
        if key not in labels:
            bad.append(Skipped(key, f"{label_file} has no label for it"))
        elif name not in present[folder]:
            bad.append(Skipped(key, f"there is no image {root / key}"))
        else:
            good.append(key)
    return good, bad


def _listing(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise InputError(f"cannot list the folder {folder}: {error.strerror or error}") from None


def _names(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return NAMES
    names = tuple(line for line in lines(path) if line)
    if len(set(names)) != len(NAMES) or len(names) != len(NAMES):
        raise InputError(
            f"{path} has {len(set(names))} different class names, but Clothing1M has "
            f"{len(NAMES)}: one per line is expected"
        )
    return names
