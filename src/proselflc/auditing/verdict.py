"""What to do about every label: rank it, suspect it, or change it without asking a person.

A label is *suspect* if it is more likely wrong than right at the estimated rate of wrong labels. It
is *changed* only if that holds at the low end of the range too, if the witness and the network both
predict the suggested class, and if the witness can be relied on: wrong labels must be more frequent
than its own mistakes, and it must recognise the class that was given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from proselflc.auditing import caveats, examples, noise_estimate
from proselflc.auditing.audit import Audit, noise_rate
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.examples import LabelScores
from proselflc.auditing.judge import (
    ConfusedPair,
    Judge,
    chance_agreement,
    confused_pairs,
    corrected_accuracy,
    is_informed,
    recognised_classes,
    skill,
    tells_wrong_labels,
)
from proselflc.auditing.measured import Measured, Reviewed
from proselflc.auditing.neighbours import Examination
from proselflc.auditing.noise_range import (
    NoiseRange,
    Planted,
    Share,
    noise_range,
    own_odds,
    surest_share,
)
from proselflc.auditing.records import Records, Witness, first_in_each_row
from proselflc.auditing.suspects import LabelOdds
from proselflc.data import class_matrix
from proselflc.data.class_matrix import ClassMatrix
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels import Labels
from proselflc.data.memory_budget import is_dense, keeps_all

if TYPE_CHECKING:
    import pyarrow as pa

SURE = 0.8  # standard errors below the estimate at which a label must be suspect to be changed
FEWEST_SUSPECTS, STATED_SKILL = 20, 0.8  # for a precision to be stated


@dataclass(frozen=True)
class Verdict:
    """The audit of n labels.

    Attributes:
        scores: the scores of every label.
        joint: [C, C] estimated number of examples by true and given class.
        noise: the share of wrong labels.
        judge: how far the predictions can be relied on.
        expected_precision: estimated share of wrong labels among the suspects; None if unknown.
        warnings: reasons to be careful.
        measured: what a review of randomly drawn labels says, or None.
    """

    scores: LabelScores
    joint: ClassMatrix
    noise: NoiseRange
    judge: Judge
    expected_precision: float | None
    warnings: tuple[AuditWarning, ...]
    measured: Measured | None = None


def assess(
    records: Records,
    given: Ints,
    names: tuple[str, ...],
    trusted: Bools | None = None,
    warnings: tuple[AuditWarning, ...] = (),
    reviewed: Reviewed | None = None,
) -> Verdict:
    """Return the audit of n labels.

    Args:
        records: the records of n examples.
        given: [n] their labels.
        names: C class names.
        trusted: [n] whether a label is known to be right, or None.
        warnings: reasons to be careful that are known already.
        reviewed: decisions about randomly drawn labels, which the estimates give way to, or None.
    """
    n, C = len(given), len(names)
    joint = noise_estimate.joint(records, given, C)
    odds = LabelOdds(records, given, joint, trusted)
    blind = _Opinion.blind(records, given, C)
    counts = ~np.isnan(blind.confidence) & (True if trusted is None else ~trusted)
    doubted = float(counts.sum()) / max(n, 1)
    # The rate of wrong labels.
    surest = surest_share(blind.confidence[counts], (blind.predicted != given)[counts])
    anchored = noise_rate(joint)
    planted, own, other = None, np.zeros(0), anchored
    if blind.p is not None and isinstance(joint, np.ndarray) and counts.any():
        p, y = (blind.p, given) if counts.all() else (blind.p[counts], given[counts])
        planted, own = Planted.of(p, y, joint), own_odds(p, y, joint)
        other = planted.share(own).rate
    noise = estimated = noise_range(surest, other, anchored)
    if reviewed is not None and doubted:
        noise = NoiseRange(*(min(1.0, share / doubted) for share in reviewed.noise_rate()))
    # How good the judge is.
    second = _Opinion.of_network(records, given, C)
    agreed = float((blind.predicted == given)[counts].mean()) if counts.any() else 0.0
    informed = is_informed(blind.predicted[counts], given[counts], C)
    chance = chance_agreement(blind.predicted[counts], given[counts], C)
    both, counted = counts & ~np.isnan(second.confidence), int(counts.sum())
    accuracy = corrected_accuracy(agreed, noise.rate if informed else 0.0)
    pairs = confused_pairs(blind.predicted[counts], given[counts], noise.rate, C)
    judge = Judge(
        records.blind_kind,
        accuracy,
        skill(accuracy, chance) if informed else 0.0,
        float((blind.predicted == second.predicted)[both].mean()) if both.any() else 0.0,
        (caveats.fitted_shares(records, given) or [0.0])[-1],
        tuple(ConfusedPair(names[a], names[b], share) for (a, b), share in pairs.items()),
        skill(Share(agreed * counted, counted).interval(1)[0], chance),
    )
    low = min(estimated.rate, surest.interval(SURE)[0])
    is_rare = not tells_wrong_labels(agreed, chance, low if reviewed is None else noise.rate)
    if (judge.is_weak or is_rare) and reviewed is None:  # it cannot know that any label is wrong
        noise = replace(noise, low=0.0)
    if is_rare or judge.is_weak:  # what looks like wrong labels may be its own mistakes
        judge = replace(judge, accuracy=corrected_accuracy(agreed, low))
    # The three acts.
    stretch = 1.0
    if reviewed is None:
        wrong = odds.wrong(doubted * noise.rate)
    else:
        shift = odds.shift(max(doubted * estimated.rate, 0.5 / n))
        stretch, shift = reviewed.calibration(odds.scaled, shift)
        wrong = odds.at(stretch, shift)
        least = reviewed.noise_rate(SURE)[0] / max(doubted, 1e-9)
        # The estimated low end stays if the measurement does not contradict it.
        low = low if least <= low <= noise.rate else least
    many = 0 if reviewed is None else len(reviewed.rows)
    warnings = (*warnings, *caveats.warnings_of(records, given, C, judge, noise, many))
    abstains = any(warning.abstains for warning in warnings)
    suspect = (wrong > 0.5) & (not abstains)
    change = suspect & (odds.wrong(doubted * low, stretch) > 0.5)
    change &= (blind.predicted == odds.other) & (second.predicted == odds.other)
    change &= judge.kind is not None and not judge.is_weak
    change &= ~_between(pairs, given, odds.other, C)
    change &= recognised_classes(blind.predicted[counts], given[counts], C)[given]
    if is_rare and change.any():
        warnings = (*warnings, caveats.rare(low, judge.accuracy))
        change[:] = False
    # What is claimed about them.
    precision = measured = None
    number = int(suspect[counts].sum())
    is_known = noise.is_known and not is_rare
    is_known &= records.witness is not None and judge.skill >= STATED_SKILL and not judge.is_weak
    if planted is not None and is_known and number >= FEWEST_SUSPECTS:
        found = noise.rate * planted.recall(own, number) * len(own) / number
        precision = float(wrong[suspect].mean() + min(1.0, found)) / 2
    if reviewed is not None:
        measured = reviewed.measured(wrong, suspect)
        of_suspects = measured.precision.suspects
        precision = None if of_suspects is None else of_suspects[1]
    joint = noise_estimate.with_rate(joint, doubted * noise.rate)
    rate = noise_rate(joint)
    suggested = np.where(suspect, odds.other, given)
    scores = LabelScores(
        1 - wrong,
        suggested,
        change,
        None if judge.kind is None else blind.predicted,
        lambda rows: odds.distribution(rows, wrong, suggested),
    )
    noise = NoiseRange(min(doubted * noise.low, rate), rate, max(doubted * noise.high, rate))
    return Verdict(scores, joint, noise, judge, precision, warnings, measured)


@dataclass(frozen=True)
class Compared:
    """What the inputs of a run say about its labels, as far as they can be compared.

    Attributes:
        witness: a second opinion.
        examination: duplicates, conflicts, leakage and outliers.
        forest: [n, C] the part of the witness that trees contribute; None for other inputs than
            tables with named columns.
    """

    witness: Witness | None = None
    examination: Examination | None = None
    forest: Floats | None = None


def audit_labels(
    labels: Labels,
    records: Records,
    warnings: tuple[AuditWarning, ...] = (),
    examination: Examination | None = None,
    *,
    reviewed: Reviewed | None = None,
) -> tuple[pa.Table, Audit]:
    """Return one row per example, and the audit of all labels together.

    Args:
        labels: the labels of n examples.
        records: the records of the same examples.
        warnings: reasons to be careful that are known already.
        examination: what the neighbours of the examples tell, or None.
        reviewed: decisions about randomly drawn labels, or None.

    Raises:
        InputError: there are no records, or they do not belong to these labels.
    """
    records.check(labels)
    found = assess(records, labels.given, labels.names, labels.trusted, warnings, reviewed)
    realised = None
    if labels.clean is not None:
        realised = class_matrix.counted(labels.clean, labels.given, len(labels.names))
    audit = Audit(
        num_examples=len(labels.given),
        suspects=int((found.scores.suggested != labels.given).sum()),
        folds=None if records.held_out is None else records.held_out.folds,
        estimated_noise_rate=found.noise.rate,
        realised_noise_rate=None if labels.clean is None else float(labels.flipped.mean()),
        expected_precision=found.expected_precision,
        names=labels.names,
        joint=found.joint,
        realised=realised,
        changes=int(found.scores.change.sum()),
        noise_low=found.noise.low,
        noise_high=found.noise.high,
        judge=found.judge,
        warnings=found.warnings,
        measured=found.measured,
        unlabelled=len(labels.rest),
    )
    return examples.table(labels, records, found.scores, examination), audit


@dataclass(frozen=True)
class _Opinion:
    """What predictions say about n examples.

    Attributes:
        predicted: [n] the likeliest class.
        confidence: [n] its chance; NaN where there is no prediction.
        p: [n, C] all chances, or None if they are too many.
    """

    predicted: Ints
    confidence: Floats
    p: Floats | None = None

    @classmethod
    def blind(cls, records: Records, given: Ints, num_classes: int) -> _Opinion:
        """Return predictions that did not see the labels, or those of the early epochs."""
        if records.witness is not None:
            p = records.witness.p
            return cls(p.argmax(1), p.max(1).astype(np.float32), p)
        if records.held_out is None:
            return cls.of_network(records, given, num_classes)
        return cls._read(records, given, num_classes, None)

    @classmethod
    def of_network(cls, records: Records, given: Ints, num_classes: int) -> _Opinion:
        """Return the network's predictions: held-out ones beside a witness, else early ones."""
        if records.witness is None or records.held_out is None:
            records = Records(records.observed)
        early = noise_estimate.early_epochs(records, given)
        return cls._read(replace(records, witness=None), given, num_classes, early)

    @classmethod
    def _read(cls, records: Records, given: Ints, C: int, epochs: int | None) -> _Opinion:
        n = len(given)
        predicted, confidence = np.zeros(n, np.int64), np.full(n, np.nan, np.float32)
        whole = np.empty((n, C), np.float32) if is_dense(C) and keeps_all(n, C) else None
        for rows in records.slices(n, C):
            if not is_dense(C):
                mean = records.sparse_mean_prediction(rows, given, C, epochs=epochs)
                first = first_in_each_row(mean.row, (-mean.p, mean.classes), 1)
                predicted[rows][mean.row[first]] = mean.classes[first]
                confidence[rows][mean.row[first]] = mean.p[first]
                continue
            p = records.mean_prediction(rows, given, C, epochs=epochs)
            predicted[rows], confidence[rows] = p.argmax(1), p.max(1)
            if whole is not None:
                whole[rows] = p
        return cls(predicted, confidence, whole)


def _between(pairs: dict[tuple[int, int], float], given: Ints, other: Ints, C: int) -> Bools:
    """Return [n] whether two labels are a pair that cannot be told apart."""
    keys = np.array([a * C + b for a, b in pairs], np.int64)
    found: Bools = np.isin(np.minimum(given, other) * C + np.maximum(given, other), keys)
    return found
