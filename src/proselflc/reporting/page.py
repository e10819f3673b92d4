"""One page about one run, or about several beside each other, that needs nothing but itself.

The page loads nothing: styles, script, figures and pictures are in it, and its own policy forbids
the rest. However large the run, everything on it is bounded: see the limits of `gallery`, `tables`,
`names` and `reading`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from proselflc.auditing.examples import read_examples
from proselflc.data.dataset import in_order
from proselflc.data.inputs import Inputs
from proselflc.data.request import FROM_PYTHON
from proselflc.errors import InputError
from proselflc.pages.html_page import Tile, begins_with, is_ours, rendered
from proselflc.pages.names import (
    NAME,
    TITLE,
    chance,
    in_the_middle,
    on_page,
    percent,
    warning_of_code,
)
from proselflc.pages.table import Cell, Table
from proselflc.pages.thumbnails import Thumbnail
from proselflc.pages.values import share, text
from proselflc.reporting import before_after, figures, gallery, tables, verdict
from proselflc.reporting.before_after import Change
from proselflc.reporting.figures import Figure
from proselflc.reporting.gallery import Looks, Suspect
from proselflc.reporting.reading import Reading
from proselflc.run import original
from proselflc.run import review as reviews
from proselflc.training.run_directory import is_recorded

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """A page and what came of making it.

    Attributes:
        html: the page.
        figures: that are on it.
        shown: how many suspects are on it.
        why_gone: why one cannot see the examples themselves; empty where one can.
        notes: a sentence for each thing that could not be read or shown.
        why_incomplete: why the table of examples could not be read; empty where it could.
    """

    html: str
    figures: tuple[Figure, ...]
    shown: int
    why_gone: str
    notes: tuple[str, ...]
    why_incomplete: str = ""


@dataclass(frozen=True)
class Option:
    """A class to choose by."""

    place: int
    name: str


@dataclass(frozen=True)
class Fact:
    """A deviation in words."""

    column: str
    value: str
    usual: str


@dataclass(frozen=True)
class Card:
    """A suspect in words; places are those of its classes among the ones that can be chosen."""

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


@dataclass(frozen=True)
class Reviewed:
    """What people have decided about a run; the name is empty where there is one run."""

    name: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """What the template shows; None and nothing are left out."""

    title: str
    verdict: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tiles: tuple[Tile, ...]
    runs: Table | None
    about_runs: str
    of_run: str
    knows_truth: bool
    reviews: Sequence[Reviewed]
    changes: Sequence[Change]
    dynamics: Sequence[Figure]
    reliability: Figure | None
    calibration: Table | None
    transitions: Sequence[Figure]
    pairs: Table | None
    suspects: int | None
    quality: Figure | None
    cards: Sequence[Card]
    given: Sequence[Option]
    suggested: Sequence[Option]
    has_pictures: bool
    has_texts: bool
    has_deviations: bool
    has_curves: bool
    is_data_gone: bool
    export: str
    classes: Table | None
    num_classes: int
    options: Table
    differences: Table | None
    files: Table
    folder: str
    repeats: tuple[str, ...]
    is_single: bool


def make(
    readings: Sequence[Reading], *, inputs: Inputs | None = None, data: str | None = None
) -> Report:
    """Make the page of some runs; suspects and classes are those of the first.

    Args:
        readings: at least one.
        inputs: the examples that the first run was trained on, row for row; left out, the data
            that it names is opened, and if it cannot be the page says so.
        data: where that data is now, if it has moved.

    Raises:
        InputError: the inputs are not as many as the run's examples.
    """
    first, is_single = readings[0], len(readings) == 1
    notes = [note if is_single else f"{one.name}: {note}" for one in readings for note in one.notes]
    lost: list[str] = []
    table = _or_note(lambda: first.run.examples, lost)
    notes += lost
    shown = _Shown()
    if table is not None:
        shown = _shown(readings, table, inputs, data, notes)
    suspects = None if table is None else int(table["is_suspect"].to_numpy().sum())
    unseen = None if table is None else table["quality"].null_count / max(len(table), 1)
    dynamics = figures.dynamics(
        {one.name: one.history for one in readings if one.history},
        [stage for one in readings if one.history for stage in one.stages[1:]],
    )
    reliability = figures.reliability(
        {one.name: {"test": one.test} for one in readings if one.test}
    )
    transitions: Sequence[Figure] = ()
    if first.audit is not None:
        used = _or_note(lambda: first.run.transition, notes)
        transitions = figures.transitions(first.audit, used)
    quality = figures.quality(table) if table is not None else None
    classes, num_classes = tables.classes(first, table) if table is not None else (None, 0)
    options, differences = tables.options(readings)
    decided = [one for reading in readings for one in _reviewed(reading, is_single, notes)]
    changes = _or_note(lambda: before_after.changes(readings), notes)
    cards = _cards(shown)
    folder = shlex.quote(_path(first.run.path))
    runs = None if is_single else tables.runs(readings)
    page = Page(
        title=_title(readings),
        verdict=verdict.of_one(first, suspects) if is_single else verdict.of_several(readings),
        warnings=tuple(_warnings(readings, unseen)),
        notes=tuple(on_page(note, 400) for note in notes),
        tiles=tuple(_tiles(first, suspects)) if is_single else (),
        runs=runs,
        about_runs="" if runs is None else _about_runs(runs, readings),
        of_run="" if is_single else first.name,
        knows_truth=any(share(one.summary, "realised_noise_rate") is not None for one in readings),
        reviews=decided,
        changes=changes or (),
        dynamics=dynamics,
        reliability=reliability,
        calibration=tables.calibration(readings),
        transitions=transitions,
        pairs=None if table is None else tables.pairs(table),
        suspects=suspects,
        quality=quality,
        cards=cards,
        given=_choices(one.given for one in shown.suspects),
        suggested=_choices(one.suggested for one in shown.suspects),
        has_pictures=any(card.picture for card in cards),
        has_texts=any(card.text is not None for card in cards),
        has_deviations=any(card.deviations for card in cards),
        has_curves=any(card.curve for card in cards),
        is_data_gone=bool(shown.why_gone),
        export=f"proselflc export {folder} --only-suspects --out suspects.csv",
        classes=classes,
        num_classes=num_classes,
        options=options,
        differences=differences,
        files=tables.files(first),
        folder=_path(first.run.path),
        repeats=tuple(_repeat(one) for one in readings),
        is_single=is_single,
    )
    drawn = [*dynamics, reliability, *transitions, quality]
    said = [*notes, *([f"the examples are not shown: {shown.why_gone}"] if shown.why_gone else [])]
    return Report(
        html=rendered(page, "reporting/templates/report.html"),
        figures=tuple(one for one in drawn if one is not None),
        shown=len(cards),
        why_gone=shown.why_gone,
        notes=tuple(said),
        why_incomplete="".join(lost),
    )


def shows_examples(path: Path) -> bool:
    """Whether a file is such a page on which one can see the suspects themselves."""
    return is_ours(path) and begins_with(path, _EXAMPLES)


_EXAMPLES = '<meta name="proselflc-examples" content="shown">'


@dataclass(frozen=True)
class _Shown:
    """The suspects on the page.

    Attributes:
        suspects: nothing where there are none.
        runs: how many runs could agree on them.
        why_gone: why one cannot see the examples themselves; empty where one can.
    """

    suspects: Sequence[Suspect] = ()
    runs: int = 0
    why_gone: str = ""


def _shown(
    readings: Sequence[Reading],
    table: pa.Table,
    inputs: Inputs | None,
    data: str | None,
    notes: list[str],
) -> _Shown:
    run, rows = readings[0].run, gallery.worst(table)
    if not len(rows):
        return _Shown()
    curves = _or_note(lambda: gallery.curves(run.dynamics, rows, len(table)), notes)
    same = _same_labels(readings)
    agreeing = None
    if same:
        directories = (one.run.directory for one in same)
        others = (read_examples(one.checked(one.examples)) for one in directories)
        agreeing = _or_note(lambda: gallery.agreement(table, rows, others), notes)
    why: list[str] = []
    if inputs is not None:
        looks: list[Looks] | None = gallery.looks(inputs, rows, table)
    else:
        looks = _or_note(lambda: gallery.looks(original.inputs(run, data=data), rows, table), why)
    found = gallery.suspects(table, rows, looks or [Looks()] * len(rows), curves, agreeing)
    return _Shown(found, 1 + len(same), "".join(why))


def _reviewed(reading: Reading, is_single: bool, notes: list[str]) -> Iterator[Reviewed]:
    review = _or_note(lambda: reviews.existing_review(reading.run), notes)
    if review is not None:
        yield Reviewed("" if is_single else reading.name, tuple(before_after.decided(review)))


def _or_note(read: Callable[[], T], notes: list[str]) -> T | None:
    """What is read, or None and a sentence on why it cannot be."""
    try:
        return read()
    except InputError as error:
        notes.append(str(error))
        return None


def _same_labels(readings: Sequence[Reading]) -> list[Reading]:
    """The runs beside the first that learned the same labels."""
    own = text(readings[0].summary, "fingerprint")
    return [one for one in readings[1:] if own and text(one.summary, "fingerprint") == own]


def _title(readings: Sequence[Reading]) -> str:
    first = readings[0]
    if len(readings) == 1:
        return f"{first.method} on {first.data}"
    data = list(dict.fromkeys(one.data for one in readings))
    return f"{len(readings)} runs on {data[0] if len(data) == 1 else f'{len(data)} data sets'}"


def _warnings(readings: Sequence[Reading], unseen: float | None) -> Iterator[str]:
    first, *others = readings
    if not others:
        yield from verdict.warnings(first, unseen)
        return
    corrected = [one for one in others if before_after.is_from(one, first)]
    if len(_same_labels(readings)) + len(corrected) < len(others):
        yield "The runs did not all learn the same labels, so their numbers compare with care."
    for one in readings:
        for sentence in verdict.warnings(one, unseen if one is first else None):
            yield f"{one.name}: {sentence}"


def _about_runs(runs: Table, readings: Sequence[Reading]) -> str:
    """How the table of runs is to be read, as far as that applies to it."""
    said = []
    if any(cell.is_best for row in runs.rows for cell in row):
        said.append("Bold is the best of its column.")
    if any(one.accuracy is not None for one in readings):
        said.append("The test set was used for nothing but measuring.")
    return " ".join(said)


def _tiles(reading: Reading, suspects: int | None) -> Iterator[Tile]:
    summary, audit = reading.summary, reading.audit
    if reading.accuracy is not None:
        n = reading.test.get("n")
        remark = f"of {n:,.0f} examples" if isinstance(n, float) else ""
        yield Tile("Test accuracy", percent(reading.accuracy), remark)
    if audit is not None:
        truth = audit.realised_noise_rate
        remark = "" if truth is None else f"in truth {percent(truth)}"
        yield Tile("Labels that look wrong", percent(audit.estimated_noise_rate), remark)
    if suspects is not None:
        n = None if audit is None else audit.num_examples
        yield Tile("Suspects", f"{suspects:,}", "" if n is None else f"of {n:,} labels")
    found = summary.get("detection")
    precision = share(found, "precision") if isinstance(found, dict) else None
    if audit is not None and audit.expected_precision is not None:
        remark = "expected" if precision is None else f"in truth {percent(precision)}"
        yield Tile("Wrong among suspects", percent(audit.expected_precision), remark)
    after, before = (share(summary, f"label_accuracy_{when}") for when in ("after", "before"))
    if after is not None:
        yield Tile("Right after correction", percent(after), f"{percent(before)} before")
    if isinstance(found, dict) and (auroc := share(found, "auroc")) is not None:
        yield Tile("Ranking by quality", f"{auroc:.3f}", "AUROC; 1 is perfect")


def _choices(names: Iterator[str]) -> list[Option]:
    return [Option(place, on_page(name)) for name, place in _places(names).items()]


def _places(names: Iterator[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(in_order(names))}


def _cards(shown: _Shown) -> list[Card]:
    given = _places(one.given for one in shown.suspects)
    suggested = _places(one.suggested for one in shown.suspects)
    return [
        _card(one, given[one.given], suggested[one.suggested], shown.runs) for one in shown.suspects
    ]


def _card(suspect: Suspect, given_place: int, suggested_place: int, runs: int) -> Card:
    agreeing = ""
    if runs > 1 and suspect.agreeing is not None:
        agreeing = f"{suspect.agreeing} of {runs} runs agree"
    return Card(
        index=suspect.index,
        id=Cell(in_the_middle(suspect.id, 40), in_the_middle(suspect.id, TITLE)),
        given=_titled(suspect.given),
        suggested=_titled(suspect.suggested),
        truth=None if suspect.clean is None else _titled(suspect.clean),
        given_place=given_place,
        suggested_place=suggested_place,
        quality=chance(suspect.quality),
        quality_order=1.0 if suspect.quality is None else round(suspect.quality, 6),
        sure=chance(suspect.confidence),
        sure_order=0.0 if suspect.confidence is None else round(suspect.confidence, 6),
        agreeing=agreeing,
        picture=suspect.looks.picture,
        text=suspect.looks.text,
        deviations=tuple(
            Fact(
                on_page(one.column),
                _plain(one.value, 4),
                f"{_plain(one.mean)} ± {_plain(one.spread)}",
            )
            for one in suspect.looks.deviations
        ),
        curve=None
        if suspect.curve is None
        else figures.learning_curve(suspect.curve.given, suspect.curve.other),
    )


def _plain(value: float, digits: int = 3) -> str:
    """A number with so many digits that count.

    >>> _plain(1012.3), _plain(0.30512), _plain(2.5e-9)
    ('1,010', '0.305', '2.5e-09')
    """
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.12g}" if 1e-3 <= abs(rounded) < 1e7 or not rounded else f"{rounded:g}"


def _titled(name: str) -> Cell:
    return Cell(on_page(name), on_page(name, TITLE))


def _repeat(reading: Reading) -> str:
    path = reading.run.path
    if is_recorded(reading.config):
        return f"# {_path(path)} was recorded from a training loop of your own: run that again"
    if reading.config.get("data") == FROM_PYTHON:
        return f"# {_path(path)} was trained on data from Python: call proselflc.fit(…) again"
    config, again = shlex.quote(_path(path / "config.toml")), shlex.quote(f"{_path(path)}-again")
    warning = warning_of_code(reading.config.get("model"))
    return f"{warning}proselflc train --config {config} --out {again}"


def _path(path: Path) -> str:
    return in_the_middle(str(path), 5 * NAME)
