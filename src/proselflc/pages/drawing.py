"""Figures in the house style, drawn by matplotlib, and their files.

Lengths are in points. A figure is as wide as a phone, so that its letters can be read there, and
several fit side by side on a larger screen.
"""

from __future__ import annotations

import io
import itertools
import logging
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError, printable
from proselflc.files.regular import whole_file
from proselflc.pages import svg
from proselflc.pages.svg import COLOURS
from proselflc.pages.values import shorten_middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH = 260.0
SMALL, PLAIN, LARGE = 7.8, 8.0, 9.8  # font sizes; on a phone the smallest is 9.8 pixels
LABEL = 32  # letters of a run's name
LISTED = 6  # runs whose numbers are in an alternative text
DPI = 200  # of a PNG file
ROUND = (1, 2, 2.5, 5, 10)  # steps of an axis

_TOP = 22.0  # above the plot: the note
_TITLE = 13.0  # and above that the title
_ROW = 12.0  # of the legend
_EDGE = 8.0  # left of it
_SAMPLE = 20.0  # of a line in the legend
_DASHES = ((), (5.0, 2.0), (1.5, 1.5), (6.0, 1.5, 1.5, 1.5), (3.0, 1.0), (9.0, 3.0))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_METHODS = ("proselflc", "cce", "label_smoothing", "confidence_penalty", "boot_soft")  # own styles

Series: TypeAlias = npt.NDArray[np.float64]  # [points], NaN if unknown


@dataclass(frozen=True)
class Style:
    """The style of a line, or of a swatch of the legend."""

    colour: str  # name in `svg.COLOURS`
    dash: tuple[float, ...] = ()  # lengths of dashes and gaps
    marker: str = ""  # matplotlib's name
    width: float = 1.4  # of the line; 0 for a swatch
    opacity: float = 1.0

    @property
    def paint(self) -> str:
        """Return the colour for matplotlib."""
        return COLOURS[self.colour]


Legend: TypeAlias = tuple[tuple[str, Style], ...]  # text and style of each entry


