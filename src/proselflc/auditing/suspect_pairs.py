"""Which class is most often to become which: the suspects, counted by given and suggested label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SuspectPair:
    """Suspects that are alike in both labels.

    Attributes:
        given_label, suggested_label: names of classes.
        count: how many suspects.
        right: of how many the suggestion is the true label; None where that is not known.
    """

    given_label: str
    suggested_label: str
    count: int
    right: int | None


def suspect_pairs(table: pa.Table, most: int) -> list[SuspectPair]:
    """The most frequent pairs, the largest first, by name among equals.

    Args:
        table: as `suspects.examine` makes it.
        most: how many pairs at most.
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
    counted = suspects.group_by(names).aggregate(measures)
    order = [("count_all", "descending"), *((one, "ascending") for one in names)]
    return [
        SuspectPair(
            row["given_label"], row["suggested_label"], row["count_all"], row.get("right_sum")
        )
        for row in counted.take(pc.sort_indices(counted, order)[:most]).to_pylist()
    ]
