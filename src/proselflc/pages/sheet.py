"""A figure for print: lettered panels side by side, whose lines are named at their ends.

Lengths are in points. A sheet is as wide as the text of a journal in two columns.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from proselflc.pages.drawing import SMALL, Style, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH = 504.0

_LEFT = 32.0  # of a panel: the labels of its axis
_GAP = 6.0  # between a line and its name
_ABOVE = 20.0  # its letter and title
_BELOW = 27.0  # the labels of its axis
_ROW = 8.6  # distance of two names
_TITLE, _NAME = 8.6, 7.4  # font sizes


@dataclass(frozen=True)
class LineEnd:
    """The last point of a line, in data coordinates, and the name beside it."""

    x: float
    y: float
    text: str
    style: Style


@dataclass(frozen=True)
class Panel:
    """A plot with its title, the label of its horizontal axis, and the ends of its lines."""

    title: str
    plot: Callable[[Axes], None] = field(repr=False)
    axis: str = ""
    ends: tuple[LineEnd, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """Panels in rows, from left to right."""

    title: str
    panels: tuple[Panel, ...]
    columns: int
    height: float = 104.0  # of each plot

    def compose(self, *, titled: bool) -> Canvas:
        """Return the drawing; its title belongs into a caption."""
        from matplotlib.figure import Figure as Canvas

        rows = -(-len(self.panels) // self.columns)
        width = WIDTH / self.columns
        row_height = _ABOVE + self.height + _BELOW
        canvas = Canvas(figsize=(WIDTH / 72, rows * row_height / 72))
        names = [text_width(end.text, _NAME) for panel in self.panels for end in panel.ends]
        right = _GAP + 1.08 * max(names) if names else 10.0
        total = rows * row_height
        for k, panel in enumerate(self.panels):
            left = k % self.columns * width
            top = k // self.columns * row_height
            letter = f"({string.ascii_lowercase[k]}) " if len(self.panels) > 1 else ""
            canvas.text(
                (left + 2) / WIDTH,
                1 - (top + 12) / total,
                f"{letter}{panel.title}",
                size=_TITLE,
                weight="bold",
            )
            axes = canvas.add_axes(
                (
                    (left + _LEFT) / WIDTH,
                    1 - (top + _ABOVE + self.height) / total,
                    (width - _LEFT - right) / WIDTH,
                    self.height / total,
                )
            )
            axes.set_facecolor("none")
            axes.patch.set_visible(False)
            axes.grid(axis="y")
            panel.plot(axes)
            axes.set_xlabel(panel.axis, size=SMALL)
            _name_ends(axes, panel.ends, self.height)
        return canvas


def _name_ends(axes: Axes, ends: Sequence[LineEnd], height: float) -> None:
    """Write the names beside the ends of the lines, moved apart where they would overlap."""
    if not ends:
        return
    low, high = axes.get_ylim()
    places = [height * (end.y - low) / (high - low) for end in ends]
    for end, place, y in zip(ends, places, spread(places, _ROW, 3.0, height - 3.0), strict=True):
        axes.annotate(
            end.text,
            (end.x, end.y),
            (_GAP, y - place),
            textcoords="offset points",
            size=_NAME,
            color=end.style.paint,
            weight="bold" if end.style.width > 1.6 else "normal",
            va="center_baseline",
            annotation_clip=False,
            arrowprops=None
            if abs(y - place) < 1.5
            else {
                "arrowstyle": "-",
                "color": end.style.paint,
                "linewidth": 0.5,
                "shrinkA": 0.0,
                "shrinkB": 2.0,
                "relpos": (0.0, 0.5),
            },
        )


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return the nearest places, by least squares, that are at least `gap` apart.

    They keep their order, and lie between `low` and `high` if there is room. Without the gaps this
    is isotonic regression, by pooling neighbours that are in the wrong order.

    >>> spread([10.0, 11.0, 30.0], 5.0, 0.0, 40.0)
    [8.0, 13.0, 30.0]
    """
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    pools: list[list[float]] = []
    for value in np.asarray(places, np.float64)[order] - steps:
        pools.append([float(value)])
        while len(pools) > 1 and np.mean(pools[-2]) >= np.mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    moved = np.repeat([np.mean(pool) for pool in pools], [len(pool) for pool in pools])
    moved = moved.clip(low, max(low, high - (steps[-1] if len(steps) else 0.0))) + steps
    found = np.empty(len(places))
    found[order] = moved
    return [float(place) for place in found]
