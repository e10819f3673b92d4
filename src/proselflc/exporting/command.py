"""Export of the corrected labels of a run: a file, a copy of the user's table, folders of links."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from proselflc.auditing.caveats import AuditWarning
from proselflc.data.dataset import NO_LABEL
from proselflc.data.image import sift
from proselflc.data.inputs import ImageFiles, Ints
from proselflc.data.label_files import read_label_table
from proselflc.data.opening import open_all
from proselflc.data.request import (
    COPIES,
    DELIMITED,
    FROM_PYTHON,
    PARQUET,
    XLSX,
    is_table,
    table_suffix,
)
from proselflc.data.sources import image_folder
from proselflc.data.sources.image_folder import Link
from proselflc.data.tables import table as tables
from proselflc.data.tables.table_copy import TableCorrection
from proselflc.data.tables.table_file import Table, open_table
from proselflc.errors import InputError, invalid_option
from proselflc.exporting.formats import FORMATS, Format
from proselflc.exporting.labels import LabelExport
from proselflc.files.regular import is_regular, whole_file
from proselflc.options import check_out
from proselflc.run import original
from proselflc.run.corrections import audit_of
from proselflc.run.reader import Run
from proselflc.wording import command, option

_FORMS = {
    **{".pq": ".parquet", ".tab": ".tsv", ".ndjson": ".jsonl", ".xlsm": ".xlsx"},
    **dict.fromkeys((".arrow", ".ipc"), ".feather"),
}
_TO_FILE = "write the labels to a file with "


@dataclass(frozen=True)
class Export:
    """What to write, and where.

    Attributes:
        format: format of `out`; None to follow its ending.
        out: file of labels, or None.
        copy: path of a corrected copy of the user's own table, or None.
        links: folder to create with one folder of links per class, or None.
        link: kind of link.
        soft: add distributions to the labels.
        min_confidence: follow the suspects whose suggested label has at least this confidence.
        only_suspects: omit the other examples.
        data: current location of the run's data, if it has moved.
        overwrite: replace existing files.
        reviewed: follow reviewed labels, and suggestions only with `min_confidence`.
        suspects: follow all suspects.
        force: write the labels of a run whose audit corrects none.
        fill: write the suggested labels for examples without a label.
    """

    format: Format | None = None
    out: Path | None = None
    copy: Path | None = None
    links: Path | None = None
    link: Link = "symbolic"
    soft: bool = False
    min_confidence: float | None = None
    only_suspects: bool = False
    data: str | None = None
    overwrite: bool = False
    reviewed: bool = False
    suspects: bool = False
    force: bool = False
    fill: bool = False

    @property
    def kind(self) -> Format:
        """Return the format that is asked for or that the ending says."""
        if self.format is not None or self.out is None:
            return self.format or "csv"
        ending = self.out.suffix.lower()
        fitting = (kind for kind, form in FORMATS.items() if ending in form.suffixes)
        return next(fitting, "csv")

    @property
    def is_printed(self) -> bool:
        """Return whether the labels go to the standard output."""
        return self.out is None and self.copy is None and self.links is None

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is read."""
        if self.out is not None:
            every = dict.fromkeys(s for form in FORMATS.values() for s in form.suffixes)
            suffixes = tuple(every) if self.format is None else FORMATS[self.format].suffixes
            check_out(self.out, self.overwrite, suffixes)
        if self.copy is not None:
            check_out(self.copy, self.overwrite, COPIES, "copy")
            if self.only_suspects:
                raise invalid_option(
                    "only_suspects",
                    "is not possible for a corrected copy of a table, which has all its rows",
                    fix=f"omit it, or write a list with {option('out')}",
                )
        if self.links is not None:
            image_folder.check_writable(self.links, overwrite=self.overwrite)
        if self.link != "symbolic" and self.links is None:
            raise InputError(
                f"{option('link', self.link)} needs a folder for the links",
                field="link",
                fix=f"add {option('links')}, or omit it",
            )
        if self.data is not None and self.links is None and self.copy is None:
            raise invalid_option(
                "data", f"is only used by {option('copy')} and {option('links')}", fix="omit it"
            )
        written = self.out is not None or self.is_printed
        if self.soft and not written:
            raise invalid_option(
                "soft", "adds distributions to a file of labels", fix=f"add {option('out')}"
            )
        if self.soft and not FORMATS[self.kind].takes_soft:
            able = [kind for kind, form in FORMATS.items() if form.takes_soft]
            raise invalid_option(
                "soft",
                f"is not possible with {option('format', self.kind)}, which has no columns for it",
                fix=f"choose one of {', '.join(able)}",
            )
        if self.format is not None and not written:
            raise InputError(
                f"{option('format', self.format)} is the format of a file of labels",
                field="format",
                fix=f"add {option('out')}",
            )


