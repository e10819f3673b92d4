"""A second opinion on every label, by a model that saw all labels but the one it is asked about.

The witness is ridge regression of one-hot labels on features that never saw a label
(`plain_features`), with a Gaussian or a linear kernel. Its prediction for an example without that
example's own label follows exactly from a single fit, so n models cost as much as one. It makes
other mistakes than a network that has learned the labels, wrong ones included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from proselflc.auditing.plain_features import PlainFeatures, plain_features
from proselflc.auditing.records import Doubles, Witness, together
from proselflc.data.batches import random_stream
from proselflc.data.inputs import Floats, Inputs, Ints
from proselflc.data.memory_budget import is_dense, keeps_all
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.serving import fit as fit_preprocessing
from proselflc.data.sources import npz
from proselflc.data.tables.encoding import for_trees
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, whole_file
from proselflc.learners.forest import out_of_bag
from proselflc.training.run_directory import RunDirectory
from proselflc.wording import command

LARGEST = 200_000  # examples that are asked about
SCALES = (0.5, 1.0)  # of the Gaussian kernel, times the median distance of two examples
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # times the number of examples
TEMPERATURES = np.geomspace(0.02, 1, 25)

_EXACT = 1000  # examples up to which the kernel is computed itself
_WAVES = 500  # random frequencies that stand for the kernel of more examples
_COLUMNS = 1000  # of features, up to which a linear kernel is tried
_CHOSEN_ON = 5000  # examples on which kernel, penalty and temperature are chosen
_PAIRS = 2000  # of examples whose median distance is taken
_BLOCK = 4096
_LONGEST_KIND = 80  # letters
_JITTER = 1e-8  # on the diagonal of a kernel, where equal examples leave it singular
_LEAST = -27.0  # log-chance of a label that is counted, so that no single label decides

Numbers = npt.NDArray[np.floating[Any]]


def of_inputs(
    inputs: Inputs, given: Ints, num_classes: int, preprocessing: Preprocessing | None = None
) -> Witness | None:
    """Return a second opinion on the labels of n inputs, or None if there cannot be one.

    There is none beyond `LARGEST` examples, for very many classes, and for inputs that cannot be
    compared.
    """
    if not can_judge(len(given), num_classes):
        return None
    features = plain_features(inputs, preprocessing)
    if features is None:
        return None
    trees = by_forest(inputs, given, num_classes, preprocessing)
    return of_features(features, given, num_classes, trees)


def by_forest(
    inputs: Inputs, given: Ints, num_classes: int, preprocessing: Preprocessing | None = None
) -> Floats | None:
    """Return [n, C] the chances by trees that did not see a row; None if these are not for trees.

    Numbers without names of columns may be embeddings, which trees judge badly.
    """
    is_table = inputs.medium == "table" and inputs.columns is not None
    if not is_table or not can_judge(len(given), num_classes):
        return None
    rows, _ = for_trees(preprocessing or fit_preprocessing(inputs), inputs)
    return out_of_bag(rows, given, num_classes)


def of_features(
    features: PlainFeatures, given: Ints, num_classes: int, trees: Floats | None = None
) -> Witness | None:
    """Return a second opinion on the labels of n examples, by their features.

    The opinion on a table is √(h f), scaled to sum to 1, where h is the chance by ridge regression
    and f the chance by the trees of a forest that did not see the row.

    Args:
        features: of the n examples.
        given: [n] labels.
        num_classes: C.
        trees: [n, C] f, from `by_forest`; None if there is none, and h is the opinion.
    """
    if not can_judge(len(given), num_classes):
        return None
    p = witness(features.values, given, num_classes)
    if trees is None:
        return Witness(p.astype(np.float16), features.kind)
    both = together(p, trees)
    return Witness(both.astype(np.float16), f"{features.kind} and a forest of trees")


def can_judge(num_examples: int, num_classes: int) -> bool:
    """Return whether this number of examples and classes can have a second opinion."""
    n, C = num_examples, num_classes
    return 1 < n <= LARGEST and is_dense(C) and keeps_all(n, C)


def write(directory: RunDirectory, found: Witness) -> None:
    """Write `witness.npz`, whole or not at all."""
    kind = np.frombuffer(found.kind.encode(), np.uint8)
    with whole_file(directory.witness) as file:
        np.savez(file, allow_pickle=False, p=found.p, kind=kind)


def of_run(directory: RunDirectory, shape: tuple[int, int]) -> Witness | None:
    """Return what `write` wrote for (n, C), or None if a run has none."""
    # It is written whole, so that an audit that was interrupted leaves a whole one or none.
    path = directory.checked(directory.witness, or_replaced=True)
    if not is_regular(path):
        return None
    found = npz.arrays(path, ("p", "kind"))
    p, kind = found.get("p"), found.get("kind")
    if (
        p is None
        or kind is None
        or p.dtype != np.float16
        or p.shape != shape
        or kind.dtype != np.uint8
        or kind.size > _LONGEST_KIND
        or not ((p >= 0) & (p <= 1)).all()
    ):
        raise InputError(
            f"{path} does not hold a chance of each class for every example of the run",
            fix=f"make it again with {command('audit', directory.path)}, which needs the data",
        )
    return Witness(p, kind.tobytes().decode(errors="replace"))


def witness(values: Floats, given: Ints, num_classes: int, *, seed: int = 0) -> Floats:
    """Return [n, C] the chance of each class for each example, without its own label.

    Kernel and penalty are those with the smallest squared error of such predictions, and the
    temperature of the softmax over them is the one that makes the given labels likeliest.

    Args:
        values: [n, D] features of the inputs, finite.
        given: [n] labels; an example with a label below 0 is predicted, but not learned from.
        num_classes: C.
        seed: of the random frequencies and of the examples that the kernel is chosen on.
    """
    n = len(given)
    stream = random_stream(seed, "witness")
    some = np.arange(n)
    if n > _CHOSEN_ON:
        some = np.sort(stream.choice(n, _CHOSEN_ON, replace=False))
    best: tuple[float, _Fit, float] | None = None
    for kernel in _kernels(values, stream):
        fit = _Fit.of(kernel, values[some], given[some], num_classes)
        for penalty, error in fit.errors():
            if best is None or error < best[0]:
                best = error, fit, penalty
    assert best is not None
    _, fit, penalty = best
    if n > _CHOSEN_ON:
        fit = _Fit.of(fit.kernel, values, given, num_classes)
    scores = np.empty((n, num_classes), np.float32)
    for rows in fit.kernel.blocks(n):
        scores[rows] = fit.left_out(fit.projected(values[rows]), given[rows], penalty)
    return _softmax(scores, given)


class _Kernel(Protocol):
    """Columns Φ whose products are the kernel: Φ Φᵀ = K."""

    def columns(self, values: Floats) -> Numbers:
        """Return [N, D] for N rows of features."""

    def blocks(self, n: int) -> Iterator[slice]:
        """Yield the slices of n rows whose columns can be computed apart."""


@dataclass(frozen=True)
class _Linear:
    """The products of the features themselves."""

    def columns(self, values: Floats) -> Numbers:
        return values

    def blocks(self, n: int) -> Iterator[slice]:
        return _slices(n, _BLOCK)


@dataclass(frozen=True)
class _Waves:
    """Cosines and sines of random projections, whose products approach exp(−d²/2σ²)."""

    frequencies: Floats  # [features, waves]

    def columns(self, values: Floats) -> Numbers:
        angles = values @ self.frequencies
        waves = np.concatenate((np.cos(angles), np.sin(angles)), 1)
        return waves / np.float32(np.sqrt(self.frequencies.shape[1]))

    def blocks(self, n: int) -> Iterator[slice]:
        return _slices(n, _BLOCK)


@dataclass(frozen=True)
class _Gaussian:
    """The matrix exp(−d²/2σ²) of all examples, as its Cholesky factor."""

    sigma: float

    def columns(self, values: Floats) -> Numbers:
        x = values.astype(np.float64)
        squares = np.square(x).sum(1)
        distances = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0)
        kernel = np.exp(distances / (-2 * self.sigma**2))
        kernel[np.diag_indices(len(x))] += _JITTER
        return np.linalg.cholesky(kernel)

    def blocks(self, n: int) -> Iterator[slice]:
        return _slices(n, max(n, 1))


def _kernels(values: Floats, stream: np.random.Generator) -> Iterator[_Kernel]:
    """Yield the kernels to choose from."""
    n, width = values.shape
    if width <= _COLUMNS:
        yield _Linear()
    one, other = stream.integers(0, n, (2, _PAIRS))
    distances = np.linalg.norm(values[one] - values[other], axis=1)
    apart = distances[distances > 0]
    median = float(np.median(apart)) if len(apart) else 1.0
    for scale in SCALES:
        if n <= _EXACT:
            yield _Gaussian(scale * median)
        else:
            directions = stream.normal(size=(width, _WAVES))
            yield _Waves((directions / (scale * median)).astype(np.float32))


@dataclass(frozen=True)
class _Fit:
    """Ridge regression of one-hot labels Y on the columns of a kernel, for any penalty λ.

    With Φ the centred columns of the n labelled examples, Φᵀ Φ = U diag(w) Uᵀ and A = Φ U, the fit
    is F = A diag(1 / (w + λ)) Aᵀ (Y − Ȳ) + Ȳ, and the leverage of an example i is
    h = Σ_d A_id² / (w_d + λ) + 1/n. Its prediction without its label is (F_i − h Y_i) / (1 − h).

    Attributes:
        values, given: the examples.
        labelled: n.
        centre, unit: mean of the columns, and the root of their mean squared length.
        axes, strength: U and w.
        response: Aᵀ (Y − Ȳ).
        share: Ȳ.
    """

    kernel: _Kernel
    values: Floats
    given: Ints
    labelled: int
    centre: Doubles
    unit: float
    axes: Doubles
    strength: Doubles
    response: Doubles
    share: Doubles

    @classmethod
    def of(cls, kernel: _Kernel, values: Floats, given: Ints, num_classes: int) -> _Fit:
        """Return the fit of a kernel to examples."""
        width = len(given) if isinstance(kernel, _Gaussian) else kernel.columns(values[:1]).shape[1]
        n = max(int((given >= 0).sum()), 1)

        total, sums = np.zeros(width), np.zeros((num_classes, width))
        products, length = np.zeros((width, width)), 0.0
        for rows in kernel.blocks(len(given)):
            y = given[rows]
            columns, y = kernel.columns(values[rows])[y >= 0], y[y >= 0]
            total += columns.sum(0, dtype=np.float64)
            length += float(np.square(columns, dtype=np.float64).sum())
            products += columns.T @ columns
            _add_by_class(sums, columns, y)
        share = np.bincount(given[given >= 0], minlength=num_classes) / n
        centre, unit = total / n, float(np.sqrt(length / n)) or 1.0
        products -= n * np.outer(centre, centre)
        strength, axes = np.linalg.eigh(products / unit**2)
        response = axes.T @ (sums - np.outer(share, total)).T / unit
        strength = np.maximum(strength, 0)
        return cls(kernel, values, given, n, centre, unit, axes, strength, response, share)

    def projected(self, values: Floats) -> Numbers:
        """Return A for rows of features."""
        columns = self.kernel.columns(values)
        kind = columns.dtype
        centred = (columns - self.centre.astype(kind)) / kind.type(self.unit)
        projected: Numbers = centred @ self.axes.astype(kind)
        return projected

    def left_out(self, projected: Numbers, given: Ints, penalty: float) -> Numbers:
        """Return [N, C] the predictions of examples, each without its own label."""
        kind = projected.dtype
        shrunk = 1 / (self.strength + penalty * self.labelled)
        fitted = projected @ (shrunk[:, None] * self.response).astype(kind)
        fitted += self.share.astype(kind)
        own = np.flatnonzero(given >= 0)
        leverage = np.square(projected[own]) @ shrunk.astype(kind) + kind.type(1 / self.labelled)
        fitted[own, given[own]] -= leverage
        fitted[own] /= np.maximum(1 - leverage, kind.type(1e-6))[:, None]
        return fitted

    def errors(self) -> Iterator[tuple[float, float]]:
        """Yield every penalty, and the mean squared error of the predictions with it."""
        known = self.given >= 0
        projected = self.projected(self.values)[known]
        y = self.given[known]
        for penalty in PENALTIES:
            scores = self.left_out(projected, y, penalty)
            scores[np.arange(len(y)), y] -= 1
            yield penalty, float(np.square(scores).mean()) if scores.size else 0.0


def _slices(n: int, step: int) -> Iterator[slice]:
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _add_by_class(sums: Doubles, columns: Numbers, y: Ints) -> None:
    """Add [N, D] columns to the rows of [C, D] sums that their classes name."""
    order = np.argsort(y, kind="stable")
    classes, first = np.unique(y[order], return_index=True)
    if len(classes):
        sums[classes] += np.add.reduceat(columns[order], first, axis=0, dtype=np.float64)


def _softmax(scores: Floats, given: Ints) -> Floats:
    """Return [n, C] chances, with the temperature that makes the given labels likeliest."""
    own = np.flatnonzero(given >= 0)
    some = own[:: max(1, len(own) // _CHOSEN_ON)]
    logs = [_log_chance(scores[some] / np.float32(t), given[some]) for t in TEMPERATURES]
    p = scores / np.float32(TEMPERATURES[int(np.argmax(logs))])
    p -= p.max(1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(1, keepdims=True)
    return p


def _log_chance(logits: Floats, given: Ints) -> float:
    """Return the mean log-chance of the labels."""
    logits = logits - logits.max(1, keepdims=True)
    log_p = logits[np.arange(len(given)), given] - np.log(np.exp(logits).sum(1))
    return float(np.maximum(log_p, _LEAST).mean()) if len(given) else 0.0
