"""`.npz` files with `x` and `y`, embeddings, and the safe reading of numpy's files for all others.

A header's shape is compared with the bytes that are there before an array is made for it, and
objects, which are pickles, are refused.
"""

from __future__ import annotations

import lzma
import math
import os
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from proselflc.data.dataset import (
    NO_LABEL,
    SPLITS,
    Contents,
    Dataset,
    L_co,
    ModelNeeds,
    Part,
    checked,
    choose_splits,
    renumbered,
)
from proselflc.data.inputs import Features, Images, Ints
from proselflc.errors import InputError
from proselflc.files.regular import open_regular

Array: TypeAlias = npt.NDArray[Any]

_KEYS = {"train": "x", "test": "x_test", "validation": "x_validation"}  # embeddings of each split
_SHORTEST = npy.MAGIC_LEN + 2  # bytes before the header of an array
_RATIO = 200  # of unpacked to packed bytes, where it matters
_HARMLESS = 64 << 20  # bytes that may be packed as well as they can be
_MANY_CLASSES = 1000  # that a file without `names` may have whatever its length

# What zipfile, the decoders and numpy raise on damaged bytes: RuntimeError (with its
# NotImplementedError) is an unknown or encrypted method, the rest are headers of nonsense.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    SyntaxError,
    MemoryError,
)


def read(path: Path, needs: ModelNeeds | None = None) -> Contents:
    """Return the contents of an `.npz` file, or of an `.npy` file as an `x` alone.

    | array | holds |
    |---|---|
    | `x` | [n, D] numbers (features), or uint8 images [n, H, W], [n, H, W, C] or [n, C, H, W] |
    | `y` | [n] integers 0 … C−1, or −1 for an example without a label |
    | `x_test`, `y_test` | the same for testing, all with a label |
    | `ids` | [n] texts or integers that name the training examples |
    | `clean` | [n] integers, the true labels of the training examples |
    | `names` | [C] texts, the class names |

    An image's channels are 1 or 3. Where the last axis has 1 or 3 it is the channels; otherwise
    axis 1 must. So [n, 3, 32, 3] is read as 3 rows of 32 pixels. Without `ids` the examples are
    "train/000000" and so on; without `names` the classes are "0" to the largest label, or a
    model's class ids. For a model there may be `x_validation`, as in a file of embeddings, any
    `x` may be missing, and so may every `y`.
    """
    splits = {"train": "", "test": "_test"}
    if needs is not None:
        splits["validation"] = "_validation"
    keys = [xy + suffix for suffix in splits.values() for xy in ("x", "y")]
    if path.suffix.lower() == ".npy":
        found = {"x": array(path)}
    else:
        found = arrays(path, (*keys, "ids", "names", *(() if needs else ("clean",))))
    labels = {
        name: _labels(found[name], name, path) for name in (*keys[1::2], "clean") if name in found
    }
    for name in keys:
        is_needed = name in ("x", "y") or _twin(name) in found
        if is_needed if needs is None else _twin(name) in labels:
            _require(found, name, path)
    here = {split: suffix for split, suffix in splits.items() if f"x{suffix}" in found}
    if not here:
        _require(found, "x", path)
    names = _names(found.get("names"), labels, path) if labels else ()
    parts: dict[str, Part[Ints | None]] = {}
    for split in here if needs is None else choose_splits(here, needs.split, path.name):
        suffix = here[split]
        y = labels.get(f"y{suffix}")
        part = _part(found, y, suffix, found.get("ids") if split == "train" else None, path)
        if needs is not None and y is not None:
            _check_classes(y, f"y{suffix}", names, path)
            y = renumbered(y, names, needs.names, str(path), or_numbers="names" not in found)
            part = replace(part, labels=y)
        parts[split] = part
        expected, came = next(iter(parts.values())).inputs.describe(), part.inputs.describe()
        if came != expected:
            raise InputError(
                f"{path} has {expected} in x, but {came} in x{suffix}", fix="they must be alike"
            )
    clean = labels.get("clean")
    if clean is not None:
        _check_rows(len(parts["train"]), clean, "clean", "x", path)
        _check_classes(clean, "clean", names, path)
    return Contents(path.name, parts, names, clean)


