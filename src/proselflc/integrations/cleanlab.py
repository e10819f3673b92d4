"""Label issues in the arrays and data frames that cleanlab uses.

The labels are judged by `proselflc.audit_predictions`, which also returns the range of the noise
rate, the expected precision and warnings. cleanlab itself is not needed, and its `CleanLearning`
accepts a `ProSelfLCClassifier`: see docs/howto/cleanlab.md.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy.typing as npt

from proselflc.auditing.predictions.outside import audit_predictions
from proselflc.auditing.records import Doubles
from proselflc.data.inputs import Bools
from proselflc.exporting.labels import issues_frame

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


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
    return audit_predictions(labels, pred_probs).is_suspect


def get_label_quality_scores(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> Doubles:
    """Return [n] the estimated probability that each label is right; **low is probably wrong**.

    Arguments and errors are those of `label_issue_mask`.
    """
    return audit_predictions(labels, pred_probs).quality


def label_issues(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> pd.DataFrame:
    """Return both and suggested labels, like cleanlab's `CleanLearning.find_label_issues()`.

    Arguments and errors are those of `label_issue_mask`. For a run, use
    `proselflc.find_label_issues`; for a `ProSelfLCClassifier`, its `get_label_issues()`.

    Returns:
        A pandas data frame with the columns `is_label_issue`, `label_quality`, `given_label` and
        `predicted_label`, for `CleanLearning(…).fit(X, y, label_issues=…)`.
    """
    found = audit_predictions(labels, pred_probs)
    return issues_frame(found.given, found.suggested, found.quality)


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
