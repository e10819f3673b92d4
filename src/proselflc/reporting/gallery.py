"""The most suspicious examples of a run: their selection, previews, learning curves and cards.

Only the examples on the page become objects; the others stay in columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import in_order
from proselflc.data.inputs import Features, Floats, Inputs, Ints, Preview
from proselflc.errors import InputError
from proselflc.pages import thumbnails
from proselflc.pages.html_page import Cell
from proselflc.pages.svg import learning_curve
from proselflc.pages.thumbnails import Thumbnail
from proselflc.pages.values import TEXT, TITLE, format_chance, shorten, shorten_middle
from proselflc.training.observations import Rows

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 300  # examples of all classes together
DEVIATIONS = 3  # columns of a table that are listed for an example

_COLUMNS = ("id", "given_label", "suggested_label", "quality", "p_suggested", "clean_label")


@dataclass(frozen=True)
class Curve:
    """The predictions for an example over the epochs; NaN for an epoch that did not see it.

    Attributes:
        given: [epochs] p of the given label.
        other: [epochs] the largest p of another class.
    """

    given: Floats
    other: Floats


@dataclass(frozen=True)
class Deviation:
    """A column in which an example differs from the others of its given class.

    Attributes:
        column: name of the column.
        value: value of the example.
        mean, spread: mean and standard deviation of the class.
    """

    column: str
    value: float
    mean: float
    spread: float


@dataclass(frozen=True)
class ExampleView:
    """An example as the page shows it."""

    picture: Thumbnail | None = None
    text: str | None = None
    deviations: tuple[Deviation, ...] = ()


@dataclass(frozen=True)
class Suspect:
    """An example whose label is probably wrong.

    Attributes:
        index: position of the example.
        id: name of the example.
        given, suggested: class names.
        quality: chance that the given label is right, low is bad; None if unknown.
        confidence: chance that the suggested label is right; None if unknown.
        clean: true class name; None if unknown.
        view: the example itself.
        curve: learning curve; None if it was not recorded.
        agreeing: number of runs with this suggestion; None if there is one run.
    """

    index: int
    id: str
    given: str
    suggested: str
    quality: float | None
    confidence: float | None
    clean: str | None
    view: ExampleView
    curve: Curve | None
    agreeing: int | None


def worst(table: pa.Table, most: int = SHOWN) -> Ints:
    """Return [≤ most] positions of the suspects to show, lowest quality first.

    The worst suspect of every given class is selected before the second of any, and so on, so that
    large classes do not crowd out rare ones.
    """
    positions = np.flatnonzero(table["is_suspect"].to_numpy()).astype(np.int64)
    if not len(positions):
        return positions
    quality = table["quality"].to_numpy()[positions].astype(np.float64)
    quality[np.isnan(quality)] = 1
    given = codes(table)[0][positions]
    order = np.lexsort((positions, quality, given))
    begins = np.searchsorted(given[order], given[order], side="left")
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - begins
    kept = np.lexsort((positions, quality, turn))[:most]
    kept = kept[np.lexsort((positions[kept], quality[kept]))]
    shown: Ints = positions[kept]
    return shown


def codes(table: pa.Table) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return [n] the given classes as numbers, and their names."""
    # Encoded by chunks: a single chunk of text is limited to 2 GB.
    column = table["given_label"].dictionary_encode().unify_dictionaries().combine_chunks()
    return column.indices.to_numpy(), column.dictionary.to_pylist()


def suspects(
    table: pa.Table,
    rows: Ints,
    views: Sequence[ExampleView],
    curves: Sequence[Curve] | None,
    agreeing: Ints | None,
) -> list[Suspect]:
    """Return the examples at the positions [k], with k views, curves and counts."""
    chosen = table.select([name for name in _COLUMNS if name in table.column_names]).take(rows)
    found = []
    for k, row in enumerate(chosen.to_pylist()):
        found.append(
            Suspect(
                index=int(rows[k]),
                id=row["id"],
                given=row["given_label"],
                suggested=row["suggested_label"],
                quality=row["quality"],
                confidence=row["p_suggested"],
                clean=row.get("clean_label"),
                view=views[k],
                curve=None if curves is None else curves[k],
                agreeing=None if agreeing is None else int(agreeing[k]),
            )
        )
    return found


def agreement(table: pa.Table, rows: Ints, others: Iterable[pa.Table]) -> Ints:
    """Return [k] the number of runs, including this one, that make the same suggestion.

    Args:
        table: examples of the run on the page.
        rows: [k] positions.
        others: examples of runs that were trained on the same labels.
    """
    import pyarrow.compute as pc

    own = table["suggested_label"].take(rows)
    count = np.ones(len(rows), np.int64)
    for other in others:
        if len(other) != len(table):
            raise InputError(
                f"the runs have {len(table)} and {len(other)} examples, so they cannot be compared"
            )
        same = pc.equal(own, other["suggested_label"].take(rows))
        count += same.to_numpy().astype(np.int64)
    return count


