"""The rows of a table as trees and estimators take them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.data.inputs import Inputs
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.tables.encoding import for_trees
from proselflc.models.shape import Shape


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
