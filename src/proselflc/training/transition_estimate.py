"""Transition matrices estimated from predictions: anchor points, percentiles, confident joint.

T_ij = P(given label = j | true class = i). All three use predictions p [n, C] of a model that was
trained on the given labels by cross entropy, so that p_j approximates P(given label = j | x). If an
estimate fails for a class, a fallback is used and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

PERCENTILE = 0.97  # Patrini et al.: larger values may be outliers
MOST_CONDITION = 100.0  # the largest condition number; 40 % pair noise has 5, 45 % has 10
MIXED = 0.05  # the step by which the share of the identity is raised
NUMBERS = 10**7  # values of p that are sorted or converted to float64 at once
_LISTED = 5  # classes that a note names


class Estimate(NamedTuple):
    """An estimated transition matrix.

    Attributes:
        T: [C, C] float64, row = true class, rows sum to 1.
        notes: a sentence about each fallback.
    """

    T: Tensor
    notes: tuple[str, ...] = ()


def anchor(p: Tensor, given: Tensor, names: Sequence[str]) -> Estimate:
    """Return T whose row i is p of the anchor of class i, the example with the largest p_i.

    A class that is never predicted has no anchor and is assumed to keep its label.
    """
    return _of_examples(p, p.argmax(0), names)


def percentile(p: Tensor, given: Tensor, names: Sequence[str]) -> Estimate:
    """Return T whose row i is p of the example at the 97th percentile of p_i (Patrini et al. 2017).

    If that example is predicted to be of another class, as happens with more than about 30 classes,
    the row is that of `anchor`.
    """
    n, C = p.shape
    place = min(int(PERCENTILE * n), n - 1)
    # Some columns at a time: sorting takes three times the memory of p.
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
    """Return T from the calibrated confident joint (Northcutt et al. 2021).

    With τ_j the mean of p_j over the examples labelled j, an example labelled y counts in cell
    (y, k) with k = argmax p_j over the classes with p_j ≥ τ_j, and is ignored if there are none.
    Every row y is scaled to the number of labels y; T_ki = joint(i, k)/Σ_i joint(i, k). A label
    whose examples are all ignored is assumed to be right. A class without a confident example has
    the row of `percentile`.
    """
    C = p.size(1)
    counts = torch.bincount(given, minlength=C).double()
    sums = torch.zeros(C, dtype=torch.float64)
    sums.index_add_(0, given, p.gather(1, given[:, None])[:, 0].double())
    tau = torch.where(counts > 0, sums / counts, torch.inf)
    # The mean of equal numbers can exceed them in the last digit.
    step = max(1, NUMBERS // C)
    largest = [
        torch.where(rows >= tau - 1e-12, rows, -1.0).max(1)
        for rows in (p[k : k + step].double() for k in range(0, len(p), step))
    ]
    is_sure = torch.cat([found.values for found in largest]) >= 0
    predicted = torch.cat([found.indices for found in largest])
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
    """Return (1 − λ)T + λI, the smallest λ in steps of 0.05 with a condition number up to 100."""
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
            f"the transition matrix is ill-conditioned (condition number {condition:.3g}, at most "
            f"{MOST_CONDITION:g} is accepted), so {share:.0%} of the identity is mixed into it",
        ),
    )


def _of_examples(p: Tensor, at: Tensor, names: Sequence[str]) -> Estimate:
    """Return T with the rows of p at [C]; a class that is never predicted keeps its label."""
    C = p.size(1)
    T = p[at].double()
    never = torch.bincount(p.argmax(1), minlength=C) == 0
    T[never] = 0
    T[never, never] = 1
    note = "{} is never predicted, so the transition matrix lets it keep its label"
    return Estimate(T / T.sum(1, keepdim=True), _about(never, names, note))


def _about(which: Tensor, names: Sequence[str], sentence: str) -> tuple[str, ...]:
    """Return a note about the marked classes [C], or nothing if none is marked."""
    found = [names[k] for k in which.nonzero()[:, 0].tolist()]
    if not found:
        return ()
    listed = ", ".join(found[:_LISTED]) + (", …" if len(found) > _LISTED else "")
    what = f"class {listed}" if len(found) == 1 else f"each of {len(found)} classes ({listed})"
    return (sentence.format(what),)
