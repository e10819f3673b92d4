"""The paper's panels of learning dynamics, and the trust over time.

A new measure of `history.jsonl` is a line of `_PAPER` or `_WITHOUT_TRUTH`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from proselflc.pages.drawing import (
    ROUND,
    SMALL,
    Drawing,
    Figure,
    Legend,
    Series,
    Style,
    figure,
    label,
    line,
    list_first,
    run_style,
)
from proselflc.pages.svg import COLOURS
from proselflc.pages.values import number, percent, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 1200  # of all lines of a figure together
_MARKS = 60  # markers of all lines together
_MOST = 80  # points of a line; more could not be distinguished
_LARGEST = 1e9  # epoch that can be drawn
_NATS = 100.0  # more than any entropy
_STAGES = 6  # beginnings of stages in a figure

_SECOND = Style("ink", (4, 2), width=1.1)  # a second measure of the same runs
_GROWTH = Style("ink", (1, 1.5), width=1.1)

Json = Mapping[str, Any]
Histories = Mapping[str, Sequence[Json]]


@dataclass(frozen=True)
class _Panel:
    """A measure over the epochs: name, title and note of its figure, and where later stages begin.

    The scale is "percent" from 0 to 100, "part" for the range that was reached, "trust" from 0
    to 1, or "nats" from 0.
    """

    name: str
    title: str
    note: str
    scale: Literal["percent", "part", "trust", "nats"] = "percent"
    begins: tuple[tuple[float, str], ...] = ()

    def format(self, value: float) -> str:
        """Return a value of the measure as text."""
        return percent(value) if self.scale in ("percent", "part") else f"{value:.2f}"


_PAPER = {
    "correct_fitting": _Panel(
        "correct_fitting", "Correct fitting", "right labels that are predicted"
    ),
    "wrong_fitting": _Panel(
        "wrong_fitting", "Wrong fitting", "wrong labels that are predicted; high is bad"
    ),
    "semantic_correction": _Panel(
        "semantic_correction",
        "Semantic correction",
        "wrong labels whose true class is predicted",
    ),
    "entropy_clean": _Panel(
        "entropy_clean", "Entropy, clean subset", "mean H(p) where the label is right", "nats"
    ),
    "entropy_noisy": _Panel(
        "entropy_noisy", "Entropy, noisy subset", "mean H(p) where the label is wrong", "nats"
    ),
}
_GENERALISATION = _Panel("generalisation", "Generalisation", "accuracy on the test set", "part")
_WITHOUT_TRUTH = {
    "train_accuracy": _Panel("agreement", "Agreement", "share of given labels that are predicted"),
    "entropy": _Panel("entropy", "Entropy", "mean H(p) of the training examples", "nats"),
}
MEASURES: Mapping[str, _Panel] = {**_PAPER, "test_accuracy": _GENERALISATION}  # by column
_ORDER = (
    *(panel.name for panel in _PAPER.values()),
    "generalisation",
    *(panel.name for panel in _WITHOUT_TRUTH.values()),
)
_TRUST = _Panel("trust", "Trust ε in the prediction", "mean over the training examples", "trust")
_TRUST_BY_SUBSET = _Panel(
    "trust_subsets", "Trust ε by subset", "mean where the label is right; dashed: wrong", "trust"
)


@dataclass(frozen=True)
class _Line:
    """A measure of a run: x [points] epochs, y [points], and an offset of the markers."""

    x: Series
    y: Series
    style: Style
    shift: int = 0

    @property
    def last(self) -> float:
        """Return the last known value."""
        return float(self.y[np.isfinite(self.y)][-1])

    @property
    def lowest(self) -> float:
        return float(np.nanmin(self.y))

    @property
    def highest(self) -> float:
        return float(np.nanmax(self.y))

    @property
    def solid(self) -> _Line:
        """Return the line without a dash, where dashes distinguish measures and not runs."""
        return replace(self, style=replace(self.style, dash=()))

    def like(self, style: Style) -> _Line:
        """Return the line in another style, but in its run's colour."""
        return replace(self, style=replace(style, colour=self.style.colour))


