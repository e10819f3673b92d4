"""`proselflc export`: the corrected labels of a run, for whatever comes next."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from proselflc.auditing.examples import write_parquet
from proselflc.data.images.image import sift
from proselflc.data.inputs import ImageFiles, Ints
from proselflc.data.labels import class_folders
from proselflc.data.labels.class_folders import Link
from proselflc.data.labels.label_files import read_label_table
from proselflc.data.opening import open_data
from proselflc.data.request import FROM_PYTHON, TABLES
from proselflc.data.tables import table as tables
from proselflc.data.tables.table_copy import TableCorrection
from proselflc.data.tables.table_file import Table, open_table
from proselflc.errors import InputError
from proselflc.exporting.labels import Corrected, text_lines
from proselflc.files.regular import is_regular
from proselflc.files.whole import whole_file
from proselflc.run import original
from proselflc.run.prediction import check_out
from proselflc.run.reader import Run

Format: TypeAlias = Literal["csv", "parquet", "npz", "cleanlab"]

# What a file of each format may end in.
SUFFIXES: dict[Format, tuple[str, ...]] = {
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet", ".pq"),
    "npz": (".npz",),
    "cleanlab": (".csv", ".tsv", ".parquet", ".pq"),
}


@dataclass(frozen=True)
class Export:
    """What to write, and where.

    Attributes:
        format: of `out`; None for what its ending says.
        out: a file of labels, or None.
        copy: a corrected copy of the user's own table, or None.
        links: a folder with a folder of links per class, or None.
        link: what kind of links.
        soft: distributions beside labels.
        min_confidence: suggestions below it are not followed.
        only_suspects: leave the other examples out.
        data: where the data of the run is now, if it has moved.
        overwrite: replace what is there.
        reviewed: follow what people have decided, and suggestions only from `min_confidence` on.
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

    @property
    def kind(self) -> Format:
        """The format that is meant."""
        if self.format is not None or self.out is None:
            return self.format or "csv"
        ending = self.out.suffix.lower()
        fitting = (kind for kind, suffixes in SUFFIXES.items() if ending in suffixes)
        return next(fitting, "csv")

    @property
    def is_printed(self) -> bool:
        """Whether the labels go to the standard output, for want of another place."""
        return self.out is None and self.copy is None and self.links is None

    def check(self) -> None:
        """Refuse what cannot be done, before anything is read."""
        if self.out is not None:
            every = tuple(dict.fromkeys(s for some in SUFFIXES.values() for s in some))
            suffixes = every if self.format is None else SUFFIXES[self.format]
            check_out(self.out, self.overwrite, suffixes)
        if self.copy is not None:
            check_out(self.copy, self.overwrite, TABLES, "copy")
            if self.only_suspects:
                raise InputError(
                    "a corrected copy of a table has all its rows: leave --only-suspects out, or "
                    "write a list with --out"
                )
        if self.links is not None:
            class_folders.check(self.links, overwrite=self.overwrite)
        if self.link != "symbolic" and self.links is None:
            raise InputError(f"--link {self.link} is for --links FOLDER: add it, or leave it out")
        if self.data is not None and self.links is None and self.copy is None:
            raise InputError("--data is for --copy and --links, nothing else needs the data")
        written = self.out is not None or self.is_printed
        if self.soft and (self.kind == "cleanlab" or not written):
            raise InputError(
                "--soft adds distributions to --format csv, parquet or npz: "
                + ("cleanlab's columns have none" if written else "say with --out where they go")
            )
        if self.format is not None and not written:
            raise InputError(f"--format {self.format} is of a file: say with --out where it goes")


@dataclass(frozen=True)
class Done:
    """What was written.

    Attributes:
        examples: how many rows or links.
        suspects: how many labels are probably wrong.
        corrections: how many are others now.
        reviewed: how many a person has said.
        written: files and folders.
        notes: what the user may not expect, in words.
    """

    examples: int
    suspects: int
    corrections: int
    reviewed: int
    written: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def export(run: Run, what: Export) -> Done:
    """Write the corrected labels of a run wherever they are wanted."""
    what.check()
    corrected = Corrected(run, what.min_confidence, what.only_suspects, what.reviewed)
    examples = corrected.examples
    suspects, corrections = int(examples["is_suspect"].to_numpy().sum()), corrected.corrections
    written: dict[str, str] = {}
    notes = [*run.notes, *corrected.notes]
    if what.copy is not None:
        notes += _write_copy(corrected, what, what.copy)
        written["copy"] = str(what.copy)
    if what.links is not None:
        notes += _write_links(corrected, what, what.links)
        written["links"] = str(what.links)
    if what.out is not None:
        _write_file(corrected, what, what.out)
        written["out"] = str(what.out)
    return Done(len(examples), suspects, corrections, corrected.decided, written, tuple(notes))


def printed(run: Run, what: Export) -> Iterator[bytes]:
    """The labels as they go to the standard output, piece by piece."""
    what.check()
    corrected = Corrected(run, what.min_confidence, what.only_suspects, what.reviewed)
    if what.kind in ("csv", "cleanlab"):
        table = corrected.issues() if what.kind == "cleanlab" else corrected.table(soft=what.soft)
        for line in text_lines(table):
            yield line.encode()
        return
    file = io.BytesIO()
    if what.kind == "npz":
        corrected.write_npz(file, soft=what.soft)
    else:
        import pyarrow.parquet as pq

        pq.write_table(corrected.table(soft=what.soft), file, compression="zstd")
    yield file.getvalue()


