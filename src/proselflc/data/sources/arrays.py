"""Arrays, tensors, lists of texts and of paths from Python, as `proselflc.fit` takes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import NO_LABEL, Dataset, Part, checked, in_order, separated
from proselflc.data.image import SUFFIXES
from proselflc.data.inputs import Bools, Features, ImageFiles, Images, Inputs, Ints, Texts
from proselflc.data.labels import LabelValues
from proselflc.data.sources import npz
from proselflc.data.tables import frames
from proselflc.data.tables.kinds import ColumnKind
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError, unknown


def load(
    x: object,
    y: object,
    *,
    x_test: object | None = None,
    y_test: object | None = None,
    clean: object | None = None,
    names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    asked: frames.AskedColumns | None = None,
) -> Dataset:
    """Return a data set of what is in memory already; see `inputs` for x.

    Labels are class ids 0 … C−1 where the C class names are given, else any integers or texts,
    which then are the names, sorted as people do. None or NaN in y is an example without a label;
    −1 is a label like any other. Ids are distinct; left out, they are the index of
    a data frame if that names the examples, else their positions.
    """
    if (x_test is None) != (y_test is None):
        raise InputError("x_test and y_test go together: give both or none")
    is_named = names is not None
    known = is_known(y)
    y = _at(y, known)
    given = _labels(y, "y", as_texts=not is_named)
    truth = None if clean is None else _labels(clean, "clean", as_texts=not is_named)
    test = None if y_test is None else _labels(y_test, "y_test", as_texts=not is_named)
    if names is None:
        names = in_order(map(str, (*given, *(truth or ()), *(test or ()))))
        number: dict[object, int] = {name: k for k, name in enumerate(names)}
    else:
        number = {k: k for k in range(len(names))} | {name: k for k, name in enumerate(names)}
    learned = inputs(x, "x", asked=asked)
    named = _index_of(x, len(learned)) if ids is None else ids
    own = _class_ids(given, number, "y")
    labels = np.full(len(known), NO_LABEL)
    labels[known] = own
    train = _part(learned, labels, named, "train")
    clean_ids = None if truth is None else _class_ids(truth, number, "clean")
    if clean_ids is not None and len(clean_ids) != len(train):
        raise InputError(f"clean has {len(clean_ids)} labels for {len(train)} examples")
    held = None
    if test is not None:
        kinds = learned.kinds if isinstance(learned, MixedColumns) else None
        held = _part(
            _filled(x_test, learned, inputs(x_test, "x_test", kinds, asked)),
            _class_ids(test, number, "y_test"),
            None,
            "test",
        )
    if not is_named:
        parts = ((y, own), (clean, clean_ids), (y_test, held.labels if held else None))
        values = _values(y, [(some, k) for some, k in parts if k is not None], len(names))
    elif isinstance(given[0] if given else None, str):
        values = LabelValues.like(y, map(str, names))
    else:
        values = LabelValues.class_ids(len(names), y)
    return separated(
        checked(
            Dataset("arrays", train, tuple(names), test=held, clean=clean_ids, label_values=values)
        )
    )


def _values(y: object, found: Iterable[tuple[object, Ints]], num_classes: int) -> LabelValues:
    """Return the label of each class in the type of y, from labels and their class ids.

    Every class is in one of the pairs, and the first one that has it decides its label.
    """
    values: dict[int, Any] = {}
    for labels, classes in found:
        which, first = np.unique(classes, return_index=True)
        for k, value in zip(
            which.tolist(), np.asarray(_on_cpu(labels))[first].tolist(), strict=True
        ):
            values.setdefault(k, value.item() if hasattr(value, "item") else value)
    return LabelValues.like(y, [values[k] for k in range(num_classes)])


def inputs(
    x: object,
    what: str = "x",
    kinds: tuple[ColumnKind, ...] | None = None,
    asked: frames.AskedColumns | None = None,
) -> Inputs:
    """Return the inputs in an array, a frame or a list, which `what` names in messages.

    A data frame of finite numbers is numbers [n, D]. Any other has columns of several kinds, which
    are those of `kinds` if a model knows them, or those that are asked for.

    Other inputs are numbers [n, D]; images as uint8, or as floats in 0 … 1, shaped [n, H, W],
    [n, H, W, C] or [n, C, H, W]; n texts; or n paths of image files, as strings or `pathlib.Path`.
    Arrays, tensors and lists of rows are all taken.
    """
    if isinstance(x, str | bytes | Path):
        raise InputError(f"{what} is one {type(x).__name__}: give a list of them")
    columns: tuple[str, ...] | None = None
    if frames.is_frame(x):
        if asked and kinds is None:
            asked.check(frames.column_names(x), what)
            x = frames.without(x, asked.ignore_column)
        columns = frames.column_names(x)
        is_typed = kinds is not None or bool(asked and asked.kinds) or frames.has_categories(x)
        numbers = None if is_typed else _numbers(x)
        if numbers is None:
            return frames.of_frame(x, what, kinds, asked)
        x = numbers
    elif asked:
        raise InputError(
            f"categorical=, numeric=, text= and ignore_column= name columns, but {what} is not a "
            "data frame",
            fix="leave them out, or give a data frame",
        )
    if isinstance(x, Sequence) and x and all(isinstance(one, Path) for one in x):
        return ImageFiles(tuple(x))
    try:
        array: npt.NDArray[Any] = np.asarray(_on_cpu(x))
    except (ValueError, TypeError) as error:
        raise InputError(f"{what} cannot be made an array: {error}") from None
    if array.ndim == 1 and array.dtype.kind in "UO" and all(isinstance(one, str) for one in array):
        texts = tuple(str(one) for one in array)
        if len(texts) and all(Path(one).suffix.lower() in SUFFIXES for one in texts):
            return ImageFiles(tuple(map(Path, texts)))  # of `glob`, and no texts end like this
        return Texts(texts)
    if array.dtype.kind not in "fiub" or array.ndim not in (2, 3, 4):
        raise InputError(
            f"{what} holds {array.dtype} of shape {list(array.shape)}: expected numbers [n, D], "
            "images [n, H, W], [n, H, W, C] or [n, C, H, W], texts, or paths of images"
        )
    if array.ndim == 2:
        return Features(npz.features(array, what), columns)
    if array.dtype != np.uint8:
        low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        if not 0 <= low <= high <= 1:
            raise InputError(
                f"{what} holds images with values from {low:g} to {high:g}: expected bytes, or "
                "floats from 0 to 1; they are normalised later"
            )
        array = np.rint(array.astype(np.float32) * 255).astype(np.uint8)
    return Images(npz.images(array, what))


def _filled(x_test: object, learned: Inputs, found: Inputs) -> Inputs:
    """Return rows of numbers beside which the learned ones have no gap, filled as in prediction."""
    if not isinstance(learned, Features) or not isinstance(found, MixedColumns) or not len(learned):
        return found
    fill = [float(np.median(learned.values[:, k])) for k in range(learned.values.shape[1])]
    return frames.numbers(x_test, "x_test", learned.columns, fill)


def _index_of(x: object, n: int) -> list[str] | None:
    """Return the ids in the index of a data frame of n rows; None if it only counts them."""
    index = getattr(x, "index", None)
    if not isinstance(index, Iterable) or getattr(index, "names", None) is None:
        return None  # a list has a method of that name
    is_named = any(name is not None for name in index.names)  # type: ignore[attr-defined]
    ids = [str(value) for value in index]
    only_counts = not is_named and ids == [str(k) for k in range(n)]
    has_missing = bool(getattr(index, "hasnans", False))
    return None if only_counts or has_missing or len(set(ids)) != n else ids


def _numbers(x: object) -> npt.NDArray[Any] | None:
    """Return the values of a data frame if all of them are finite numbers, or None."""
    try:
        array: npt.NDArray[Any] = np.asarray(x)
    except (TypeError, ValueError):  # numbers beside dates, which have no type in common
        return None
    if array.dtype.kind not in "fiub":
        if not all(isinstance(one, Number) for one in array.flat):
            return None
        array = array.astype(np.float64)
    is_missing = array.dtype.kind == "f" and bool(np.isnan(array).any())
    return None if is_missing or array.ndim != 2 else array


def _on_cpu(x: object) -> object:
    detach = getattr(x, "detach", None)  # a tensor's
    return x if detach is None else detach().cpu().numpy()


def _labels(y: object, what: str, *, as_texts: bool) -> list[int | str]:
    """Return a list of integers or of texts, or of texts alone."""
    array = np.asarray(_on_cpu(y))
    # NumPy would make a text of what is missing from a list of texts.
    _must_be_there(y if isinstance(y, list | tuple) else array.tolist(), what)
    whole = array.dtype.kind == "f" and bool(np.isfinite(array).all())
    if whole and array.ndim == 1 and np.array_equal(array, np.rint(array)):
        array = array.astype(np.int64)  # as scikit-learn's users often have them
    if array.ndim != 1 or array.dtype.kind not in "iubUO":
        raise InputError(
            f"{what} holds {array.dtype} of shape {list(array.shape)}: expected one label per "
            "example, integers or texts"
        )
    labels: list[int | str] = array.tolist()
    if array.dtype.kind == "b":
        labels = [int(label) for label in labels]
    if not all(isinstance(label, int | str) for label in labels):
        raise InputError(f"{what} has labels that are neither integers nor texts")
    return [str(label) for label in labels] if as_texts else labels


def is_known(y: object) -> Bools:
    """Return [n] whether there is a label, rather than None, NaN or what pandas has for it."""
    array = np.asarray(_on_cpu(y))
    # NumPy would make a text of what is missing from a list of texts.
    labels = y if isinstance(y, list | tuple) else array.tolist()
    if array.ndim != 1 or array.dtype.kind in "iub":
        return np.ones(len(array) if array.ndim else 0, dtype=np.bool_)
    return np.array([one is not None and not _is_nan(one) for one in labels], dtype=np.bool_)


def _at(y: object, is_known: Bools) -> object:
    """Return the labels that are known, in the same type; a column becomes an array."""
    if is_known.all():
        return y
    if isinstance(y, list | tuple):
        return [one for one, known in zip(y, is_known.tolist(), strict=True) if known]
    if hasattr(y, "detach"):
        return y[np.flatnonzero(is_known)]  # type: ignore[index]
    return np.asarray(y)[is_known]


def _must_be_there(labels: object, what: str) -> None:
    for row, label in enumerate(labels if isinstance(labels, list | tuple) else ()):
        if label is None or _is_nan(label):
            raise InputError(
                f"the label of row {row} is missing from {what}, which has {label!r} there: leave "
                "such examples out, or say what they are"
            )


def _is_nan(label: object) -> bool:
    """Return whether it is NaN, or what pandas has in its place."""
    if isinstance(label, float):
        return math.isnan(label)
    return type(label).__name__ in ("NAType", "NaTType")


def _class_ids(labels: Sequence[object], number: dict[object, int], what: str) -> Ints:
    strange = [label for label in labels if label not in number]
    if strange:
        raise InputError(f"{what}: " + unknown("class", str(strange[0]), map(str, number)))
    return np.array([number[label] for label in labels], dtype=np.int64)


def _part(inputs: Inputs, labels: Ints, ids: Sequence[str] | None, split: str) -> Part:
    n = len(inputs)
    if len(labels) != n:
        raise InputError(
            f"there are {len(labels)} labels for {n} {split} examples: give one label per example"
        )
    if ids is not None and len(ids) != n:
        raise InputError(f"there are {len(ids)} ids for {n} examples: give one id per example")
    named = [f"{split}/{k:06d}" for k in range(n)] if ids is None else [str(one) for one in ids]
    return Part(inputs, labels, tuple(named))
