"""Whether a model is as often right as it is sure: calibration error, bins, fitted temperature.

Logits come as a model gives them, [n, C] of any floating dtype. Everything is computed in double
precision, a few rows at a time, so that no second [n, C] is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

import torch
from torch import Tensor

from proselflc.correction.information import entropy
from proselflc.errors import InputError
from proselflc.training.inference import Logits

Measure: TypeAlias = Callable[[Tensor], Tensor]

PAPER_TEMPERATURES = (1.0, 1 / 4, 1 / 8)
FITTED_TEMPERATURES = (0.01, 100.0)  # between which a temperature is fitted

_ELEMENTS = 1 << 20  # of [rows, C] that are worked on at once


def max_probability(log_p: Tensor) -> Tensor:
    """Confidence max_j p_j: [..., C] log-probabilities → [...], in [1/C, 1]."""
    # Rounding can push the exponential of a logarithm above 1.
    return log_p.max(-1).values.exp().clamp(max=1)


def one_minus_entropy(log_p: Tensor) -> Tensor:
    """Confidence 1 − H(p)/H(u), clamped to [0, 1]: [..., C] log-probabilities → [...].

    This is the paper's local trust l(p). One class is certain whatever happens.
    """
    return (1 - entropy(log_p) / max(math.log(log_p.size(-1)), 1e-12)).clamp(0, 1)


MEASURES: dict[str, Measure] = {"max_p": max_probability, "entropy": one_minus_entropy}


@dataclass(frozen=True)
class Reliability:
    """Examples in bins of equal width by confidence, and how often those of a bin are right.

    Bins are (lo, hi], the first one [0, hi].

    Attributes:
        edges: bins + 1 numbers from 0 to 1.
        counts: examples in each bin.
        confidence: mean confidence in each bin, None where it is empty.
        accuracy: share of right predictions in each bin, None where it is empty.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]

    @property
    def ece(self) -> float:
        """Expected calibration error Σ_b |b|/n · |acc_b − conf_b|; high is bad."""
        return sum(count * gap for count, gap in self._gaps()) / sum(self.counts)

    def _gaps(self) -> Iterator[tuple[int, float]]:
        for count, conf, acc in zip(self.counts, self.confidence, self.accuracy, strict=True):
            if conf is not None and acc is not None:
                yield count, abs(acc - conf)


def reliability(confidence: Tensor, correct: Tensor, *, bins: int = 10) -> Reliability:
    """Put predictions into bins by their confidence.

    Edges are the doubles nearest to k/bins, and a confidence is compared with them as the very
    number it is: the double 0.1 lies in the first of ten bins, the float32 0.1, which is
    0.10000000149…, in the second.

    Args:
        confidence: [n] in [0, 1], n ≥ 1.
        correct: [n] bool, whether the prediction is right.
        bins: their number, at least 1.
    """
    if bins < 1:
        raise InputError(f"reliability needs at least one bin, got {bins}")
    if len(confidence) == 0 or confidence.shape != correct.shape:
        raise InputError(
            f"reliability needs as many confidences as predictions and at least one, got "
            f"{len(confidence)} and {len(correct)}"
        )
    confidence = confidence.double()
    # A negated comparison, so that NaN is refused too.
    if not bool(((confidence >= 0) & (confidence <= 1)).all()):
        raise InputError("a confidence is not between 0 and 1: the model's outputs are not finite")
    edges = torch.arange(bins + 1, dtype=torch.float64) / bins
    where = torch.bucketize(confidence, edges[1:-1])
    counts = torch.bincount(where, minlength=bins)
    sure = torch.bincount(where, weights=confidence, minlength=bins)
    right = torch.bincount(where, weights=correct.double(), minlength=bins)
    return Reliability(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        confidence=_ratios(sure, counts),
        accuracy=_ratios(right, counts),
    )


def reliabilities(
    logits: Logits,
    labels: Tensor,
    measures: Sequence[Measure],
    *,
    temperature: float = 1.0,
    bins: int = 10,
) -> list[Reliability]:
    """The bins of softmax(logits / temperature) for each confidence, in one pass.

    Args:
        logits: [n, C].
        labels: [n] class ids.
        measures: confidences in [0, 1].
        temperature: above 1 softens, below 1 sharpens.
        bins: their number.
    """
    if not 0 < temperature < math.inf:
        raise InputError(f"a temperature must be a finite number above 0, got {temperature}")
    # Made first: small tensors that outlive a chunk would leave holes that the next cannot fill.
    confidence = torch.empty(len(measures), len(logits), dtype=torch.float64)
    correct = torch.empty(len(logits), dtype=torch.bool)
    for rows, z, log_p, y in predictions(logits, labels, temperature=temperature):
        correct[rows] = z.argmax(-1) == y
        for k, measure in enumerate(measures):
            confidence[k, rows] = measure(log_p)
    return [reliability(sure, correct, bins=bins) for sure in confidence]


