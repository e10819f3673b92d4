"""What a reproduction gives: tables for people and for programs, pictures, and words."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc.files.whole import whole_file

if TYPE_CHECKING:
    from proselflc.pages.drawing import Figure

MISSING = "–"  # a cell whose runs are not there yet


@dataclass(frozen=True)
class Table:
    """Rows of texts.

    Attributes:
        columns: the heads.
        rows: of as many cells each.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)])

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows((self.columns, *self.rows))
        return text.getvalue()


@dataclass(frozen=True)
class Output:
    """A table or figure of the paper, as far as there are runs.

    Attributes:
        title: what it is.
        tables: its numbers, by a name for their file; "" for the only one.
        words: what to know about them.
        figures: its panels.
    """

    title: str
    tables: Mapping[str, Table] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()

    def markdown(self, *, pictures: bool = False) -> str:
        """All of it; with `pictures`, links to the files of the figures, beside it."""
        parts = [f"# {self.title}", *self.words]
        if pictures:
            links = [f"![{one.alt}]({one.name}.svg)" for one in self.figures]
            parts += ["\n".join(links)] if links else []
        parts += [table.markdown() for table in self.tables.values()]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write Markdown, CSV and pictures, each whole; the files, Markdown first.

        Raises:
            InputError: the folder cannot be written to.
        """
        from proselflc.pages import drawing

        pictures = drawing.write(self.figures, folder)
        files = [(folder / f"{name}.md", self.markdown(pictures=True))]
        for key, table in self.tables.items():
            files.append((folder / f"{name}{'-' + key if key else ''}.csv", table.csv()))
        for path, content in files:
            with whole_file(path) as file:
                file.write(content.encode())
        return [path for path, _ in files] + pictures


def mean_std(values: Sequence[float | None], *, digits: int = 1) -> str:
    """Mean ± standard deviation; one value alone; "–" while any is missing, NaN is diverged."""
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
    """Mean of paired differences and half of its 95 % interval, by Student's t.

    None where a value is missing or no number, or fewer than two are there.
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
    """The paired differences, as mean ± half of the interval."""
    if any(value is None for value in (*values, *others)):
        return MISSING
    points = [a - b for a, b in zip(values, others, strict=True) if a is not None and b is not None]
    found = interval(points)
    if found is None:
        return "diverged" if any(map(math.isnan, points)) else mean_std(points, digits=digits)
    return f"{found[0]:+.{digits}f} ± {found[1]:.{digits}f}"