@dataclass(frozen=True)
class ExportResult:
    """What was written.

    Attributes:
        examples: number of rows or links.
        suspects: number of labels that are probably wrong.
        corrections: number of labels that were changed.
        left: number of suspects that were left for a review.
        reviewed: number of labels that a person decided.
        unlabelled: number of examples that had no label.
        filled: how many of these have one now, reviewed or suggested.
        written: paths of files and folders by option.
        notes: sentences about what may be unexpected.
        warnings: reasons to be careful with the audit.
    """

    examples: int
    suspects: int
    corrections: int
    left: int
    reviewed: int
    written: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[AuditWarning, ...] = ()
    unlabelled: int = 0
    filled: int = 0

    def __str__(self) -> str:
        one = self.corrections == 1
        sentence = (
            f"{self.corrections:,} of {self.examples - self.unlabelled:,} labels "
            f"{'was' if one else 'were'} changed"
        )
        if self.unlabelled:
            verb = "was" if self.filled == 1 else "were"
            sentence += f", {self.filled:,} of {self.unlabelled:,} missing ones {verb} filled in"
        if self.reviewed:
            verb = "was" if self.reviewed == 1 else "were"
            sentence += f", {self.reviewed:,} {verb} reviewed"
        if any(warning.abstains for warning in self.warnings):
            return f"{sentence}; the audit calls none suspect."
        left = f"{self.left:,}" if self.left else "no"
        suspects = "suspect was" if self.left == 1 else "suspects were"
        return f"{sentence}, and {left} {suspects} left for review."


def export(run: Run, options: Export) -> ExportResult:
    """Write the corrected labels of a run to every place that the options name."""
    corrected = _corrected(run, options)
    written: dict[str, str] = {}
    notes = [*run.notes, *corrected.notes]
    if options.copy is not None:
        notes += _write_copy(corrected, options, options.copy)
        written["copy"] = str(options.copy)
    if options.links is not None:
        notes += _write_links(corrected, options, options.links)
        written["links"] = str(options.links)
    if options.out is not None:
        with whole_file(options.out) as file:
            suffix = options.out.suffix.lower()
            FORMATS[options.kind].write(corrected, file, suffix, options.soft)
        written["out"] = str(options.out)
    return _result(corrected, written, notes)


def print_labels(run: Run, options: Export, stream: IO[bytes]) -> ExportResult:
    """Write the labels to a stream, such as the standard output."""
    corrected, form = _corrected(run, options), FORMATS[options.kind]
    file = stream if form.is_text else io.BytesIO()  # other formats need to seek
    form.write(corrected, file, form.suffixes[0], options.soft)
    if isinstance(file, io.BytesIO) and file is not stream:
        stream.write(file.getvalue())
    return _result(corrected, {}, [*run.notes, *corrected.notes])


def _corrected(run: Run, options: Export) -> LabelExport:
    options.check()
    corrected = LabelExport(
        run,
        options.min_confidence,
        options.only_suspects,
        options.reviewed,
        options.suspects,
        options.force,
        options.fill,
    )
    corrected.check()
    return corrected


def _result(corrected: LabelExport, written: dict[str, str], notes: list[str]) -> ExportResult:
    examples, audit = corrected.examples, audit_of(corrected.run)
    return ExportResult(
        len(examples),
        int(examples["is_suspect"].to_numpy().sum()),
        corrected.corrections,
        corrected.left,
        corrected.decided,
        written,
        tuple(notes),
        () if audit is None else audit.warnings,
        *corrected.unlabelled,
    )


