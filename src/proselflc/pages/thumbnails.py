"""Thumbnails of examples as data URLs."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

SIDE = 96  # pixels of the longer side, at most
SMALL = 64  # up to which a picture is enlarged with its pixels visible
LARGEST = 4096  # characters of an address


@dataclass(frozen=True)
class Thumbnail:
    """A picture that is part of a page."""

    address: str  # `data:image/…;base64,…`, at most `LARGEST` characters
    width: int  # on the page, in pixels
    height: int
    is_enlarged: bool  # so that its pixels appear as squares


def of_picture(picture: Image.Image) -> Thumbnail:
    """Return the thumbnail of a decoded image."""
    width, height = picture.size
    scale = SIDE / max(width, height)
    is_enlarged = max(width, height) <= SMALL
    if not is_enlarged:
        picture = resized(picture, SIDE)
    address = _address(bare(picture))
    return Thumbnail(
        address, max(1, round(width * scale)), max(1, round(height * scale)), is_enlarged
    )


def bare(picture: Image.Image) -> Image.Image:
    """Return the picture without comments, locations and profiles, which Pillow would keep."""
    from PIL import Image

    return Image.fromarray(np.asarray(picture))


def resized(picture: Image.Image, side: int) -> Image.Image:
    """Return the picture with the given length of its longer side in pixels."""
    from PIL.Image import Resampling

    scale = side / max(picture.size)
    width, height = (max(1, round(length * scale)) for length in picture.size)
    return picture.resize((width, height), Resampling.BILINEAR)


def _address(picture: Image.Image) -> str:
    """Return a lossless data URL if it is short enough, else the best that fits, made smaller."""
    side = max(picture.size)
    if side <= SMALL and (found := _encoded(picture, "PNG", 0)) is not None:
        return found
    while True:
        for quality in (85, 75, 60, 45, 30):
            if (found := _encoded(picture, "JPEG", quality)) is not None:
                return found
        side = side * 3 // 4  # noise; at a few pixels anything fits
        picture = resized(picture, side)


def _encoded(picture: Image.Image, form: str, quality: int) -> str | None:
    file = io.BytesIO()
    if form == "PNG":
        picture.save(file, form, optimize=True)
    else:
        picture.save(file, form, quality=quality, optimize=True)
    address = f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
    return address if len(address) <= LARGEST else None
