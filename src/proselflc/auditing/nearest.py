"""The nearest rows of a matrix, by blocks of matrix products on the CPU.

Products are computed in float32, and a few more rows are kept than are asked for, whose distances
are then computed from differences. Rows whose neighbours are so near that the rounding of products
matters are compared again in float64. Memory is linear in the number of rows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc.data.inputs import Floats, Ints
from proselflc.errors import InputError

LARGEST_EXACT = 200_000  # rows that are all compared with each other
LARGEST_NUMBER = 1e15  # whose square, summed up over a row, is finite in float32
Places: TypeAlias = npt.NDArray[np.int32]

_SPARE = 6  # rows that are kept beyond those that are asked for
_PRODUCTS = 2**25  # products that are held at once, 128 MB in float32
_DIFFERENCES = 2**20  # numbers of differences that are held at once
_BATCH = 2048  # rows that are searched for together with usearch
_EPS = 2.0**-24  # half the gap between 1 and the next float32
_TOLERANCE = 1e-2  # share of a squared distance that may be rounding


def nearest_rows(values: Floats, k: int) -> tuple[Places, Floats]:
    """Return index and distance [n, min(k, n − 1)] of the nearest other rows, nearest first.

    Equal distances are ordered by index. Beyond `LARGEST_EXACT` rows they are found with `usearch`,
    which may miss some; without it they are refused.
    """
    _check(values, k)
    return _nearest(values, values, min(k, len(values) - 1), own=np.arange(len(values)))


def nearest_of_others(values: Floats, others: Floats, k: int) -> tuple[Places, Floats]:
    """Return index and distance [n, min(k, m)] of the nearest of m other rows, nearest first."""
    _check(values, k)
    _check(others, k)
    if values.shape[1] != others.shape[1]:
        raise InputError(
            f"rows of {values.shape[1]} numbers cannot be compared with rows of {others.shape[1]}",
            fix="make the features of both parts together",
        )
    return _nearest(values, others, min(k, len(others)), own=None)


def obstacle(rows: int) -> str | None:
    """Return why neighbours cannot be found among this number of rows, or None."""
    if rows <= LARGEST_EXACT:
        return None
    try:
        import usearch.index  # noqa: F401
    except ImportError:
        return (
            f"neighbours among more than {LARGEST_EXACT:,} rows, here {rows:,}, are found with "
            'usearch, which is not installed: pip install "proselflc[neighbours]"'
        )
    return None


def _check(values: npt.NDArray[Any], k: int) -> None:
    if k < 1:
        raise InputError(f"the number of neighbours must be at least 1, got {k}")
    if values.ndim != 2 or values.dtype != np.float32 or 0 in values.shape:
        raise InputError(
            f"neighbours are found among rows of float32 [n, D], got {values.dtype} of shape "
            f"{list(values.shape)}",
            fix="give at least one row with one number",
        )
    usable = (np.abs(values) <= LARGEST_NUMBER).all(axis=1)  # False for NaN
    if not usable.all():
        raise InputError(
            f"{int((~usable).sum()):,} of {len(values):,} rows have NaN, infinity or a number "
            f"beyond {LARGEST_NUMBER:g}, the first is row {int(np.flatnonzero(~usable)[0])}, and "
            "have no distance to others",
            fix="fill them in, standardise the columns or drop those rows",
        )


def _nearest(values: Floats, others: Floats, k: int, own: Ints | None) -> tuple[Places, Floats]:
    """Return index and distance [n, k]; `own` is the position of each row among the others."""
    n, m = len(values), len(others)
    if k == 0:
        return np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32)
    x, y = torch.from_numpy(values), torch.from_numpy(others)
    most = min(k + _SPARE, m if own is None else m - 1)
    if max(n, m) > LARGEST_EXACT:
        index, distance = _reranked(x, y, _by_usearch(values, others, most, own), k)
        rows = np.flatnonzero((index < 0).any(axis=1))
        dtype = torch.float32
    else:
        index, distance = _reranked(x, y, _by_products(x, y, most, own), k)
        kth = np.square(distance[:, -1], dtype=np.float64)
        rows = np.flatnonzero(kth * _TOLERANCE < _rounding(x, y))
        dtype = torch.float64
    if len(rows):
        rest = None if own is None else own[rows]
        candidates = _by_products(x[rows].to(dtype), y.to(dtype), most, rest)
        index[rows], distance[rows] = _reranked(x[rows], y, candidates, k)
    return index, distance


def _rounding(x: Tensor, y: Tensor) -> npt.NDArray[np.float64]:
    """Return [n] by how much a squared distance that comes from float32 products may be off."""
    largest = torch.linalg.vector_norm(y, dim=1).max().double()
    lengths = torch.linalg.vector_norm(x, dim=1).double() + largest
    error: npt.NDArray[np.float64] = (4 * _EPS * x.shape[1] ** 0.5 * lengths.square()).numpy()
    return error + 1e-30  # products of smaller numbers are rounded to 0


def _by_products(x: Tensor, y: Tensor, most: int, own: Ints | None) -> Places:
    """Return [n, most] the rows of y with the largest x · y − |y|² / 2, which are the nearest."""
    half = y.square().sum(1) / 2
    result = np.empty((len(x), most), np.int32)
    step = max(1, _PRODUCTS // len(y))
    for a in range(0, len(x), step):
        products = torch.addmm(half, x[a : a + step], y.T, beta=-1)
        if own is not None:
            here = torch.from_numpy(own[a : a + step])
            products[torch.arange(len(here)), here] = -torch.inf
        result[a : a + step] = products.topk(most).indices.numpy()
    return result


def _by_usearch(values: Floats, others: Floats, most: int, own: Ints | None) -> Places:
    """Return [n, most] rows that a graph of the others finds, which may miss some; −1 is none."""
    why_not = obstacle(max(len(values), len(others)))
    if why_not is not None:
        raise InputError(why_not)
    from usearch.index import Index

    graph = Index(ndim=others.shape[1], metric="l2sq", dtype="f32")
    graph.add(np.arange(len(others)), others)
    result = np.full((len(values), most), -1, np.int32)
    for a in range(0, len(values), _BATCH):
        found: Any = graph.search(values[a : a + _BATCH], most if own is None else most + 1)
        keys = np.asarray(found.keys).astype(np.int64)
        keys[np.arange(keys.shape[1]) >= np.asarray(found.counts)[:, None]] = -1
        if own is not None:  # put itself last, where it is cut off
            is_own = keys == own[a : a + _BATCH, None]
            keys = np.take_along_axis(keys, np.argsort(is_own, axis=1, kind="stable"), 1)[:, :most]
        result[a : a + len(keys)] = keys
    return result


def _reranked(x: Tensor, y: Tensor, candidates: Places, k: int) -> tuple[Places, Floats]:
    """Return index and distance [n, k] of the nearest candidates, equal distances by index."""
    n, count = candidates.shape
    index = np.empty((n, k), np.int32)
    distance = np.empty((n, k), np.float32)
    step = max(1, _DIFFERENCES // (count * x.shape[1]))
    for a in range(0, n, step):
        some = np.sort(candidates[a : a + step], axis=1)
        between = x[a : a + step, None] - y[torch.from_numpy(some).long()]
        d = torch.linalg.vector_norm(between, dim=2).numpy()
        d[some < 0] = np.inf
        order = np.argsort(d, axis=1, kind="stable")[:, :k]
        index[a : a + step] = np.take_along_axis(some, order, 1)
        distance[a : a + step] = np.take_along_axis(d, order, 1)
    return index, distance