def dynamics(
    histories: Histories, later: Sequence[Json] = (), styles: Mapping[str, Style] | None = None
) -> list[Figure]:
    """Return the paper's six panels and the trust over the epochs, all runs in each.

    Panels without values are omitted. Most panels need the true labels; if a run does not know
    them, agreement with the given labels and entropy are drawn too. `later` has the stages of
    the runs, without the first of each; `styles` those of the runs, by position unless given.
    """
    styles = styles or {run: run_style(k) for k, run in enumerate(histories)}
    begins = _begins(later)
    panels = dict(_PAPER)
    if len(_lines(histories, "correct_fitting", styles)) < len(histories):
        panels |= _WITHOUT_TRUTH
    drawn = {
        replace(panel, begins=begins): _lines(histories, column, styles)
        for column, panel in panels.items()
    }
    top = max(  # entropies are compared with each other
        (one.highest for panel in drawn for one in drawn[panel].values() if panel.scale == "nats"),
        default=1.0,
    )
    found = {
        panel.name: _overlaid(panel, lines, top=top) for panel, lines in drawn.items() if lines
    }
    tests, validations = (_lines(histories, f"{part}_accuracy", styles) for part in ("test", "val"))
    if tests:
        panel = replace(_GENERALISATION, begins=begins)
        found["generalisation"] = _beside(panel, tests, validations, "validation")
    return [*(found[name] for name in _ORDER if name in found), *_trust(histories, begins, styles)]


def _begins(later: Sequence[Json]) -> tuple[tuple[float, str], ...]:
    """Return where stages begin, in order and each once; invalid entries are ignored."""
    found = {
        (epoch, label(text(stage, "name")))
        for stage in later
        if (epoch := number(stage, "first_epoch")) is not None and 0 < epoch <= _LARGEST
    }
    return tuple(sorted(found))[:_STAGES]


def _trust(
    histories: Histories, begins: tuple[tuple[float, str], ...], styles: Mapping[str, Style]
) -> list[Figure]:
    """Return ε and g(t): with subsets for one run, and in a figure of their own for several."""
    of_all, by_subset = (replace(one, begins=begins) for one in (_TRUST, _TRUST_BY_SUBSET))
    mean, clean, noisy, growth = (
        _lines(histories, column, styles)
        for column in ("epsilon", "epsilon_clean", "epsilon_noisy", "g")
    )
    if not mean:
        return []
    distinct = {(one.x.tobytes(), one.y.tobytes()): one for one in growth.values()}
    dotted = [one.like(_GROWTH) for one in distinct.values()]
    if len(dotted) == 1:
        dotted = [replace(dotted[0], style=_GROWTH)]
    legend: Legend = (("g(t)", _GROWTH),) if dotted else ()
    if len(histories) > 1:
        found = [_overlaid(of_all, mean, dotted, legend)]
        if clean and noisy:
            found.append(_beside(by_subset, clean, noisy, "wrong labels"))
        return found
    subsets = {"all examples": mean, "right labels": clean, "wrong labels": noisy}
    lines = {
        name: replace(one, style=run_style(k), shift=k)
        for k, (name, of_run) in enumerate(subsets.items())
        for one in of_run.values()
    }
    return [_overlaid(of_all, lines, dotted, legend)]


def _beside(
    panel: _Panel, lines: Mapping[str, _Line], second: Mapping[str, _Line], text: str
) -> Figure:
    """Return a figure of two measures of the same runs, the second one dashed."""
    if not second:
        return _overlaid(panel, lines)
    solid = {run: one.solid for run, one in lines.items()}
    return _overlaid(
        panel, solid, [one.like(_SECOND) for one in second.values()], ((text, _SECOND),)
    )


