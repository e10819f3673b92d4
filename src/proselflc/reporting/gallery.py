"""The most suspicious examples of a run: their selection, previews, learning curves and cards.

Only the examples on the page become objects; the others stay in columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from proselflc.auditing.examples import ACTIONS
from proselflc.data.dataset import in_order
from proselflc.data.inputs import Features, Floats, Inputs, Ints
from proselflc.errors import InputError
from proselflc.pages import thumbnails
from proselflc.pages.html_page import Cell
from proselflc.pages.svg import learning_curve
from proselflc.pages.thumbnails import Thumbnail
from proselflc.pages.values import ID, TEXT, TITLE, format_chance, shorten, shorten_middle
from proselflc.training.observations import Rows

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 300  # examples of all classes together
DEVIATIONS = 3  # columns of a table that are listed for an example

_COLUMNS = (
    *("id", "given_label", "suggested_label", "quality", "p_suggested", "clean_label", "action"),
)


@dataclass(frozen=True)
class Deviation:
    """A column in which an example differs from the mean ± spread of its given class."""

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


def agreement(table: pa.Table, rows: Ints, others: Iterable[pa.Table]) -> Ints:
    """Return [k] the number of runs, including this one, that make the same suggestion.

    The others were trained on the same labels.
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


def curves(observed: Iterable[Rows], rows: Ints, n: int) -> tuple[Floats, Floats] | None:
    """Return the learning curves of the examples at the positions [k]; None without records.

    They are p of the given label and the largest other p, each [k, epochs], and NaN for an
    epoch that did not see an example. `observed` has [n] records of each epoch, memory-mapped.
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
    return given, other


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
    found = []
    for preview in (inputs.preview(int(row), thumbnails.SIDE) for row in rows):
        picture = None if preview.picture is None else thumbnails.of_picture(preview.picture)
        text = None if preview.text is None else shorten(preview.text, TEXT)
        found.append(ExampleView(picture, text))
    return found


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


def cards(
    table: pa.Table,
    rows: Ints,
    views: Sequence[ExampleView],
    curves: tuple[Floats, Floats] | None,
    agreeing: Ints | None,
    runs: int,
) -> list[dict[str, Any]]:
    """Return the examples at the positions [k] as texts, with k views, curves and counts.

    `runs` is the number of runs that could agree. Places are those of a class among the choices.
    """
    chosen = table.select([name for name in _COLUMNS if name in table.column_names]).take(rows)
    given, suggested = (
        {name: place for place, name in enumerate(in_order(chosen[column].to_pylist()))}
        for column in ("given_label", "suggested_label")
    )
    found = []
    for k, row in enumerate(chosen.to_pylist()):
        quality, confidence, clean = row["quality"], row["p_suggested"], row.get("clean_label")
        agree = "" if agreeing is None else f"{agreeing[k]} of {runs} runs agree"
        found.append(
            {
                "index": int(rows[k]),
                "id": Cell(shorten_middle(row["id"], ID), shorten_middle(row["id"], TITLE)),
                "given": _titled(row["given_label"]),
                "suggested": _titled(row["suggested_label"]),
                "truth": None if clean is None else _titled(clean),
                "given_place": given[row["given_label"]],
                "suggested_place": suggested[row["suggested_label"]],
                "quality": format_chance(quality),
                "quality_order": 1.0 if quality is None else round(quality, 6),
                "sure": format_chance(confidence),
                "sure_order": 0.0 if confidence is None else round(confidence, 6),
                "action": row.get("action") if row.get("action") in ACTIONS else "",
                "agreeing": agree,
                "picture": views[k].picture,
                "text": views[k].text,
                "deviations": format_deviations(views[k]),
                "curve": None if curves is None else learning_curve(curves[0][k], curves[1][k]),
            }
        )
    return found


def format_deviations(view: ExampleView) -> list[tuple[str, str, str]]:
    """Return column, value and usual value of each deviation as texts."""
    return [
        (
            shorten(one.column),
            _format_number(one.value, 4),
            f"{_format_number(one.mean)} ± {_format_number(one.spread)}",
        )
        for one in view.deviations
    ]


def choices(cards: Sequence[Mapping[str, Any]], what: str) -> list[tuple[int, str]]:
    """Return place and name of the given or the suggested classes of the cards, in order."""
    return sorted({(card[f"{what}_place"], card[what].text) for card in cards})


def _titled(name: str) -> Cell:
    return Cell(shorten(name), shorten(name, TITLE))


def _format_number(value: float, digits: int = 3) -> str:
    """Return a number with the given significant digits.

    >>> _format_number(1012.3), _format_number(0.30512), _format_number(2.5e-9)
    ('1,010', '0.305', '2.5e-09')
    """
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.12g}" if 1e-3 <= abs(rounded) < 1e7 or not rounded else f"{rounded:g}"
