"""The figures of a study: its trials one after the other, by each parameter, and what matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from proselflc.pages.drawing import (
    ROUND,
    Drawing,
    Figure,
    Legend,
    Series,
    Style,
    figure,
)
from proselflc.pages.lettering import label
from proselflc.pages.names import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value: TypeAlias = str | int | float

MOST_TICKS = 7  # values of a parameter that are each written at its axis
MOST_POINTS = 2000  # trials of a figure

_TRIAL = Style("line-1", marker="o", width=0)
_BEST = Style("line-1", width=1.2, opacity=0.6)
_CHOSEN = Style("line-2", marker="D", width=0)


@dataclass(frozen=True)
class Point:
    """A trial that came to its end.

    Attributes:
        number: of the trial, from 1.
        values: that were tried.
        accuracy: on the validation examples.
        is_chosen: whether it is the best.
    """

    number: int
    values: Mapping[str, Value]
    accuracy: float
    is_chosen: bool


def history(name: str, points: Sequence[Point]) -> Figure:
    """Validation accuracy trial by trial, and the best so far.

    Args:
        name: of the figure.
        points: at least one, in the order of the trials.
    """
    some = points[:MOST_POINTS]
    x = np.array([one.number for one in some], np.float64)
    y = np.array([one.accuracy for one in some], np.float64)
    best = np.maximum.accumulate(y)

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.step(x, best, where="post", color=_BEST.paint, linewidth=1.2, alpha=_BEST.opacity)
        _scatter(axes, x, y, some)
        axes.set_xlim(0.5, x.max() + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=ROUND))
        axes.set_xlabel("trial")
        _percent(axes, y)

    winner = next((one for one in some if one.is_chosen), some[0])
    return figure(
        name,
        Drawing(
            "Trials",
            "validation accuracy, one after the other",
            plot,
            (*_legend(winner), ("best so far", _BEST)),
            right=14,
        ),
        f"Validation accuracy of {len(some)} trials, from {percent(float(y.min()))} to "
        f"{percent(float(y.max()))}; the best is trial {winner.number}.",
    )


def by_parameter(
    name: str, parameter: str, title: str, points: Sequence[Point], *, is_range: bool = False
) -> Figure | None:
    """Validation accuracy by the value of a parameter; None where there are no two values.

    Args:
        name: of the figure.
        parameter: its name in the trials.
        title: as people call it.
        points: the trials.
        is_range: whether any number between two could be tried, and not a few values.
    """
    some = [one for one in points if parameter in one.values][:MOST_POINTS]
    known = list(dict.fromkeys(one.values[parameter] for one in some))
    if len(known) < 2:
        return None
    are_numbers = all(isinstance(one, int | float) for one in known)
    if are_numbers:
        known.sort()
    place = {one: float(one) if are_numbers else float(k) for k, one in enumerate(known)}
    x = np.array([place[one.values[parameter]] for one in some])
    y = np.array([one.accuracy for one in some], np.float64)
    top = np.array([y[x == place[one]].max() for one in known])
    at = np.array([place[one] for one in known])
    is_log = are_numbers and at.min() > 0 and at.max() / at.min() >= 8
    ticks = len(known) <= MOST_TICKS and not is_range

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

        if is_log:
            axes.set_xscale("log")
        if ticks and are_numbers:
            axes.plot(at, top, color=_BEST.paint, linewidth=1.2, alpha=_BEST.opacity)
        _scatter(axes, x, y, some)
        if ticks:
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticks(at, [label(_written(one), 12) for one in known])
        else:
            nearby = LogLocator(subs=(1.0, 3.0)) if is_log else MaxNLocator(6, steps=ROUND)
            axes.xaxis.set_major_locator(nearby)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        _room(axes, at, is_log)
        axes.set_xlabel(title)
        _percent(axes, y)

    winner = next((one for one in some if one.is_chosen), some[int(y.argmax())])
    legend: Legend = _legend(winner)
    if ticks and are_numbers and len(some) > len(known):
        legend = (*legend, ("best of each", _BEST))
    said = ", ".join(
        f"{label(_written(one))} {percent(float(of_it))}"
        for one, of_it in list(zip(known, top, strict=True))[:MOST_TICKS]
    )
    return figure(
        name,
        Drawing(title, "validation accuracy by its value", plot, legend, right=14),
        f"Validation accuracy by {title}: {said}{' …' if len(known) > MOST_TICKS else ''}.",
    )


def importance(name: str, shares: Mapping[str, float], titles: Mapping[str, str]) -> Figure | None:
    """How much of the difference between trials each parameter makes; None of nothing."""
    if not shares:
        return None
    names = sorted(shares, key=lambda one: shares[one])[-12:]
    sizes = np.array([shares[one] for one in names])
    longest = max(len(titles.get(one, one)) for one in names)

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        axes.barh(np.arange(len(names)), sizes, 0.6, color=_TRIAL.paint)
        axes.set_yticks(np.arange(len(names)), [label(titles.get(one, one), 20) for one in names])
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x")
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.xaxis.set_major_formatter(PercentFormatter(1))

    said = ", ".join(f"{titles.get(one, one)} {percent(shares[one], 0)}" for one in names[::-1])
    return figure(
        name,
        Drawing(
            "What matters",
            "share of the difference between trials",
            plot,
            left=min(100.0, 12 + 4.6 * min(longest, 20)),
            right=16,
            height=max(40.0, 22.0 * len(names)),
        ),
        f"How much of the difference between trials each parameter makes: {said}.",
    )


def _scatter(axes: Axes, x: Series, y: Series, points: Sequence[Point]) -> None:
    chosen = np.array([one.is_chosen for one in points])
    for which, style, size in ((~chosen, _TRIAL, 14), (chosen, _CHOSEN, 30)):
        axes.scatter(
            x[which],
            y[which],
            s=size,
            color=style.paint,
            marker=style.marker,
            linewidths=0,
            clip_on=False,
            zorder=3,
        )


def _percent(axes: Axes, y: Series) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = float(y.min()), float(y.max())
    margin = max(0.005, 0.1 * (high - low))
    axes.set_ylim(max(0.0, low - margin), min(1.0, high + margin))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.4g}%"))


def _room(axes: Axes, at: Series, is_log: bool) -> None:
    """Some room beside the first value and the last."""
    if is_log:
        beside = (at.max() / at.min()) ** 0.06
        axes.set_xlim(at.min() / beside, at.max() * beside)
        return
    beside = 0.06 * (at.max() - at.min())
    axes.set_xlim(at.min() - beside, at.max() + beside)


def _legend(winner: Point) -> Legend:
    return ((f"chosen · {percent(winner.accuracy)}", _CHOSEN), ("a trial", _TRIAL))


def _written(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
