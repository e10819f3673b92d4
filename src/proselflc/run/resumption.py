"""Whether a run may go on: with the options, labels, inputs and processes it was begun with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from accelerate import Accelerator

from proselflc.data.labels.labels import Labels
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.manifest import Written
from proselflc.options import LARGEST_WHOLE
from proselflc.run import config as config_file
from proselflc.run.prepare import PreparedRun
from proselflc.training import checkpoint, processes
from proselflc.training.checkpoint import State
from proselflc.training.run_directory import RunDirectory, read_toml


def begun_in(directory: RunDirectory, now: int) -> int:
    """Return how many processes a run was begun in, where its state says so, else how many now.

    Batches that are too small to be shared are left out, so the number of batches in an epoch may
    depend on it; a run that goes on keeps to the batches that it was begun with.
    """
    number = checkpoint.peek(directory.checkpoints).get("processes")
    return number if type(number) is int and 1 <= number <= LARGEST_WHOLE else now


def facts(prepared: PreparedRun) -> dict[str, object]:
    """What a state says of the run that it is of."""
    weight = prepared.dataset.sample_weight
    return {
        "config": prepared.config.table(),
        "fingerprint": prepared.labels.fingerprint,
        "batches": len(prepared.train),
        "processes": prepared.begun_in,
        "preprocessing": prepared.preprocessing.to_json(),
        "weights": None if weight is None else hashlib.sha256(weight.tobytes()).hexdigest(),
    }


def check_run(directory: RunDirectory, prepared: PreparedRun) -> None:
    """Refuse to go on with other options, other labels or other examples.

    Raises:
        InputError: they are not those of the run in the directory.
    """
    stored = read_toml(directory.config)
    different = config_file.differences(stored, prepared.config.table())
    if different:
        raise InputError(
            f"the run {directory.path} was begun with other options: {', '.join(different)}; use "
            "those, or begin another run with another --out"
        )
    if stored.get("fingerprint") != prepared.labels.fingerprint:
        raise InputError(
            f"the labels are not those that {directory.path} was begun with (fingerprint "
            f"{str(stored.get('fingerprint'))[:12]}… there, {prepared.labels.fingerprint[:12]}… "
            f"now): {_why_other_examples(prepared)}"
        )
    # A run that was stopped in its very beginning has no labels yet, and no state.
    if not _draws_trusted(prepared) or not directory.labels.is_file():
        return
    if Labels.load(directory.labels).ids != prepared.labels.ids:
        raise InputError(
            f"the training examples are not those that {directory.path} was begun with, though "
            f"their labels are the same: {_why_other_examples(prepared)}"
        )


def _why_other_examples(prepared: PreparedRun) -> str:
    """Say what may be the reason why a run has other examples now."""
    if not _draws_trusted(prepared):
        return "has the data changed?"
    return (
        "has the data changed? If not, the run was begun by a version of proselflc that drew the "
        f"examples of --trusted {prepared.config.trusted} in another way, and this version cannot "
        "continue it: begin anew with --overwrite, or with another --out"
    )


def _draws_trusted(prepared: PreparedRun) -> bool:
    """Return whether trusted examples are a share of the data, which is drawn."""
    trusted = prepared.config.trusted
    return trusted is not None and not Path(trusted).exists()


def check_state(state: State, directory: RunDirectory, prepared: PreparedRun) -> None:
    """Refuse a state of another run, of other inputs or of another number of processes.

    Raises:
        InputError: what `facts` gave when it was written is not what it gives now.
    """
    then, now = state.facts, facts(prepared)
    stored = then.get("config")
    if (
        not isinstance(stored, dict)
        or config_file.differences(stored, prepared.config.table())
        or then.get("fingerprint") != now["fingerprint"]
    ):
        raise InputError(
            f"the checkpoint in {directory.path} is of another run: begin anew with --overwrite "
            "instead of --resume"
        )
    if then.get("batches") != now["batches"]:
        raise InputError(
            f"an epoch of {directory.path} had {then.get('batches')} batches and now has "
            f"{now['batches']}: resume with as many processes as it was begun with"
        )
    if then.get("preprocessing") != now["preprocessing"]:
        raise InputError(
            f"the inputs are not those that {directory.path} was begun with, their means differ: "
            "has the data changed?"
        )
    if then.get("weights") != now["weights"]:
        raise InputError(
            f"the sample weights are not those that {directory.path} was begun with: use those, or "
            "begin another run with another --out"
        )


def files(written: Written, history: bytes) -> dict[str, object]:
    """What a state says of the files that the run has written until then."""
    return {
        "files": manifest.to_json(written.files),
        "history": hashlib.sha256(history).hexdigest(),
    }


def check_files(state: State, directory: RunDirectory, history: bytes) -> Written:
    """Refuse to go on from files that are not as they were when the state was saved.

    Args:
        state: one of an earlier version says nothing of files, and all are believed then.
        directory: of the run.
        history: what is there of it until the state.

    Returns:
        What is known of the files.

    Raises:
        InputError: one is gone or differs.
    """
    if "files" not in state.facts:
        return Written(directory.path)
    written = Written(
        directory.path, manifest.from_json(state.facts["files"], directory.checkpoints)
    )
    written.check_all()
    if state.facts.get("history") != hashlib.sha256(history).hexdigest():
        raise InputError(
            f"{directory.history} differs from what the run wrote before its last checkpoint: "
            "restore it from a copy, or train the run again with --overwrite"
        )
    return written


def check_everybody_sees(directory: RunDirectory, accelerator: Accelerator) -> None:
    """Refuse to resume where the directory is not the same for all processes.

    Raises:
        InputError: some do not see a run in it.
    """
    sees = torch.tensor([float(directory.is_begun)])
    number = int(processes.summed(accelerator, sees))
    if number < accelerator.num_processes:
        raise InputError(
            f"only {number} of {accelerator.num_processes} processes see the run "
            f"{directory.path}: to resume it, put it where all machines can read it"
        )
