"""The figures of a report, by the question that they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from proselflc.data.inputs import Bools
from proselflc.pages.drawing import (
    ROUND,
    Drawing,
    Figure,
    Legend,
    Series,
    Style,
    figure,
    run_style,
    write,
)
from proselflc.pages.learning_dynamics import dynamics, numbers
from proselflc.pages.lettering import label, named_after, told
from proselflc.pages.names import percent
from proselflc.pages.sparkline import learning_curve
from proselflc.reporting.transition_figures import transitions
from proselflc.training.run_directory import Json

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

__all__ = [
    "Figure",
    "dynamics",
    "learning_curve",
    "quality",
    "reliability",
    "transitions",
    "write",
]

BINS = 20  # of the histogram of quality

_MOST_BINS = 1000  # of a reliability diagram that are believed
_DIAGONAL = Style("ink", (2, 2), width=0.9, opacity=0.7)
_RIGHT = Style("line-1", marker="s", width=0)
_WRONG = Style("line-2", marker="s", width=0)
_SUSPECT = Style("ink", width=1.3)


@dataclass(frozen=True)
class _Bins:
    """The bins of confidence that have examples, [bins] each."""

    confidence: Series
    accuracy: Series
    share: Series
    style: Style

    @property
    def ece(self) -> float:
        """As `calibration.Reliability.ece` has it."""
        return float(self.share @ np.abs(self.accuracy - self.confidence))


def reliability(evaluations: Mapping[str, Json]) -> Figure | None:
    """How often predictions are right, by how sure they are: the test set in bins of confidence.

    Args:
        evaluations: `evaluation.json` by the run's name; its part "test" is looked at.
    """
    found: dict[str, _Bins] = {}
    for k, (run, evaluation) in enumerate(evaluations.items()):
        test = evaluation.get("test")
        bins = _bins(test.get("reliability"), run_style(k)) if isinstance(test, dict) else None
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

    errors = {label(run): percent(one.ece) for run, one in found.items()}
    legend: Legend = tuple(
        (f"{label(run)} · ECE {percent(b.ece)}", b.style) for run, b in found.items()
    )
    return figure(
        "reliability",
        Drawing(
            "Reliability",
            "test accuracy by confidence; larger mark: more",
            plot,
            (*legend, ("as sure as right", _DIAGONAL)),
            right=16,
            height=164,
        ),
        "Accuracy by confidence on the test set; below the diagonal a model is surer than right. "
        f"Expected calibration error: {told([f'{run} {ece}' for run, ece in errors.items()])}.",
    )


def _bins(value: object, style: Style) -> _Bins | None:
    """What `evaluation.json` holds of them, as far as it can be believed."""
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


def quality(examples: pa.Table, *, run: str = "") -> Figure | None:
    """How many labels have which quality, the suspects among them, and the wrong ones if known.

    Args:
        examples: `examples.parquet` as `Run.examples` gives it.
        run: its name, where figures of several runs stand on a page.
    """
    import pyarrow.compute as pc

    scores = examples["quality"].to_numpy().astype(np.float64)
    seen: Bools = np.isfinite(scores)
    if not seen.any():
        return None
    edges = np.linspace(0, 1, BINS + 1)

    def binned(chosen: Bools) -> Series:
        return np.histogram(scores[seen & chosen], edges)[0].astype(np.float64)

    suspects: Bools = examples["is_suspect"].to_numpy().astype(bool)
    wrong: Bools = np.zeros_like(seen)
    knows_truth = "clean_label" in examples.column_names
    if knows_truth:
        wrong = pc.not_equal(examples["clean_label"], examples["given_label"]).to_numpy()
    right_bins, wrong_bins, suspect_bins = binned(~wrong), binned(wrong), binned(suspects)

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        left, width = edges[:-1] + 0.15 / BINS, 0.7 / BINS
        axes.bar(left, wrong_bins, width, align="edge", color=_WRONG.paint)
        axes.bar(left, right_bins, width, wrong_bins, align="edge", color=_RIGHT.paint)
        some = np.where(suspect_bins > 0, suspect_bins, np.nan)  # no line where there are none
        axes.stairs(some, edges, color=_SUSPECT.paint, linewidth=_SUSPECT.width)
        axes.set_xlim(0, 1)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=ROUND))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _count(y)))
        axes.set_xlabel("quality; low is probably mislabelled")

    many, bad = int(suspects.sum()), int(wrong.sum())
    alt = f"Histogram of the quality of {int(seen.sum()):,} labels, {many:,} of them suspect"
    legend: Legend = ((f"suspects · {many:,}", _SUSPECT), (f"labels · {len(seen):,}", _RIGHT))
    if knows_truth:
        good = (f"right labels · {len(seen) - bad:,}", _RIGHT)
        legend = (legend[0], (f"wrong labels · {bad:,}", _WRONG), good)
        alt += f"; {bad:,} are wrong, and {int((wrong & suspects).sum()):,} of these are suspect"
    return figure(
        named_after(run, "quality"),
        Drawing("Quality of the labels", "number of labels by quality", plot, legend),
        f"{alt}.",
    )


def _count(y: float) -> str:
    """A number on an axis.

    >>> _count(250), _count(1500), _count(1200000)
    ('250', '1.5k', '1.2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if y >= size:
            return f"{y / size:g}{letter}"
    return f"{y:g}"