def _twin(name: str) -> str:
    """Return the name of the labels of some inputs, or of the inputs of some labels."""
    return ("y" if name[0] == "x" else "x") + name[1:]


def arrays(path: Path, wanted: Collection[str]) -> dict[str, Array]:
    """Return those of the wanted arrays that an `.npz` file has. The others are not looked at."""
    with _opened(path) as archive:
        infos = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}
        chosen = {name: infos[name] for name in wanted if name in infos}
        _refuse_bombs(path, chosen)
        found = {}
        for name, info in chosen.items():
            with archive.open(info) as stream:
                found[name] = _read(stream, info.file_size, f'"{name}" in {path}')
        if not found:
            raise InputError(
                f"{path} has none of the arrays {', '.join(wanted)}: it holds {_listed(infos)}"
            )
        return found


def names_of_arrays(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in an `.npz` file."""
    with _opened(path) as archive:
        return tuple(info.filename.removesuffix(".npy") for info in archive.infolist())


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an `.npz` file; damage that is met while it is open is refused in one sentence."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(
            f"{path} is not an .npz file or is damaged ({_reason(error)}): write it again with "
            "np.savez"
        ) from error


def array(path: Path) -> Array:
    """Return the array of an `.npy` file."""
    try:
        with open_regular(path) as stream:
            return _read(stream, os.fstat(stream.fileno()).st_size, str(path))
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(
            f"{path} is not an .npy file or is damaged ({_reason(error)}): write it again with "
            "np.save"
        ) from error


def mapped(file: BufferedReader) -> Array:
    """Return the array of an open `.npy` file, memory-mapped to be read.

    Python objects are refused; a header that is none or declares more than is there raises one of
    `DAMAGE`.
    """
    shape, fortran, dtype = _header(file)
    if dtype.hasobject:
        raise InputError("it holds Python objects, which can run code when read")
    return np.memmap(
        file, dtype=dtype, shape=shape, order="F" if fortran else "C", mode="r", offset=file.tell()
    )


def features(values: Array, what: str) -> npt.NDArray[np.float32]:
    """Return numbers [n, D] as float32; what does not fit becomes infinite, refused later."""
    if values.ndim != 2 or values.shape[1] == 0 or values.dtype.kind not in "fiub":
        raise InputError(
            f"{what} holds {values.dtype} of shape {list(values.shape)}, but features must be "
            "numbers of shape [n, D], and images uint8"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


def _refuse_bombs(path: Path, infos: Mapping[str, zipfile.ZipInfo]) -> None:
    size = path.stat().st_size
    for name, info in infos.items():
        packed = min(info.compress_size, size)
        if info.file_size > max(_HARMLESS, _RATIO * packed):
            raise InputError(
                f'"{name}" in {path} claims to unpack from {packed:,} to {info.file_size:,} bytes: '
                f"more than {_RATIO} times is refused, write it without compression (np.savez)"
            )


def _read(stream: IO[bytes], size: int, what: str) -> Array:
    """Return an array from a stream of `size` bytes, header first."""
    try:
        shape, fortran, dtype = _header(stream)
    except InputError as error:
        raise InputError(f"{what} {error}: write it again with np.save") from None
    if dtype.hasobject:
        raise InputError(
            f"{what} holds Python objects, which can run code when read: save numbers or text "
            "instead, e.g. np.array(values.tolist())"
        )
    if dtype.names is not None or dtype.subdtype is not None:
        raise InputError(f"{what} is a structured array: save its columns as one plain array")
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or dtype.itemsize == 0 or declared > size - _SHORTEST:
        raise InputError(
            f"{what} declares {dtype} of shape {list(shape)} = {declared:,} bytes, but only "
            f"{size:,} are there: write it again"
        )
    values = np.empty(shape[::-1] if fortran else shape, dtype=dtype)
    if values.nbytes:
        _fill(stream, values.reshape(-1).view(np.uint8).data, what)
    return values.T if fortran else values


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return what an `.npy` file declares: shape, whether columns come first, type."""
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise InputError(f"has an unknown format {version}")
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about old spellings in headers, which are read as well
        return header(stream)


def _fill(stream: IO[bytes], room: memoryview, what: str) -> None:
    filled = 0
    while filled < len(room):
        block = stream.read(min(len(room) - filled, 1 << 20))
        if not block:
            raise InputError(f"{what} ends after {filled:,} of {len(room):,} bytes: write it again")
        room[filled : filled + len(block)] = block
        filled += len(block)
    if stream.read(1):
        raise InputError(
            f"{what} goes on after the {len(room):,} bytes it declares: write it again"
        )


def _require(found: Mapping[str, Array], name: str, path: Path) -> None:
    if name not in found:
        raise InputError(
            f"{path} has no array {name}, only {_listed(found)}: write it with np.savez(file, "
            "x=…, y=…), and x_test with y_test"
        )


def _labels(values: Array, name: str, path: Path) -> Ints:
    """Return [n] int64 class ids from 0, and −1 for no label in "y"; refuse anything else."""
    wrong = ""
    if values.dtype.kind not in "iu":
        wrong = f"{values.dtype}"
    elif values.ndim != 1:
        wrong = f"shape {list(values.shape)}"
    elif len(values) and int(values.min()) < (NO_LABEL if name == "y" else 0):
        wrong = f"{int(values.min())}"
    elif len(values) and int(values.max()) > 1 << 31:
        wrong = f"{int(values.max())}"
    if wrong:
        raise InputError(f"{path} must have integers 0 … C−1 of shape [n] in {name}, got {wrong}")
    return values.astype(np.int64)


def _names(values: Array | None, labels: Mapping[str, Ints], path: Path) -> tuple[str, ...]:
    largest = max((int(v.max()) for v in labels.values() if len(v)), default=0)
    if values is None:
        if largest >= max(_MANY_CLASSES, *(len(v) for v in labels.values())):
            raise InputError(
                f"{path} has label {largest}, but fewer examples than that: number the classes "
                "0 … C−1, or give names with one text for each class"
            )
        return tuple(str(c) for c in range(largest + 1))
    names = _texts(values, "names", path)
    if len(set(names)) != len(names) or "" in names:
        raise InputError(
            f"{path} has class names that are empty or repeated in names: make them distinct"
        )
    return names


def _texts(values: Array, name: str, path: Path) -> tuple[str, ...]:
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise InputError(
            f"{path} must have texts of shape [n] in {name}, got {values.dtype} of shape "
            f"{list(values.shape)}"
        )
    try:
        return tuple(v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist())
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} has texts that are not UTF-8 in {name}: {error}") from error


