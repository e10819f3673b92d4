"""Where a run is written, and what happens to one that exists there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accelerate.utils import broadcast_object_list

from proselflc.errors import InputError
from proselflc.run.config import Config
from proselflc.training.run_directory import RunDirectory
from proselflc.wording import option


@dataclass(frozen=True)
class OutputOptions:
    """Where a run is written, and what to do with one that exists there.

    Attributes:
        out: the directory; None for a new one below `runs`.
        resume: continue the run in it.
        overwrite: replace the run in it.
    """

    out: Path | None = None
    resume: bool = False
    overwrite: bool = False


def run_path(config: Config, output: OutputOptions) -> Path:
    """Return the directory of a run, the same in all processes."""
    if output.resume and output.overwrite:
        raise InputError(
            f"{option('resume')} continues a run and {option('overwrite')} replaces it",
            field="overwrite",
            fix="give one of them",
        )
    if output.out is not None:
        return output.out
    if output.resume:
        raise InputError(
            f"{option('resume')} needs {option('out')}, the directory of the run to continue",
            field="out",
        )
    chosen = [str(new_path(config, config.method))]
    broadcast_object_list(chosen, from_process=0)
    return Path(chosen[0])


def new_path(config: Config, purpose: str) -> Path:
    """Return a path below `runs` that does not exist, named after the data and the purpose."""
    stem = f"{Path(config.request.data).stem.replace(':', '-') or 'data'}-{purpose}"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"


def check_output(directory: RunDirectory, output: OutputOptions) -> bool:
    """Return whether there is anything to do; refuse to touch a run without permission."""
    if output.resume and directory.is_begun:
        directory.check_format()
    if output.resume and directory.is_finished:
        return False
    replace, other = f"{option('overwrite', True)} to replace it", f"another {option('out')}"
    if directory.is_begun and not output.resume and not output.overwrite:
        state = "a finished" if directory.is_finished else "an unfinished"
        hint = "" if directory.is_finished else f"{option('resume', True)} to continue it, "
        raise InputError(
            f"{directory.path} holds {state} run",
            field="out",
            fix=f"pass {hint}{replace}, or {other}",
        )
    foreign = () if directory.is_begun or output.overwrite else directory.present()
    if foreign:
        raise InputError(
            f"{directory.path} holds {foreign[0]} but is not a run",
            field="out",
            fix=f"choose {other}, or pass {replace}",
        )
    return True
