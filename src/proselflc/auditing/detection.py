"""How well wrong labels were found, where the truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from proselflc.data.inputs import Bools

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Detection:
    """How well wrong labels were found; everything is in [0, 1] and low is bad.

    None is what cannot be said: without wrong labels there is nothing to find, without right ones
    nothing to rank them against, and without suspects no precision.

    Attributes:
        auroc: the chance that a wrong label has a lower quality than a right one.
        average_precision: of the ranking by quality, lowest first.
        precision: share of wrong labels among the suspects.
        recall: share of suspects among the wrong labels.
        f1: harmonic mean of the two.
    """

    auroc: float | None
    average_precision: float | None
    precision: float | None
    recall: float | None
    f1: float | None


def detection(is_suspect: Bools, quality: npt.NDArray[Any], flipped: Bools) -> Detection:
    """Compare suspects with the labels that are known to be wrong.

    Args:
        is_suspect: [n].
        quality: [n], low = probably mislabelled; NaN where unknown, which is left out of the
            ranking.
        flipped: [n] where the given label is wrong.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    ranked = ~np.isnan(quality)
    wrong, badness = flipped[ranked], -quality[ranked].astype(np.float64)
    both = bool(wrong.any()) and not bool(wrong.all())
    found = int((is_suspect & flipped).sum())
    suspects, mistakes = int(is_suspect.sum()), int(flipped.sum())
    return Detection(
        auroc=float(roc_auc_score(wrong, badness)) if both else None,
        average_precision=float(average_precision_score(wrong, badness)) if both else None,
        precision=found / suspects if suspects else None,
        recall=found / mistakes if mistakes else None,
        f1=2 * found / (suspects + mistakes) if suspects + mistakes else None,
    )


def label_accuracy(table: pa.Table) -> tuple[float | None, float | None]:
    """The share of given labels that are true, and of suggested ones; None where unknown.

    Args:
        table: as `examples.table` makes it.
    """
    import pyarrow.compute as pc

    if "clean_label" not in table.column_names or len(table) == 0:
        return None, None
    before, after = (
        float(pc.mean(pc.equal(table[name], table["clean_label"])).as_py())
        for name in ("given_label", "suggested_label")
    )
    return before, after
