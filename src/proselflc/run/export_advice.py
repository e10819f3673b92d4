"""How the labels of a run are best exported, as a command to paste."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

from proselflc.data.request import FROM_PYTHON, TABLES
from proselflc.errors import printable
from proselflc.run.reader import Run


def export_command(run: Run, data: str | None = None) -> str:
    """The command that writes a run's corrected labels in the form that its own labels have.

    Args:
        run: finished.
        data: where its data is now, if it has moved.
    """
    moved = "" if data is None else f" --data {shlex.quote(data)}"
    config = run.config if run.directory.config.is_file() else {}
    command = f"proselflc export {printable(shlex.quote(str(run.path)))}"
    if "noise" not in config:  # what is right on the disk is not to be corrected there
        place = str(config.get("data", "")) if data is None else data
        suffixes = [Path(one).suffix.lower() for one in (str(config.get("labels", "")), place)]
        tables = [suffix for suffix in suffixes if suffix in TABLES]
        if tables:
            return f"{command} --copy {_free('corrected', tables[0])}{moved}"
        if place != FROM_PYTHON and _has_image_files(run, Path(place)):
            return f"{command} --links {_free('sorted')}{moved}"
    return f"{command} --out {_free('labels', '.csv')}"


def _has_image_files(run: Run, folder: Path) -> bool:
    """Whether the examples are files in a folder, and here is not inside it.

    Links that were made inside the data would be read as classes of it.
    """
    if not folder.name or not run.directory.labels.is_file():
        return False
    is_inside = Path.cwd().is_relative_to(folder.resolve())
    return not is_inside and bool(run.labels.ids) and (folder / run.labels.ids[0]).is_file()


def _free(stem: str, suffix: str = "") -> str:
    """A name that nothing has here yet."""
    names = (f"{stem}{suffix}" if k == 1 else f"{stem}-{k}{suffix}" for k in itertools.count(1))
    return next(name for name in names if not Path(name).exists())
