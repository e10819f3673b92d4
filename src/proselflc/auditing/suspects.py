"""Which labels are probably wrong, and what they should be.

See `judge` for the formula; docs/audit.md says what it is good for and what it cannot see.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from proselflc.auditing import examples, noise_estimate
from proselflc.auditing.audit import Audit, counted, noise_rate
from proselflc.auditing.examples import Judgement
from proselflc.auditing.records import Records
from proselflc.auditing.sparse_supports import SparseSupports
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels.class_matrix import ClassMatrix
from proselflc.data.labels.labels import Labels
from proselflc.data.noise import Matrix

if TYPE_CHECKING:
    import pyarrow as pa

# Of the chance of being wrong in the log-odds: a mean over the epochs is less sure of itself than a
# model is when it is trained.
SLOPE, SLOPE_OUT_OF_SAMPLE = 2.0, 1.0
_EVEN = 0.5  # of the mean transition that every pair of classes is granted
_ROUNDS = 60


def examine(labels: Labels, records: Records) -> tuple[pa.Table, Audit]:
    """Look at the labels of a run: one row per example, and what they say together.

    Raises:
        InputError: the records are of other examples or classes than the labels, or there are none.
    """
    records.check(labels)
    C = len(labels.names)
    joint = noise_estimate.joint(records, labels.given, C)
    judgement = judge(records, labels.given, joint, labels.trusted)
    suspect = judgement.suggested != labels.given
    wrong = 1 - judgement.quality[suspect]
    n = len(labels.given)
    audit = Audit(
        num_examples=n,
        suspects=int(suspect.sum()),
        folds=None if records.held_out is None else records.held_out.folds,
        estimated_noise_rate=noise_rate(joint),
        realised_noise_rate=None if labels.clean is None else float(labels.flipped.mean()),
        expected_precision=float(wrong.mean()) if suspect.any() else None,
        names=labels.names,
        joint=joint,
        realised=None if labels.clean is None else counted(labels.clean, labels.given, C),
    )
    return examples.table(labels, records, judgement), audit


def judge(
    records: Records, given: Ints, joint: ClassMatrix, trusted: Bools | None = None
) -> Judgement:
    """The chance that each label is right, and what it should be.

    With m the mean prediction of an example over all epochs, n_k the number of labels k, and i the
    example's own label, class k is supported by

        s_k = m_k / √n_k · w_ki        (w_ii = 1)

    where w_ki says how much more often than is usual class k gets the label i (`lift`), and the
    root keeps large classes from swamping rare ones. The label is wrong with the chance

        P = σ(a log(Σ_{k≠i} s_k / s_i) + b)        a = 2, or 1 out of sample

    whose b makes the mean of P over all examples that were seen the estimated noise rate; of what
    is trusted P = 0. Quality is 1 − P. Where P > ½ the label is suspect, and the class k ≠ i with
    the largest s_k is suggested.

    Args:
        records: of n examples.
        given: [n] their labels.
        joint: [C, C] as `noise_estimate.joint` estimates it.
        trusted: [n] whose labels are known to be right, or None for nobody's.
    """
    if not isinstance(joint, np.ndarray):
        return _judge_sparsely(records, given, joint, trusted)
    n, C = len(given), len(joint)
    supports = _Supports(records, given, lift(joint).T.astype(np.float32))
    log_odds, other = np.empty(n), np.empty(n, np.int64)
    for rows in records.slices(n, C):
        right, others = supports.of(rows)
        with np.errstate(invalid="ignore"):
            log_odds[rows] = np.log(others.sum(1, dtype=np.float64)) - np.log(right)
        other[rows] = others.argmax(1)
    wrong = _chances(records, log_odds, joint, trusted)

    def distribution(rows: slice) -> Floats:
        """[rows, C] 1 − P for the given label; the others share P by their support."""
        _, others = supports.of(rows)
        chances: Floats = others * (wrong[rows] / others.sum(1))[:, None]
        chances[np.arange(len(chances)), given[rows]] = 1 - wrong[rows]
        return chances

    return Judgement(1 - wrong, np.where(wrong > 0.5, other, given), distribution)


def _judge_sparsely(
    records: Records, given: Ints, joint: ClassMatrix, trusted: Bools | None
) -> Judgement:
    """Judge as `judge` does, by the cells of the joint alone."""
    n, C = len(given), joint.shape[0]
    supports = SparseSupports(records, given, joint, _EVEN)
    log_odds, other = np.empty(n), np.empty(n, np.int64)
    for rows in records.slices(n, C):
        found = supports.of(rows)
        log_odds[rows] = np.log(found.others) - np.log(found.right)
        other[rows] = found.classes[:, 0]
    wrong = _chances(records, log_odds, joint, trusted)
    suggested = np.where(wrong > 0.5, other, given)
    return Judgement(1 - wrong, suggested, lambda rows: supports.likeliest(rows, wrong, suggested))


def _chances(
    records: Records,
    log_odds: npt.NDArray[np.float64],
    joint: ClassMatrix,
    trusted: Bools | None,
) -> Floats:
    """Return [n] the chance that each label is wrong; see `judge`."""
    if trusted is not None:
        log_odds[trusted & ~np.isnan(log_odds)] = -np.inf
    slope = SLOPE if records.held_out is None else SLOPE_OUT_OF_SAMPLE
    return _calibrated(slope * log_odds, noise_rate(joint))


def lift(joint: Matrix) -> Matrix:
    """How much more often than is usual a class gets a label, by the estimated joint.

    With T the rows of the joint, each cell but the diagonal's one example larger, divided by their
    sums, w_ki = (T_ki + ½ T̄) / RMS for k ≠ i, where T̄ is the mean of T beside the diagonal and RMS
    the root of the mean square of the numerators; w_ii = 1. Noise that goes everywhere alike gives
    1 everywhere.

    Args:
        joint: [C, C], row = true class.
    """
    beside = ~np.eye(len(joint), dtype=bool)
    counts = joint + beside
    transition = counts / counts.sum(1, keepdims=True)
    granted = transition + _EVEN * transition[beside].mean()
    weights: Matrix = granted / np.sqrt((granted[beside] ** 2).mean())
    weights[~beside] = 1
    return weights


@dataclass(frozen=True)
class _Supports:
    """How much speaks for every class of every example.

    Attributes:
        records: of n examples.
        given: [n] their labels.
        weights: [C, C] lift, row = given class.
    """

    records: Records
    given: Ints
    weights: Floats

    @cached_property
    def root(self) -> Floats:
        """[C] of the number of labels."""
        numbers = np.bincount(self.given, minlength=len(self.weights))
        return np.sqrt(np.maximum(numbers, 1)).astype(np.float32)

    def of(self, rows: slice) -> tuple[npt.NDArray[np.float64], Floats]:
        """[rows] the given label's, and [rows, C] the others', with 0 for the given one."""
        y, C = self.given[rows], len(self.weights)
        # float16 knows no smaller p.
        p = np.maximum(self.records.mean_prediction(rows, self.given, C), np.float32(1e-7))
        support: Floats = np.asarray(p / self.root * self.weights[y], np.float32)
        own = np.arange(len(y)), y
        right = support[own].astype(np.float64)
        support[own] = 0
        return right, support


def _calibrated(x: npt.NDArray[np.float64], rate: float) -> Floats:
    """[n] σ(x + b) with the b that makes their mean the rate, found by halving an interval.

    Args:
        x: NaN where nothing is known, −∞ where σ is to be 0 with any b.
        rate: below 1.
    """
    from scipy.special import expit

    known = x[~np.isnan(x)]
    finite = known[np.isfinite(known)]
    if rate <= 0 or len(finite) == 0:
        return np.where(np.isnan(x), np.nan, 0).astype(np.float32)
    low, high = -100.0 - finite.max(), 100.0 - finite.min()
    for _ in range(_ROUNDS):
        b = (low + high) / 2
        low, high = (b, high) if expit(known + b).mean() < rate else (low, b)
    chances: Floats = expit(x + (low + high) / 2).astype(np.float32)
    return chances
