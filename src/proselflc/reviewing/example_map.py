"""The map of the examples, with the decisions about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proselflc.errors import InputError
from proselflc.pages.point_map import CAPTION, Points
from proselflc.run.review import UNDECIDED, Review
from proselflc.training.run_directory import Json


@dataclass(frozen=True)
class ExampleMap:
    """The labelled examples of a review on the map of its run."""

    review: Review
    points: Points

    @classmethod
    def of(cls, review: Review) -> ExampleMap | None:
        """Return the map; None if the run has none, or if it is damaged, which is noted."""
        try:
            xy = review.run.map
        except InputError as error:
            review.notes.append(str(error))
            return None
        if xy is None:
            return None
        rows = np.flatnonzero(review.run.labels.is_labelled)
        points = Points(
            xy=xy,
            given=review.given[rows],
            suggested=review.suggested[rows],
            quality=review.quality[rows],
            is_suspect=np.isin(rows, review.all_suspects),
            index=rows,
            ids=review.ids,
            names=review.names,
        )
        return cls(review, points)

    def to_json(self) -> Json:
        """Return the points, and the class that was decided for each decided example."""
        label = self.review.label
        decided = [[i, int(label[i])] for i in np.flatnonzero(label != UNDECIDED).tolist()]
        return {**self.points.packed(), "caption": CAPTION, "decided": decided}
