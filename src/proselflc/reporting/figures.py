"""The figures of a report, by section of the page.

A new figure is a function here and a line of `FIGURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from proselflc.data.class_matrix import ClassMatrix
from proselflc.data.inputs import Bools
from proselflc.pages.drawing import (
    ROUND,
    Drawing,
    Figure,
    Legend,
    Series,
    Style,
    figure,
    label,
    list_first,
    method_styles,
    run_style,
)
from proselflc.pages.learning_dynamics import dynamics, numbers
from proselflc.pages.values import percent, text
from proselflc.reporting.held_out_loss import held_out_loss
from proselflc.reporting.run_facts import RunFacts
from proselflc.reporting.transitions import transitions
from proselflc.training.run_directory import Json

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

BINS = 20  # of the histogram of quality

_MOST_BINS = 1000  # of a reliability diagram
_DIAGONAL = Style("ink", (2, 2), width=0.9, opacity=0.7)
_RIGHT = Style("line-1", marker="s", width=0)
_WRONG = Style("line-2", marker="s", width=0)
_SUSPECT = Style("ink", width=1.3)


@dataclass(frozen=True)
class Source:
    """What the figures of a page are drawn from."""

    runs: Sequence[RunFacts]  # on the page; figures of one run are those of the first
    examples: pa.Table | None = None  # of the first run
    transition: ClassMatrix | None = None  # [C, C] that its method worked with


def draw(source: Source) -> dict[str, list[Figure]]:
    """Return the figures of every section; those without data are omitted."""
    drawn: dict[str, list[Figure]] = {section: [] for section, _ in FIGURES}
    for section, figures_of in FIGURES:
        drawn[section] += figures_of(source)
    return drawn


def _learning(source: Source) -> list[Figure]:
    known = [run for run in source.runs if run.history]
    later = [stage for run in known for stage in run.stages[1:]]
    return dynamics({run.name: run.history for run in known}, later, _styles(source))


def _styles(source: Source) -> dict[str, Style]:
    styles = method_styles([text(run.summary, "method") for run in source.runs])
    return {run.name: style for run, style in zip(source.runs, styles, strict=True)}


def _onset(source: Source) -> Iterator[Figure]:
    drawn = held_out_loss(source.runs, list(_styles(source).values()))
    if drawn is not None:
        yield drawn


def _calibration(source: Source) -> Iterator[Figure]:
    drawn = reliability({run.name: run.test for run in source.runs}, _styles(source))
    if drawn is not None:
        yield drawn


def _transitions(source: Source) -> list[Figure]:
    audit = source.runs[0].audit
    return [] if audit is None else transitions(audit, source.transition)


def _quality(source: Source) -> Iterator[Figure]:
    drawn = None if source.examples is None else quality(source.examples)
    if drawn is not None:
        yield drawn


FIGURES: tuple[tuple[str, Callable[[Source], Iterable[Figure]]], ...] = (
    ("learning", _learning),
    ("learning", _onset),
    ("calibration", _calibration),
    ("confusion", _transitions),
    ("suspects", _quality),
)


@dataclass(frozen=True)
class _Bins:
    """The bins of confidence that have examples, [bins] each, and their style."""

    confidence: Series
    accuracy: Series
    share: Series
    style: Style

    @property
    def ece(self) -> float:
        """Return the error of `evaluation.Reliability.ece`."""
        return float(self.share @ np.abs(self.accuracy - self.confidence))


def reliability(
    evaluations: Mapping[str, Json], styles: Mapping[str, Style] | None = None
) -> Figure | None:
    """Return a figure of the accuracy in bins of confidence, or None without bins.

    The evaluations are the measures on the test set by the run's name, and so are the styles.
    """
    styles = styles or {run: run_style(k) for k, run in enumerate(evaluations)}
    found: dict[str, _Bins] = {}
    for run, measures in evaluations.items():
        bins = _bins(measures.get("reliability"), styles[run])
        if bins is not None:
            found[run] = bins
    if not found:
        return None

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        axes.plot([0, 1], [0, 1], color=_DIAGONAL.paint, linewidth=0.9, dashes=(2, 2), alpha=0.7)
        for one in found.values():
            paint = one.style.paint
            if len(found) == 1:
                axes.vlines(
                    one.confidence,
                    one.confidence,
                    one.accuracy,
                    color=paint,
                    linewidth=6,
                    alpha=0.25,
                )
            (drawn,) = axes.plot(
                one.confidence, one.accuracy, color=paint, linewidth=one.style.width, clip_on=False
            )
            if one.style.dash:
                drawn.set_dashes(one.style.dash)
            axes.scatter(
                one.confidence,
                one.accuracy,
                s=5 + 90 * one.share,
                color=paint,
                marker=one.style.marker,
                linewidths=0,
                clip_on=False,
                zorder=3,
            )
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_xlabel("confidence")

    errors = [f"{label(run)} {percent(one.ece)}" for run, one in found.items()]
    legend: Legend = tuple(
        (f"{label(run)} · ECE {percent(b.ece)}", b.style) for run, b in found.items()
    )
    return figure(
        "reliability",
        Drawing(
            "Reliability",
            "test accuracy by confidence; mark size: examples",
            plot,
            (*legend, ("perfect calibration", _DIAGONAL)),
            right=16,
            height=164,
        ),
        "Accuracy by confidence on the test set; below the diagonal a model is overconfident. "
        f"Expected calibration error: {list_first(errors)}.",
    )


def _bins(value: object, style: Style) -> _Bins | None:
    """Return the bins of `evaluation.json` that have examples, or None if there are none."""
    columns = []
    for name, most in (("confidence", 1.0), ("accuracy", 1.0), ("counts", 1e18)):
        column = value.get(name) if isinstance(value, dict) else None
        if not isinstance(column, list | tuple) or len(column) > _MOST_BINS:
            return None
        columns.append(numbers([{"": one} for one in column], "", most=most))
    if len({len(column) for column in columns}) != 1:
        return None
    table = np.stack(columns)
    good = np.isfinite(table).all(0) & (table[2] > 0)
    confidence, accuracy, counts = table[:, good]
    return _Bins(confidence, accuracy, counts / counts.sum(), style) if good.any() else None


def quality(examples: pa.Table) -> Figure | None:
    """Return a histogram of quality with the suspects and, if known, the wrong labels."""
    import pyarrow.compute as pc

    scores = examples["quality"].to_numpy().astype(np.float64)
    known: Bools = np.isfinite(scores)
    if not known.any():
        return None
    edges = np.linspace(0, 1, BINS + 1)

    def binned(chosen: Bools) -> Series:
        return np.histogram(scores[known & chosen], edges)[0].astype(np.float64)

    suspects: Bools = examples["is_suspect"].to_numpy().astype(bool)
    wrong: Bools = np.zeros_like(known)
    knows_truth = "clean_label" in examples.column_names
    if knows_truth:
        wrong = pc.not_equal(examples["clean_label"], examples["given_label"]).to_numpy()
    right_bins, wrong_bins, suspect_bins = binned(~wrong), binned(wrong), binned(suspects)

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        left, width = edges[:-1] + 0.15 / BINS, 0.7 / BINS
        axes.bar(left, wrong_bins, width, align="edge", color=_WRONG.paint)
        axes.bar(left, right_bins, width, wrong_bins, align="edge", color=_RIGHT.paint)
        some = np.where(suspect_bins > 0, suspect_bins, np.nan)  # no line for empty bins
        axes.stairs(some, edges, color=_SUSPECT.paint, linewidth=_SUSPECT.width)
        axes.set_xlim(0, 1)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=ROUND))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _count(y)))
        axes.set_xlabel("quality (low: probably mislabelled)")

    many, bad = int(suspects.sum()), int(wrong.sum())
    alt = f"Histogram of the quality of {int(known.sum()):,} labels, {many:,} of them suspect"
    legend: Legend = ((f"suspects · {many:,}", _SUSPECT), (f"labels · {len(known):,}", _RIGHT))
    if knows_truth:
        good = (f"right labels · {len(known) - bad:,}", _RIGHT)
        legend = (legend[0], (f"wrong labels · {bad:,}", _WRONG), good)
        alt += f"; {bad:,} are wrong, and {int((wrong & suspects).sum()):,} of these are suspect"
    return figure(
        "quality",
        Drawing("Quality of the labels", "number of labels by quality", plot, legend),
        f"{alt}.",
    )


def _count(y: float) -> str:
    """Return a number of an axis.

    >>> _count(250), _count(1500), _count(1200000)
    ('250', '1.5k', '1.2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if y >= size:
            return f"{y / size:g}{letter}"
    return f"{y:g}"
