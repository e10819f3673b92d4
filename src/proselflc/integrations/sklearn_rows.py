"""The rows and labels that `ProSelfLCClassifier` is given: arrays, or frames of any columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    validate_data,
)

from proselflc.data.dataset import Part
from proselflc.data.inputs import Bools, Features, Floats, Inputs, Ints
from proselflc.data.preprocessing import Preprocessing, Standardization
from proselflc.data.sources import arrays
from proselflc.data.tables import frames
from proselflc.data.tables.encoding import TableEncoding
from proselflc.data.tables.mixed import MixedColumns


@dataclass(frozen=True)
class GivenLabels:
    """The labels of n rows, of which some may be missing.

    Attributes:
        classes: [C] the distinct labels.
        codes: [n] positions in `classes`; 0 where there is no label.
        known: [n] whether there is a label.
        given: [n] the labels as they came.
    """

    classes: npt.NDArray[Any]
    codes: Ints
    known: Bools
    given: npt.NDArray[Any]

    def with_codes(self, codes: Ints) -> npt.NDArray[Any]:
        """Return [n] labels by their codes; a missing one stays as it came."""
        labels = self.classes[codes]
        if self.known.all():
            return labels
        found = self.given.copy()
        found[self.known] = labels[self.known]
        return found


def training_rows(estimator: Any, X: Any, y: Any, *, reset: bool) -> tuple[Inputs, GivenLabels]:
    """Return the rows and the labels to learn from, checked as scikit-learn does."""
    known, y = _labels(y)
    if _is_mixed(X):
        rows: Inputs = arrays.inputs(X, "X", None if reset else _kinds(estimator.preprocessing_))
        names = np.array(frames.column_names(X), dtype=object)
        estimator.feature_names_in_, estimator.n_features_in_ = names, len(names)
        check_consistent_length(np.empty(len(rows)), y)
    else:
        # The network computes in float32; scikit-learn refuses values that do not fit in it.
        placeholder = y if known.all() else np.where(known, y, y[known][0] if known.any() else "")
        values, placeholder = validate_data(
            estimator, _plain(X), placeholder, dtype=np.float32, reset=reset
        )
        y = placeholder if known.all() else y
        rows = Features(values, _names(estimator))
    if not known.any():
        raise ValueError("y has no labels: all of its values are missing")
    classes, codes = np.unique(y[known] if known.all() else _typed(y[known]), return_inverse=True)
    every = np.zeros(len(y), np.int64)
    every[known] = codes
    return rows, GivenLabels(classes, every, known, np.asarray(y))


def rows_to_predict(estimator: Any, X: Any) -> Inputs:
    """Return rows with the columns of the fitted ones; missing numbers are filled."""
    scaling = fitted_columns(estimator.preprocessing_)
    if isinstance(scaling, TableEncoding):
        return arrays.inputs(X, "X", scaling.kinds)
    if isinstance(scaling, Standardization) and scaling.columns is not None and _is_mixed(X):
        return frames.numbers(X, "X", scaling.columns, scaling.fill)
    values = validate_data(estimator, _plain(X), dtype=np.float32, reset=False)
    return Features(values)


def fitted_columns(preprocessing: Preprocessing) -> Preprocessing:
    """Return the preprocessing of the columns, which that for trees holds."""
    inner = getattr(preprocessing, "columns", None)
    return inner if isinstance(inner, Preprocessing) else preprocessing


def distinct_rows(
    rows: Inputs, given: Ints, weight: npt.NDArray[np.float64], *, merged: bool
) -> tuple[Part, Floats | None, Ints]:
    """Return the m distinct pairs of row and label, in an order that does not depend on that of X.

    Also returned are the sums of their weights [m], scaled so that the largest is 1, or None if all
    are 1; and the position [n] of each row among them. If rows may not be merged, all are kept.
    """
    first = place = np.arange(len(rows))
    if merged:
        pairs = np.column_stack((_sortable(rows), given))
        _, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    place = place.reshape(-1)  # its shape differs in numpy 2.0
    total = np.bincount(place, weight)
    scaled: Floats = (total / total.max()).astype(np.float32)
    part = Part(rows.take(first), given[first], tuple(map(str, range(len(first)))))
    return part, None if (scaled == 1).all() else scaled, place


def weights_of(sample_weight: object | None, n: int) -> npt.NDArray[np.float64]:
    """Return the sample weights [n], which must be at least 0."""
    like = np.empty((n, 1), np.float32)
    weight: npt.NDArray[np.float64] = _check_sample_weight(sample_weight, like, dtype=np.float64)
    if (weight < 0).any():
        raise ValueError("sample_weight has negative values: weights must be at least 0")
    if not (weight > 0).any():
        raise ValueError("sample_weight is zero for every row: there is nothing to learn from")
    return weight


def _is_mixed(X: Any) -> bool:
    """Return whether X is a data frame with more than finite numbers."""
    return frames.is_frame(X) and isinstance(arrays.inputs(X, "X"), MixedColumns)


def _kinds(preprocessing: Preprocessing) -> Any:
    scaling = fitted_columns(preprocessing)
    return scaling.kinds if isinstance(scaling, TableEncoding) else None


def _plain(X: Any) -> Any:
    """Return an Arrow table as a pandas frame, whose names scikit-learn knows."""
    return X.to_pandas() if hasattr(X, "column_names") and hasattr(X, "to_pandas") else X


def _names(estimator: Any) -> tuple[str, ...] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def _labels(y: Any) -> tuple[Bools, Any]:
    """Return [n] which labels are there, and the labels."""
    if y is None:
        return np.ones(0, np.bool_), y
    array = _array(y)
    if isinstance(y, list | tuple) and any(one is None for one in y):
        array = np.array(y, dtype=object)
    if array.ndim != 1 or array.dtype.kind not in "fO":
        return np.ones(len(array) if array.ndim else 0, np.bool_), array
    return arrays.is_known(array), array


def _array(y: Any) -> npt.NDArray[Any]:
    """Return labels of any library as an array."""
    if not hasattr(y, "to_numpy"):
        return np.asarray(y)
    is_arrow = type(y).__module__.partition(".")[0] == "pyarrow"
    return np.asarray(y.to_numpy(zero_copy_only=False) if is_arrow else y.to_numpy())


def _typed(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels beside which others were missing in the type that they have without these."""
    if labels.dtype.kind == "O":
        return np.array(labels.tolist())
    whole = labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all())
    return labels.astype(np.int64) if whole else labels


def _sortable(rows: Inputs) -> npt.NDArray[Any]:
    """Return [n, D] numbers that are equal where rows are, and do not depend on their order."""
    if not isinstance(rows, MixedColumns):
        assert rows.numbers is not None
        return rows.numbers
    found = []
    for column in rows.cells:
        values = column.values.astype(np.float64)
        if column.has_words:
            place = np.append(np.argsort(np.argsort(np.array(column.words))), -1)
            values = place[column.values.astype(np.int64)].astype(np.float64)
        found.append(np.where(column.is_missing, np.finfo(np.float64).min, values))
    return np.column_stack(found)
