"""The most suspicious examples of a run: which are shown, what they are and how they were learned.

Of n examples only those that are shown become objects; the rest stays in columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from proselflc.data.inputs import Features, Floats, Inputs, Ints, Preview
from proselflc.errors import InputError
from proselflc.pages import thumbnails
from proselflc.pages.names import TEXT, on_page
from proselflc.pages.thumbnails import Thumbnail
from proselflc.training.observations import Rows

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 300  # examples, over all classes
DEVIATIONS = 3  # columns of a table that are told of an example

_COLUMNS = ("id", "given_label", "suggested_label", "quality", "p_suggested", "clean_label")


@dataclass(frozen=True)
class Curve:
    """How an example was learned, from the first epoch to the last, NaN where it was not seen.

    Attributes:
        given: [epochs] p of the given label.
        other: [epochs] the largest p of another class.
    """

    given: Floats
    other: Floats


@dataclass(frozen=True)
class Deviation:
    """A column in which an example is unlike the others of its given class.

    Attributes:
        column: its name.
        value: of the example.
        mean, spread: of the class, its standard deviation.
    """

    column: str
    value: float
    mean: float
    spread: float


@dataclass(frozen=True)
class Looks:
    """What an example is, as far as it can be shown."""

    picture: Thumbnail | None = None
    text: str | None = None
    deviations: tuple[Deviation, ...] = ()


@dataclass(frozen=True)
class Suspect:
    """An example whose label is probably wrong.

    Attributes:
        index: its position.
        id: its name.
        given, suggested: class names.
        quality: the chance that the given label is right, low is bad; None where unknown.
        confidence: how sure the suggestion is; None where unknown.
        clean: the true class name; None where unknown.
        looks: what it is.
        curve: how it was learned; None where that was not recorded.
        agreeing: how many runs make this suggestion; None where there is one run.
    """

    index: int
    id: str
    given: str
    suggested: str
    quality: float | None
    confidence: float | None
    clean: str | None
    looks: Looks
    curve: Curve | None
    agreeing: int | None


def worst(table: pa.Table, most: int = SHOWN) -> Ints:
    """[≤ most] positions of the suspects to show, the lowest quality first.

    Every given class has its worst one before any has its second, and so on: a rare class is not
    crowded out by a large one.

    Args:
        table: as `examples.table` makes it.
        most: how many.
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
    """[n] the given classes as numbers, and the names that these stand for."""
    # Encoded by chunks: in one piece, texts may not have more than 2 GB.
    column = table["given_label"].dictionary_encode().unify_dictionaries().combine_chunks()
    return column.indices.to_numpy(), column.dictionary.to_pylist()


def suspects(
    table: pa.Table,
    rows: Ints,
    looks: Sequence[Looks],
    curves: Sequence[Curve] | None,
    agreeing: Ints | None,
) -> list[Suspect]:
    """The examples at these positions.

    Args:
        table: as `examples.table` makes it.
        rows: [k] positions.
        looks: k, as `looks` finds them.
        curves: k, as `curves` reads them, or None.
        agreeing: [k], as `agreement` counts them, or None.
    """
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
                looks=looks[k],
                curve=None if curves is None else curves[k],
                agreeing=None if agreeing is None else int(agreeing[k]),
            )
        )
    return found


def agreement(table: pa.Table, rows: Ints, others: Iterable[pa.Table]) -> Ints:
    """[k] how many of the runs, this one included, make the same suggestion.

    Args:
        table: of the run that is shown.
        rows: [k] positions.
        others: of runs that learned the same labels; gone through once.

    Raises:
        InputError: another run is of another number of examples.
    """
    import pyarrow.compute as pc

    own = table["suggested_label"].take(rows)
    count = np.ones(len(rows), np.int64)
    for other in others:
        if len(other) != len(table):
            raise InputError(
                f"the runs are of {len(table)} and of {len(other)} examples: they do not compare"
            )
        same = pc.equal(own, other["suggested_label"].take(rows))
        count += same.to_numpy().astype(np.int64)
    return count


def curves(observed: Iterable[Rows], rows: Ints, n: int) -> list[Curve] | None:
    """How the examples at these positions were learned; None where no epoch was recorded.

    Args:
        observed: [n] what was seen in each epoch, memory-mapped; gone through once.
        rows: [k] positions.
        n: number of examples.

    Raises:
        InputError: the records are of other examples.
    """
    epochs: list[Rows] = []
    for epoch in observed:
        if epoch.shape != (n,):
            raise InputError(
                f"the record of epoch {len(epochs)} is {list(epoch.shape)}, but there are {n} "
                "labels: it belongs to another run"
            )
        epochs.append(np.asarray(epoch[rows]))  # a copy, so that no file stays open
    if not epochs:
        return None
    given, other = (
        np.stack([epoch[name] for epoch in epochs], 1).astype(np.float32)
        for name in ("p_given", "p_other")
    )
    return [Curve(*lines) for lines in zip(given, other, strict=True)]


def looks(inputs: Inputs, rows: Ints, table: pa.Table) -> list[Looks]:
    """What the examples at these positions are.

    Args:
        inputs: of all n examples.
        rows: [k] positions.
        table: as `examples.table` makes it.

    Raises:
        InputError: the inputs are of another number of examples.
    """
    if len(inputs) != len(table):
        raise InputError(
            f"there are {len(inputs)} inputs, but the run is of {len(table)} examples: give those "
            "that it was trained on, in their order"
        )
    if isinstance(inputs, Features):
        return [Looks(deviations=found) for found in _deviations(inputs, rows, codes(table)[0])]
    return [_looks(inputs.preview(int(row), thumbnails.SIDE)) for row in rows]


def _looks(preview: Preview) -> Looks:
    picture = None if preview.picture is None else thumbnails.of_picture(preview.picture)
    text = None if preview.text is None else on_page(preview.text, TEXT)
    return Looks(picture, text)


def _deviations(
    features: Features, rows: Ints, given: npt.NDArray[np.int32]
) -> list[tuple[Deviation, ...]]:
    """Where |x − mean| / spread over the examples of the given class is largest; [k] tuples.

    Embeddings, whose columns have no names, say nothing to anybody.
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
