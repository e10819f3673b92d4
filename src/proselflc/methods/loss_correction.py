"""Loss correction by a transition matrix (Patrini et al. 2017): forward and backward.

The matrix T_ij = P(given label = j | true class = i) is given or estimated: by anchor points,
percentiles or the confident joint. All three use predictions p [n, C] of a model that was trained
on the given labels by cross entropy, so that p_j approximates P(given label = j | x). If an
estimate fails for a class, a fallback is used and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from proselflc.correction.criteria import BackwardCorrection, CrossEntropy, ForwardCorrection
from proselflc.correction.criterion import Criterion
from proselflc.correction.parameter import one_of
from proselflc.data.class_matrix import (
    check_room_for_transition,
    checked_transition,
    read_transition,
)
from proselflc.errors import InputError
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import (
    RunContext,
    Snapshot,
    Stage,
    Strategy,
    all_probabilities,
    check_probabilities,
)

# Of all epochs. A network trained longer memorises the labels, and T would be the identity.
FIRST = 0.25
PERCENTILE = 0.97  # Patrini et al.: larger values may be outliers
MOST_CONDITION = 100.0  # the largest condition number; 40 % pair noise has 5, 45 % has 10
MIXED = 0.05  # the step by which the share of the identity is raised
NUMBERS = 10**7  # values of p that are sorted or converted to float64 at once
_LISTED = 5  # classes that a note names


class Estimate(NamedTuple):
    """An estimated transition matrix."""

    T: Tensor  # [C, C] float64, row = true class, rows sum to 1
    notes: tuple[str, ...] = ()  # a sentence about each fallback


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


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of forward and backward correction.

    Attributes:
        transition: a .npy, .npz or .csv file of the transition matrix, row = true class; estimated
            if omitted.
        estimate: the way to estimate it: "percentile", "anchor" or "confident".
    """

    transition: Path | None = None
    estimate: str = checked("percentile", one_of(ESTIMATES))


class LossCorrection(Strategy):
    """Cross entropy until T can be estimated, then a fresh network with the corrected loss.

    With T given there is one stage. The backward correction inverts T, so an ill-conditioned
    estimate is mixed with the identity; see `invertible`. Its loss has no lower
    bound: a network that can fit single examples drives it towards −∞, so the forward correction is
    better wherever labels can be memorised.
    """

    T: Tensor

    def __init__(
        self,
        context: RunContext,
        *,
        backward: bool,
        transition: Tensor | None = None,
        estimate: str = "percentile",
    ) -> None:
        if transition is not None and not backward:
            _check_possible(transition, context)
        # T, its copy in the criterion, in checkpoints and in a step; an inverse needs float64.
        n = 0 if transition is not None else context.num_examples
        check_probabilities(n, context.num_classes, 80 if backward else 40)
        corrected: Callable[[Tensor], Criterion]
        corrected = BackwardCorrection if backward else ForwardCorrection
        super().__init__(CrossEntropy() if transition is None else corrected(transition.float()))
        self.corrected, self.backward, self.estimate = corrected, backward, estimate
        self.is_given = transition is not None
        self.names = context.names
        if transition is None:
            self.stages = (
                Stage("cross entropy, to estimate T", FIRST),
                Stage("corrected loss", 1 - FIRST, fresh=True),
            )
        T = torch.eye(context.num_classes) if transition is None else transition.float()
        self.register_buffer("T", T)

    def arrange(self, stage: int, model: nn.Module) -> None:
        if stage > 0:
            self.criterion = self.corrected(self.T)

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        if stage == 0:
            return
        given = torch.from_numpy(snapshot.given)
        T, notes = ESTIMATES[self.estimate](all_probabilities(snapshot), given, self.names)
        if self.backward:
            T, more = invertible(T)
            notes += more
        for note in notes:
            snapshot.note(note)
        self.T.copy_(T)
        self.criterion = self.corrected(self.T)

    def transition(self) -> Tensor | None:
        return self.T

    def facts(self) -> dict[str, object]:
        return {"transition": "given" if self.is_given else f"estimated by {self.estimate}"}


def _check_possible(T: Tensor, context: RunContext) -> None:
    """Refuse a matrix that rules out a label in the data, whose loss would be infinite."""
    there = torch.bincount(torch.from_numpy(context.given), minlength=len(T))
    wrong = (there > 0) & (T == 0).all(0)
    if bool(wrong.any()):
        k = int(wrong.nonzero()[0])
        raise InputError(
            f"{int(there[k]):,} examples are labelled {context.names[k]}, but its column of the "
            "transition matrix is zero",
            field="method.transition",
            fix="mix some identity into the matrix",
        )


def _strategy(
    context: RunContext, *, backward: bool, transition: Path | None, estimate: str
) -> Strategy:
    T = None
    if transition is not None:
        check_room_for_transition(context.num_classes)
        matrix = read_transition(transition)
        try:
            T = torch.from_numpy(checked_transition(matrix, context.num_classes))
        except InputError as error:
            raise InputError(
                f"{transition}: {error.reason}", field="method.transition", fix=error.fix
            ) from None
    return LossCorrection(context, backward=backward, transition=T, estimate=estimate)


FORWARD = Method(
    title="Forward correction",
    loss="−log (Tᵀp)_y",
    where="Table 4",
    when="Use it if you know which classes are confused and can give the matrix. An "
    "estimated matrix helped on digits and harmed on photos.",
    parameters=Parameters,
    grid={"estimate": ("percentile", "anchor", "confident")},
    strategy=partial(_strategy, backward=False),
    criterion="ForwardCorrection",
)
BACKWARD = replace(
    FORWARD,
    title="Backward correction",
    loss="Σ_j (T⁻¹)_yj (−log p_j)",
    where="beside Forward",
    when="Use it only to compare with forward correction: its loss has no lower bound, and "
    "it was the worst here.",
    strategy=partial(_strategy, backward=True),
    criterion="BackwardCorrection",
)
