"""The figure of the loss on held-out labels, with the onset of trust in the predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
)
from proselflc.pages.learning_dynamics import averaged
from proselflc.pages.svg import COLOURS
from proselflc.pages.values import number
from proselflc.reporting.onset import Onset
from proselflc.reporting.run_facts import RunFacts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST, _ALL = 80, 1200  # points of a line, and of all together
_GUESS = Style("ink", (1, 1.5), width=1.1)


def held_out_loss(runs: Sequence[RunFacts], styles: Sequence[Style]) -> Figure | None:
    """Return a figure of the held-out loss by epoch, or None if no run held labels out.

    A line ends where trust began, because held-out labels are learned from then on. The axis is
    twice as long as the longest line, or as long as the training.
    """
    known = [
        (k, run, onset)
        for k, run in enumerate(runs)
        if (onset := run.onset) is not None and onset.losses
    ]
    if not known:
        return None
    lines = [(_with_guess(onset), styles[k], k) for k, _, onset in known]
    ends = {onset.epoch for _, _, onset in known if onset.epoch is not None}
    longest = max(len(onset.losses) for _, _, onset in known)
    last = min(2.0 * longest, max(_length(run, onset) for _, run, onset in known))
    top = max(max(onset.guess_loss, *onset.losses) for _, _, onset in known)
    guesses = sorted({onset.guess_loss for _, _, onset in known})
    most = max(12, min(_MOST, _ALL // len(known)))

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for guess in guesses:
            axes.axhline(
                guess, color=_GUESS.paint, linewidth=_GUESS.width, dashes=_GUESS.dash, zorder=0.6
            )
        for y, style, shift in lines:
            x, means = averaged(np.arange(len(y), dtype=np.float64), y, most)
            line(axes, x, means, style, marks=6, shift=shift)
        if len(ends) == 1:
            (epoch,) = ends
            axes.axvline(epoch, color=COLOURS["ink"], linewidth=0.5, alpha=0.5, zorder=0.5)
            is_late = epoch > last / 2
            axes.annotate(
                "trust begins →" if is_late else "trust begins",
                (epoch, 0.0),
                (-2.0 if is_late else 2.0, 2.0),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                size=SMALL,
                ha="right" if is_late else "left",
                va="bottom",
                alpha=0.8,
            )
        axes.set_xlim(0.0, last)
        axes.set_ylim(0.0, 1.08 * max(top, 0.01))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=ROUND))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.set_xlabel("epoch")

    legend: Legend = (
        *((f"{label(run.name)} · {onset.losses[-1]:.2f}", styles[k]) for k, run, onset in known),
        ("a guess", _GUESS),
    )
    begun = [
        f"{label(run.name)} {'never' if onset.epoch is None else f'after epoch {onset.epoch:,}'}"
        for _, run, onset in known
    ]
    return figure(
        "held_out_loss",
        Drawing(
            "Loss on held-out labels",
            "not learned yet; a line ends where trust begins",
            plot,
            legend,
        ),
        "Loss on held-out labels by epoch, until the method began to trust the network's "
        f"predictions: {list_first(begun)}.",
    )


def _with_guess(onset: Onset) -> Series:
    """Return the losses [epochs + 1], before the first of which is that of a guess."""
    return np.array([onset.guess_loss, *onset.losses], np.float64)


def _length(run: RunFacts, onset: Onset) -> float:
    """Return the length of the training in epochs, as far as it is known."""
    ends = [number(point, "epoch") or 0.0 for point in run.history[-1:]]
    return max(float(len(onset.losses)), *ends)