def _write_file(corrected: Corrected, what: Export, out: Path) -> None:
    ending = out.suffix.lower()
    if what.kind == "npz":
        with whole_file(out) as file:
            corrected.write_npz(file, soft=what.soft)
        return
    table = corrected.issues() if what.kind == "cleanlab" else corrected.table(soft=what.soft)
    if ending in SUFFIXES["parquet"]:
        write_parquet(table, out)
        return
    with whole_file(out) as file:
        for line in text_lines(table, "\t" if ending == ".tsv" else ","):
            file.write(line.encode())


def _write_copy(corrected: Corrected, what: Export, out: Path) -> list[str]:
    """A corrected copy of the table that the run has its labels from; what to say about it."""
    run = corrected.run
    if run.config.get("data") == FROM_PYTHON:
        raise InputError(
            f"the data of {run.path} was given in Python, so there is no table to copy: write the "
            "labels with --out FILE.csv"
        )
    wanted = original.request(run, data=what.data)
    has_labels_beside = wanted.labels is not None and wanted.labels.suffix.lower() in TABLES
    source = wanted.labels if has_labels_beside else Path(wanted.data)
    assert source is not None
    if source.suffix.lower() not in TABLES:
        raise InputError(
            f"the run {run.path} has its labels from {wanted.labels or wanted.data}, which is no "
            "table, so there is none to copy: write the labels with --out FILE.csv"
        )
    if "noise" in run.config:
        raise InputError(
            f"the labels of {run.path} were made wrong on purpose (--noise {run.config['noise']}), "
            f"so a corrected copy would be worse than {source}: write the labels with --out "
            "FILE.csv, or corrupt a file with proselflc noise, train on that and copy it"
        )
    if not is_regular(source):
        raise InputError(
            f"the label file of {run.path}, {source}, is not there any more, seen from "
            f"{Path.cwd()}: put it back, or go where the run was trained"
            + ("" if has_labels_beside else ", or say with --data where it is now")
        )
    if _form(out) != _form(source):
        raise InputError(
            f'a copy of {source} is a {source.suffix} file too, but --copy is "{out.name}"'
        )
    if out.exists() and out.samefile(source):
        raise InputError(f"{out} is the original: write the copy to another file")
    names = run.labels.names
    if has_labels_beside:
        data = open_data(wanted)
        rows, classes = read_label_table(data, source, wanted)
        rows = rows[original.find_ids(run.labels.ids, data.train.ids, f"the data {wanted.data}")]
        column = tables.label_column(source, wanted.label_column)
        table = open_table(source)
        known = dict(zip(table.texts(column), _renamed(classes, data.names, names), strict=True))
    else:
        found = tables.find_label_cells(
            source,
            label_column=wanted.label_column,
            path_column=wanted.path_column,
            text_column=wanted.text_column,
            id_column=wanted.id_column,
            ignored=wanted.ignore_column,
        )
        what_it_is = f"the table {source} of {run.path}"
        rows = found.rows[original.find_ids(run.labels.ids, found.ids, what_it_is)]
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
    verb = "is another" if copied.changed == 1 else "are others"
    return [
        f'{labels} in the column "{column}" {verb} than in {source}; the column "{copied.before}" '
        "has all as they were"
    ]


def _form(path: Path) -> str:
    ending = path.suffix.lower()
    return {".pq": ".parquet", ".tab": ".tsv"}.get(ending, ending)


def _renamed(classes: Ints, own: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """[rows] class ids of the data as those of the run; −1 for a class that it does not know."""
    place = {name: k for k, name in enumerate(names)}
    there = [place.get(name, -1) for name in own]
    return [there[k] for k in classes]


def _must_be_as_trained(
    run: Run,
    table: Table,
    column: str,
    rows: Ints,
    known: dict[str, int],
) -> None:
    """Refuse a table whose labels are others now: rows without ids need not be the same either."""
    texts = table.texts(column)
    there = np.array([known.get(texts[row], -1) for row in rows], dtype=np.int64)
    other = np.flatnonzero(there != run.labels.given)
    if len(other):
        first = int(other[0])
        was = run.labels.names[int(run.labels.given[first])]
        raise InputError(
            f"the table {table.path} has changed since training: {len(other):,} of {len(rows):,} "
            f'labels are others now, the first in {table.where(int(rows[first]))}, "'
            f'{texts[int(rows[first])]}", was "{was}"; put the old table back'
        )


def _write_links(corrected: Corrected, what: Export, folder: Path) -> list[str]:
    run = corrected.run
    inputs = original.inputs(run, data=what.data)
    if not isinstance(inputs, ImageFiles):
        raise InputError(
            f"the data of {run.path} are {inputs.kind}, and only image files can be linked to: "
            "write the labels with --out FILE.csv"
        )
    is_from_python = run.config.get("data") == FROM_PYTHON
    data = Path() if is_from_python else Path(original.request(run, data=what.data).data)
    if not is_from_python and data.is_dir() and folder.resolve().is_relative_to(data.resolve()):
        raise InputError(
            f"{folder} lies inside the data {data}, where it would be read as a class: choose "
            "another place"
        )
    if is_from_python:  # the run says which files these are, and it may be somebody else's
        sift(inputs.paths, run.labels.ids, None, on_bad_image="error")
    examples = corrected.examples
    rows = examples["index"].to_numpy()
    done = class_folders.write(
        folder,
        [inputs.paths[i] for i in rows],
        examples["id"].to_pylist(),
        corrected.labels,
        run.labels.names,
        link=what.link,
        overwrite=what.overwrite,
    )
    return [f'the class "{name}" is in the folder "{as_}"' for name, as_ in done.renamed.items()]