class CalibrationRow(TypedDict):
    """One cell of the paper's table of calibration errors."""

    T: float
    reading: Literal["divide", "multiply"]
    measure: str
    ece: float


def paper_calibration(logits: Logits, labels: Tensor) -> list[CalibrationRow]:
    """ECE with ten bins for the paper's T ∈ {1, 1/4, 1/8}, both readings and both confidences.

    The paper says logits/T, which sharpens for T < 1 ("divide"); the values it prints fall with T,
    which only logits·T gives ("multiply", a temperature of 1/T). Both are computed and named.

    Args:
        logits: [n, C].
        labels: [n] class ids.
    """
    measures = tuple(MEASURES.values())
    found = {
        T: reliabilities(logits, labels, measures, temperature=T)
        for T in {*PAPER_TEMPERATURES, *(1 / T for T in PAPER_TEMPERATURES)}
    }
    readings: tuple[Literal["divide", "multiply"], ...] = ("divide", "multiply")
    return [
        CalibrationRow(T=T, reading=reading, measure=name, ece=bins.ece)
        for reading in readings
        for T in PAPER_TEMPERATURES
        for name, bins in zip(MEASURES, found[T if reading == "divide" else 1 / T], strict=True)
    ]


def fitted_temperature(logits: Logits, labels: Tensor) -> float:
    """The T > 0 that minimises the mean of −log softmax(logits / T)_y.

    That is convex in β = 1/T, with the slope Σ_i (E_p[z_i] − z_iy), which never falls with β; its
    zero is the minimum. Where there is none between `FITTED_TEMPERATURES`, as when every
    prediction is right, the end is returned towards which the loss falls; where T changes
    nothing, 1.

    Args:
        logits: [n, C], of examples that were not trained on.
        labels: [n] class ids.
    """
    from scipy.optimize import brentq

    _check(logits, labels)
    lowest = torch.finfo(torch.float32).min

    def slope(log_beta: float) -> float:
        total = 0.0
        for rows in _chunks(logits):
            z, y = logits[rows].double(), labels[rows].long()
            # Shifted, equal logits give a slope of exactly 0; a logit of −∞ would give NaN.
            z = (z - z.max(-1, keepdim=True).values).clamp(min=lowest)
            p = torch.softmax(z * math.exp(log_beta), -1)
            total += ((p * z).sum(-1) - z.gather(1, y[:, None])[:, 0]).sum().item()
        return total

    low, high = FITTED_TEMPERATURES
    softest, sharpest = slope(-math.log(high)), slope(-math.log(low))
    if softest == sharpest == 0:
        return 1.0
    if softest >= 0:
        return high
    if sharpest <= 0:
        return low
    return math.exp(-brentq(slope, -math.log(high), -math.log(low), xtol=1e-9))


def predictions(
    logits: Logits, labels: Tensor, *, temperature: float = 1.0
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """What a model says, a few rows at a time.

    A predicted class is the argmax of the logits as they are, so that it does not depend on the
    temperature.

    Args:
        logits: [n, C].
        labels: [n] class ids.
        temperature: softmax(logits / temperature) is looked at.

    Yields:
        Which rows, their logits [rows, C] as they are, log_p [rows, C] in double precision, and
        their labels [rows].

    Raises:
        InputError: shapes that do not fit, labels that are no classes, outputs that are no numbers.
    """
    _check(logits, labels)
    for rows in _chunks(logits):
        z = logits[rows]
        yield rows, z, torch.log_softmax(z.double() / temperature, -1), labels[rows].long()


def _check(logits: Logits, labels: Tensor) -> None:
    """Refuse logits [n, C] and labels [n] that cannot be evaluated."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or 0 in logits.shape:
        raise InputError(
            f"expected a row of outputs per label, at least one of each, got outputs of shape "
            f"{tuple(logits.shape)} for labels of shape {tuple(labels.shape)}"
        )
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= logits.size(1):
        raise InputError(
            f"a label is {least if least < 0 else most}, but the model has {logits.size(1)} "
            "outputs: labels are counted from 0"
        )
    # −∞ rules a class out. A row's largest logit tells of NaN and +∞, and of −∞ throughout.
    bad = sum(int((~logits[rows].amax(-1).isfinite()).sum()) for rows in _chunks(logits))
    if bad:
        raise InputError(
            f"the model's outputs are not finite for {bad} of {len(logits)} examples: train with "
            "a lower learning rate, or look for inputs that are not finite"
        )


def _chunks(logits: Logits) -> Iterator[slice]:
    step = max(1, _ELEMENTS // logits.size(1))
    for begin in range(0, len(logits), step):
        yield slice(begin, min(begin + step, len(logits)))


def _ratios(sums: Tensor, counts: Tensor) -> tuple[float | None, ...]:
    pairs = zip(sums.tolist(), counts.tolist(), strict=True)
    return tuple(total / count if count else None for total, count in pairs)
