"""The map of the examples as a page has it: packed points, and a picture for where no script runs.

`templates/map.js` draws the points.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.pages.values import ID, NAME, shorten, shorten_middle

MOST = 50_000  # points; of more examples, the suspects and some of the others are shown
COLOURS = 10  # classes that have a colour of their own

_CHARACTERS = 120_000  # of all ids together, and of all class names
_STEPS = 65_535  # in which the longer side of the map is measured
_UNKNOWN = 255  # in place of a quality in percent
_WIDE, _TALL = 960, 600  # pixels of the picture
_PAINT = (
    *((11, 92, 173), (208, 72, 15), (0, 138, 95), (141, 67, 166), (163, 127, 0)),
    *((209, 68, 124), (0, 145, 168), (107, 142, 0), (122, 74, 43), (91, 79, 214)),
    (125, 133, 143),
)  # the last one is of the other classes; they can be told apart on white and on black

CAPTION = (
    "Each point is an example; examples that look alike are near each other. The labels were not "
    "used to place the points, so a point among those of another class may have a wrong label."
)

_Ints: TypeAlias = npt.NDArray[np.integer[Any]]
_Floats: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Points:
    """The n examples on a map.

    Attributes:
        xy: [n, 2] their points.
        given: [n] class ids; −1 is a missing label.
        suggested: [n] class ids.
        quality: [n] of the given label, low is bad; NaN if it is unknown.
        is_suspect: [n].
        index: [n] the numbers by which the page knows the examples.
        ids: of all examples, by these numbers.
        names: of the classes.
    """

    xy: _Floats
    given: _Ints
    suggested: _Ints
    quality: _Floats
    is_suspect: npt.NDArray[np.bool_]
    index: _Ints
    ids: Sequence[str]
    names: Sequence[str]

    def packed(self) -> dict[str, object]:
        """Return the points as values for JSON, which `templates/map.js` reads.

        Its size is bounded. Arrays are in base64, in the order of quality, the lowest first.
        """
        rows = self._shown()
        xy = self.xy[rows].astype(np.float64)
        low, extent = _box(xy)
        steps = np.round((xy - low) * (_STEPS / max(float(extent.max()), 1e-30)))
        quality = np.where(np.isnan(self.quality[rows]), _UNKNOWN / 100, self.quality[rows])
        kind = "<u2" if len(self.names) < 65_535 else "<u4"
        ids = (shorten_middle(self.ids[i], ID) for i in self.index[rows].tolist())
        return {
            "total": len(self.xy),
            "xy": _base64(steps, "<u2"),
            "given": _base64(self.given[rows] + 1, kind),
            "suggested": _base64(self.suggested[rows[: self._suspects]], kind),
            "quality": _base64(np.round(100 * quality).clip(0, _UNKNOWN), "u1"),
            "index": _base64(self.index[rows], "<u4"),
            "ids": _as_many(ids),
            "names": _as_many(shorten(name, NAME) for name in self.names),
            "coloured": self.coloured(),
        }

    @property
    def _suspects(self) -> int:
        """Return the number of suspects that are shown."""
        return min(int(self.is_suspect.sum()), MOST)

    def _shown(self) -> _Ints:
        """Return the rows that are shown: suspects first, and each by quality."""
        order = np.lexsort((np.nan_to_num(self.quality, nan=1.0), ~self.is_suspect))
        if len(order) <= MOST:
            return order
        rest = order[self._suspects :]
        kept = np.linspace(0, len(rest) - 1, MOST - self._suspects).round().astype(np.int64)
        return np.append(order[: self._suspects], rest[kept])

    def coloured(self) -> list[int]:
        """Return ≤ `COLOURS` classes with a colour of their own, those with most suspects."""
        C = len(self.names)
        labelled = self.given >= 0
        suspects = np.bincount(self.given[labelled & self.is_suspect], minlength=C)
        examples = np.bincount(self.given[labelled], minlength=C)
        first = np.lexsort((-examples, -suspects))[:COLOURS]
        return sorted(k for k in first.tolist() if examples[k])

    def picture(self) -> str:
        """Return a data URL of a still picture: its suspects have a grey ring.

        It is transparent, so it can be seen in both themes.
        """
        from PIL import Image

        rows = self._shown()[::-1]  # the worst on top
        xy = self.xy[rows].astype(np.float64)
        low, extent = _box(xy)
        scale = min((_WIDE - 20) / max(extent[0], 1e-30), (_TALL - 20) / max(extent[1], 1e-30))
        place = (xy - low - extent / 2) * scale * (1, -1) + (_WIDE / 2, _TALL / 2)
        x, y = np.round(place).astype(np.int64).T
        paint = np.full(len(self.names) + 1, COLOURS)
        for k, label in enumerate(self.coloured()):
            paint[label] = k
        canvas = np.zeros((_TALL, _WIDE), np.uint8)  # 0 is transparent
        colour = paint[self.given[rows]] + 1
        is_suspect = self.is_suspect[rows]
        _stamp(canvas, x, y, colour, 1.5 if len(rows) > 5000 else 2.5)
        _stamp(canvas, x[is_suspect], y[is_suspect], np.array(len(_PAINT) + 1), 4.5)
        _stamp(canvas, x[is_suspect], y[is_suspect], colour[is_suspect], 2.5)
        image = Image.fromarray(canvas, "P")
        image.putpalette([0, 0, 0, *(part for one in _PAINT for part in one), 110, 110, 110])
        file = io.BytesIO()
        image.save(file, "PNG", optimize=True, transparency=0)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _box(xy: _Floats) -> tuple[_Floats, _Floats]:
    """Return the lowest corner of points and the extent of their box."""
    low = xy.min(axis=0)
    return low, xy.max(axis=0) - low


def _stamp(canvas: npt.NDArray[np.uint8], x: _Ints, y: _Ints, colour: _Ints, radius: float) -> None:
    """Draw discs on a canvas, which is larger than they are by some pixels on each side."""
    reach = int(radius)
    for dx in range(-reach, reach + 1):
        for dy in range(-reach, reach + 1):
            if dx**2 + dy**2 <= radius**2:
                canvas[y + dy, x + dx] = colour


def _as_many(texts: Iterable[str]) -> list[str]:
    """Return as many texts as a page has room for."""
    found, left = [], _CHARACTERS
    for text in texts:
        left -= len(text)
        if left < 0:
            break
        found.append(text)
    return found


def _base64(values: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(values.astype(kind).tobytes()).decode()
