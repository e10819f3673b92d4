"""Where a run is to be, and what happens to one that is there already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accelerate.utils import broadcast_object_list

from proselflc.errors import InputError
from proselflc.run.config import Config
from proselflc.training.run_directory import RunDirectory


@dataclass(frozen=True)
class OutputOptions:
    """Where a run is to be, and what to do with one that is there.

    Attributes:
        out: the directory; None for a new one below `runs`.
        resume: go on with it.
        overwrite: replace it.
    """

    out: Path | None = None
    resume: bool = False
    overwrite: bool = False


def place(config: Config, start: OutputOptions) -> Path:
    """The directory of the run, the same in all processes."""
    if start.resume and start.overwrite:
        raise InputError("--resume goes on with a run and --overwrite replaces it: give one")
    if start.out is not None:
        return start.out
    if start.resume:
        raise InputError("--resume needs --out, the directory of the run to go on with")
    chosen = [str(unused(config, config.method))]
    broadcast_object_list(chosen, from_process=0)
    return Path(chosen[0])


def unused(config: Config, what: str) -> Path:
    """A directory below `runs` that is not there yet, named after the data and what is done."""
    stem = f"{Path(config.request.data).stem.replace(':', '-') or 'data'}-{what}"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"


def may_begin(directory: RunDirectory, start: OutputOptions) -> bool:
    """Whether there is something to do; refuses to touch a run that nobody said to touch."""
    if start.resume and directory.is_begun:
        directory.check_format()
    if start.resume and directory.is_finished:
        return False
    if directory.is_begun and not start.resume and not start.overwrite:
        state = "a finished" if directory.is_finished else "an unfinished"
        hint = "" if directory.is_finished else "--resume to go on, "
        raise InputError(
            f"{directory.path} holds {state} run: pass {hint}--overwrite to replace it, or another "
            "--out"
        )
    strangers = () if directory.is_begun or start.overwrite else directory.present()
    if strangers:
        raise InputError(
            f"{directory.path} holds {strangers[0]} and is no run: choose another --out, or pass "
            "--overwrite to replace it"
        )
    return True
