"""Transition matrices from what a base model says: anchor points, percentiles, confident joint.

T_ij = P(given label = j | true class = i). All three look at predictions p [n, C] of a model that
was trained on the given labels by cross entropy, where p_j is about P(given label = j | x). An
estimate that fails for a class falls back, and says so in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

PERCENTILE = 0.97  # Patrini et al.: what lies above may be outliers
MOST_CONDITION = 100.0  # of a matrix that is inverted; 40 % pair noise has 5, 45 % has 10
MIXED = 0.05  # how much more of the identity a try has than the one before
NUMBERS = 10**7  # of p that are put in order, or made float64, at once
_LISTED = 5  # classes that a sentence names


class Estimate(NamedTuple):
    """A transition matrix and how it came about.

    Attributes:
        T: [C, C] float64, row = true class, rows sum to 1.
        notes: a sentence for each thing that did not go as planned.
    """

    T: Tensor
    notes: tuple[str, ...] = ()


def anchor(p: Tensor, given: Tensor, names: Sequence[str]) -> Estimate:
    """Row i is p of the anchor of class i, the example with the largest p_i.

    A class that is predicted for no example has no anchor: it is taken to keep its label.

    Args:
        p: [n, C] predictions.
        given: [n] the labels, which this rule does not look at.
        names: C class names, for the notes.
    """
    return _of_examples(p, p.argmax(0), names)


def percentile(p: Tensor, given: Tensor, names: Sequence[str]) -> Estimate:
    """Row i is p of the example at the 97th percentile of p_i (Patrini et al. 2017).

    Where that example is predicted to be of another class, as with more classes than 3 % of the
    examples have room for, it is no example of class i and the row is that of `anchor`.

    Args:
        p: [n, C] predictions.
        given: [n] the labels, which this rule does not look at.
        names: C class names, for the notes.
    """
    n, C = p.shape
    place = min(int(PERCENTILE * n), n - 1)
    # Some columns at a time: their order takes three times the memory of p.
    width = max(1, NUMBERS // n)
    at = torch.cat([p[:, k : k + width].argsort(0)[place] for k in range(0, C, width)])
    other = p[at].argmax(1) != torch.arange(C)
    estimate = _of_examples(p, torch.where(other, p.argmax(0), at), names)
    predicted = torch.bincount(p.argmax(1), minlength=C) > 0
    note = _about(
        other & predicted,
        names,
        "the example at the 97th percentile is predicted to be of another class for {}, so its "
        "row of the transition matrix is that of the surest example",
    )
    return Estimate(estimate.T, (*note, *estimate.notes))


def confident(p: Tensor, given: Tensor, names: Sequence[str]) -> Estimate:
    """The confident joint (Northcutt et al. 2021), calibrated, by true class.

    With τ_j the mean of p_j over the examples labelled j, an example labelled y counts in cell
    (y, k) with k = argmax p_j over the classes with p_j ≥ τ_j, and nowhere without any. Every row y
    is scaled to the number of labels y; T_ki = joint(i, k)/Σ_i joint(i, k). A label whose examples
    count nowhere is taken to be right. A class without any confident example has the row of
    `percentile`.

    Args:
        p: [n, C] predictions.
        given: [n] the labels.
        names: C class names, for the notes.
    """
    C = p.size(1)
    counts = torch.bincount(given, minlength=C).double()
    sums = torch.zeros(C, dtype=torch.float64)
    sums.index_add_(0, given, p.gather(1, given[:, None])[:, 0].double())
    tau = torch.where(counts > 0, sums / counts, torch.inf)
    # A mean of equal numbers can come out above them in the last digit.
    step = max(1, NUMBERS // C)
    largest = [
        torch.where(some >= tau - 1e-12, some, -1.0).max(1)
        for some in (p[k : k + step].double() for k in range(0, len(p), step))
    ]
    is_sure = torch.cat([one.values for one in largest]) >= 0
    predicted = torch.cat([one.indices for one in largest])
    cells = given[is_sure] * C + predicted[is_sure]
    joint = torch.bincount(cells, minlength=C * C).reshape(C, C).double()
    nowhere = joint.sum(1) == 0
    joint[nowhere, nowhere] = counts[nowhere]
    total = joint.sum(1, keepdim=True)
    joint = joint / torch.where(total > 0, total, 1.0) * counts[:, None]
    T, failed = joint.T.clone(), joint.sum(0) == 0
    notes: tuple[str, ...] = ()
    if bool(failed.any()):
        instead = percentile(p, given, names)
        T[failed] = instead.T[failed]
        note = "no example is confidently of {}, so its row of the transition matrix is that of "
        notes = (*_about(failed, names, note + "the percentile rule"), *instead.notes)
    return Estimate(T / T.sum(1, keepdim=True), notes)


ESTIMATES: dict[str, Callable[[Tensor, Tensor, Sequence[str]], Estimate]] = {
    "anchor": anchor,
    "percentile": percentile,
    "confident": confident,
}


def invertible(T: Tensor) -> Estimate:
    """(1 − λ)T + λI with the least λ in steps of 0.05 that has a condition number of at most 100.

    Args:
        T: [C, C], rows sum to 1.
    """
    identity = torch.eye(len(T), dtype=torch.float64)
    exact, condition = T.double(), 0.0
    for step in range(round(1 / MIXED) + 1):
        share = step * MIXED
        mixed = (1 - share) * exact + share * identity
        number = float(torch.linalg.cond(mixed))
        if step == 0:
            condition = number
        if number <= MOST_CONDITION:
            break
    if step == 0:
        return Estimate(exact)
    return Estimate(
        mixed,
        (
            f"the transition matrix can hardly be inverted (condition number {condition:.3g}, at "
            f"most {MOST_CONDITION:g} is wanted), so {share:.0%} of the identity is mixed into it",
        ),
    )


def _of_examples(p: Tensor, at: Tensor, names: Sequence[str]) -> Estimate:
    """Rows from the examples `at` [C]; the identity's for a class that is never predicted."""
    C = p.size(1)
    T = p[at].double()
    never = torch.bincount(p.argmax(1), minlength=C) == 0
    T[never] = 0
    T[never, never] = 1
    note = "{} is never predicted, so the transition matrix lets it keep its label"
    return Estimate(T / T.sum(1, keepdim=True), _about(never, names, note))


def _about(which: Tensor, names: Sequence[str], sentence: str) -> tuple[str, ...]:
    """The sentence about some classes [C], or nothing where there are none."""
    found = [names[k] for k in which.nonzero()[:, 0].tolist()]
    if not found:
        return ()
    listed = ", ".join(found[:_LISTED]) + (", …" if len(found) > _LISTED else "")
    what = f"class {listed}" if len(found) == 1 else f"each of {len(found)} classes ({listed})"
    return (sentence.format(what),)
