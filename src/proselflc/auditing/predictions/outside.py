"""Which labels are wrong by out-of-sample probabilities of any model.

The model may be anything that predicts examples it was not trained on, such as scikit-learn's
`cross_val_predict(…, method="predict_proba")`. See `audit_predictions` for the formulas; what chose
them and how well they work is in benchmarks/outside_predictions.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.auditing.judge import is_informed
from proselflc.auditing.noise_range import Share
from proselflc.auditing.predictions import label_channel
from proselflc.auditing.predictions.checks import (
    Probabilities,
    check_class_order,
    class_ids,
    class_names,
    probabilities,
    trusted_labels,
)
from proselflc.auditing.records import Doubles, slices
from proselflc.data.inputs import Bools, Ints

Action: TypeAlias = Literal["keep", "review", "change"]

# Of the likeliest temperature: people mislabel what is hard, which looks like overlapping classes.
SHARPER = 0.9
SUREST = 0.25  # of the examples, by their largest probability
FEWEST_SUREST = 50  # examples, below which no label is changed without a person
WEAK = 0.5  # agreement with the labels, below which no label is changed without a person
UNSURE = 0.6  # agreement with the labels, below which precision is unknown
FEWEST_SUSPECTS = 50  # below which their precision is a range alone
_Z = 1.645  # of the normal distribution, for one-sided limits of 95 %


@dataclass(frozen=True)
class PredictionsAudit:
    """The audit of n labels by out-of-sample probabilities of C classes.

    Attributes:
        given: [n] class ids.
        names: C class names.
        quality: [n] estimated probability that a label is right; **low is probably wrong**.
        suggested: [n] the likeliest class of a suspect; the given one of any other.
        is_suspect: [n] whether a label is more likely wrong than right.
        action: [n] "keep"; "review" for suspects; "change" for suspects that are sure enough to be
            changed without a review.
        estimated_noise_rate: estimated share of wrong labels.
        noise_low, noise_high: range of that share.
        expected_precision: estimated share of wrong labels among the suspects; None if unknown.
        precision_low, precision_high: range of that share; None without suspects, or if the
            model predicts too few of the labels to know.
        agreement: share of labels that the model predicts.
        warnings: reasons for caution, as {"code": …, "message": …}.
    """

    given: Ints
    names: tuple[str, ...]
    quality: Doubles
    suggested: Ints
    is_suspect: Bools
    action: tuple[Action, ...]
    estimated_noise_rate: float
    noise_low: float
    noise_high: float
    expected_precision: float | None
    precision_low: float | None
    precision_high: float | None
    agreement: float
    warnings: tuple[dict[str, str], ...]


def audit_predictions(
    labels: npt.ArrayLike,
    pred_probs: npt.ArrayLike,
    names: Sequence[str] | None = None,
    trusted: npt.ArrayLike | None = None,
) -> PredictionsAudit:
    """Audit labels by the out-of-sample probabilities of any model.

    With p the model's probabilities and y the given label of an example, its true class is k with
    the chance

        P(k) ∝ c_k T_ky        c_k ∝ p_k^(1/τ)        T = (1 − r) I + r S

    The noise rate is r = √(cj · dis): cj counts the labels that contradict a confident prediction
    (`confident_disagreement`) and misses some wrong ones, dis counts those that are not argmax p
    and includes the model's mistakes. S, the classes that labels are mistaken for, and τ, which
    undoes the blur that wrong labels leave in p, have the largest likelihood (`label_channel.fit`).

    - Quality is P(y) with 0.9 τ, and 1 for trusted labels.
    - A label is suspect if its quality is below ½; the likeliest other class is suggested. There
      are no suspects if p agrees with the labels no more often than by chance.
    - The noise rate is the mean of 1 − quality, within a range from the wrong labels of the surest
      examples (`surest_disagreement`) to dis.
    - The precision is a range from the chances 1 − P(y) of the suspects with r at either end of the
      noise range (`precision_range`).
    - A suspect is changed if P(y) < ½ with r at the low end too, and the suggestion is argmax p.

    Args:
        labels: [n] given labels, class ids 0 … C−1.
        pred_probs: [n, C] out-of-sample probabilities.
        names: C class names; by default "0" to "C−1".
        trusted: [n] whether a label is known to be right, or None.

    Raises:
        InputError: these are not labels or not probabilities, they differ in length, or the columns
            are in another order than the class ids.
    """
    p = probabilities(pred_probs)
    n, C = p.shape
    given = class_ids(labels, n, C)
    words = class_names(names, C)
    known = trusted_labels(trusted, n)
    predicted: Ints = p.argmax(1)
    dis = float((predicted != given).mean())
    warnings = [*check_class_order(given, predicted, words)]

    least = 0.5 / n  # keeps labels without any disagreement defined
    rate = math.sqrt(max(confident_disagreement(p, given), least) * max(dis, least))
    surest, low = surest_disagreement(p, given, predicted)
    informed = is_informed(predicted, given, C)
    low, high = min(low, rate) if informed else 0.0, max(dis, rate)
    channel = label_channel.fit(p, given, rate)
    quality, other = channel.judge(p, given, rate, SHARPER)
    if known is not None:
        quality[known] = 1.0
    suspect: Bools = (quality < 0.5) & informed
    wrong = min(max(float(1 - quality.mean()), low), high)
    low_quality, _ = channel.judge(p, given, max(low, least))
    sure = suspect & (low_quality < 0.5) & (other == predicted)
    if 1 - dis < WEAK or surest < FEWEST_SUREST:
        sure[:] = False

    precision = None
    if 1 - dis >= UNSURE:
        high_quality, _ = channel.judge(p, given, high)
        chances = 1 - low_quality[suspect], 1 - high_quality[suspect]
        precision = precision_range(*chances, rate / high)
    is_known = suspect.sum() >= FEWEST_SUSPECTS
    return PredictionsAudit(
        given=given,
        names=words,
        quality=quality,
        suggested=np.where(suspect, other, given),
        is_suspect=suspect,
        action=tuple(np.where(sure, "change", np.where(suspect, "review", "keep")).tolist()),
        estimated_noise_rate=wrong,
        noise_low=low,
        noise_high=high,
        expected_precision=precision.expected if precision and is_known else None,
        precision_low=precision.low if precision else None,
        precision_high=precision.high if precision else None,
        agreement=1 - dis,
        warnings=(*warnings, *_cautions(given, words, 1 - dis, surest, informed)),
    )


def confident_disagreement(p: Probabilities, given: Ints) -> float:
    """Return the noise rate by the confident joint of Northcutt et al. (2021).

    With t_k the mean p_k of the examples with label k, an example counts as class k if p_k ≥ t_k,
    the largest such p_k. With n_y labels y, of which right_y count as y and wrong_y as another
    class, the rate is

        cj = Σ_y n_y/n · wrong_y / (right_y + wrong_y)

    Args:
        p: [n, C].
        given: [n].
    """
    n, C = p.shape
    numbers = np.bincount(given, minlength=C)
    own = np.bincount(given, p[np.arange(n), given], minlength=C)
    threshold = np.where(numbers > 0, own / np.maximum(numbers, 1), 2.0) - 1e-6
    right, wrong = np.zeros(C), np.zeros(C)
    for rows in slices(n, C):
        confident = np.where(p[rows] >= threshold, p[rows], -1.0)
        y, found = given[rows], confident.argmax(1)
        counts = confident[np.arange(len(y)), found] >= 0
        right += np.bincount(y[counts & (found == y)], minlength=C)
        wrong += np.bincount(y[counts & (found != y)], minlength=C)
    return float((numbers * wrong / (np.maximum(right, 1) + wrong)).sum() / n)


def surest_disagreement(p: Probabilities, given: Ints, predicted: Ints) -> tuple[int, float]:
    """Return the number of the surest quarter, and the least share of its labels that are wrong.

    The examples with the largest max p, whatever their labels, are those that the model knows best:
    where their labels differ from argmax p, the labels are wrong. The least share is the lower
    95 % limit of the share that differs.

    Args:
        p: [n, C].
        given: [n].
        predicted: [n] argmax p.
    """
    confidence = p[np.arange(len(p)), predicted]
    number = min(len(p), max(20, math.ceil(SUREST * len(p))))
    surest = confidence >= np.partition(confidence, -number)[-number]
    number = int(surest.sum())
    share = Share(float((predicted != given)[surest].sum()), number)
    return number, share.interval(_Z)[0]


class Precision(NamedTuple):
    """The share of suspects that are really wrong: a range, and the middle of what is expected."""

    expected: float
    low: float
    high: float


def precision_range(low: Doubles, high: Doubles, least: float) -> Precision | None:
    """Return the range of the share of wrong labels among m suspects; None without suspects.

    The share is expected from the mean chance at the low end of the noise range, or r / dis if that
    is less, to the mean chance at its high end. Each end s is widened by 1.645 √(s (1 − s)/m).

    Args:
        low, high: [m] chances of being wrong with the noise rate at either end of its range.
        least: r / dis, the precision of all labels that are not argmax p together.
    """
    if not len(low):
        return None
    first, last = sorted((float(low.mean()), float(high.mean())))
    first = min(first, least)

    def error(share: float) -> float:
        return _Z * math.sqrt(share * (1 - share) / len(low))

    return Precision(
        (first + last) / 2, max(0.0, first - error(first)), min(1.0, last + error(last))
    )


def _cautions(
    given: Ints, names: tuple[str, ...], agreement: float, surest: int, informed: bool
) -> Iterator[dict[str, str]]:
    n = len(given)
    if (given == given[0]).all():
        yield {
            "code": "one_class",
            "message": f'all {n:,} labels are "{names[given[0]]}", so wrong labels cannot be '
            "compared with right ones of another class",
        }
    elif not informed:
        yield {
            "code": "too_weak",
            "message": f"the model predicts {agreement:.0%} of the given labels, no more than by "
            "chance, so labels are ranked, but none is called suspect",
        }
    if informed and agreement < UNSURE:
        rest = "how many suspects are really wrong is unknown"
        rest += ", so none is changed without a review" if agreement < WEAK else ""
        yield {
            "code": "weak_judge",
            "message": f"the model predicts only {agreement:.0%} of the given labels: either it is "
            f"weak or very many labels are wrong, and {rest}; review a sample of the labels",
        }
    if surest < FEWEST_SUREST:
        yield {
            "code": "few_examples",
            "message": f"{n:,} examples are too few to tell wrong labels from the model's mistakes "
            "reliably: no label is changed without a review",
        }
