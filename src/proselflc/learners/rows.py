"""The rows of a table as trees and estimators take them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.data.inputs import Inputs
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.tables.encoding import TableEncoding, for_trees
from proselflc.models.shape import FeatureShape, Shape


@dataclass(frozen=True)
class RowsForTrees(Preprocessing):
    """Numbers as they are, NaN for missing cells, and codes of categories.

    It is made from the preprocessing of a run when it is used, and never saved.

    Attributes:
        columns: the run's own preprocessing, fitted on the training part.
    """

    columns: Preprocessing
    kind = "trees"

    @property
    def shape(self) -> Shape:
        return self.columns.shape

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not a table with the columns that were fitted."""
        self.columns.check(inputs)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return [N, D] float32."""
        return torch.from_numpy(for_trees(self.columns, inputs)[0])

    def validate(self) -> None:
        self.columns.validate()


def columns_for_trees(preprocessing: Preprocessing) -> int | None:
    """Return how many columns `for_trees` makes; None if the inputs are no table."""
    if isinstance(preprocessing, TableEncoding):
        return sum(column.width_for_trees for column in preprocessing.encoded)
    shape = preprocessing.shape
    return shape.width if isinstance(shape, FeatureShape) else None
