"""`proselflc report`: a page about runs, and its figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proselflc.data.inputs import Inputs
from proselflc.data.sources import arrays
from proselflc.errors import InputError
from proselflc.files.whole import whole_file
from proselflc.pages.html_page import is_ours
from proselflc.reporting import figures, page, reading
from proselflc.run.reader import Run
from proselflc.terminal.display import Silent

NAME = "report.html"


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        path: the page.
        figures: files.
        shown: how many suspects are on the page.
        notes: a sentence for each thing that could not be read or shown.
    """

    path: Path
    figures: tuple[Path, ...]
    shown: int
    notes: tuple[str, ...]


def report(
    run: Run | str | Path | Sequence[Run | str | Path],
    out: str | Path | None = None,
    *,
    inputs: object | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Path:
    """Write one self-contained HTML page about a run, or about several compared; its path.

    Args:
        run: a run or its directory, or several; suspects are shown of the first.
        out: the page; left out, report.html in the directory of the one run, or of several in the
            working directory.
        inputs: the examples that the first run was trained on, in their order, for showing them;
            see `proselflc.fit` for x. Left out, the data that the run names is opened.
        overwrite: replace a file that is no such page, or one whose examples are gone by now.
        quiet: do not say what could not be read; the page does.

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
    """Write the page of some runs, and its figures as SVG and PNG files where a folder is named.

    Args:
        runs: their directories.
        out: the page, or None for where it goes by itself.
        inputs: the first run's examples, or None to open its data.
        data: where that is now, if it has moved.
        folder: for the figures, or None.
        overwrite: replace a file that is no page of ours, or one whose examples are gone by now.
    """
    readings = reading.readings(runs)
    path = out or (readings[0].run.directory.report if len(runs) == 1 else Path(NAME))
    check_out(path, overwrite)
    made = page.make(readings, inputs=inputs, data=data)
    if made.why_gone and not overwrite and page.shows_examples(path):
        raise InputError(
            f"{path} shows the examples, and a new page could not: {made.why_gone}; or choose "
            "another --out, or pass --overwrite"
        )
    if made.why_incomplete and not overwrite and path.exists():
        raise InputError(
            f"{path} would be replaced by a page without examples: {made.why_incomplete}; or "
            "choose another --out, or pass --overwrite"
        )
    files: list[Path] = []
    if folder is not None:
        files = figures.write(made.figures, folder)
    with whole_file(path) as file:
        file.write(made.html.encode())
    return Written(path, tuple(files), made.shown, made.notes)


def check_out(path: Path, overwrite: bool) -> None:
    """Refuse a page that cannot be written, before anything is computed."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name}: make it")
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file, such as {path / NAME}")
    if path.exists() and not overwrite and not is_ours(path):
        raise InputError(
            f"{path} exists and is no report of ours: choose another --out or pass --overwrite"
        )


def _inputs(x: object) -> Inputs:
    if isinstance(x, Inputs):
        return x
    return arrays.inputs(x, "inputs")
