"""Points in a plane for features in many dimensions; similar examples become neighbours.

The labels are not used, so an example that lies among those of another class is a second opinion.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from proselflc.auditing.neighbours import Neighbours
from proselflc.data.batches import random_stream
from proselflc.data.inputs import Floats

SAMPLE = 4000  # examples from which the principal components are computed
FEWEST = 8  # different examples below which the principal components are the map

_STEPS = 200
_RATE = 0.2  # of the first step; it falls to 0
_AWAY = 4  # random examples that push an example away in a step
_FARTHEST = 4.0  # that an example moves in a step of rate 1, in either direction
_EXTENT = 10.0  # of the principal components, before the first step

Doubles = npt.NDArray[np.float64]


def principal_plane(values: Floats) -> Doubles:
    """Return [n, 2] the two principal components of features [n, D]; their sum is about 0.

    They are computed from `SAMPLE` examples at most. The largest weight of a component is positive,
    so its sign is fixed; a component without variance is 0.
    """
    n = len(values)
    few = values[np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).round().astype(np.int64))]
    sample = few.astype(np.float64)
    mean = sample.mean(axis=0)
    sample -= mean
    variance, axes = _largest(sample)
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    axes[:, variance <= 1e-12 * max(1.0, float(variance.max(initial=0)))] = 0
    result = np.zeros((n, 2))
    result[:, : axes.shape[1]] = values @ axes.astype(np.float32) - mean @ axes
    result[:, : axes.shape[1]][:, ~axes.any(axis=0)] = 0
    return result


def _largest(centred: Doubles) -> tuple[Doubles, Doubles]:
    """Return ≤ 2 variances, the largest first, and their directions [D, ≤ 2]."""
    from scipy.linalg import eigh

    n, D = centred.shape
    is_wide = n < D
    gram = centred @ centred.T if is_wide else centred.T @ centred
    last = len(gram) - 1
    variance, vectors = eigh(gram, subset_by_index=(max(0, last - 1), last))
    variance, vectors = variance[::-1].copy(), vectors[:, ::-1].copy()
    if is_wide:
        vectors = centred.T @ vectors
        vectors /= np.maximum(np.linalg.norm(vectors, axis=0), 1e-30)
    return variance, vectors


def arranged(values: Floats, neighbours: Neighbours, *, seed: int = 0) -> Floats:
    """Return [n, 2] a point for each of n examples; neighbours attract each other.

    As in UMAP (McInnes, Healy and Melville, 2018) with the kernel 1 / (1 + d²), but from the
    principal components, and all points move at once. Exact copies share a point. Time and memory
    are linear in n.

    Args:
        values: [n, D] the features in which the neighbours were found.
        neighbours: of the n examples.
        seed: of the random examples that push others away.
    """
    plane = principal_plane(values)
    rows, number = np.unique(neighbours.first_copy, return_inverse=True)
    if len(rows) < FEWEST or neighbours.index.shape[1] == 0:
        return plane.astype(np.float32)
    extent = float(np.abs(plane).max(initial=0))
    start = plane[rows] * (_EXTENT / extent if extent > 0 else 0)
    index = np.searchsorted(rows, neighbours.index[rows])
    generator = random_stream(seed, "map")
    start += generator.normal(0, 1e-3, start.shape)
    found = _moved(start.astype(np.float32), index, neighbours.distance[rows], generator)
    result: Floats = (found - found.mean(axis=0))[number]
    return result


def _moved(
    y: Floats, index: npt.NDArray[np.int64], distance: Floats, generator: np.random.Generator
) -> Floats:
    """Return [m, 2] the points after all steps; neighbours are [m, k]."""
    from scipy.sparse import csr_array

    m, k = index.shape
    weight = _weights(distance)
    head = np.repeat(np.arange(m), k)
    one_way = csr_array((weight.ravel(), (head, index.ravel())), shape=(m, m))
    both = (one_way + one_way.T - one_way * one_way.T).tocsr()
    count, weight = np.diff(both.indptr), both.data.astype(np.float32)
    total = np.add.reduceat(weight, both.indptr[:-1])[:, None]
    order = generator.permutation(m)
    for step in range(_STEPS):
        rate = _RATE * (1 - step / _STEPS)
        both.data = weight / (1 + _squares(np.repeat(y, count, axis=0) - y[both.indices]))
        pull = both @ y - both.sum(axis=1)[:, None] * y
        push, others = np.zeros_like(y), y[order]
        for shift in generator.integers(0, m, _AWAY).tolist():
            apart = y - np.roll(others, shift, axis=0)
            square = _squares(apart)[:, None]
            push += apart / ((0.01 + square) * (1 + square))
        move = 2 * pull + 5 * total / _AWAY * push
        y = y + rate * np.clip(move, -_FARTHEST, _FARTHEST)
    return y


def _squares(vectors: Floats) -> Floats:
    """Return [e] the squared lengths of vectors [e, 2]."""
    found: Floats = vectors[:, 0] ** 2 + vectors[:, 1] ** 2
    return found


def _weights(distance: Floats) -> Floats:
    """Return [m, k] exp(−(d − d₁) / σ), with σ so that the weights of an example sum to log₂ k."""
    beyond = distance - distance[:, :1]
    wanted = max(np.log2(distance.shape[1]), 1.0)
    low, high = np.zeros(len(distance)), np.full(len(distance), np.inf)
    sigma = np.ones(len(distance))
    for _ in range(40):
        is_high = np.exp(-beyond / sigma[:, None]).sum(axis=1) > wanted
        high, low = np.where(is_high, sigma, high), np.where(is_high, low, sigma)
        sigma = np.where(np.isinf(high), 2 * sigma, (low + high) / 2)
    least = 1e-3 * max(float(distance.mean()), 1e-12)
    result: Floats = np.exp(-beyond / np.maximum(sigma, least)[:, None]).astype(np.float32)
    return result
