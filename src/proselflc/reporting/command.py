"""Reports as files: the page, and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proselflc.data.inputs import Inputs
from proselflc.data.sources import arrays
from proselflc.errors import InputError
from proselflc.files.whole import whole_file
from proselflc.pages import drawing
from proselflc.pages.html_page import is_own_page
from proselflc.reporting import page, run_facts
from proselflc.run.reader import Run
from proselflc.terminal import Silent
from proselflc.wording import option

NAME = "report.html"


@dataclass(frozen=True)
class Written:
    """What was written."""

    path: Path  # of the page
    figures: tuple[Path, ...]  # their files
    shown: int  # number of suspects on the page
    notes: tuple[str, ...]  # on what could not be read or shown


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
    known = None if inputs is None else _inputs(inputs)
    written = write(
        [one.path if isinstance(one, Run) else Path(one) for one in several],
        None if out is None else Path(out),
        inputs=known,
        overwrite=overwrite,
    )
    for note in written.notes:
        Silent(notes=not quiet).note(note)
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
    reported = run_facts.read_runs(runs)
    path = out or (reported[0].run.directory.report if len(runs) == 1 else Path(NAME))
    check_out(path, overwrite)
    made = page.make(reported, inputs=inputs, data=data)
    if made.why_gone and not overwrite and page.shows_examples(path):
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
    return Written(path, tuple(files), made.shown, made.notes)


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


def _fix() -> str:
    return f"choose another {option('out')}, or pass {option('overwrite', True)}"


def _inputs(x: object) -> Inputs:
    if isinstance(x, Inputs):
        return x
    return arrays.inputs(x, "inputs")
