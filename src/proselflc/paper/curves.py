"""Learning curves of several seeds: the mean with its 95 % interval, as panels of a sheet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from proselflc.pages.drawing import ROUND, Series, Style, line
from proselflc.pages.sheet import LineEnd, Panel
from proselflc.pages.svg import COLOURS
from proselflc.paper.output import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = 6  # markers on a line

Limits: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """The mean of a measure over seeds, [points], and the half-width of its 95 % interval.

    The half-width is NaN where there is only one seed.
    """

    name: str
    style: Style
    x: Series
    mean: Series
    half: Series

    def after(self, start: float) -> Curve:
        """Return the points from an epoch on."""
        rows = self.x >= start
        return Curve(self.name, self.style, self.x[rows], self.mean[rows], self.half[rows])

    @property
    def lowest(self) -> float:
        """Return the lowest mean."""
        return float(np.nanmin(self.mean))

    @property
    def highest(self) -> float:
        """Return the highest mean."""
        return float(np.nanmax(self.mean))


def averaged(
    name: str, style: Style, histories: Sequence[Sequence[Mapping[str, Any]]], column: str
) -> Curve | None:
    """Return the curve of a column over the steps where every seed has a value; None without any.

    A history is empty if its run diverged.
    """
    by_step = [{point["step"]: point for point in points} for points in histories]
    x, means, halves = [], [], []
    for step, first in by_step[0].items() if by_step else ():
        found = [points.get(step, {}).get(column) for points in by_step]
        values = [float(value) for value in found if isinstance(value, int | float)]
        if len(values) < len(found):
            continue
        x.append(float(first["epoch"]))
        means.append(math.fsum(values) / len(values))
        halves.append((interval(values) or (0.0, math.nan))[1])
    return Curve(name, style, *map(np.asarray, (x, means, halves))) if x else None


def panel(title: str, curves: Sequence[Curve], limits: Limits, *, percent: bool = False) -> Panel:
    """Return a panel of curves, each with its interval as a band and its name at its end."""

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        for one in curves:
            axes.fill_between(
                one.x,
                one.mean - one.half,
                one.mean + one.half,
                color=one.style.paint,
                alpha=0.12,
                linewidth=0,
            )
        for k, one in enumerate(curves):
            line(axes, one.x, one.mean, one.style, marks=_MARKS, shift=k)
        start = min(float(one.x.min()) for one in curves)
        end = max(float(one.x.max()) for one in curves)
        axes.set_xlim(start if start > 0.2 * end else 0.0, end if end > start else end + 1.0)
        axes.set_ylim(*limits)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=ROUND))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.spines["bottom"].set_color(COLOURS["ink"])
        if percent:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.4g}%"))

    ends = tuple(
        LineEnd(float(one.x[-1]), float(one.mean[-1]), one.name, one.style)
        for one in curves
        if one.name
    )
    return Panel(title, plot, "epoch", ends)


def from_zero(curves: Sequence[Curve], most: float) -> Limits:
    """Return limits from 0 to a little above the highest mean, or to `most` if that is lower."""
    highest = max((one.highest for one in curves), default=1.0)
    return 0.0, min(most, 1.06 * highest if highest > 0 else 1.0)


def around(curves: Sequence[Curve]) -> Limits:
    """Return limits around the values that are reached, within [0, 1]."""
    low, high = min(one.lowest for one in curves), max(one.highest for one in curves)
    margin = max(0.01, 0.08 * (high - low))
    return max(0.0, low - margin), min(1.0, high + margin)
