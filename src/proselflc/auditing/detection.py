"""What the suspects are: the most frequent corrections, and how well wrong labels were found."""

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
    """How well wrong labels were found; every measure is in [0, 1] and low is bad.

    A measure that is undefined is None: both rankings need wrong and right labels, recall needs
    wrong labels and precision needs suspects.

    Attributes:
        auroc: chance that a wrong label has a lower quality than a right one.
        average_precision: average precision of the ranking by quality, lowest first.
        precision: share of wrong labels among the suspects.
        recall: share of suspects among the wrong labels.
        f1: harmonic mean of precision and recall.
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
        quality: [n], low = probably mislabelled; unknown values are NaN and are not ranked.
        flipped: [n] whether the given label is wrong.
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
    """Return the share of given labels that are true, and of suggested ones; None if unknown.

    Args:
        table: as `examples.table` returns it.
    """
    import pyarrow.compute as pc

    if "clean_label" not in table.column_names or len(table) == 0:
        return None, None
    before, after = (
        float(pc.mean(pc.equal(table[name], table["clean_label"])).as_py())
        for name in ("given_label", "suggested_label")
    )
    return before, after


@dataclass(frozen=True)
class SuspectPair:
    """The suspects with one given and one suggested label.

    Attributes:
        given_label, suggested_label: class names.
        count: number of suspects.
        right: number of suspects whose suggested label is true; None if that is not known.
    """

    given_label: str
    suggested_label: str
    count: int
    right: int | None


def suspect_pairs(table: pa.Table, most: int) -> list[SuspectPair]:
    """Return the most frequent pairs, largest first, ties by name.

    Args:
        table: as `examples.table` returns it.
        most: largest number of pairs.
    """
    import pyarrow.compute as pc

    names = ["given_label", "suggested_label"]
    known = "clean_label" in table.column_names
    suspects = table.select([*names, *(["clean_label"] if known else [])]).filter(
        table["is_suspect"]
    )
    measures: list[Any] = [([], "count_all")]
    if known:
        right = pc.equal(suspects["suggested_label"], suspects["clean_label"])
        suspects = suspects.append_column("right", pc.cast(right, "int64"))
        measures.append(("right", "sum"))
    counts = suspects.group_by(names).aggregate(measures)
    order = [("count_all", "descending"), *((name, "ascending") for name in names)]
    return [
        SuspectPair(
            row["given_label"], row["suggested_label"], row["count_all"], row.get("right_sum")
        )
        for row in counts.take(pc.sort_indices(counts, order)[:most]).to_pylist()
    ]
