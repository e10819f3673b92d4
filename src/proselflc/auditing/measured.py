"""What a review of randomly drawn labels measures: how many are wrong, and how many suspects are.

Labels are drawn by `draw` from four groups, from those that look surely wrong to those that look
right, so that each label has a known chance of being drawn. A decision then stands for as many
labels as its group has for every one that was decided, and shares are estimated from the decisions
alone, whatever the audit believes (Hájek's estimate for a stratified sample). Decisions about other
labels count for nothing here: people choose what looks wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from proselflc.auditing.noise_range import RANGE
from proselflc.auditing.noise_range import Share as Trials
from proselflc.auditing.records import Doubles
from proselflc.data.decisions import Decisions, Sample
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels import Labels
from proselflc.files.typed import Count, Share

Interval: TypeAlias = tuple[Share, Share, Share]  # low end, estimate, high end; 95 % wide
FEWEST, FEWEST_AMONG = 10, 3  # decisions that a rate, and that a precision is estimated from
TOP = 0.01  # share of the labels that look most wrong: the smallest budget
DOUBTFUL = 0.1  # least share of the labels that are doubtful, but not suspect
# The least share of a sample that is drawn from each of the first three groups, and from the last.
LEAST, LEAST_OTHERS = 0.14, 0.4
# How much the default slope and shift of the log-odds count beside the decisions.
SLOPE_PRIOR, SHIFT_PRIOR = 20.0, 0.25
FLATTEST = 0.05  # slope, so that the order of the labels stays
_ROUNDS = 50


@dataclass(frozen=True)
class MeasuredPrecision:
    """The share of wrong labels among those that look most wrong, at three budgets.

    Each is None if fewer than three labels that were decided are among them.

    Attributes:
        top_1_percent: among one in a hundred labels.
        estimated_rate: among as many labels as are wrong by the measured rate.
        suspects: among the suspects.
    """

    top_1_percent: Interval | None = None
    estimated_rate: Interval | None = None
    suspects: Interval | None = None


@dataclass(frozen=True)
class Measured:
    """What the decisions about a random sample say about all labels.

    Attributes:
        reviewed: number of decisions.
        noise_rate: share of wrong labels.
        precision: share of wrong labels among those that look wrong.
    """

    reviewed: Count
    noise_rate: Interval
    precision: MeasuredPrecision


@dataclass(frozen=True)
class Reviewed:
    """m decisions about labels that were drawn at random.

    Attributes:
        rows: [m] positions of the labels.
        wrong: [m] whether the given label is wrong.
        weight: [m] share of all labels that a decision stands for.
        group: [m] number of the group that the label was drawn from, unique among all samples.
        drawn: [m] share of the group that was decided.
    """

    rows: Ints
    wrong: Bools
    weight: Doubles
    group: Ints
    drawn: Doubles

    @classmethod
    def of(cls, decisions: Decisions, labels: Labels) -> Reviewed | None:
        """Return the decisions about samples of the labels; None if there are too few.

        Of each sample only the labels before the first undecided one count: later ones may have
        been decided because they were the clearest mistakes. If a reviewer cannot tell, the label
        counts neither as wrong nor as right.
        """
        population = len(labels.ids) - (0 if labels.trusted is None else int(labels.trusted.sum()))
        position = {name: i for i, name in enumerate(labels.ids)}
        parts: list[_Part] = []
        for sample in decisions.samples:
            if sample.strata is not None and sum(sample.strata) == population:
                part = _Part.of(sample, decisions, position, labels)
                if part is not None:
                    parts.append(part)
        total = sum(len(part.rows) for part in parts)
        if total < FEWEST:
            return None
        share = population / len(labels.ids) / total
        groups = np.cumsum([0, *(len(part.sizes) for part in parts)])
        return cls(
            rows=np.concatenate([part.rows for part in parts]),
            wrong=np.concatenate([part.wrong for part in parts]),
            weight=np.concatenate([share * len(part.rows) * part.weight for part in parts]),
            group=np.concatenate([k + part.group for k, part in zip(groups, parts, strict=False)]),
            drawn=np.concatenate([part.drawn for part in parts]),
        )

    def share(self, among: Bools | None = None, errors: float = RANGE) -> Interval | None:
        """Return the share of wrong labels, and an interval some standard errors wide.

        With W_g the share of the labels that group g stands for, and [l_g, u_g] Wilson's interval
        of the share p_g of its decisions that are "wrong", brought nearer to p_g by √(1 − f_g)
        where f_g of the group was decided, the estimate is p = Σ W_g p_g, and the interval from
        p − √Σ W_g² (p_g − l_g)² to p + √Σ W_g² (u_g − p_g)² (Zou and Donner's MOVER).

        Args:
            among: [m] the decisions that count, or None for all.
            errors: 1.96 for an interval of 95 %.
        """
        kept = np.ones(len(self.rows), np.bool_) if among is None else among
        total = float(self.weight[kept].sum())
        if not kept.any():
            return None
        estimate = below = above = 0.0
        for g in np.unique(self.group[kept]):
            own = kept & (self.group == g)
            W = float(self.weight[own].sum()) / total
            trials = Trials(float(self.wrong[own].sum()), int(own.sum()))
            low, high = trials.interval(errors)
            left = 1 - float(self.drawn[own][0])
            estimate += W * trials.rate
            below += W * W * left * max(0.0, trials.rate - low) ** 2
            above += W * W * left * max(0.0, high - trials.rate) ** 2
        return (
            max(0.0, estimate - math.sqrt(below)),
            min(1.0, estimate),
            min(1.0, estimate + math.sqrt(above)),
        )

    def noise_rate(self, errors: float = RANGE) -> Interval:
        """Return the share of wrong labels among all, trusted ones included."""
        found = self.share(errors=errors)
        assert found is not None
        covered = min(1.0, float(self.weight.sum()))
        return covered * found[0], covered * found[1], covered * found[2]

    def precision(self, among: Bools) -> Interval | None:
        """Return the share of wrong labels among some [m]; None if fewer than three are."""
        return self.share(among) if among.sum() >= FEWEST_AMONG else None

    def measured(self, wrong: Floats, suspect: Bools) -> Measured:
        """Return what the decisions say about all labels.

        Args:
            wrong: [n] chance of each label to be wrong, for its order alone; NaN if unknown.
            suspect: [n].
        """
        rate = self.noise_rate()
        place = np.empty(len(wrong), np.int64)
        place[_worst_first(wrong)] = np.arange(len(wrong))
        budgets = [max(1, math.ceil(share * len(wrong))) for share in (TOP, rate[1])]
        top, rated = (self.precision(place[self.rows] < budget) for budget in budgets)
        precision = MeasuredPrecision(top, rated, self.precision(suspect[self.rows]))
        return Measured(len(self.rows), rate, precision)

    def calibration(self, x: Doubles, shift: float) -> tuple[float, float]:
        """Return the slope a and the shift b for which σ(a x + b) fits the decisions best.

        That is, with weights v that sum to m, the least

            Σ v_i H(wrong_i, σ(a x_i + b)) + ½ λ (a − 1)² + ½ λ' (b − b₀)²

        where H is the cross entropy, λ = 20 and λ' = ¼. The slope is at least 0.05.

        Args:
            x: [n] log-odds of the labels to be wrong, without a shift; NaN or −∞ are left out.
            shift: b₀, without a review.
        """
        from scipy.special import expit

        known = np.isfinite(x[self.rows])
        z, y = x[self.rows][known], self.wrong[known].astype(np.float64)
        v = self.weight[known] * (known.sum() / max(float(self.weight[known].sum()), 1e-300))
        design = np.stack((z, np.ones(len(z))), 1)
        default, prior = np.array([1.0, shift]), np.array([SLOPE_PRIOR, SHIFT_PRIOR])

        def loss(theta: Doubles) -> float:
            logits = design @ theta
            fit = float((v * (np.logaddexp(0, logits) - y * logits)).sum())
            return fit + float((prior * (theta - default) ** 2).sum()) / 2

        theta = default
        for _ in range(_ROUNDS):  # Newton's method, with shorter steps where one goes too far
            p = expit(design @ theta)
            slope = design.T @ (v * (p - y)) + prior * (theta - default)
            curve = (design.T * (v * p * (1 - p))) @ design + np.diag(prior)
            step = np.linalg.solve(curve, slope)
            now = loss(theta)
            while loss(theta - step) > now and np.abs(step).max() > 1e-12:
                step = step / 2
            theta = theta - step
            if np.abs(step).max() < 1e-9:
                break
        return max(FLATTEST, float(theta[0])), float(theta[1])


def in_words(measured: Measured) -> str:
    """Return sentences about a measurement."""
    low, estimate, high = measured.noise_rate
    found = measured.precision
    budgets = {
        "the 1% of the labels that look most wrong": found.top_1_percent,
        "as many labels as are wrong": found.estimated_rate,
        "all suspects": found.suspects,
    }
    known = [
        f"{name} {share[1]:.0%} ({share[0]:.0%} to {share[2]:.0%})"
        for name, share in budgets.items()
        if share is not None
    ]
    rate = f"Measured on {measured.reviewed:,} reviewed labels, {estimate:.1%} of all labels are "
    rate += f"wrong (95% interval {low:.1%} to {high:.1%})."
    return f"{rate} Of {', of '.join(known)} are wrong." if known else rate


def draw(
    wrong: Floats, suspect: Bools, rows: Ints, size: int, generator: np.random.Generator
) -> tuple[Ints, tuple[int, ...], tuple[int, ...]]:
    """Return a sample of labels: its positions, the group of each, and the sizes of the groups.

    The groups are the labels that look most wrong (1 %), the other suspects, doubtful labels (as
    many again, at least a tenth), and all others. Within a group, every label is equally likely
    to be drawn. The groups take turns, so that any beginning of a sample is a sample.

    Args:
        wrong: [n] chance of each label to be wrong; NaN if unknown.
        suspect: [n].
        rows: [N] positions of the labels to draw from.
        size: number of labels to draw, at most N.
        generator: of the draw.
    """
    N = len(rows)
    shuffled = generator.permutation(rows)  # labels that look equal are in any order
    ranked = shuffled[_worst_first(wrong[shuffled])]
    suspects = int(suspect[rows].sum())
    first = math.ceil(TOP * N)
    second = max(first, suspects)
    third = second + min(max(suspects, math.ceil(DOUBTFUL * N)), (N - second) // 2)
    ends = (first, second, third, N)
    groups = [generator.permutation(ranked[a:b]) for a, b in zip((0, *ends), ends, strict=False)]
    sizes = tuple(len(group) for group in groups)
    order = list(_turns(sizes, size))
    taken = [iter(group.tolist()) for group in groups]
    return np.array([next(taken[g]) for g in order], np.int64), tuple(order), sizes


def _turns(sizes: Sequence[int], size: int) -> Iterator[int]:
    """Yield the group of each draw: always the one that is furthest behind its share."""
    share = [max(LEAST, many / sum(sizes)) for many in sizes[:-1]]
    share.append(max(LEAST_OTHERS, 1 - sum(share)))
    count = [0] * len(sizes)
    for _ in range(size):
        behind = [
            (count[g] + 1) / share[g] if count[g] < sizes[g] else math.inf
            for g in range(len(sizes))
        ]
        g = int(np.argmin(behind))
        count[g] += 1
        yield g


def _worst_first(wrong: Floats) -> Ints:
    """Return the positions by falling chance of being wrong, unknown ones last."""
    return np.argsort(-np.nan_to_num(wrong, nan=-1.0), kind="stable")


@dataclass(frozen=True)
class _Part:
    """The decisions about one sample; `weight` sums to 1."""

    rows: Ints
    wrong: Bools
    weight: Doubles
    group: Ints
    drawn: Doubles
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls, sample: Sample, decisions: Decisions, position: dict[str, int], labels: Labels
    ) -> _Part | None:
        """Return None as long as a group has no decision."""
        assert sample.strata is not None
        sizes = sample.strata
        rows, wrong, group = [], [], []
        for name, g in zip(sample.examples, sample.groups, strict=True):
            decision, i = decisions.of(name), position.get(name)
            if decision is None or i is None:
                break
            if decision.label is not None:
                rows.append(i)
                wrong.append(decision.label != labels.names[labels.given[i]])
                group.append(g)
        many = np.bincount(group, minlength=len(sizes))
        if any(size and not count for size, count in zip(sizes, many, strict=True)):
            return None
        of_group = np.array(sizes) / np.maximum(many, 1)  # labels that a decision stands for
        index = np.array(group, np.int64)
        return cls(
            np.array(rows, np.int64),
            np.array(wrong, np.bool_),
            of_group[index] / sum(sizes),
            index,
            1 / of_group[index],
            sizes,
        )
