"""The checkpoint of a run that a learner of tables learns: what identifies it, and its checks."""

from __future__ import annotations

import hashlib
import json
from typing import Protocol

from proselflc.data.preprocessing import Preprocessing
from proselflc.errors import InputError
from proselflc.learners.learner import LabelledTable
from proselflc.run import resumption
from proselflc.terminal import Display
from proselflc.training import checkpoint
from proselflc.training.checkpoint import State
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.wording import option


class Begun(resumption.Begun, Protocol):
    """A run of a learner that is ready to begin."""

    @property
    def preprocessing(self) -> Preprocessing: ...

    @property
    def table(self) -> LabelledTable: ...


def facts(prepared: Begun) -> Json:
    """Return the facts of a checkpoint that identify its run."""
    weight = prepared.table.weight
    x = prepared.table.x
    rows = hashlib.sha256(f"{x.shape} {x.dtype}".encode())
    for start in range(0, len(x), 1 << 16):
        rows.update(x[start : start + (1 << 16)].tobytes())
    scaling = json.dumps(prepared.preprocessing.identity, sort_keys=True).encode()
    return {
        "config": prepared.config.table(),
        "fingerprint": prepared.labels.fingerprint,
        "rows": rows.hexdigest(),
        "preprocessing": hashlib.sha256(scaling).hexdigest(),
        "weights": None if weight is None else hashlib.sha256(weight.tobytes()).hexdigest(),
    }


def last(directory: RunDirectory, prepared: Begun, display: Display) -> State | None:
    """Return the newest checkpoint of a run that is to be resumed, or None if there is none.

    Raises:
        InputError: it is one of another run or of other data, or all checkpoints are damaged.
    """
    if not directory.is_begun:
        return None
    resumption.check_run(directory, prepared)
    state, notes = checkpoint.read_last(directory.checkpoints)
    if state is None and notes:
        raise InputError(
            f"all checkpoints of {directory.path} are damaged", field="resume", fix=_again()
        )
    for note in notes:
        display.note(note)
    if state is not None:
        _check(state, directory, prepared)
        checkpoint.remove_beyond(directory.checkpoints, state.step)
    return state


def another_run(directory: RunDirectory) -> InputError:
    """Return the refusal of a checkpoint that cannot be one of this run."""
    return InputError(
        f"the checkpoint in {directory.path} belongs to another run", field="resume", fix=_again()
    )


def _again() -> str:
    return f"train it again with {option('overwrite', True)} instead of {option('resume', True)}"


def _check(state: State, directory: RunDirectory, prepared: Begun) -> None:
    then, now = state.facts, facts(prepared)
    if not resumption.is_of_run(state, prepared):
        raise another_run(directory)
    if any(then.get(key) != now[key] for key in ("rows", "preprocessing")):
        raise InputError(
            f"the rows are not those that {directory.path} was begun with, though their labels "
            "are the same",
            field="resume",
            fix=f"has the data changed? If so, {_again()}",
        )
    if then.get("weights") != now["weights"]:
        raise InputError(
            f"the sample weights are not those that {directory.path} was begun with",
            field="resume",
            fix=f"use those, or start another run with another {option('out')}",
        )
