"""How good a model is on labelled examples: accuracy, likelihood, Brier score and calibration.

Logits are [n, C] of any floating dtype. Everything is computed in double precision, a few rows at a
time, so that no second [n, C] is ever allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, TypedDict

import torch
from torch import Tensor

from proselflc.correction.evidence import entropy
from proselflc.errors import InputError
from proselflc.training.inference import Logits

Measure: TypeAlias = Callable[[Tensor], Tensor]

PAPER_TEMPERATURES = (1.0, 1 / 4, 1 / 8)
FITTED_TEMPERATURES = (0.01, 100.0)  # range of a fitted temperature

_ELEMENTS = 1 << 20  # of [rows, C] that are processed at once


def max_probability(log_p: Tensor) -> Tensor:
    """Return the confidence max_j p_j: [..., C] log-probabilities → [...], in [1/C, 1]."""
    # Rounding can push the exponential of a logarithm above 1.
    return log_p.max(-1).values.exp().clamp(max=1)


def one_minus_entropy(log_p: Tensor) -> Tensor:
    """Return the confidence 1 − H(p)/H(u), clamped to [0, 1]: [..., C] log-probabilities → [...].

    This is the paper's local trust l(p). With one class it is 1.
    """
    return (1 - entropy(log_p) / max(math.log(log_p.size(-1)), 1e-12)).clamp(0, 1)


MEASURES: dict[str, Measure] = {"max_p": max_probability, "entropy": one_minus_entropy}


@dataclass(frozen=True)
class Reliability:
    """Examples in bins of equal width by confidence, and the accuracy in each bin.

    Bins are (lo, hi], the first one [0, hi].

    Attributes:
        edges: bins + 1 numbers from 0 to 1.
        counts: number of examples in each bin.
        confidence: mean confidence in each bin, None if it is empty.
        accuracy: share of correct predictions in each bin, None if it is empty.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]

    @property
    def ece(self) -> float:
        """Return the expected calibration error Σ_b |b|/n · |acc_b − conf_b|; high is bad."""
        bins = zip(self.counts, self.confidence, self.accuracy, strict=True)
        gaps = (
            count * abs(acc - conf)
            for count, conf, acc in bins
            if conf is not None and acc is not None
        )
        return sum(gaps) / sum(self.counts)


