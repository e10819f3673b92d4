"""The section with the map of a run's examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from proselflc.pages.point_map import CAPTION, MOST, Points
from proselflc.run.reader import Run

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ExampleMap:
    """What the section shows.

    Attributes:
        data: the points, as `templates/map.js` reads them.
        still: address of the picture for where no script runs.
        caption: what the map is.
        alt: the alternative text of the picture.
    """

    data: dict[str, object]
    still: str
    caption: str
    alt: str


def section(run: Run, table: pa.Table) -> ExampleMap | None:
    """Return the section about a run with these examples; None for a run without a map."""
    xy = run.map
    if xy is None:
        return None
    labels, suspects = run.labels, table["is_suspect"].to_numpy()
    number = {name: k for k, name in enumerate(labels.names)}
    n = len(xy)
    points = Points(
        xy=xy,
        given=labels.given,
        suggested=np.array([number.get(s, -1) for s in table["suggested_label"].to_pylist()]),
        quality=table["quality"].to_numpy().astype(np.float64),
        is_suspect=suspects,
        index=np.arange(n),
        ids=labels.ids,
        names=labels.names,
    )
    caption = CAPTION
    if n > MOST:
        caption += f" The map has {MOST:,} of {n:,} examples, the suspects among them."
    alt = f"{n:,} examples as points; {int(suspects.sum()):,} suspects have a grey ring."
    return ExampleMap(points.packed(), points.picture(), caption, alt)
