"""The targets of one example beside each other: what is added and what is taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proselflc.pages.drawing import PLAIN, ROUND, Drawing, Figure, Style, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR = 0.26  # of the room of one target


def targets(name: str, found: Mapping[str, Sequence[float]]) -> Figure:
    """Bars of every class, one group per target.

    Args:
        name: of the figure.
        found: the probabilities of every class, by what the target is called; they may be negative.
    """
    classes = len(next(iter(found.values())))
    styles = [Style(f"line-{k + 1}", marker="s", width=0) for k in range(classes)]

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for k, style in enumerate(styles):
            middle = [i + (k - (classes - 1) / 2) * _BAR for i in range(len(found))]
            heights = [values[k] for values in found.values()]
            axes.bar(middle, heights, _BAR * 0.9, color=style.paint)
        axes.axhline(0.0, linewidth=0.6, color="black")
        axes.set_xticks(range(len(found)))
        axes.set_xticklabels(list(found), size=PLAIN)
        axes.tick_params(axis="x", length=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.set_ylim(min(-0.35, *(min(v) for v in found.values())) - 0.05, 1.05)

    legend = tuple((f"class {k + 1}", style) for k, style in enumerate(styles))
    told = "; ".join(f"{said} {', '.join(f'{v:.2f}' for v in one)}" for said, one in found.items())
    return figure(
        name,
        Drawing("Targets of one example", "probability of each class", plot, legend, below=22.0),
        f"Targets of one example with {classes} classes: {told}.",
    )
