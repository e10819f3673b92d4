"""A picture of an example, made anew from its pixels: whatever a file holds, this is an image."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proselflc.data.dataset import ImageFiles, Images, Inputs
from proselflc.data.images import image
from proselflc.pages.thumbnails import SMALL, bare, resized

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Picture:
    """An encoded image.

    Attributes:
        content: its bytes.
        kind: `image/png` or `image/jpeg`.
    """

    content: bytes
    kind: str


def picture(inputs: Inputs, index: int, side: int) -> Picture | None:
    """A picture of an example, its longer side at most so many pixels.

    Small images are kept as they are, for a page to enlarge; None where an example is no image, or
    its file is gone or damaged.
    """
    from PIL import Image

    if isinstance(inputs, Images):
        pixels = inputs.pixels[index]
        return _encoded(Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels), side)
    if not isinstance(inputs, ImageFiles):
        return None
    try:
        with image.opened(inputs.paths[index]) as opened:
            opened.draft("RGB", (2 * side, 2 * side))  # a JPEG is not worked out in full
            return _encoded(image.rgb(opened), side)
    except Exception:  # decoders raise nearly anything on hostile bytes
        return None


def _encoded(found: Image.Image, side: int) -> Picture:
    found = bare(resized(found, side) if max(found.size) > side else found)
    file = io.BytesIO()
    if max(found.size) <= SMALL:
        found.save(file, "PNG")
        return Picture(file.getvalue(), "image/png")
    found.save(file, "JPEG", quality=90)
    return Picture(file.getvalue(), "image/jpeg")
