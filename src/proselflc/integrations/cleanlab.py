"""Our judgement of labels, in and out of the arrays and frames that cleanlab's users have.

cleanlab itself is not needed here, and a `ProSelfLCClassifier` goes into its `CleanLearning` as it
is: see docs/howto/cleanlab.md.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from proselflc.auditing import noise_estimate, suspects
from proselflc.auditing.examples import Judgement
from proselflc.auditing.records import HeldOut, Records
from proselflc.data.dataset import Bools, Floats, Ints
from proselflc.errors import InputError
from proselflc.exporting.labels import issues_frame

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

_ROUNDING = 1e-2  # that the sum of a row may be away from 1: half precision of many classes


def label_issue_mask(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> Bools:
    """[n] which labels are more likely wrong than right; the arguments are cleanlab's.

    It answers as `cleanlab.filter.find_label_issues`. `find_label_issues` of this package takes a
    run and gives a data frame, so this one has another name.

    Args:
        labels: [n] class ids 0 … C−1, as they were given.
        pred_probs: [n, C] probabilities by models that have not seen the examples they judge, such
            as `cross_val_predict(…, method="predict_proba")` gives.

    Raises:
        InputError: they are no labels, no probabilities, or not of the same examples.
    """
    given, judgement = _judged(labels, pred_probs)
    issues: Bools = judgement.suggested != given
    return issues


def get_label_quality_scores(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> Floats:
    """[n] the estimated chance that each label is right; **low means probably mislabelled**.

    Arguments and errors are those of `label_issue_mask`.
    """
    return _judged(labels, pred_probs)[1].quality


def label_issues(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> pd.DataFrame:
    """Both, and what the labels should be, as cleanlab's `CleanLearning.find_label_issues()`.

    Arguments and errors are those of `label_issue_mask`. For a run of ours there is
    `proselflc.find_label_issues`, for a `ProSelfLCClassifier` its `get_label_issues()`.

    Returns:
        A pandas data frame with the columns `is_label_issue`, `label_quality`, `given_label` and
        `predicted_label`, which cleanlab takes: `CleanLearning(…).fit(X, y, label_issues=…)`.
    """
    given, judgement = _judged(labels, pred_probs)
    return issues_frame(given, judgement.suggested, judgement.quality)


def __getattr__(name: str) -> object:
    if name != "find_label_issues":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"{__name__}.find_label_issues is called label_issue_mask now, because "
        "proselflc.find_label_issues is another function: use the new name",
        DeprecationWarning,
        stacklevel=2,
    )
    return label_issue_mask


def _judged(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> tuple[Ints, Judgement]:
    p = _probabilities(pred_probs)
    given = _class_ids(labels, *p.shape)
    records = Records((), HeldOut(0, p))
    return given, suspects.judge(records, given, noise_estimate.joint(records, given, p.shape[1]))


def _probabilities(pred_probs: npt.ArrayLike) -> Floats:
    p = np.asarray(pred_probs)
    if p.dtype.kind not in "fiu" or p.ndim != 2 or p.shape[0] < 1 or p.shape[1] < 2:
        raise InputError(
            f"pred_probs is {p.dtype} of shape {list(p.shape)}: expected probabilities [n, C] of "
            "at least two classes"
        )
    rows = np.isfinite(p).all(1) & (p >= 0).all(1) & (np.abs(p.sum(1, dtype=float) - 1) < _ROUNDING)
    if not rows.all():
        raise InputError(
            f"row {int(np.flatnonzero(~rows)[0])} of pred_probs is no distribution: expected C "
            "numbers from 0 to 1 that sum to 1; give probabilities and not logits"
        )
    return p.astype(np.float32)


def _class_ids(labels: npt.ArrayLike, n: int, C: int) -> Ints:
    y = np.asarray(labels)
    if y.shape != (n,) or y.dtype.kind not in "iu":
        raise InputError(
            f"labels is {y.dtype} of shape {list(y.shape)}: expected {n} class ids, one for each "
            "row of pred_probs"
        )
    if not 0 <= y.min() <= y.max() < C:
        raise InputError(
            f"labels go from {y.min()} to {y.max()}, but pred_probs has {C} columns: expected "
            f"class ids 0 … {C - 1}, a column for each"
        )
    return y.astype(np.int64)
