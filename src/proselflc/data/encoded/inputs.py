"""Images or texts together with the features that a pretrained model computes from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.inputs import Inputs, Ints, Preview

if TYPE_CHECKING:
    from proselflc.data.encoded.encoding import Encoding

Halves: TypeAlias = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Encoded(Inputs):
    """Inputs that show and describe themselves as before, and are learned by their features.

    Attributes:
        raw: n images or texts.
        values: [n, D] their features.
        how: what computed them.
    """

    raw: Inputs
    values: Halves
    how: Encoding
    kind = "encoded inputs"
    medium = "image"

    def __post_init__(self) -> None:
        assert len(self.raw) == len(self.values)
        for name in ("kind", "medium"):
            object.__setattr__(self, name, getattr(self.raw, name))

    def __len__(self) -> int:
        return len(self.raw)

    def take(self, index: Ints) -> Encoded:
        return Encoded(self.raw.take(index), self.values[index], self.how)

    def concat(self, others: Sequence[Encoded]) -> Encoded:
        raw = self.raw.concat([other.raw for other in others])
        values = np.concatenate([self.values, *(other.values for other in others)])
        return Encoded(raw, values, self.how)

    def preview(self, row: int, side: int) -> Preview:
        return self.raw.preview(row, side)

    def describe(self) -> str:
        return f"{self.raw.describe()} with {self.values.shape[1]} features"

    def check(self, what: str, ids: Sequence[str]) -> None:
        self.raw.check(what, ids)

    @property
    def numbers(self) -> npt.NDArray[Any] | None:
        return self.raw.numbers

    @property
    def strings(self) -> tuple[Literal["text", "path"], tuple[str, ...]] | None:
        return self.raw.strings