def _part(
    found: Mapping[str, Array], y: Ints | None, suffix: str, ids: Array | None, path: Path
) -> Part[Ints | None]:
    x = found["x" + suffix]
    what = f'"x{suffix}" in {path}'
    if y is not None:
        _check_rows(len(x) if x.ndim else 0, y, f"y{suffix}", f"x{suffix}", path)
    is_image = x.dtype == np.uint8 and x.ndim in (3, 4)
    inputs = Images(images(x, what)) if is_image else Features(features(x, what))
    split = suffix.removeprefix("_") or "train"
    if ids is None:
        return Part(inputs, y, tuple(f"{split}/{i:06d}" for i in range(len(x))))
    named = _texts(ids, "ids", path)
    if len(named) != len(x):
        raise InputError(f"{path} has {len(named)} ids, but {len(x)} rows in x{suffix}")
    return Part(inputs, y, named)


def _check_rows(rows: int, labels: Ints, name: str, of: str, path: Path) -> None:
    if rows != len(labels):
        raise InputError(
            f"{path} has {len(labels)} labels in {name}, but {rows} rows in {of}",
            fix="they must go row for row",
        )


def _check_classes(labels: Ints, name: str, names: Collection[str], path: Path) -> None:
    if len(labels) and int(labels.max()) >= len(names):
        raise InputError(f"{path} has label {labels.max()} in {name}, but {len(names)} classes")


