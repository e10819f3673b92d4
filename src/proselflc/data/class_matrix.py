"""Numbers for pairs of classes: a [C, C] array, or beyond `DENSE_CLASSES` a sparse one.

Row = true class, column = given class. The sparse form is a `scipy.sparse.csr_array` without
explicit zeros. Both forms have `shape`, `sum(axis)`, `diagonal()`, `trace()` and `[i, j]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.memory_budget import is_dense, require
from proselflc.errors import InputError
from proselflc.files.regular import decoded, must_be_file

Doubles: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]
ClassMatrix: TypeAlias = Any  # [C, C] float64: an array, or a scipy.sparse.csr_array

_PARTS = ("rows", "columns", "values")
_ROW_TOLERANCE = 1e-5  # float32 rows of a thousand classes miss 1 by less


def of_cells(rows: Places, columns: Places, values: Doubles, num_classes: int) -> ClassMatrix:
    """Return the matrix with these values in its cells; those of one cell are added up."""
    C = num_classes
    if is_dense(C):
        cells = np.bincount(rows * C + columns, values, minlength=C * C)
        return cells.reshape(C, C)
    from scipy.sparse import coo_array, csr_array

    matrix = csr_array(coo_array((values, (rows, columns)), shape=(C, C)))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def identity(num_classes: int) -> ClassMatrix:
    """Return the identity of these classes."""
    every = np.arange(num_classes)
    return of_cells(every, every, np.ones(num_classes), num_classes)


def counted(clean: Places, given: Places, num_classes: int) -> ClassMatrix:
    """Return how many examples have which true (row) and given (column) class."""
    return of_cells(clean, given, np.ones(len(clean)), num_classes)


def rows_to_1(counts: ClassMatrix) -> ClassMatrix:
    """Return each row divided by its sum; a class without examples has the identity's row."""
    total = counts.sum(1)
    empty = np.flatnonzero(total == 0)
    rows, columns, values = cells(counts)
    return of_cells(
        np.concatenate((rows, empty)),
        np.concatenate((columns, empty)),
        np.concatenate((values / total[rows], np.ones(len(empty)))),
        len(total),
    )


def cells(matrix: ClassMatrix) -> tuple[Places, Places, Doubles]:
    """Return row, column and value of every cell that is not 0, by row and then by column."""
    if isinstance(matrix, np.ndarray):
        rows, columns = np.nonzero(matrix)
        return rows, columns, matrix[rows, columns]
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows, matrix.indices.astype(np.int64), matrix.data