def run_style(k: int) -> Style:
    """Return the style of the k-th run; colour, dash and marker each distinguish six runs."""
    return Style(
        f"line-{k % 6 + 1}",
        _DASHES[(k + k // 6) % len(_DASHES)],
        _MARKERS[(k + 2 * (k // 6)) % len(_MARKERS)],
    )


def method_styles(methods: Sequence[str]) -> list[Style]:
    """Return a style for each of several runs, given the names of their methods.

    A method of the paper looks the same in all figures. Runs of one method are told apart by
    their position instead.
    """
    if len(methods) < 2 or len(set(methods)) < len(methods):
        return [run_style(k) for k in range(len(methods))]
    taken = {_METHODS.index(name) for name in methods if name in _METHODS}
    free = (k for k in itertools.count() if k not in taken)
    return [run_style(_METHODS.index(name) if name in _METHODS else next(free)) for name in methods]


class Composition(Protocol):
    """What can be drawn: one plot (`Drawing`) or a sheet of several."""

    @property
    def title(self) -> str:
        """Return the title in a few words."""

    def compose(self, *, titled: bool) -> Canvas:
        """Return the drawing; without a title it is aligned with the text of a page above it."""


@dataclass(frozen=True)
class Drawing:
    """A plot with its title above and its legend below, and the margins of the plot."""

    title: str  # in a few words
    note: str  # how to read it, in about sixty letters
    plot: Callable[[Axes], None] = field(repr=False)
    legend: Legend = ()
    left: float = 36.0
    right: float = 10.0
    below: float = 28.0
    height: float = 122.0

    def compose(self, *, titled: bool) -> Canvas:
        """Return the drawing; without a title it is aligned with the text of a page above it."""
        return _composed(self, titled=titled)


@dataclass(frozen=True)
class Figure:
    """A figure of a page; its title is part of the files but not of the element."""

    name: str  # stem of its files and beginning of its ids
    title: str
    alt: str  # alternative text with the most important numbers
    svg: str = field(repr=False)  # element for a page; see `svg.inline`
    drawing: Composition = field(repr=False, compare=False)


def figure(name: str, drawing: Composition, alt: str) -> Figure:
    """Return a figure of a drawing, with a name of letters, digits, _ and -."""
    drawn = _rendered(drawing, "svg", titled=False)
    title = drawing.title
    return Figure(name, title, alt, svg.inline(drawn, name=name, title=title, alt=alt), drawing)


def write(figures: Sequence[Figure], folder: Path, *, pdf: bool = False) -> list[Path]:
    """Write NAME.svg, NAME.png and perhaps NAME.pdf of every figure, each whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}") from None
    paths = []
    for figure in figures:
        drawn = _rendered(figure.drawing, "svg", titled=True)
        files = {
            ".svg": svg.standalone(
                svg.inline(drawn, name=figure.name, title=figure.title, alt=figure.alt)
            ),
            ".png": _rendered(figure.drawing, "png", titled=True),
        }
        if pdf:
            files[".pdf"] = _rendered(figure.drawing, "pdf", titled=True)
        for suffix, content in files.items():
            path = folder / f"{figure.name}{suffix}"
            with whole_file(path) as file:
                file.write(content)
            paths.append(path)
    return paths


def line(axes: Axes, x: Series, y: Series, style: Style, *, marks: int, shift: int = 0) -> None:
    """Draw a line with gaps where y is NaN, and about `marks` markers on it.

    The markers are shifted to keep those of overlapping lines visible.
    """
    (drawn,) = axes.plot(
        x,
        y,
        color=style.paint,
        linewidth=style.width,
        alpha=style.opacity if style.opacity < 1 else None,
        marker=style.marker or None,
        markersize=3.2,
        markeredgewidth=0,
        markevery=_marked(y, marks, shift),
        solid_capstyle="round",
        clip_on=False,
    )
    if style.dash:
        drawn.set_dashes(style.dash)


def _marked(y: Series, marks: int, shift: int) -> list[int]:
    """Return the points with a marker: a few, the last one, and those without neighbours."""
    known = np.isfinite(y)
    beside = np.zeros(len(y), bool)
    beside[1:] |= known[:-1]
    beside[:-1] |= known[1:]
    alone = np.flatnonzero(known & ~beside)
    where = np.flatnonzero(known)
    step = max(1, -(-len(where) // marks))
    few = where[(shift % step) :: step]
    return sorted({*few.tolist(), *alone[:: 1 + len(alone) // 40].tolist(), *where[-1:].tolist()})


_METADATA: dict[str, dict[str, None]] = {  # without what differs between two equal drawings
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def _rendered(drawing: Composition, kind: Literal["svg", "png", "pdf"], *, titled: bool) -> bytes:
    with _house_style():
        canvas = drawing.compose(titled=titled)
        canvas.set_frameon(kind == "png")  # a page has its own background
        file = io.BytesIO()
        metadata = _METADATA[kind]
        canvas.savefig(file, format=kind, dpi=DPI, metadata=metadata, facecolor=COLOURS["paper"])
    return file.getvalue()


@contextmanager
def _house_style() -> Iterator[None]:
    """Replace the user's matplotlib settings by ours in this context.

    A dollar sign does not begin a formula. A letter that is missing from matplotlib's font is
    still text in the SVG and an empty box in the PNG; no warning is given for it, nor for a new
    font cache.
    """
    import matplotlib

    log = logging.getLogger("matplotlib")
    level = log.level
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font", category=UserWarning
        )
        log.setLevel(logging.ERROR)
        matplotlib.rcdefaults()
        ink = COLOURS["ink"]
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "proselflc",
                "pdf.fonttype": 42,
                "text.parse_math": False,
                "text.color": ink,
                "font.family": "DejaVu Sans",
                "font.size": SMALL,
                "axes.edgecolor": ink,
                "axes.labelcolor": ink,
                "axes.labelsize": SMALL,
                "axes.labelpad": 2.0,
                "axes.linewidth": 0.7,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.spines.left": False,
                "axes.axisbelow": True,
                "grid.color": COLOURS["muted"],
                "grid.linewidth": 0.6,
                "hatch.linewidth": 0.7,
                "xtick.color": ink,
                "ytick.color": ink,
                "xtick.labelsize": SMALL,
                "ytick.labelsize": SMALL,
                "xtick.major.size": 2.5,
                "xtick.major.width": 0.7,
                "ytick.major.size": 0.0,
                "ytick.major.pad": 4.0,
            }
        )
        try:
            yield
        finally:
            log.setLevel(level)


def _composed(drawing: Drawing, *, titled: bool) -> Canvas:
    """Return the drawing; without a title it is aligned with the text of a page above it."""
    from matplotlib.figure import Figure as Canvas

    top, edge = (_TOP + _TITLE, _EDGE) if titled else (_TOP, 0.0)
    longest = max((text_width(text, PLAIN) for text, _ in drawing.legend), default=0.0)
    columns = max(1, min(4, int((WIDTH - edge) / (longest + _SAMPLE + 12))))
    rows = -(-len(drawing.legend) // columns)
    height = top + drawing.height + drawing.below + rows * _ROW + (4 if rows else 0)
    canvas = Canvas(figsize=(WIDTH / 72, height / 72))
    if titled:
        canvas.text(edge / WIDTH, 1 - 13 / height, drawing.title, size=LARGE, weight="bold")
    canvas.text(edge / WIDTH, 1 - (top - 11) / height, drawing.note, size=SMALL, alpha=0.8)
    axes = canvas.add_axes(
        (
            drawing.left / WIDTH,
            1 - (top + drawing.height) / height,
            (WIDTH - drawing.left - drawing.right) / WIDTH,
            drawing.height / height,
        )
    )
    axes.set_facecolor("none")
    axes.patch.set_visible(False)
    axes.grid(axis="y")
    drawing.plot(axes)
    for k, (text, style) in enumerate(drawing.legend):
        x = edge + (k // rows) * (WIDTH - edge) / columns
        y = height - top - drawing.height - drawing.below - (k % rows + 0.5) * _ROW
        _explain(canvas, x / WIDTH, y / height, text, style)
    return canvas


def _explain(canvas: Canvas, x: float, y: float, text: str, style: Style) -> None:
    """Draw an entry of the legend at x, y, in shares of the canvas."""
    from matplotlib.lines import Line2D

    sample = Line2D(
        [x, x + _SAMPLE / 2 / WIDTH, x + _SAMPLE / WIDTH],
        [y, y, y],
        color=style.paint,
        linewidth=style.width,
        marker=style.marker or None,
        markersize=4.0 if style.width else 6.5,
        markeredgewidth=0,
        markevery=[1],
        alpha=style.opacity if style.opacity < 1 else None,
        linestyle="-" if style.width else "none",
    )
    if style.dash:
        sample.set_dashes(style.dash)
    canvas.add_artist(sample)
    x += (_SAMPLE + 5) / WIDTH
    canvas.text(x, y, text, size=PLAIN, va="center_baseline")


def list_first(items: Sequence[str]) -> str:
    """Return the first items of a list for alternative text, and the number of the others."""
    more = len(items) - LISTED
    return ", ".join([*items[:LISTED], *([f"{more} more"] if more > 0 else [])])


def label(text: str, limit: int = LABEL) -> str:
    """Return untrusted text on one line, cut in its middle, with escapes for what XML forbids."""
    return shorten_middle(printable(shorten_middle(text, limit)), limit)


def text_width(text: str, size: float) -> float:
    """Return the approximate width of a text in points, in a wide font, without drawing it."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.58 * len(text) + 0.42 * wide)