def curves(observed: Iterable[Rows], rows: Ints, n: int) -> list[Curve] | None:
    """Return the learning curves of the examples at these positions; None without records.

    Args:
        observed: [n] records of each epoch, memory-mapped.
        rows: [k] positions.
        n: number of examples.
    """
    epochs: list[Rows] = []
    for epoch in observed:
        if epoch.shape != (n,):
            raise InputError(
                f"the record of epoch {len(epochs)} has the shape {list(epoch.shape)}, but there "
                f"are {n} labels: it belongs to another run"
            )
        epochs.append(np.asarray(epoch[rows]))  # a copy, so that no file stays open
    if not epochs:
        return None
    given, other = (
        np.stack([epoch[name] for epoch in epochs], 1).astype(np.float32)
        for name in ("p_given", "p_other")
    )
    return [Curve(*lines) for lines in zip(given, other, strict=True)]


def views(inputs: Inputs, rows: Ints, table: pa.Table) -> list[ExampleView]:
    """Return views of the examples at the positions [k]."""
    if len(inputs) != len(table):
        raise InputError(
            f"there are {len(inputs)} inputs, but the run has {len(table)} examples",
            field="inputs",
            fix="pass the inputs that it was trained on, in their order",
        )
    if isinstance(inputs, Features):
        every = _deviations(inputs, rows, codes(table)[0])
        return [ExampleView(deviations=deviations) for deviations in every]
    return [_view(inputs.preview(int(row), thumbnails.SIDE)) for row in rows]


def _view(preview: Preview) -> ExampleView:
    picture = None if preview.picture is None else thumbnails.of_picture(preview.picture)
    return ExampleView(picture, None if preview.text is None else shorten(preview.text, TEXT))


def _deviations(
    features: Features, rows: Ints, given: npt.NDArray[np.int32]
) -> list[tuple[Deviation, ...]]:
    """Return the columns with the largest |x − mean| / spread in the given class, [k] tuples.

    Columns without names, such as those of embeddings, are not listed.
    """
    found: list[tuple[Deviation, ...]] = [()] * len(rows)
    if features.columns is None:
        return found
    for label in np.unique(given[rows]):
        members = features.values[given == label].astype(np.float64)
        mean, spread = members.mean(0), members.std(0)
        for k in np.flatnonzero(given[rows] == label):
            x = features.values[rows[k]].astype(np.float64)
            distance = np.abs(x - mean) / np.where(spread > 0, spread, np.inf)
            far = np.argsort(-distance, kind="stable")[:DEVIATIONS]
            found[k] = tuple(
                Deviation(features.columns[j], float(x[j]), float(mean[j]), float(spread[j]))
                for j in far
                if distance[j] > 0
            )
    return found


@dataclass(frozen=True)
class Choice:
    """A class to filter cards by."""

    place: int
    name: str


@dataclass(frozen=True)
class Fact:
    """A deviation as text."""

    column: str
    value: str
    usual: str


@dataclass(frozen=True)
class Card:
    """A suspect as text; places are those of its classes among the choices."""

    index: int
    id: Cell
    given: Cell
    suggested: Cell
    truth: Cell | None
    given_place: int
    suggested_place: int
    quality: str
    quality_order: float
    sure: str
    sure_order: float
    agreeing: str
    picture: Thumbnail | None
    text: str | None
    deviations: tuple[Fact, ...]
    curve: str | None


def choices(names: Iterable[str]) -> list[Choice]:
    """Return the distinct classes in order."""
    return [Choice(place, shorten(name)) for name, place in _places(names).items()]


def cards(suspects: Sequence[Suspect], runs: int) -> list[Card]:
    """Return the cards of suspects; `runs` is the number of runs that could agree on them."""
    given = _places(suspect.given for suspect in suspects)
    suggested = _places(suspect.suggested for suspect in suspects)
    found = []
    for suspect in suspects:
        view, curve = suspect.view, suspect.curve
        is_counted = runs > 1 and suspect.agreeing is not None
        found.append(
            Card(
                index=suspect.index,
                id=Cell(shorten_middle(suspect.id, 40), shorten_middle(suspect.id, TITLE)),
                given=_titled(suspect.given),
                suggested=_titled(suspect.suggested),
                truth=None if suspect.clean is None else _titled(suspect.clean),
                given_place=given[suspect.given],
                suggested_place=suggested[suspect.suggested],
                quality=format_chance(suspect.quality),
                quality_order=1.0 if suspect.quality is None else round(suspect.quality, 6),
                sure=format_chance(suspect.confidence),
                sure_order=0.0 if suspect.confidence is None else round(suspect.confidence, 6),
                agreeing=f"{suspect.agreeing} of {runs} runs agree" if is_counted else "",
                picture=view.picture,
                text=view.text,
                deviations=tuple(
                    Fact(
                        shorten(one.column),
                        _format_number(one.value, 4),
                        f"{_format_number(one.mean)} ± {_format_number(one.spread)}",
                    )
                    for one in view.deviations
                ),
                curve=None if curve is None else learning_curve(curve.given, curve.other),
            )
        )
    return found


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(in_order(names))}


def _titled(name: str) -> Cell:
    return Cell(shorten(name), shorten(name, TITLE))


def _format_number(value: float, digits: int = 3) -> str:
    """Return a number with the given significant digits.

    >>> _format_number(1012.3), _format_number(0.30512), _format_number(2.5e-9)
    ('1,010', '0.305', '2.5e-09')
    """
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.12g}" if 1e-3 <= abs(rounded) < 1e7 or not rounded else f"{rounded:g}"