def images(x: Array, what: str) -> npt.NDArray[np.uint8]:
    """Return [n, H, W, C] from [n, H, W], [n, H, W, C] or, if C is not last, [n, C, H, W]."""
    if x.ndim == 3:
        x = x[..., None]
    elif x.shape[3] not in (1, 3) and x.shape[1] in (1, 3):
        x = x.transpose(0, 2, 3, 1)
    if x.shape[3] not in (1, 3) or 0 in x.shape[1:]:
        raise InputError(
            f"{what} has shape {list(x.shape)}, but images must be [n, H, W], [n, H, W, C] or "
            "[n, C, H, W] with 1 or 3 channels C"
        )
    return np.ascontiguousarray(x)


def _listed(names: Collection[str]) -> str:
    shown = [f'"{name[:40]}"' if name.isprintable() else ascii(name[:40]) for name in names]
    return (", ".join(shown[:10]) or "nothing") + (" and more" if len(shown) > 10 else "")


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


def with_features(dataset: Dataset, path: Path) -> Dataset:
    """Return the data set with features [n, D] as its inputs; see `attach`."""
    return checked(dataset.with_parts(attach(dataset.parts, path, dataset.name)))


def attach(parts: Mapping[str, Part[L_co]], path: Path, name: str) -> dict[str, Part[L_co]]:
    """Return the parts with features [n, D] as their inputs, row for row.

    The file is an `.npz` with `x` for the training examples and, for each other split that there
    is, `x_test` and `x_validation`; or an `.npy` with the rows of train, test and validation one
    after the other.
    """
    lengths = {split: len(parts[split]) for split in SPLITS if split in parts}
    read_rows = _by_split if path.suffix.lower() == ".npz" else _in_a_row
    values = read_rows(path, lengths, name)
    widths = {v.shape[1] for v in values.values()}
    if len(widths) > 1:
        raise InputError(
            f"{path} has splits of different widths, {sorted(widths)}: embed them alike"
        )
    return {split: replace(part, inputs=Features(values[split])) for split, part in parts.items()}


def _by_split(
    path: Path, lengths: Mapping[str, int], name: str
) -> dict[str, npt.NDArray[np.float32]]:
    found = arrays(path, tuple(_KEYS.values()))
    values = {}
    for split, key in _KEYS.items():
        if (key in found) != (split in lengths):
            has, lacks = (path, name) if key in found else (name, path)
            raise InputError(
                f"{has} has a {split} split, but {lacks} has none: {path} must have the arrays "
                f"{', '.join(_KEYS[s] for s in lengths)}"
            )
        if split in lengths:
            values[split] = features(found[key], f'"{key}" in {path}')
            _same_length(path, len(values[split]), lengths[split], f"{split} examples of {name}")
    return values


def _in_a_row(
    path: Path, lengths: Mapping[str, int], name: str
) -> dict[str, npt.NDArray[np.float32]]:
    rows: npt.NDArray[Any] = features(array(path), str(path))
    whole = " + ".join(f"{count} {split}" for split, count in lengths.items())
    _same_length(path, len(rows), sum(lengths.values()), f"examples ({whole}) of {name}")
    pieces = np.split(rows, np.cumsum(list(lengths.values()))[:-1])
    return dict(zip(lengths, pieces, strict=True))


def _same_length(path: Path, rows: int, examples: int, of_what: str) -> None:
    if rows != examples:
        raise InputError(
            f"{path} has {rows} rows of features for {examples} {of_what}: they must go row for row"
        )
