"""How inputs become tensors: fitted on the training part, saved with the run, used to predict.

Images are scaled by the mean and deviation of every channel, texts become bags of hashed n-grams,
the columns of a table are standardised. Each is a frozen dataclass, saved as plain JSON and read
back with every value checked, as any file from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

import msgspec
import numpy as np
import torch
from torch import Tensor

from proselflc.data.inputs import Features, Floats, Inputs
from proselflc.errors import InputError
from proselflc.models.shape import FeatureShape, Shape

Json: TypeAlias = dict[str, object]
Finite: TypeAlias = Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)]
Numbers: TypeAlias = Annotated[tuple[Finite, ...], msgspec.Meta(min_length=1)]


class Preprocessing(ABC):
    """What turns inputs of one kind into the tensors that a model sees.

    Attributes:
        kind: the word for it in `model.json`.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Return what a model sees of one example."""

    @abstractmethod
    def check(self, inputs: Inputs) -> None:
        """Refuse inputs of another kind or shape than were fitted."""

    @abstractmethod
    def __call__(self, inputs: Inputs) -> Tensor:
        """Return the tensor [N, …] of N inputs."""

    @abstractmethod
    def validate(self) -> None:
        """Refuse values, read from a file, that do not go together."""

    def to_json(self) -> Json:
        """Return the preprocessing as plain values, which `serving.from_json` reads."""
        fields = msgspec.to_builtins(self, enc_hook=lambda value: value.item())  # numpy's numbers
        return {
            "kind": self.kind,
            **{key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()},
        }


@dataclass(frozen=True)
class Standardization(Preprocessing):
    """The columns of a table, or of embeddings, each with mean 0 and deviation 1.

    A column that is constant in the training part becomes 0 everywhere, whatever it holds later:
    nothing was learned about it. Nothing lies more than a million deviations out.

    Attributes:
        mean: D numbers.
        std: D numbers, 0 for a constant column.
        columns: D names where the table has them; later tables are matched by them.
    """

    mean: Numbers
    std: Numbers
    columns: tuple[str, ...] | None = None
    kind = "features"

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

    @property
    def shape(self) -> FeatureShape:
        return FeatureShape(len(self.mean))

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not a table with the columns that were fitted."""
        self._select(inputs)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return [N, D] float32 for N rows of numbers."""
        values = self._select(inputs)
        mean, std = np.asarray(self.mean), np.asarray(self.std)
        scale = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
        standard = np.clip((values - mean) * scale, -1e6, 1e6)
        return torch.from_numpy(standard.astype(np.float32))

    def _select(self, inputs: Inputs) -> Floats:
        """Return [N, D] the values of the fitted columns in their order."""
        values = inputs.numbers
        if inputs.medium != "table" or values is None:
            raise InputError(f"this model was made for numeric features, got {inputs.kind}")
        if self.columns is None or inputs.columns is None or inputs.columns == self.columns:
            if values.shape[1] != len(self.mean):
                raise InputError(
                    f"this model was made for {len(self.mean)} features per example, got "
                    f"{values.shape[1]}"
                )
            return values
        place = {name: i for i, name in enumerate(inputs.columns)}
        for name in self.columns:
            if name not in place:
                raise InputError(
                    f'the column "{name}" that this model was made for is missing; columns here: '
                    f"{', '.join(inputs.columns)}"
                )
        return values[:, [place[name] for name in self.columns]]

    def validate(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std) < 0:
            raise ValueError("mean and std must hold as many numbers, std none below 0")
        columns = self.columns
        if columns is not None and not len(columns) == len(set(columns)) == len(self.mean):
            raise ValueError("columns must name every column once")
