"""Label issues in the arrays and data frames that cleanlab uses.

cleanlab itself is not needed, and its `CleanLearning` accepts a `ProSelfLCClassifier`: see
docs/howto/cleanlab.md.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from proselflc.auditing import verdict
from proselflc.auditing.examples import LabelScores
from proselflc.auditing.records import HeldOut, Records
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.errors import InputError
from proselflc.exporting.labels import issues_frame

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

_ROUNDING = 1e-2  # allowed error of the sum of a row: half precision of many classes


def label_issue_mask(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> Bools:
    """Return [n] bool, which labels are more likely wrong than right; arguments as in cleanlab.

    The result is like that of `cleanlab.filter.find_label_issues`. `proselflc.find_label_issues`
    takes a run and returns a data frame, hence the different name.

    Args:
        labels: [n] given labels, class ids 0 … C−1.
        pred_probs: [n, C] out-of-sample probabilities, such as those of
            `cross_val_predict(…, method="predict_proba")`.

    Raises:
        InputError: they are not labels or not probabilities, or they differ in length.
    """
    given, judgement = _judged(labels, pred_probs)
    issues: Bools = judgement.suggested != given
    return issues


def get_label_quality_scores(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> Floats:
    """Return [n] the estimated probability that each label is right; **low is probably wrong**.

    Arguments and errors are those of `label_issue_mask`.
    """
    return _judged(labels, pred_probs)[1].quality


def label_issues(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> pd.DataFrame:
    """Return both and suggested labels, like cleanlab's `CleanLearning.find_label_issues()`.

    Arguments and errors are those of `label_issue_mask`. For a run, use
    `proselflc.find_label_issues`; for a `ProSelfLCClassifier`, its `get_label_issues()`.

    Returns:
        A pandas data frame with the columns `is_label_issue`, `label_quality`, `given_label` and
        `predicted_label`, for `CleanLearning(…).fit(X, y, label_issues=…)`.
    """
    given, judgement = _judged(labels, pred_probs)
    return issues_frame(given, judgement.suggested, judgement.quality)


def __getattr__(name: str) -> object:
    if name != "find_label_issues":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"{__name__}.find_label_issues was renamed to label_issue_mask, because "
        "proselflc.find_label_issues is a different function: use the new name",
        DeprecationWarning,
        stacklevel=2,
    )
    return label_issue_mask


def _judged(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> tuple[Ints, LabelScores]:
    """Return the given labels and the judgement of each."""
    p = _probabilities(pred_probs)
    given = _class_ids(labels, *p.shape)
    records = Records((), HeldOut(0, p))
    names = tuple(map(str, range(p.shape[1])))
    return given, verdict.assess(records, given, names).scores


def _probabilities(pred_probs: npt.ArrayLike) -> Floats:
    p = np.asarray(pred_probs)
    if p.dtype.kind not in "fiu" or p.ndim != 2 or p.shape[0] < 1 or p.shape[1] < 2:
        raise InputError(
            f"pred_probs is {p.dtype} of shape {list(p.shape)}: expected probabilities [n, C] of "
            "at least two classes",
            field="pred_probs",
        )
    rows = np.isfinite(p).all(1) & (p >= 0).all(1) & (np.abs(p.sum(1, dtype=float) - 1) < _ROUNDING)
    if not rows.all():
        raise InputError(
            f"row {int(np.flatnonzero(~rows)[0])} of pred_probs is not a distribution: expected C "
            "numbers from 0 to 1 that sum to 1",
            field="pred_probs",
            fix="give probabilities instead of logits",
        )
    return p.astype(np.float32)


def _class_ids(labels: npt.ArrayLike, n: int, C: int) -> Ints:
    y = np.asarray(labels)
    if y.shape != (n,) or y.dtype.kind not in "iu":
        raise InputError(
            f"labels is {y.dtype} of shape {list(y.shape)}: expected {n} class ids, one for each "
            "row of pred_probs",
            field="labels",
        )
    if not 0 <= y.min() <= y.max() < C:
        raise InputError(
            f"labels range from {y.min()} to {y.max()}, but pred_probs has {C} columns: expected "
            f"class ids 0 … {C - 1}, a column for each",
            field="labels",
        )
    return y.astype(np.int64)
