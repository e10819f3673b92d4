"""The `report` command: one self-contained page about a run, or about several compared.

The page loads nothing: styles, script, figures and pictures are part of it, and its policy forbids
everything else. Its size is bounded whatever the size of the run: see the limits of `gallery`,
`tables`, `values` and `run_facts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proselflc.auditing.examples import read_examples
from proselflc.data.inputs import Inputs, Ints
from proselflc.data.request import FROM_PYTHON
from proselflc.data.sources import arrays
from proselflc.errors import InputError
from proselflc.files.regular import whole_file
from proselflc.pages import drawing, values
from proselflc.pages.drawing import Figure
from proselflc.pages.html_page import Table, Tile, begins_with, is_own_page, render
from proselflc.pages.values import code_warning, percent, share, shorten, shorten_middle, text
from proselflc.reporting import (
    before_after,
    duplicates,
    example_map,
    figures,
    gallery,
    onset,
    tables,
    verdict,
)
from proselflc.reporting.duplicates import Duplicates
from proselflc.reporting.example_map import ExampleMap
from proselflc.reporting.gallery import ExampleView
from proselflc.reporting.run_facts import RunFacts, or_note, read_runs
from proselflc.run import audit_words, neighbours, original
from proselflc.run import review as reviews
from proselflc.run.reader import Run
from proselflc.terminal import Display, Silent
from proselflc.training.run_directory import Json, is_recorded
from proselflc.wording import command, option

if TYPE_CHECKING:
    import pyarrow as pa


NAME = "report.html"

_EXAMPLES = '<meta name="proselflc-examples" content="shown">'


@dataclass(frozen=True)
class Written:
    """What was written."""

    path: Path  # of the page
    figures: tuple[Path, ...]  # their files
    shown: int  # number of suspects on the page
    notes: tuple[str, ...]  # on what could not be read or shown
    warnings: tuple[Json, ...] = ()  # reasons to be careful with the audits


def report(
    run: Run | str | Path | Sequence[Run | str | Path],
    out: str | Path | None = None,
    *,
    inputs: object | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Path:
    """Write one self-contained HTML page about a run, or about several compared.

    Args:
        run: a run or its directory, or several; suspects are those of the first.
        out: path of the page (default: report.html in the directory of a single run, else in the
            working directory).
        inputs: examples that the first run was trained on, in their order, to show them; see x of
            `proselflc.fit`. By default the data that the run names is opened.
        overwrite: replace a file that is not a report, or a report whose examples can no longer be
            shown.
        quiet: print no notes about files that could not be read; the page has them.

    Returns:
        The path of the page.

    Raises:
        InputError: a run is missing or unfinished, or the page cannot be written, or would replace
            one that shows more.
    """
    several = [run] if isinstance(run, Run | str | Path) else list(run)
    if inputs is not None and not isinstance(inputs, Inputs):
        inputs = arrays.inputs(inputs, "inputs")
    written = write(
        [one.path if isinstance(one, Run) else Path(one) for one in several],
        None if out is None else Path(out),
        inputs=inputs,
        overwrite=overwrite,
    )
    display = Silent() if quiet else Display()
    for note in written.notes:
        display.note(note)
    return written.path


def write(
    runs: Sequence[Path],
    out: Path | None,
    *,
    inputs: Inputs | None = None,
    data: str | None = None,
    folder: Path | None = None,
    overwrite: bool = False,
) -> Written:
    """Write the page of some runs and, if a folder is named, its figures as SVG and PNG files.

    The defaults are those of `report`; `data` is where the data of the first run is now, if it
    has moved.
    """
    reported = read_runs(runs)
    path = out or (reported[0].run.directory.report if len(runs) == 1 else Path(NAME))
    check_out(path, overwrite)
    made = make(reported, inputs=inputs, data=data)
    if made.why_gone and not overwrite and _shows_examples(path):
        raise InputError(
            f"{path} shows the examples, and a new page could not: {made.why_gone}",
            field="out",
            fix=_fix(),
        )
    if made.why_incomplete and not overwrite and path.exists():
        raise InputError(
            f"{path} would be replaced by a page without examples: {made.why_incomplete}",
            field="out",
            fix=_fix(),
        )
    files: list[Path] = []
    if folder is not None:
        files = drawing.write(made.figures, folder)
    with whole_file(path) as file:
        file.write(made.html.encode())
    return Written(path, tuple(files), made.shown, made.notes, tuple(_as_json(reported)))


def _as_json(reported: Sequence[RunFacts]) -> Iterator[Json]:
    """Yield the warnings of the audits; of several runs, with the run that each is about."""
    for facts in reported:
        own: Json = {} if len(reported) == 1 else {"run": str(facts.run.path)}
        for warning in () if facts.audit is None else facts.audit.warnings:
            yield {**own, **asdict(warning)}


def check_out(path: Path, overwrite: bool) -> None:
    """Refuse a page that cannot be written, before anything is computed."""
    if not path.parent.is_dir():
        raise InputError(
            f"the folder {path.parent} for {path.name} does not exist", field="out", fix="create it"
        )
    if path.is_dir():
        raise InputError(
            f"{path} is a folder", field="out", fix=f"name a file, such as {path / NAME}"
        )
    if path.exists() and not overwrite and not is_own_page(path):
        raise InputError(f"{path} exists and is not a report", field="out", fix=_fix())


def _shows_examples(path: Path) -> bool:
    """Return whether a file is a report that shows the suspects themselves."""
    return is_own_page(path) and begins_with(path, _EXAMPLES)


def _fix() -> str:
    return f"choose another {option('out')}, or pass {option('overwrite', True)}"


@dataclass(frozen=True)
class Report:
    """A page, and what could not be read or shown.

    `shown` is the number of suspects on the page, `why_gone` why the examples themselves are
    not shown, and `why_incomplete` why the table of examples could not be read; both are empty
    otherwise.
    """

    html: str
    figures: tuple[Figure, ...]
    shown: int
    why_gone: str
    notes: tuple[str, ...]
    why_incomplete: str = ""


def make(
    reported: Sequence[RunFacts], *, inputs: Inputs | None = None, data: str | None = None
) -> Report:
    """Return the page of some runs; suspects and classes are those of the first.

    `inputs` are the examples that the first run was trained on, row for row, and `data` is
    where its data is now, if it has moved. Without inputs the data is opened; if that fails,
    the page says so.
    """
    first, is_single = reported[0], len(reported) == 1
    notes = [
        note if is_single else f"{facts.name}: {note}" for facts in reported for note in facts.notes
    ]
    lost: list[str] = []
    table = or_note(lambda: first.run.labelled_examples, lost)
    notes += lost
    cards: list[dict[str, Any]] = []
    same_content: Duplicates | None = None
    shown_map: ExampleMap | None = None
    previews = _Previews(first.run, inputs, data)
    if table is not None:
        cards = _cards(reported, table, previews, notes)
        same_content = or_note(lambda: _duplicates(first.run, table, previews), notes)
        shown_map = or_note(lambda: example_map.section(first.run, table), notes)
    why_gone = previews.why_gone
    suspects = None if table is None else int(table["is_suspect"].to_numpy().sum())
    unseen = None if table is None else table["quality"].null_count / max(len(table), 1)
    transition = None
    if first.audit is not None:
        transition = or_note(lambda: first.run.transition, notes)
    drawn = figures.draw(figures.Source(reported, table, transition))
    classes, num_classes = tables.classes(first, table) if table is not None else (None, 0)
    options, differences = tables.options(reported)
    decided = [summary for facts in reported for summary in _reviewed(facts, is_single, notes)]
    changes = or_note(lambda: before_after.changes(reported), notes)
    runs = None if is_single else tables.runs(reported)
    page = {
        "title": _title(reported),
        "verdict": verdict.of_one(first, suspects) if is_single else verdict.of_several(reported),
        "warnings": tuple(_warnings(reported, unseen)),
        "notes": tuple(shorten(note, 400) for note in notes),
        "tiles": tuple(_tiles(first, suspects, table)) if is_single else (),
        "runs": runs,
        "about_runs": "" if runs is None else _about_runs(runs, reported),
        "of_run": "" if is_single else first.name,
        "knows_truth": any(
            share(facts.summary, "realised_noise_rate") is not None for facts in reported
        ),
        "onsets": tuple(_onsets(reported)),
        "reviews": decided,
        "changes": changes or (),
        "figures": drawn,
        "calibration": tables.calibration(reported),
        "pairs": None if table is None else tables.pairs(table),
        "suspects": suspects,
        "cards": cards,
        "given": gallery.choices(cards, "given"),
        "suggested": gallery.choices(cards, "suggested"),
        "map": shown_map,
        "duplicates": same_content,
        "export_duplicates": command(
            "export", _path(first.run.path), what="duplicates", out="duplicates.csv"
        ),
        "is_data_gone": bool(why_gone),
        "with_data": command("report", *(_path(facts.run.path) for facts in reported), data="PATH"),
        "export": command("export", _path(first.run.path), only_suspects=True, out="suspects.csv"),
        "abstains": first.audit is not None and first.audit.abstains,
        "ranking": command("export", _path(first.run.path), force=True, out="labels.csv"),
        "classes": classes,
        "num_classes": num_classes,
        "options": options,
        "differences": differences,
        "files": tables.files(first),
        "folder": _path(first.run.path),
        "repeats": tuple(_repeat(facts) for facts in reported),
        "is_single": is_single,
    }
    if why_gone:
        notes.append(f"the examples are not shown: {why_gone}")
    return Report(
        html=render(page, "reporting/templates/report.html", has_map=shown_map is not None),
        figures=tuple(figure for section in drawn.values() for figure in section),
        shown=len(cards),
        why_gone=why_gone,
        notes=tuple(notes),
        why_incomplete="".join(lost),
    )


def _onsets(reported: Sequence[RunFacts]) -> Iterator[dict[str, Any]]:
    """Yield when methods began to trust predictions; of several runs only the first sentence."""
    for facts in reported:
        if facts.onset is not None:
            words = onset.sentences(facts.onset)
            if len(reported) == 1:
                yield {"name": "", "sentences": words}
            else:
                yield {"name": facts.name, "sentences": words[:1]}


def _cards(
    reported: Sequence[RunFacts],
    table: pa.Table,
    previews: _Previews,
    notes: list[str],
) -> list[dict[str, Any]]:
    """Return the suspects on the page, the worst first."""
    run, rows = reported[0].run, gallery.worst(table)
    if not len(rows):
        return []
    curves = or_note(lambda: gallery.curves(run.dynamics, rows, len(table)), notes)
    same = _same_labels(reported)
    agreeing = None
    if same:
        directories = (facts.run.directory for facts in same)
        others = (read_examples(one.checked(one.examples)) for one in directories)
        agreeing = or_note(lambda: gallery.agreement(table, rows, others), notes)
    shown = previews.views(rows, table)
    return gallery.cards(table, rows, shown, curves, agreeing, 1 + len(same))


def _duplicates(run: Run, table: pa.Table, previews: _Previews) -> Duplicates | None:
    """Return the section about duplicates; None for a run whose examples were not compared."""
    found = neighbours.examination(run)
    if found is None:
        return None
    return duplicates.section(found, table, lambda rows: previews.views(rows, table))


@dataclass
class _Previews:
    """The examples of a run as the page shows them; their data is opened once, if it is needed.

    `why_gone` is why they cannot be shown; it is empty if they can.
    """

    run: Run
    inputs: Inputs | None
    data: str | None
    why_gone: str = ""

    def views(self, rows: Ints, table: pa.Table) -> list[ExampleView]:
        """Return views of the examples at the positions [k]; empty ones if they are gone."""
        if self.inputs is not None:
            return gallery.views(self.inputs, rows, table)
        if not self.why_gone:
            try:
                opened = original.inputs(self.run, data=self.data)
                found = gallery.views(opened, rows, table)
                self.inputs = opened
                return found
            except InputError as error:
                self.why_gone = str(error)
        return [ExampleView()] * len(rows)


def _reviewed(facts: RunFacts, is_single: bool, notes: list[str]) -> Iterator[dict[str, object]]:
    """Yield sentences about the decisions on a run; the name is empty if it is the only one."""
    review = or_note(lambda: reviews.existing_review(facts.run), notes)
    if review is not None:
        sentences = tuple(before_after.decided(review))
        yield {"name": "" if is_single else facts.name, "sentences": sentences}


def _same_labels(reported: Sequence[RunFacts]) -> list[RunFacts]:
    """Return the other runs that were trained on the labels of the first."""
    own = text(reported[0].summary, "fingerprint")
    return [facts for facts in reported[1:] if own and text(facts.summary, "fingerprint") == own]


def _title(reported: Sequence[RunFacts]) -> str:
    first = reported[0]
    if len(reported) == 1:
        return f"{first.method} on {first.data}"
    data = list(dict.fromkeys(facts.data for facts in reported))
    return f"{len(reported)} runs on {data[0] if len(data) == 1 else f'{len(data)} data sets'}"


def _warnings(reported: Sequence[RunFacts], unseen: float | None) -> Iterator[str]:
    first, *others = reported
    if not others:
        yield from verdict.warnings(first, unseen)
        return
    corrected = [facts for facts in others if before_after.is_from(facts, first)]
    if len(_same_labels(reported)) + len(corrected) < len(others):
        yield (
            "Not all runs were trained on the same labels, so some of their numbers cannot be "
            "compared."
        )
    for facts in reported:
        for sentence in verdict.warnings(facts, unseen if facts is first else None):
            yield f"{facts.name}: {sentence}"


def _about_runs(runs: Table, reported: Sequence[RunFacts]) -> str:
    """Return how to read the table of runs."""
    sentences = []
    if any(cell.is_best for row in runs.rows for cell in row):
        sentences.append("The best value of each column is bold.")
    if any(facts.accuracy is not None for facts in reported):
        sentences.append("The test set was only used for measuring.")
    return " ".join(sentences)


def _tiles(facts: RunFacts, suspects: int | None, table: pa.Table | None) -> Iterator[Tile]:
    summary, audit = facts.summary, facts.audit
    if facts.accuracy is not None:
        n = facts.test.get("n")
        remark = f"of {n:,.0f} examples" if isinstance(n, float) else ""
        yield Tile("Test accuracy", percent(facts.accuracy), remark)
    if audit is not None:
        truth = audit.realised_noise_rate
        remark = "" if truth is None else f"true value {percent(truth)}"
        measured = audit_words.measured_on(audit)
        title = "Wrong labels" if measured else "Labels that look wrong"
        is_known = bool(measured) or not audit.abstains
        wrong = audit_words.noise_range(audit, "–") if is_known else "not known"
        yield Tile(title, wrong, remark or measured)
    if suspects is not None:
        n = None if audit is None else audit.num_examples
        yield Tile("Suspects", f"{suspects:,}", "" if n is None else f"of {n:,} labels")
    counts = None if audit is None or audit.abstains else audit_words.actions(audit, table)
    if counts is not None:
        yield Tile("Change", f"{counts['change']:,}", "without a person")
        yield Tile("Review", f"{counts['review']:,}", "by a person")
        yield Tile("Keep", f"{counts['keep']:,}", "as given")
    found = summary.get("detection")
    precision = share(found, "precision") if isinstance(found, dict) else None
    if audit is not None and audit.expected_precision is not None:
        remark = audit_words.measured_on(audit) or "expected"
        remark = remark if precision is None else f"true value {percent(precision)}"
        yield Tile("Wrong among suspects", percent(audit.expected_precision), remark)
    after, before = (share(summary, f"label_accuracy_{when}") for when in ("after", "before"))
    if after is not None:
        yield Tile("Right after changes", percent(after), f"{percent(before)} before")
    if isinstance(found, dict) and (auroc := share(found, "auroc")) is not None:
        yield Tile("Ranking by quality", f"{auroc:.3f}", "AUROC; 1 is perfect")


def _repeat(facts: RunFacts) -> str:
    path = facts.run.path
    if is_recorded(facts.config):
        return f"# {_path(path)} was recorded from your own training loop: run that again"
    if facts.config.get("data") == FROM_PYTHON:
        return f"# {_path(path)} was trained on data from Python: call proselflc.fit(…) again"
    again = command("train", config=_path(path / "config.toml"), out=f"{_path(path)}-again")
    return code_warning(facts.config.get("model")) + again


def _path(path: Path) -> str:
    return shorten_middle(str(path), 5 * values.NAME)