def _overlaid(
    panel: _Panel,
    lines: Mapping[str, _Line],
    others: Sequence[_Line] = (),
    legend: Legend = (),
    *,
    top: float = 1.0,
) -> Figure:
    """Return a figure with the lines of a panel, and others beneath with a legend of their own.

    `top` is the largest entropy of all panels.
    """
    every = [*others, *lines.values()]
    most = max(12, min(_MOST, _POINTS // len(every)))
    marks = max(2, min(6, _MARKS // len(every)))
    axis = "epoch"
    if any(len(one.x) > most for one in every):
        axis += "; means of neighbouring points"
    end = max(float(one.x.max()) for one in every)
    begins = [(epoch, name) for epoch, name in panel.begins if epoch < end]

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        for one in every:
            x, y = averaged(one.x, one.y, most)
            line(axes, x, y, one.style, marks=marks, shift=one.shift)
        for epoch, name in begins:
            axes.axvline(epoch, color=COLOURS["ink"], linewidth=0.5, alpha=0.5, zorder=0.5)
            is_late = epoch > end / 2
            axes.annotate(
                f"{name} →" if is_late else name,
                (epoch, 1.0),
                (-2.0 if is_late else 2.0, -2.0),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                size=SMALL,
                ha="right" if is_late else "left",
                va="top",
                alpha=0.8,
            )
        axes.set_xlim(0.0, end or 1.0)
        axes.set_ylim(*_limits(panel, every, top))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=ROUND))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        if panel.scale in ("percent", "part"):
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.4g}%"))
        axes.set_xlabel(axis)

    ends = [(label(name), panel.format(one.last), one.style) for name, one in lines.items()]
    own = [(f"{name} · {last}", style) for name, last, style in ends]
    return figure(
        panel.name,
        Drawing(panel.title, panel.note, plot, (*own, *legend)),
        f"{panel.title} over {end:g} epochs: {panel.note}. "
        f"At the end: {list_first([f'{name} {last}' for name, last, _ in ends])}."
        + "".join(f" From epoch {epoch:g} on: {name}." for epoch, name in begins),
    )


def _limits(panel: _Panel, lines: Sequence[_Line], top: float) -> tuple[float, float]:
    if panel.scale == "nats":
        return 0.0, 1.05 * max(top, 0.01)
    if panel.scale != "part":
        return 0.0, 1.0
    low, high = min(one.lowest for one in lines), max(one.highest for one in lines)
    margin = max(0.01, 0.06 * (high - low))
    return max(0.0, low - margin), min(1.0, high + margin)


def _lines(histories: Histories, column: str, styles: Mapping[str, Style]) -> dict[str, _Line]:
    """Return the lines of the runs that have values, each in its own style."""
    found = {}
    for k, (run, points) in enumerate(histories.items()):
        x = numbers(points, "epoch", most=_LARGEST)
        y = numbers(points, column, most=_NATS if column.startswith("entropy") else 1.0)
        placed = np.argsort(x, kind="stable")[: int(np.isfinite(x).sum())]  # NaN is last
        if np.isfinite(y[placed]).any():
            found[run] = _Line(x[placed], y[placed], styles[run], shift=k)
    return found


def averaged(x: Series, y: Series, most: int) -> tuple[Series, Series]:
    """Return [≤ most] points each: means over neighbours, and the last known point unchanged.

    Neighbours without a known value are a gap.
    """
    if len(x) <= most:
        return x, y
    parts = np.array_split(np.arange(len(x)), most - 1)
    known = [part[np.isfinite(y[part])] for part in parts]
    means = [float(y[part].mean()) if len(part) else math.nan for part in known]
    places = [float(x[part].mean()) for part in parts]
    last = np.flatnonzero(np.isfinite(y))[-1:]
    return np.array([*places, *x[last]]), np.array([*means, *y[last]])


def numbers(points: Sequence[Json], column: str, *, most: float) -> Series:
    """Return [points] the values of a column, NaN for anything but a number from 0 to `most`.

    A mean may exceed `most` by a rounding error.
    """
    found = (number(one, column) for one in points)
    values = np.array([math.nan if one is None else one for one in found], np.float64)
    values[(values < 0) | (values > 1.001 * most)] = np.nan
    return values.clip(max=most)