def reliability(confidence: Tensor, correct: Tensor, *, bins: int = 10) -> Reliability:
    """Return predictions in bins by their confidence.

    Edges are the doubles nearest to k/bins, and a confidence is compared with them exactly: the
    double 0.1 lies in the first of ten bins, the float32 0.1, which is 0.10000000149…, in the
    second.

    Args:
        confidence: [n] in [0, 1], n ≥ 1.
        correct: [n] bool, whether the prediction is correct.
        bins: number of bins.
    """
    if bins < 1:
        raise InputError(f"reliability needs at least one bin, got {bins}")
    if len(confidence) == 0 or confidence.shape != correct.shape:
        raise InputError(
            "reliability needs one confidence per prediction and at least one prediction, got "
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
    """Return the bins of softmax(logits / temperature) for each confidence, in one pass.

    Args:
        logits: [n, C].
        labels: [n] class ids.
        measures: confidences in [0, 1].
        temperature: a value above 1 softens, below 1 sharpens.
        bins: number of bins.
    """
    if not 0 < temperature < math.inf:
        raise InputError(f"the temperature must be finite and positive, got {temperature}")
    # Allocated first: small tensors that outlive a chunk would fragment the memory of the next.
    confidence = torch.empty(len(measures), len(logits), dtype=torch.float64)
    correct = torch.empty(len(logits), dtype=torch.bool)
    for rows, z, log_p, y in predictions(logits, labels, temperature=temperature):
        correct[rows] = z.argmax(-1) == y
        for k, measure in enumerate(measures):
            confidence[k, rows] = measure(log_p)
    return [reliability(sure, correct, bins=bins) for sure in confidence]


@dataclass(frozen=True)
class Evaluation:
    """The measures of one model on n examples.

    Attributes:
        n: number of examples.
        accuracy: share of examples whose label has the largest logit; high is good.
        top5: share of examples whose label is among the five largest logits; None for fewer than
            six classes.
        per_class: accuracy on the examples of each class, None for a class without examples.
        nll: mean of −log p_y; high is bad.
        brier: mean of Σ_j (p_j − q_j)², in [0, 2]; high is bad.
        ece: expected calibration error of the confidence max p, ten bins; high is bad.
        ece_entropy: the same for the confidence 1 − H(p)/H(u).
        reliability: bins of `ece`.
        reliability_entropy: bins of `ece_entropy`.
    """

    n: int
    accuracy: float
    top5: float | None
    per_class: tuple[float | None, ...]
    nll: float
    brier: float
    ece: float
    ece_entropy: float
    reliability: Reliability
    reliability_entropy: Reliability

    def to_json(self) -> dict[str, Any]:
        """Return values for `json.dumps`; an infinite `nll` is None.

        It is infinite if the model rules out a label with a logit of −∞.
        """
        return {**asdict(self), "nll": self.nll if math.isfinite(self.nll) else None}


def evaluate(logits: Logits, labels: Tensor, num_classes: int) -> Evaluation:
    """Return the measures of a model on n ≥ 1 examples.

    Of equal logits the first class counts as the larger one, for top-1 and top-5 alike.

    Args:
        logits: [n, C] of any floating dtype.
        labels: [n] class ids.
        num_classes: C.

    Raises:
        InputError: shapes do not match, a label is out of range, or outputs are not finite.
    """
    if logits.ndim == 2 and logits.size(1) != num_classes:
        raise InputError(
            f"the model has {logits.size(1)} outputs, but the data has {num_classes} classes",
            field="model",
            fix="choose a model with an output per class",
        )
    n, nll, brier, among_five = len(labels), 0.0, 0.0, 0
    examples, hits = torch.zeros(2, num_classes, dtype=torch.int64)
    sure, sure_by_entropy = torch.empty(2, n, dtype=torch.float64)
    correct = torch.empty(n, dtype=torch.bool)
    for rows, z, log_p, y in predictions(logits, labels):
        correct[rows] = z.argmax(-1) == y
        sure[rows] = max_probability(log_p)
        sure_by_entropy[rows] = one_minus_entropy(log_p)
        examples += torch.bincount(y, minlength=num_classes)
        hits += torch.bincount(y[correct[rows]], minlength=num_classes)
        column = y[:, None]
        nll -= log_p.gather(1, column).sum().item()
        if num_classes > 5:
            among_five += int((_rank(z, column) < 5).sum())
        distance = log_p.exp_()
        distance.scatter_add_(1, column, distance.new_full(column.shape, -1.0))
        brier += distance.square_().sum().item()
    bins = reliability(sure, correct)
    bins_by_entropy = reliability(sure_by_entropy, correct)
    return Evaluation(
        n=n,
        accuracy=int(hits.sum()) / n,
        top5=among_five / n if num_classes > 5 else None,
        per_class=tuple(
            hit / count if count else None
            for hit, count in zip(hits.tolist(), examples.tolist(), strict=True)
        ),
        nll=nll / n,
        brier=brier / n,
        ece=bins.ece,
        ece_entropy=bins_by_entropy.ece,
        reliability=bins,
        reliability_entropy=bins_by_entropy,
    )


def _rank(logits: Tensor, column: Tensor) -> Tensor:
    """Return [N] the number of classes that precede that of `column` [N, 1] by logits [N, C]."""
    own = logits.gather(1, column)
    before = torch.arange(logits.size(1)) < column
    return ((logits > own) | ((logits == own) & before)).sum(-1)


class CalibrationRow(TypedDict):
    """One cell of the paper's table of calibration errors."""

    T: float
    reading: Literal["divide", "multiply"]
    measure: str
    ece: float


def paper_calibration(logits: Logits, labels: Tensor) -> list[CalibrationRow]:
    """Return the ECE with ten bins for the paper's T ∈ {1, 1/4, 1/8}, readings and confidences.

    The paper writes logits/T, which sharpens for T < 1 ("divide"); its printed values fall with T,
    which only logits·T gives ("multiply", a temperature of 1/T). Both are computed and named.
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
    """Return the T > 0 that minimises the mean of −log softmax(logits / T)_y.

    The mean is convex in β = 1/T, and its slope Σ_i (E_p[z_i] − z_iy) does not decrease with β; the
    zero of the slope is the minimum. If there is none within `FITTED_TEMPERATURES`, for example
    because every prediction is correct, the end with the lower loss is returned; if T has no
    effect, 1.

    Args:
        logits: [n, C] for examples that were not trained on.
        labels: [n] class ids.
    """
    from scipy.optimize import brentq

    _check(logits, labels)
    lowest = torch.finfo(torch.float32).min

    def slope(log_beta: float) -> float:
        total = 0.0
        for rows in _chunks(logits):
            z, y = logits[rows].double(), labels[rows].long()
            # After the shift equal logits have a slope of exactly 0; a logit of −∞ would give NaN.
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
    """Yield rows, their logits [rows, C], log_p [rows, C] in double precision and labels [rows].

    The predicted class is the argmax of the logits, which does not depend on the temperature that
    log_p is computed with.

    Raises:
        InputError: shapes do not match, a label is out of range, or outputs are not finite.
    """
    _check(logits, labels)
    for rows in _chunks(logits):
        z = logits[rows]
        yield rows, z, torch.log_softmax(z.double() / temperature, -1), labels[rows].long()


def _check(logits: Logits, labels: Tensor) -> None:
    """Refuse logits and labels that do not match, are empty, out of range or not finite."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or 0 in logits.shape:
        raise InputError(
            "expected a row of outputs per label and at least one label, got outputs of shape "
            f"{tuple(logits.shape)} for labels of shape {tuple(labels.shape)}"
        )
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= logits.size(1):
        raise InputError(
            f"a label is {least if least < 0 else most}, but the model has {logits.size(1)} "
            "outputs: labels start at 0"
        )
    # −∞ rules a class out. A row's largest logit reveals NaN, +∞, and a row of −∞.
    bad = sum(int((~logits[rows].amax(-1).isfinite()).sum()) for rows in _chunks(logits))
    if bad:
        raise InputError(
            f"the model's outputs are not finite for {bad} of {len(logits)} examples",
            fix="train with a lower learning rate, or check the inputs for values that are not "
            "finite",
        )


def _chunks(logits: Logits) -> Iterator[slice]:
    step = max(1, _ELEMENTS // logits.size(1))
    for begin in range(0, len(logits), step):
        yield slice(begin, min(begin + step, len(logits)))


def _ratios(sums: Tensor, counts: Tensor) -> tuple[float | None, ...]:
    pairs = zip(sums.tolist(), counts.tolist(), strict=True)
    return tuple(total / count if count else None for total, count in pairs)
