"""Any map-style PyTorch data set or Hugging Face data set, read into memory once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Contents, Dataset, Part, in_order
from proselflc.data.image import rgb
from proselflc.data.inputs import Bytes, Features, Floats, Images, Inputs, Ints, Texts
from proselflc.data.labels import LabelValues
from proselflc.data.tables.columns import LABEL, PATH, TEXT
from proselflc.data.tables.table import SPLITS
from proselflc.errors import InputError

_INPUT = frozenset({*TEXT, *PATH, "img", "pixel_values", "x", "input", "inputs", "features"})

_Label: TypeAlias = int | str
_Input: TypeAlias = str | Bytes | Floats  # a text, an image [H, W, 1 or 3], features [D]


def load(dataset: object, *, test: object | None = None, name: str = "dataset") -> Dataset:
    """Read a data set object, item by item, each one once.

    Args:
        dataset: has `__len__` and `__getitem__` and gives `(x, y)`, `(x, y, index)` or a dict with
            a label; or a dict of such data sets by split, as Hugging Face gives. x is a Pillow
            image, an array or tensor (an image [C, H, W], [H, W, C] or [H, W] of bytes or of floats
            in 0 … 1, or features [D]), a text, or, in a dict, several columns of numbers. y is a
            class id or a class name.
        test: another one to test on.
        name: what to call it in messages.

    Class names come from the label's own names (`ClassLabel`), from an attribute `classes`, or
    are the labels themselves, sorted as people do. Ids are a column `id` or the positions.
    """
    splits = _splits(dataset, test, name)
    read = {split: _read(part, _what(split, name)) for split, part in splits.items()}
    names, class_ids = _classes(splits["train"], read["train"], name)
    columns = read["train"].columns
    parts: dict[str, Part[Ints | None]] = {}
    for split, examples in read.items():
        what = _what(split, name)
        labels = _encode(examples.labels, class_ids, what)
        parts[split] = Part(_stacked(examples.inputs, columns, what), labels, examples.ids)
        expected, came = (part.inputs.describe() for part in (parts["train"], parts[split]))
        if came != expected:
            raise InputError(
                f"{what} has {came}, but those to learn from are {expected}",
                fix="give both the same kind and size of inputs",
            )
    values = _values(read["train"], names, class_ids)
    return replace(Contents(name, parts, names).dataset(), label_values=values)


@dataclass(frozen=True)
class _Examples:
    inputs: list[_Input]
    labels: list[_Label]
    kinds: frozenset[type]  # of the labels as they were: bool, int, float, str
    ids: tuple[str, ...]
    columns: tuple[str, ...] | None = None  # where the features were columns
    names: tuple[str, ...] | None = None  # where the label column brings them


@dataclass(frozen=True)
class _Keys:
    """Which keys of a dict hold what."""

    label: str
    inputs: tuple[str, ...]
    id: str | None


def _splits(dataset: object, test: object | None, name: str) -> dict[str, object]:
    splits: dict[str, object] = {"train": dataset}
    if isinstance(dataset, Mapping):
        splits = {SPLITS[k.lower()]: v for k, v in dataset.items() if str(k).lower() in SPLITS}
        if "train" not in splits:
            raise InputError(
                f"{name} is a dict with {', '.join(map(str, dataset)) or 'nothing'}: expected a "
                'data set under "train"'
            )
    if test is not None:
        if "test" in splits:
            raise InputError(f"{name} has a test split and another was given: leave one out")
        splits["test"] = test
    return splits


def _what(split: str, name: str) -> str:
    return name if split == "train" else f"the {split} split of {name}"


def _read(dataset: Any, what: str) -> _Examples:
    """Return every example of a data set object."""
    if isinstance(dataset, str | bytes) or not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"{what} is a {type(dataset).__name__}: expected a data set with __len__ and "
            "__getitem__ that gives (x, y)"
        )
    try:
        n = len(dataset)
    except (TypeError, NotImplementedError):
        raise InputError(
            f"{what} has no length, so it can only be streamed: give a map-style data set with "
            "__len__ and __getitem__"
        ) from None
    kinds = getattr(dataset, "features", None)
    kinds = kinds if isinstance(kinds, Mapping) else {}
    keys: _Keys | None = None
    inputs: list[_Input] = []
    labels: list[_Label] = []
    label_kinds: set[type] = set()
    ids: list[str] = []
    for i, item in enumerate(_items(dataset, n, what)):
        where = f"example {i} of {what}"
        if isinstance(item, Mapping):
            keys = keys or _keys(item, kinds, what)
            if not {keys.label, *keys.inputs} <= item.keys():
                raise InputError(
                    f"{where} has {', '.join(map(str, item))}: expected {keys.label} and "
                    f"{', '.join(keys.inputs)}, as in the first example"
                )
            x = item[keys.inputs[0]] if len(keys.inputs) == 1 else [item[k] for k in keys.inputs]
            y = item[keys.label]
            ids.append(str(i if keys.id is None else item.get(keys.id, i)))
        elif isinstance(item, tuple | list) and len(item) in (2, 3):
            x, y = item[0], item[1]
            ids.append(str(i))
        else:
            raise InputError(f"{where} is a {type(item).__name__}: expected (x, y) or a dict")
        inputs.append(_input(x, where))
        label, kind_of_label = _label(y, where)
        labels.append(label)
        label_kinds.add(kind_of_label)
    if not labels:
        raise InputError(f"{what} has no examples")
    columns = keys.inputs if keys is not None and len(keys.inputs) > 1 else None
    names = getattr(kinds.get(keys.label), "names", None) if keys is not None else None
    known = tuple(names) if names else None
    return _Examples(inputs, labels, frozenset(label_kinds), tuple(ids), columns, known)


def _items(dataset: Any, n: int, what: str) -> Iterable[Any]:
    for i in range(n):
        try:
            item = dataset[i]
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise InputError(
                f"example {i} of {what} cannot be read ({words}): fix or remove it"
            ) from error
        yield item


def _keys(item: Mapping[Any, Any], kinds: Mapping[Any, Any], what: str) -> _Keys:
    """Return which keys of the first example hold what."""
    keys = [key for key in item if isinstance(key, str)]
    listed = ", ".join(keys)
    labels = [k for k in keys if k.lower() in LABEL]
    labels = labels or [k for k in keys if hasattr(kinds.get(k), "names")]
    if len(labels) != 1:
        found = f"{' and '.join(labels)} could each be" if labels else "none is called"
        raise InputError(
            f'{what} has the columns {listed}, of which {found} the label: rename it to "label" '
            "and remove other labels"
        )
    rest = [k for k in keys if k != labels[0] and k.lower() not in ("id", "index", "idx")]
    usual = [k for k in rest if k.lower() in _INPUT]
    inputs = usual if len(usual) == 1 else rest
    for k in inputs:
        if k.lower() in PATH and isinstance(item[k], str):
            raise InputError(
                f'{what} has paths in "{k}": let the data set open the images, or give a table '
                "with a path column"
            )
    numbers = all(np.ndim(item[k]) == 0 and not isinstance(item[k], str) for k in inputs)
    if not inputs or (len(inputs) > 1 and not numbers):
        raise InputError(
            f"{what} has the columns {listed}: keep one column to learn from beside "
            f'"{labels[0]}", or columns of numbers only'
        )
    return _Keys(labels[0], tuple(inputs), next((k for k in keys if k.lower() == "id"), None))


def _label(y: Any, where: str) -> tuple[_Label, type]:
    """Return a label, and what it was before: bool, int, float or str."""
    if isinstance(y, str) and y.strip():
        return y.strip(), str
    one = hasattr(y, "item") and all(size == 1 for size in getattr(y, "shape", ()))
    value = y.item() if one else y
    if isinstance(value, bool | int | float) and float(value).is_integer() and value >= 0:
        return int(value), type(value)
    raise InputError(
        f"{where} has the label {_shown(y)}: expected a class id from 0 or a class name"
    )


def _shown(value: object) -> str:
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else words[:59] + "…"


def _input(x: object, where: str) -> _Input:
    """Return one input in the form it is kept in."""
    import torch
    from PIL import Image

    if isinstance(x, str):
        return x
    if isinstance(x, Image.Image):
        try:
            pixels: Bytes = np.array(rgb(x))
        except Exception as error:
            raise InputError(f"{where} cannot be read as an image: {error}") from error
        return pixels[:, :, :1] if x.mode in ("1", "L") else pixels
    channels_first = isinstance(x, torch.Tensor)
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        x = (x.float() if x.is_floating_point() else x).numpy()
    try:
        array = np.asarray(x)
    except ValueError:  # lists of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "buif" or array.size == 0:
        raise InputError(
            f"{where} is a {type(x).__name__}, which is not an image, a text or a row of numbers: "
            "give one of these"
        )
    if array.ndim <= 1:
        with np.errstate(all="ignore"):  # what float32 cannot hold becomes infinite, found later
            return np.atleast_1d(array).astype(np.float32)
    return _bytes(_channels_last(array, channels_first, where), where)


def _channels_last(array: npt.NDArray[Any], channels_first: bool, where: str) -> npt.NDArray[Any]:
    """Return an image as [H, W, 1 or 3]; where both ends fit, tensors are taken as [C, H, W]."""
    if array.ndim == 2:
        return array[:, :, None]
    if array.ndim == 3:
        first, last = array.shape[0] in (1, 3), array.shape[2] in (1, 3)
        if first and (channels_first or not last):
            return array.transpose(1, 2, 0)
        if last:
            return array
    raise InputError(
        f"{where} has the shape {list(array.shape)}: expected an image [C, H, W] or [H, W, C] with "
        "1 or 3 channels, or features [D]"
    )


def _bytes(array: npt.NDArray[Any], where: str) -> Bytes:
    low, high = float(array.min()), float(array.max())
    if array.dtype.kind == "f" and low >= 0 and high <= 1:
        scaled: npt.NDArray[Any] = np.rint(array * 255)
        return scaled.astype(np.uint8)
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind in "ui" and low >= 0 and high <= 255:
        return array.astype(np.uint8)
    raise InputError(
        f"{where} has pixels from {low:g} to {high:g}: expected floats in 0 … 1 or bytes in "
        "0 … 255, so leave normalising out of the data set"
    )


def _classes(
    dataset: Any, train: _Examples, name: str
) -> tuple[tuple[str, ...], dict[_Label, int]]:
    """Return the class names, and the class id of every label that may occur."""
    names = train.names or _own_names(dataset)
    if len({type(label) for label in train.labels}) > 1:
        raise InputError(f"{name} has class ids and class names among its labels: use one of them")
    if names is None:
        names = in_order(str(label) for label in train.labels)
        by_text = {text: k for k, text in enumerate(names)}
        return names, {label: by_text[str(label)] for label in train.labels}
    if isinstance(train.labels[0], str):
        return names, {text: k for k, text in enumerate(names)}
    return names, {k: k for k in range(len(names))}


def _values(
    train: _Examples, names: tuple[str, ...], class_ids: Mapping[_Label, int]
) -> LabelValues:
    """Return the labels of the classes as the items hold them: texts, or an array of numbers."""
    if str in train.kinds:
        return LabelValues(names)
    known = {k: label for label, k in class_ids.items()}
    numbers = np.array([int(known[k]) for k in range(len(names))])
    if train.kinds == {bool} and len(names) <= 2:
        numbers = numbers.astype(np.bool_)
    elif float in train.kinds:
        numbers = numbers.astype(np.float64)
    return LabelValues.like(numbers, numbers.tolist())


def _own_names(dataset: Any) -> tuple[str, ...] | None:
    """Return the attribute `classes`, of the data set or of the one it is a part of."""
    for _ in range(8):
        names = getattr(dataset, "classes", None)
        if isinstance(names, list | tuple) and all(isinstance(n, str) for n in names):
            return tuple(names) or None
        dataset = getattr(dataset, "dataset", None)
    return None


def _encode(labels: Sequence[_Label], class_ids: Mapping[_Label, int], what: str) -> Ints:
    for i, label in enumerate(labels):
        if label not in class_ids:
            known = ", ".join(str(k) for k in list(class_ids)[:30])
            raise InputError(
                f"example {i} of {what} has the label {_shown(label)}: expected one of {known}"
            )
    return np.array([class_ids[label] for label in labels], dtype=np.int64)


def _stacked(inputs: list[_Input], columns: tuple[str, ...] | None, what: str) -> Inputs:
    """Return all inputs as one, if they are of one kind and size."""
    first = inputs[0]
    for i, x in enumerate(inputs):
        if _form(x) != _form(first):
            raise InputError(
                f"example {i} of {what} is {_words(x)}, but example 0 is {_words(first)}: all must "
                "be alike, so resize or pad them first"
            )
    texts = [x for x in inputs if isinstance(x, str)]
    if texts:
        return Texts(tuple(texts))
    arrays = [x for x in inputs if not isinstance(x, str)]
    if arrays[0].ndim == 1:
        return Features(np.stack(arrays).astype(np.float32, copy=False), columns)
    depth = max(x.shape[2] for x in arrays)  # grey images among coloured ones become coloured
    shape = (*arrays[0].shape[:2], depth)
    return Images(
        np.stack([np.broadcast_to(x, shape) for x in arrays]).astype(np.uint8, copy=False)
    )


def _form(x: _Input) -> tuple[int, ...]:
    """Return what must be the same for all examples; () for a text."""
    return () if isinstance(x, str) else x.shape[:2]


def _words(x: _Input) -> str:
    if isinstance(x, str):
        return "a text"
    if x.ndim == 1:
        return f"a row of {len(x)} numbers"
    return f"an image of {x.shape[0]} × {x.shape[1]} pixels"
