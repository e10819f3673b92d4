"""CIFAR-10N and CIFAR-100N (Wei 2022): CIFAR with labels given by people."""

from __future__ import annotations

import os
import pickle
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proselflc.data.dataset import Dataset, checked
from proselflc.data.inputs import Ints
from proselflc.data.sources import cifar, download, npz, untrusted
from proselflc.errors import InputError, unknown
from proselflc.files.regular import open_regular


@dataclass(frozen=True)
class _Release:
    """One of the two label files."""

    file: str  # name without its suffix
    images: cifar.Name
    sets: dict[str, str]  # columns by the names of their label sets, the default first


_RELEASES = {
    "cifar10n": _Release(
        "CIFAR-10_human",
        "cifar10",
        {
            "worse": "worse_label",
            "aggre": "aggre_label",
            "random1": "random_label1",
            "random2": "random_label2",
            "random3": "random_label3",
        },
    ),
    "cifar100n": _Release("CIFAR-100_human", "cifar100", {"noisy": "noisy_label"}),
}
NAMES = tuple(f"{n}:{s}" for n, release in _RELEASES.items() for s in release.sets)

_FOLDERS = (".", "cifar-n", "CIFAR-N", "cifar-10-100n/data")
_LARGEST = 64 << 20  # bytes
_ORIGINAL = "download the original file"


def load(name: str, data_root: Path, *, cache: Path | None = None, fetch: bool = False) -> Dataset:
    """Return CIFAR with human labels as the given ones and its own labels as `clean`.

    The name is "cifar10n:worse" (the default of "cifar10n"), ":aggre", ":random1" … ":random3", or
    "cifar100n". The data root has CIFAR (see `cifar.find`) and, in it or in its folder `cifar-n`,
    the label file `CIFAR-10_human.pt` or `.npz`; with `fetch`, what is missing is downloaded.
    """
    release, column = _parse_name(name)
    path = find(name, data_root, fetch=fetch)
    images = cifar.load(
        cifar.find(release.images, data_root, fetch=fetch), release.images, cache=cache
    )
    return with_human_labels(images, path, column, name)


def find(name: str, data_root: Path, *, fetch: bool = False) -> Path:
    """Return the label file of "cifar10n…" or "cifar100n" below the data root."""
    release, _ = _parse_name(name)
    for folder in _FOLDERS:
        for suffix in (".pt", ".npz"):
            path = data_root / folder / (release.file + suffix)
            if path.is_file():
                return path
    base, missing = name.partition(":")[0], f"the labels of {name} were not found"
    return download.fetch_missing(base, data_root, allowed=fetch, missing=missing)[0]


def with_human_labels(images: Dataset, path: Path, column: str, name: str) -> Dataset:
    """Return the images with the labels of a CIFAR-N column, checked against their own."""
    found = _read(path, ("clean_label", column))
    clean, given = (_labels(found, key, path) for key in ("clean_label", column))
    own = images.train.labels
    if len(clean) != len(own) or len(given) != len(own):
        raise InputError(
            f"{path} has {len(clean)} clean and {len(given)} human labels, but {images.name} has "
            f"{len(own)} training images: it belongs to another data set"
        )
    differing = int((clean != own).sum())
    if differing:
        raise InputError(
            f"the clean labels in {path} differ from those of {images.name} for {differing} of "
            f"{len(own)} images: the file is in another order, usually that of TensorFlow Datasets "
            "(TFDS), where the order of the Python version is needed",
            fix=_ORIGINAL,
        )
    return checked(replace(images.with_labels(given, own), name=name))


def _parse_name(name: str) -> tuple[_Release, str]:
    base, colon, chosen = name.partition(":")
    if base not in _RELEASES:
        raise InputError(unknown("CIFAR-N data set", name, (*_RELEASES, *NAMES)))
    sets = _RELEASES[base].sets
    chosen = chosen if colon else next(iter(sets))
    if chosen not in sets:
        raise InputError(unknown(f"label set of {base}", chosen, sets))
    return _RELEASES[base], sets[chosen]


def _labels(found: dict[str, Any], key: str, path: Path) -> Ints:
    if key not in found:
        raise InputError(
            f"{path} has no {key}, only {', '.join(sorted(found)) or 'other entries'}",
            fix=_ORIGINAL,
        )
    values = found[key]
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise InputError(
            f"{key} in {path} is {values.dtype} of shape {list(values.shape)}, but integers of "
            "shape [n] were expected",
            fix=_ORIGINAL,
        )
    return np.array(values, dtype=np.int64)


def _read(path: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    if path.suffix == ".npz":
        return npz.arrays(path, wanted)
    content = _unpickled(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, not a CIFAR-N dictionary")
    return {key: _array(content[key], f'"{key}" in {path}') for key in wanted if key in content}


def _array(value: object, what: str) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.cpu().numpy()
    return untrusted.to_array(value, what)


def _unpickled(path: Path) -> object:
    """Return the content of a `.pt` file.

    torch's reader of plain data has to be told that numpy's names are safe. They are not, so it
    gets the substitutes of `untrusted`.
    """
    import torch

    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            declared = 0
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    declared = sum(info.file_size for info in archive.infolist())
        if max(size, declared) > _LARGEST:
            raise InputError(
                f"{path} declares {max(size, declared):,} bytes, but a CIFAR-N file has a few "
                "million",
                fix=_ORIGINAL,
            )
        allowed = [(function, full) for full, function in untrusted.ALLOWED.items()]
        with (
            torch.serialization.safe_globals(allowed),  # type: ignore[arg-type]
            open_regular(path) as file,
        ):
            return torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except pickle.UnpicklingError as error:
        # torch names what it refused in its message: "Unsupported global: GLOBAL os.system …".
        _, found, rest = str(error).partition("GLOBAL ")
        if found:
            raise untrusted.forbidden_name(rest.split()[0], str(path)) from error
        raise _damaged(path, error) from error
    except Exception as error:  # torch's readers raise nearly anything on damaged bytes
        raise _damaged(path, error) from error


def _damaged(path: Path, error: BaseException) -> InputError:
    reason = str(error).partition("\n")[0][:200] or type(error).__name__
    return InputError(f"{path} is damaged or not a .pt file ({reason})", fix=_ORIGINAL)