def _write_copy(corrected: LabelExport, options: Export, out: Path) -> list[str]:
    """Write a corrected copy of the table that holds the run's labels; return notes about it."""
    run = corrected.run
    if run.config.get("data") == FROM_PYTHON:
        raise InputError(
            f"the data of {run.path} was given in Python, so there is no table to copy",
            field="copy",
            fix=_TO_FILE + option("out"),
        )
    wanted = original.request(run, data=options.data)
    has_labels_beside = wanted.labels is not None and is_table(wanted.labels)
    source = wanted.labels if has_labels_beside else Path(wanted.data)
    assert source is not None
    if not is_table(source):
        raise InputError(
            f"the labels of {run.path} come from {wanted.labels or wanted.data}, which is not a "
            "table that could be copied",
            field="copy",
            fix=_TO_FILE + option("out"),
        )
    if "noise" in run.config:
        raise InputError(
            f"the labels of {run.path} were corrupted on purpose "
            f"({option('noise', str(run.config['noise']))}), so a corrected copy would be worse "
            f"than {source}",
            field="copy",
            fix=f"{_TO_FILE}{option('out')}, or corrupt a file with {command('noise')}, train on "
            "that and copy it",
        )
    if not is_regular(source):
        raise InputError(
            f"the label file of {run.path}, {source}, does not exist (relative to {Path.cwd()})",
            field="copy" if has_labels_beside else "data",
            fix="restore it, or change to the folder where the run was trained"
            + ("" if has_labels_beside else f", or pass its location as {option('data')}"),
        )
    plain = (*DELIMITED, *PARQUET)  # into which a table of another format is converted
    is_plain = table_suffix(source) in plain
    if _form(out) != _form(source) and (is_plain or table_suffix(out) not in plain):
        others = "" if is_plain else ", or a .csv, .tsv or .parquet file"
        raise InputError(
            f"a copy of {source} must be a {_form(source)} file too{others}, but {option('copy')} "
            f'is "{out.name}"',
            field="copy",
        )
    if out.exists() and out.samefile(source):
        raise InputError(f"{out} is the original", field="copy", fix="name another file")
    names = run.labels.names
    if has_labels_beside:
        data = open_all(wanted)
        rows, classes = read_label_table(data, source, wanted)
        rows = rows[
            original.find_ids(run.labels.all_ids, data.train.ids, f"the data {wanted.data}")
        ]
        sheet = tables.label_sheet(source, wanted)
        column = tables.label_column(source, wanted.label_column, sheet)
        table = open_table(source, sheet)
        cells = zip(table.texts(column), _renamed(classes, data.names, names), classes, strict=True)
        known = {text: k for text, k, own in cells if own != NO_LABEL}
    else:
        found = tables.find_label_cells(source, wanted)
        what_it_is = f"the table {source} of {run.path}"
        rows = found.rows[original.find_ids(run.labels.all_ids, found.ids, what_it_is)]
        column, table = found.column, found.table
        known = {name: k for k, name in enumerate(names)}
    if wanted.labels is None or has_labels_beside:
        _must_be_as_trained(run, table, column, rows, known)
    numbers = [str(k) for k in range(len(names))]
    is_numbered = not set(known) <= set(names) and set(known) <= set(numbers)
    copied = TableCorrection(
        table, column, rows, corrected.labels, numbers if is_numbered else names, known
    ).write(out)
    labels = "1 label" if copied.changed == 1 else f"{copied.changed:,} labels"
    verb = "was" if copied.changed == 1 else "were"
    notes = [
        f'{labels} in the column "{column}" {verb} changed; the column "{copied.before}" holds the '
        f"labels of {source}"
    ]
    if table_suffix(out) == XLSX:
        notes.append(f"{out} holds the values of one sheet, without formulas and formats")
    return notes


def _form(path: Path) -> str:
    ending = table_suffix(path)
    return _FORMS.get(ending, ending)


def _renamed(classes: Ints, own: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Return [rows] class ids of the data as those of the run; −1 for a class unknown to it."""
    place = {name: k for k, name in enumerate(names)}
    there = [*(place.get(name, -1) for name in own), NO_LABEL]
    return [there[k] for k in classes]


def _must_be_as_trained(
    run: Run,
    table: Table,
    column: str,
    rows: Ints,
    known: dict[str, int],
) -> None:
    """Refuse a table whose labels have changed: its rows may have changed too."""
    texts = table.texts(column)
    there = np.array([known.get(texts[row], -1) for row in rows], dtype=np.int64)
    given = run.labels.with_rest(run.labels.given)
    other = np.flatnonzero(there != given)
    if len(other):
        first = int(other[0])
        was = (*run.labels.names, "")[int(given[first])]
        raise InputError(
            f"the table {table.path} has changed since training: {len(other):,} of {len(rows):,} "
            f"labels differ, the first in {table.where(int(rows[first]))}, "
            f'"{texts[int(rows[first])]}" instead of "{was}"',
            field="copy",
            fix="restore the table that the run was trained on",
        )


def _write_links(corrected: LabelExport, options: Export, folder: Path) -> list[str]:
    run = corrected.run
    inputs = original.all_inputs(run, data=options.data)
    if not isinstance(inputs, ImageFiles):
        raise InputError(
            f"the data of {run.path} is {inputs.kind}, but only image files can be linked to",
            field="links",
            fix=_TO_FILE + option("out"),
        )
    is_from_python = run.config.get("data") == FROM_PYTHON
    data = Path() if is_from_python else Path(original.request(run, data=options.data).data)
    if not is_from_python and data.is_dir() and folder.resolve().is_relative_to(data.resolve()):
        raise InputError(
            f"{folder} is inside the data {data}, where it would be read as a class",
            field="links",
            fix="choose another folder",
        )
    if is_from_python:  # the run names these files, and may come from an untrusted source
        sift(inputs.paths, run.labels.all_ids, None, on_bad_image="error")
    examples = corrected.examples
    rows = examples["index"].to_numpy()
    labels, names = corrected.labels, run.labels.names
    if (labels == NO_LABEL).any():
        names = (*names, str(run.config.get("unlabelled") or "unlabelled"))
        labels = np.where(labels == NO_LABEL, len(names) - 1, labels)
    written = image_folder.write(
        folder,
        [inputs.paths[i] for i in rows],
        examples["id"].to_pylist(),
        labels,
        names,
        link=options.link,
        overwrite=options.overwrite,
    )
    return [f'the class "{name}" is in the folder "{as_}"' for name, as_ in written.renamed.items()]
