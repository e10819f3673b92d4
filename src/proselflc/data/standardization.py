"""The columns of a table, each with mean 0 and deviation 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proselflc.data.inputs import Features, Inputs
from proselflc.data.saved_form import Json, broken, fields_of, numbers
from proselflc.errors import InputError


@dataclass(frozen=True)
class Standardization:
    """The columns of a table, or of embeddings, each with mean 0 and deviation 1.

    A column that is constant in the training part becomes 0 everywhere, whatever it holds later:
    nothing was learned about it. Nothing lies more than a million deviations out.

    Attributes:
        mean: D numbers.
        std: D numbers, 0 for a constant column.
        columns: D names where the table has them; later tables are matched by them.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    columns: tuple[str, ...] | None = None

    @classmethod
    def fit(cls, train: Features, *, chunk: int = 65_536) -> Standardization:
        """Measure the training part: n ≥ 1 rows of finite numbers, `chunk` rows at a time."""
        values = train.values
        if len(values) == 0:
            raise InputError("no training rows to measure")
        starts = range(0, len(values), chunk)
        mean = sum(values[i : i + chunk].sum(axis=0, dtype=np.float64) for i in starts)
        mean = np.asarray(mean / len(values))
        squares = sum(np.square(values[i : i + chunk] - mean).sum(axis=0) for i in starts)
        std = np.sqrt(np.asarray(squares / len(values)))
        constant = (values.max(axis=0) == values.min(axis=0)) | (std == 0)
        std[constant] = 0.0
        return cls(tuple(map(float, mean)), tuple(map(float, std)), train.columns)

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not a table with the columns that were fitted."""
        if not isinstance(inputs, Features):
            raise InputError(f"this model was made for numeric features, got {inputs.kind}")
        self._positions(inputs)

    def __call__(self, inputs: Inputs) -> Tensor:
        """[N, D] float32 for N rows of numbers."""
        self.check(inputs)
        assert isinstance(inputs, Features)
        positions = self._positions(inputs)
        values = inputs.values if positions is None else inputs.values[:, positions]
        mean, std = np.asarray(self.mean), np.asarray(self.std)
        scale = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
        standard = np.clip((values - mean) * scale, -1e6, 1e6)
        return torch.from_numpy(standard.astype(np.float32))

    def _positions(self, inputs: Features) -> list[int] | None:
        """Where the fitted columns are in this table; None where they are where they were."""
        if self.columns is None or inputs.columns is None or inputs.columns == self.columns:
            if inputs.values.shape[1] != len(self.mean):
                raise InputError(
                    f"this model was made for {len(self.mean)} features per example, got "
                    f"{inputs.values.shape[1]}"
                )
            return None
        place = {name: i for i, name in enumerate(inputs.columns)}
        for name in self.columns:
            if name not in place:
                raise InputError(
                    f'the column "{name}" that this model was made for is missing; columns here: '
                    f"{', '.join(inputs.columns)}"
                )
        return [place[name] for name in self.columns]

    def to_json(self) -> Json:
        return {
            "kind": "features",
            "mean": list(self.mean),
            "std": list(self.std),
            "columns": None if self.columns is None else list(self.columns),
        }

    @classmethod
    def from_json(cls, value: object) -> Standardization:
        fields = fields_of(value, "features", ("mean", "std", "columns"))
        mean, std = numbers(fields, "mean"), numbers(fields, "std")
        columns = fields["columns"]
        if len(mean) != len(std) or min(std) < 0:
            raise broken("mean and std must hold as many numbers, std none below 0")
        if columns is None:
            return cls(mean, std)
        if not isinstance(columns, list) or not all(isinstance(c, str) for c in columns):
            raise broken("columns must be a list of names, or null")
        if len(columns) != len(mean) or len(set(columns)) != len(columns):
            raise broken("columns must name every column once")
        return cls(mean, std, tuple(columns))