def arrays(name: str, matrix: ClassMatrix) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a matrix in a file: one with its name, or three with its cells."""
    if isinstance(matrix, np.ndarray):
        return {name: matrix.astype("<f8")}
    found = zip(_PARTS, cells(matrix), ("<i4", "<i4", "<f8"), strict=True)
    return {f"{name}_{part}": values.astype(kind) for part, values, kind in found}


def array_names(name: str) -> tuple[str, ...]:
    """Return the names of all arrays that a file may hold of a matrix."""
    return name, *(f"{name}_{part}" for part in _PARTS)


def read(
    found: Mapping[str, npt.NDArray[Any]], name: str, num_classes: int, path: Path
) -> ClassMatrix | None:
    """Return a matrix of a file in either form, or None if the file has none.

    The form in memory depends on the number of classes alone. Of a dense array only the shape is
    checked here.
    """
    C = num_classes
    parts = [found.get(one) for one in array_names(name)[1:]]
    if all(part is None for part in parts):
        matrix = found.get(name)
        if matrix is None or is_dense(C) or matrix.shape != (C, C) or matrix.dtype.kind != "f":
            return matrix
        rows, columns, values = cells(matrix)
        return of_cells(rows, columns, values.astype(np.float64), C)
    rows_, columns_, values_ = parts
    if (
        rows_ is None
        or columns_ is None
        or values_ is None
        or rows_.ndim != 1
        or not rows_.shape == columns_.shape == values_.shape
        or any(part.dtype.kind not in "iu" for part in (rows_, columns_))
        or values_.dtype != np.float64
    ):
        raise InputError(f'{path} does not hold the cells of "{name}" as it should: write it again')
    rows, columns = rows_.astype(np.int64), columns_.astype(np.int64)
    inside = (rows >= 0) & (rows < C) & (columns >= 0) & (columns < C)
    if not inside.all() or not (np.diff(rows * C + columns) > 0).all():
        raise InputError(
            f'{path} has cells of "{name}" that are outside its {C} classes or out of order: '
            "write it again"
        )
    if not np.isfinite(values_).all():
        raise InputError(f'{path} has cells of "{name}" that are not finite: write it again')
    return of_cells(rows, columns, values_, C)


def check_room_for_transition(num_classes: int) -> None:
    """Refuse a transition matrix of more classes than there is memory for."""
    require(
        24 * num_classes**2,  # as read, as float64, and a copy while it is checked
        f"a transition matrix of {num_classes:,} classes",
        "use a kind of noise or a method without one, or merge classes",
    )


def checked_transition(matrix: ClassMatrix, num_classes: int) -> ClassMatrix:
    """Return the matrix as float64 [C, C]; refuse rows that are not distributions.

    A sparse matrix stays sparse.
    """
    C = num_classes
    if matrix.shape != (C, C):
        raise InputError(
            f"the transition matrix has shape {matrix.shape}, but there are {C} classes: "
            f"it must be [{C}, {C}], row = true class"
        )
    try:
        T = matrix.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("the transition matrix does not hold numbers") from None
    with np.errstate(over="ignore", invalid="ignore"):
        sums = T.sum(axis=1)
    if isinstance(T, np.ndarray):
        possible = np.isfinite(T).all(axis=1) & (T >= 0).all(axis=1)
    else:
        possible = np.ones(C, dtype=np.bool_)
        rows, _, values = cells(T)
        possible[rows[~(np.isfinite(values) & (values >= 0))]] = False
    wrong = ~(possible & (abs(sums - 1) < _ROW_TOLERANCE))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"row {row} of the transition matrix is not a distribution (smallest entry "
            f"{T[[row]].min():g}, sum {sums[row]:g}): rows must be 0 or more and sum to 1"
        )
    return T


def read_transition(path: Path) -> Doubles:
    """Return the matrix of an .npy, .npz or .csv file; its rows are checked where it is used.

    An .npz holds it as `transition` or `T`; a .csv has one row per line and no header.
    """
    return _read_matrix(path, "transition matrix", ("transition", "T"))


def read_mask(path: Path, num_classes: int) -> Doubles:
    """Return a [C, C] matrix of 0 and 1; an .npz file holds it as `mask`."""
    mask, C = _read_matrix(path, "mask", ("mask",)), num_classes
    if mask.shape != (C, C):
        raise InputError(
            f"the mask in {path} has shape {mask.shape}, but there are {C} classes: it must be "
            f"[{C}, {C}], row = true class"
        )
    if not ((mask == 0) | (mask == 1)).all():
        raise InputError(f"the mask in {path} must hold only 0 and 1")
    return mask


def _read_matrix(path: Path, what: str, names: tuple[str, ...]) -> Doubles:
    from proselflc.data.sources import npz

    must_be_file(path, f"a {what}")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        matrix = next(iter(npz.arrays(path, names).values()))
    elif suffix == ".npy":
        matrix = npz.array(path)
    elif suffix == ".csv":
        matrix = _read_numbers(path)
    else:
        raise InputError(f"a {what} is an .npy, .npz or .csv file, got {path}")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {matrix.dtype} values: expected a matrix of numbers")
    return matrix.astype(np.float64)


def _read_numbers(path: Path) -> Doubles:
    """Return the numbers of a text file with commas, [rows, columns]."""
    try:
        rows = [line.split(",") for line in decoded(path).splitlines() if line.strip()]
        return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64)
    except ValueError as error:  # text, or rows of different lengths
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} does not hold a matrix of numbers: {reason}") from None
