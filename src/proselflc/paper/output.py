"""The output of a reproduction: tables as Markdown and CSV, figures, and notes."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from proselflc.files.regular import whole_file

if TYPE_CHECKING:
    from proselflc.pages.drawing import Figure

MISSING = "–"  # a cell whose runs are not done yet


@dataclass(frozen=True)
class ResultTable:
    """A table of texts; every row has as many cells as there are columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)])

    def csv(self) -> str:
        """Return the table as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows((self.columns, *self.rows))
        return text.getvalue()


@dataclass(frozen=True)
class Output:
    """A table or figure of the paper, made from the runs that are done.

    The tables are by a suffix for their file names, which is empty for the main table.
    """

    title: str
    tables: Mapping[str, ResultTable] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()

    def markdown(self, *, pictures: bool = False) -> str:
        """Return everything as Markdown; with `pictures`, including links to the figures' files."""
        parts = [f"# {self.title}", *self.words]
        if pictures:
            links = [f"![{figure.alt}]({figure.name}.svg)" for figure in self.figures]
            parts += ["\n".join(links)] if links else []
        parts += [table.markdown() for table in self.tables.values()]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write Markdown, CSV, SVG, PNG and PDF; return the files, Markdown first."""
        from proselflc.pages import drawing

        pictures = drawing.write(self.figures, folder, pdf=True)
        files = [(folder / f"{name}.md", self.markdown(pictures=True))]
        for key, table in self.tables.items():
            files.append((folder / f"{name}{'-' + key if key else ''}.csv", table.csv()))
        for path, content in files:
            with whole_file(path) as file:
                file.write(content.encode())
        return [path for path, _ in files] + pictures


def mean_std(values: Sequence[float | None], *, digits: int = 1) -> str:
    """Return mean ± standard deviation as text.

    A single value stands alone, "–" means that a value is missing, and NaN is "diverged".
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return MISSING
    if any(math.isnan(value) for value in known):
        return "diverged"
    mean = statistics.mean(known)
    if len(known) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {statistics.stdev(known):.{digits}f}"


def interval(differences: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the mean of paired differences and the half-width of its 95 % interval (Student's t).

    Return None if a value is missing or NaN, or if there are fewer than two.
    """
    from scipy.stats import t

    known = [value for value in differences if value is not None]
    if len(known) < len(differences) or len(known) < 2 or any(map(math.isnan, known)):
        return None
    half = float(t.ppf(0.975, len(known) - 1)) * statistics.stdev(known) / math.sqrt(len(known))
    return statistics.mean(known), half


def difference(
    values: Sequence[float | None], others: Sequence[float | None], *, digits: int = 1
) -> str:
    """Return the paired differences as text: mean ± half-width of the 95 % interval."""
    if any(value is None for value in (*values, *others)):
        return MISSING
    points = [a - b for a, b in zip(values, others, strict=True) if a is not None and b is not None]
    found = interval(points)
    if found is None:
        return "diverged" if any(map(math.isnan, points)) else mean_std(points, digits=digits)
    return f"{found[0]:+.{digits}f} ± {found[1]:.{digits}f}"


Compared: TypeAlias = Sequence[tuple[Sequence[float | None], Sequence[float | None]]]


@dataclass(frozen=True)
class _Counts:
    """In how many comparisons the 95 % interval of the difference is where, or is not known yet."""

    above: int
    below: int
    open: int
    missing: int

    @classmethod
    def of(cls, compared: Compared) -> _Counts:
        """Return the counts; a comparison with a run that diverged, or of one seed, is open."""
        above, below, unclear, missing = 0, 0, 0, 0
        for ours, other in compared:
            if any(value is None for value in (*ours, *other)):
                missing += 1
                continue
            pairs = zip(ours, other, strict=True)
            found = interval([None if a is None or b is None else a - b for a, b in pairs])
            if found is not None and found[0] - found[1] > 0:
                above += 1
            elif found is not None and found[0] + found[1] < 0:
                below += 1
            else:
                unclear += 1
        return cls(above, below, unclear, missing)

    @property
    def rest(self) -> str:
        """Return the end of a sentence about comparisons that are not run yet."""
        return f"; {self.missing} are not run yet" if self.missing else ""


def agreement(theirs: str, compared: Compared) -> tuple[str, ...]:
    """Return the paper's claim, and in how many comparisons our 95 % intervals agree with it."""
    found = _Counts.of(compared)
    if found.missing == len(compared):
        return ()
    return (
        f"{theirs} Here, the 95 % interval of the difference is above 0 in {found.above}, below 0 "
        f"in {found.below}, and contains 0 in {found.open}{found.rest}.",
    )


def order(theirs: str, compared: Compared) -> tuple[str, ...]:
    """Return the paper's order, and how many of our pairs (higher, lower) are in that order."""
    found = _Counts.of(compared)
    if found.missing == len(compared):
        return ()
    known = [pair for pair in compared if None not in pair[0] and None not in pair[1]]
    means = [[statistics.fmean(v for v in side if v is not None) for side in p] for p in known]
    same = sum(high > low for high, low in means)
    return (
        f"{theirs} Here, the means have this order in {same} of {len(known)} pairs; the 95 % "
        f"interval of the difference confirms it in {found.above}, contradicts it in "
        f"{found.below} and contains 0 in {found.open}{found.rest}.",
    )
