"""How good a model is on labelled examples: accuracy, likelihood, Brier score, calibration."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from proselflc.auditing.calibration import (
    Reliability,
    max_probability,
    one_minus_entropy,
    predictions,
    reliability,
)
from proselflc.errors import InputError
from proselflc.training.inference import Logits


@dataclass(frozen=True)
class Evaluation:
    """Measures of one model on n examples.

    Attributes:
        n: number of examples.
        accuracy: share of examples whose label has the largest logit; high is good.
        top5: share of examples whose label is among the five largest logits; None for fewer than
            six classes, where it says nothing.
        per_class: accuracy on the examples of each class, None for a class without any.
        nll: mean of −log p_y; high is bad.
        brier: mean of Σ_j (p_j − q_j)², in [0, 2]; high is bad.
        ece: expected calibration error of the confidence max p, ten bins; high is bad.
        ece_entropy: the same of the confidence 1 − H(p)/H(u).
        reliability: the bins behind `ece`.
        reliability_entropy: the bins behind `ece_entropy`.
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
        """Dicts, tuples and numbers for `json.dumps`; an infinite `nll`, for which JSON has no
        word, is None. It is infinite where the model rules out a label with a logit of −∞.
        """
        return {**asdict(self), "nll": self.nll if math.isfinite(self.nll) else None}


def evaluate(logits: Logits, labels: Tensor, num_classes: int) -> Evaluation:
    """Measure what a model says about n ≥ 1 examples.

    Of equal logits the first class counts as the larger one, for top-1 and top-5 alike.

    Args:
        logits: [n, C] as the model gives them, any floating dtype.
        labels: [n] class ids.
        num_classes: C.

    Raises:
        InputError: shapes that do not fit, labels that are no classes, outputs that are no numbers.
    """
    if logits.ndim == 2 and logits.size(1) != num_classes:
        raise InputError(
            f"the model has {logits.size(1)} outputs, but the data have {num_classes} classes: "
            "choose a model for these data"
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
    """[N] how many classes come before that of `column` [N, 1] by their logits [N, C]."""
    own = logits.gather(1, column)
    before = torch.arange(logits.size(1)) < column
    return ((logits > own) | ((logits == own) & before)).sum(-1)
