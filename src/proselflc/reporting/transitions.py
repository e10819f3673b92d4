"""Figures of transition matrices, and of the largest flows between many classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from proselflc.auditing.audit import Audit
from proselflc.data import class_matrix
from proselflc.data.class_matrix import ClassMatrix
from proselflc.data.noise_generators import Matrix
from proselflc.pages.drawing import (
    ROUND,
    SMALL,
    WIDTH,
    Drawing,
    Figure,
    Style,
    figure,
    label,
    text_width,
)
from proselflc.pages.svg import COLOURS
from proselflc.pages.values import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 15  # largest number of classes with names and numbers in the matrix
CELLS = 150  # largest number of rows; more classes are grouped
FLOWS = 8  # listed if names do not fit into the matrix

_SHADES = 16
_SMALLEST = 7.2  # font size of a class's name; 9 pixels on a phone
_STRONGEST = 0.5  # opacity of a cell with a number, legible in either theme


def transitions(audit: Audit, used: ClassMatrix | None = None) -> list[Figure]:
    """Return the estimated transition matrix, the realised one and the one used [C, C], if known.

    Rows are true classes, columns given ones, and rows sum to 1. Beyond `NAMED` classes a
    matrix is an image, and a figure of the largest flows follows.
    """
    found = [_matrix(audit, audit.joint, "estimated")]
    if audit.realised is not None:
        found.append(_matrix(audit, audit.realised, "realised"))
    if used is not None and used.shape[0] == len(audit.names):
        true = audit.joint.sum(1) if audit.realised is None else audit.realised.sum(1)
        found.append(_matrix(audit, used * true[:, None], "used by the method"))
    if len(audit.names) > NAMED and _flows(audit.joint):
        found.append(_largest(audit))
    return found


def _matrix(audit: Audit, counts: ClassMatrix, kind: str) -> Figure:
    C = len(audit.names)
    wrong = 1 - counts.trace() / max(counts.sum(), 1e-300)
    flows = _flows(counts)
    alt = f"Chance of every given label by true class, {kind}, {C} classes: "
    alt += f"{percent(wrong)} of the labels are wrong" if flows else "no label is wrong"
    if flows:
        i, j = flows[0]
        share = percent(counts[i, j] / counts[[i]].sum())
        alt += f"; the largest flow is {share} of {_name(audit, i)} labelled {_name(audit, j)}"
    title = f"Given labels by true class, {kind}"
    together = -(-C // CELLS)
    if C <= NAMED:
        note = "% of every true class (row) by given label (column)"
        drawing = _named(title, note, audit, _rates(counts))
    elif together == 1:
        drawing = _picture(
            title, f"true classes (rows) by given labels; {C} classes", _rates(counts), C
        )
    else:
        blocks = _blocks(counts, together)
        note = f"true (rows) by given labels; {together} of {C} classes per cell"
        drawing = _picture(title, note, _rates(blocks), C)
        alt += f". Each cell sums {together} neighbouring classes"
    return figure(f"transition_{kind.split()[0]}", drawing, f"{alt}.")


def _named(title: str, note: str, audit: Audit, rates: Matrix) -> Drawing:
    """Return a matrix with names and numbers."""
    C = len(rates)
    names = _short(audit.names, 14 if C <= 12 else 11)
    longest = max(text_width(name, _SMALLEST) for name in names)
    left = longest + 10
    cell = (WIDTH - left - 8) / C
    upright = longest > cell - 2

    def plot(axes: Axes) -> None:
        _shade(axes, _STRONGEST * _opacity(rates), C)
        for i, j in np.argwhere(rates >= 0.005):
            axes.text(
                j,
                i,
                f"{100 * rates[i, j]:.0f}",
                size=max(_SMALLEST, min(SMALL, 0.75 * cell)),  # two digits fit into the cell
                ha="center",
                va="center_baseline",
            )
        places = np.arange(C)
        axes.set_xticks(places, names, size=_SMALLEST)
        if upright:  # anchored at their end, whatever the width of the page's font
            for name in axes.get_xticklabels():
                name.set(rotation=90, rotation_mode="anchor", ha="right", va="center")
        axes.set_yticks(places, names, size=_SMALLEST)

    return Drawing(
        title,
        note,
        plot,
        left=left,
        right=8,
        height=min(cell, 44) * C,
        below=(longest if upright else _SMALLEST) + 8,
    )


def _short(names: Sequence[str], limit: int) -> list[str]:
    """Return names cut where most of them still differ: in the middle, at the end or beginning.

    >>> _short(["breed 1 hound", "breed 2 hound"], 11)
    ['breed 1 ho…', 'breed 2 ho…']
    """
    plain = [label(name, 10 * limit) for name in names]
    ways: tuple[Callable[[str], str], ...] = (
        lambda name: label(name, limit),
        lambda name: name if len(name) <= limit else name[: limit - 1] + "…",
        lambda name: name if len(name) <= limit else "…" + name[1 - limit :],
    )
    return max(([cut(name) for name in plain] for cut in ways), key=lambda cut: len(set(cut)))


def _picture(title: str, note: str, rates: Matrix, C: int) -> Drawing:
    """Return a matrix of many cells with a legend of its shades."""
    side = WIDTH - 36 - 10

    def plot(axes: Axes) -> None:
        _shade(axes, _opacity(rates), C)

    shades = tuple(
        (percent(share, 0), Style("line-1", marker="s", width=0, opacity=float(np.sqrt(share))))
        for share in (0.01, 0.1, 0.4, 1.0)
    )
    return Drawing(title, note, plot, legend=shades, height=side, below=18)


def _shade(axes: Axes, opacity: Matrix, C: int) -> None:
    """Draw cells in the first line colour, which a page replaces; see `svg.inline`."""
    cells = np.empty((*opacity.shape, 4))
    cells[:] = [int(COLOURS["line-1"][k : k + 2], 16) / 255 for k in (1, 3, 5)] + [0]
    cells[..., 3] = opacity
    edges = (-0.5, C - 0.5, C - 0.5, -0.5)
    axes.imshow(cells, interpolation="none", aspect="auto", extent=edges)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _opacity(rates: Matrix) -> Matrix:
    """Return √rate, which makes small rates visible, in few steps, which make a small file."""
    steps: Matrix = np.ceil(np.sqrt(rates) * (_SHADES - 1) - 0.2) / (_SHADES - 1)
    return steps.clip(0, 1)


def _rates(counts: Matrix) -> Matrix:
    """Return rows divided by their sums; a row without examples stays 0."""
    total = counts.sum(1, keepdims=True)
    rates: Matrix = counts / np.where(total == 0, 1, total)
    return rates


def _blocks(counts: ClassMatrix, together: int) -> Matrix:
    """Return the sums over blocks of neighbouring classes."""
    many = -(-counts.shape[0] // together)
    rows, columns, values = class_matrix.cells(counts)
    block = rows // together * many + columns // together
    sums = np.bincount(block, values, minlength=many * many)
    return sums.reshape(many, many).astype(np.float64)


def _flows(counts: ClassMatrix) -> list[tuple[int, int]]:
    """Return true and given class of the largest numbers of wrong labels, largest first."""
    rows, columns, values = class_matrix.cells(counts)
    wrong = np.flatnonzero((rows != columns) & (values >= 0.5))
    first = wrong[np.argsort(-values[wrong], kind="stable")[:FLOWS]]
    return [(int(rows[k]), int(columns[k])) for k in first]


def _largest(audit: Audit) -> Figure:
    """Return bars of the largest estimated flows, with the realised numbers if known."""
    flows = _flows(audit.joint)
    estimated = np.array([audit.joint[i, j] for i, j in flows])
    realised = None if audit.realised is None else [audit.realised[i, j] for i, j in flows]
    texts = [f"{_name(audit, i)} → {_name(audit, j)}" for i, j in flows]

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        places = np.arange(len(flows))
        axes.barh(places, estimated, height=0.3, color=COLOURS["line-1"])
        for k, text in enumerate(texts):
            axes.text(0, k - 0.27, text, size=SMALL, va="bottom")
        if realised is not None:
            axes.plot(
                realised,
                places,
                "D",
                color=COLOURS["line-2"],
                markersize=5.5,
                markeredgecolor=COLOURS["paper"],
                markeredgewidth=0.8,
            )
        axes.set_ylim(len(flows) - 0.5, -0.7)
        axes.set_xlim(0, max([*estimated, *(realised or [])]) * 1.05)
        axes.set_yticks([])
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=ROUND))
        axes.set_xlabel("labels")

    legend = [("estimated", Style("line-1", marker="s", width=0))]
    if realised is not None:
        legend.append(("realised", Style("line-2", marker="D", width=0)))
    largest = "; ".join(
        f"{text} {number:.0f}" for text, number in zip(texts[:3], estimated[:3], strict=True)
    )
    return figure(
        "confusions",
        Drawing(
            "Largest flows of labels",
            "true class → given label, estimated number of labels",
            plot,
            tuple(legend),
            left=10,
            height=24.0 * len(flows),
        ),
        f"The largest estimated flows from a true class to a given label: {largest}.",
    )


def _name(audit: Audit, k: int) -> str:
    return label(audit.names[k], 20)
