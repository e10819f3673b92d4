"""A pretrained model that turns images or texts into features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Medium: TypeAlias = Literal["image", "text"]


@dataclass(frozen=True)
class Encoder:
    """A pretrained model, ready to encode.

    Attributes:
        name: its name in `catalogue.BACKBONES`, or the string that the user gave.
        medium: what it encodes.
        width: D, the number of features.
        digest: a hexadecimal hash of its weights and of how it is computed; features are kept
            under it, so it changes whenever the features of an example would.
        encode: returns features [N, D] float32 on the CPU, without gradients: of images,
            [N, 3, h, w] uint8, or of N texts.
        is_kept: whether features are worth keeping on the disk.
        side: height and width that images are resized to before, unless the user chooses.
    """

    name: str
    medium: Medium
    width: int
    digest: str
    encode: Callable[[Any], Tensor]
    side: int = 0
    is_kept: bool = True
