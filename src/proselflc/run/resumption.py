"""Checks before a run begins (disk space) or is resumed (options, labels, inputs and files)."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from proselflc import wording
from proselflc.data import memory_budget
from proselflc.data.labels import Labels
from proselflc.data.request import FROM_PYTHON
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.manifest import Written
from proselflc.learners.catalogue import LEARNERS
from proselflc.models import catalogue, pixels
from proselflc.models.factory import names_code
from proselflc.options import LARGEST_WHOLE
from proselflc.run import config as config_file
from proselflc.run.config import Config
from proselflc.run.prepare import PreparedRun
from proselflc.training import checkpoint, observations, processes
from proselflc.training.checkpoint import State
from proselflc.training.loop import Training
from proselflc.training.memories import memories
from proselflc.training.run_directory import RunDirectory, read_toml
from proselflc.wording import option

# What of the data all processes must agree in, and the facts that tell.
_DATA = {
    "fingerprint": "the labels",
    "preprocessing": "the means of the inputs",
    "weights": "the sample weights",
}


class Begun(Protocol):
    """A run that is ready to begin."""

    @property
    def config(self) -> Config: ...

    @property
    def labels(self) -> Labels: ...


def command(prepared: Begun, directory: RunDirectory) -> str:
    """Return the command that resumes a run."""
    config, path = prepared.config, directory.path
    if config.request.data == FROM_PYTHON:
        return f"fit(…, out={str(path)!r}, resume=True)"
    own = config.model if names_code(config.model) else None
    return wording.command("train", out=path, resume=True, model=own)


def resumed_config(config: Config, directory: RunDirectory) -> Config:
    """Return the config of a resumed run, with what was chosen for it when it began.

    Its pixels are scaled as then; a run that does not hold the option has scaled them by its data,
    whatever its weights. A model of our own that was chosen for a table is used again.
    """
    table = read_toml(directory.config)
    backbone, size = table.get("backbone"), table.get("image_size")
    if config.backbone in (None, "auto") and isinstance(backbone, str):
        config = replace(config, backbone=backbone)
    if config.image_size is None and isinstance(size, int):
        config = replace(config, image_size=size)
    model = table.get("model")
    ours = model in catalogue.MODELS or model in LEARNERS
    if config.model in (None, "auto") and ours:
        config = replace(config, model=str(model))
    if config.normalize is not None or config.weights is None:
        return config
    stored = table.get("normalize")
    return replace(config, normalize=stored if isinstance(stored, str) else pixels.DATA)


def check_disk_space(directory: RunDirectory, prepared: PreparedRun, training: Training) -> None:
    """Refuse a run that needs more disk space than is free."""
    needed = _needed_bytes(prepared, training)
    free = shutil.disk_usage(directory.path).free
    if free < needed:
        raise InputError(
            f"the run needs about {needed / 1e6:,.0f} MB and {directory.path} has "
            f"{free / 1e6:,.0f} MB left",
            field="out",
            fix=f"free some space, or choose another {option('out')}",
        )


def _needed_bytes(prepared: PreparedRun, training: Training) -> int:
    """Return about how many bytes records, checkpoints and temporary logits take."""
    n, C = len(prepared.dataset.train), prepared.dataset.num_classes
    parts = (prepared.dataset.test, prepared.dataset.validation)
    evaluated = [0 if part is None else len(part) for part in parts]
    logits = sum(4 * m * C for m in evaluated if not memory_budget.keeps_all(m, C))
    weights = sum(p.numel() * p.element_size() for p in training.module.parameters())
    method = sum(t.numel() * t.element_size() for t in training.strategy.buffers())
    for memory in memories(training.strategy).values():  # a checkpoint has those of all processes
        own = sum(t.numel() * t.element_size() for t in memory.per_example().values())
        method += own * (prepared.shard[1] - 1)
    return needed_bytes(n, C, prepared.epochs, weights=weights, method=method) + logits


def needed_bytes(n: int, C: int, epochs: int, *, weights: int, method: int = 0) -> int:
    """Return about how many bytes the records and checkpoints of a run take.

    It has n examples and C classes; `weights` and `method` are the bytes of the model's parameters
    and of the method's buffers.
    """
    rows = observations.ROW.itemsize * n * epochs
    means = 4 * n * min(C, observations.TOP_CLASSES * 2 if n * C > observations.LARGEST else C)
    # Two checkpoints and one being written, of weights, average, optimiser and method.
    return rows + 4 * means + 14 * weights + 3 * method + 10**6


def begun_in(directory: RunDirectory, now: int) -> int:
    """Return the number of processes that a run was begun in, or `now` if it is unknown.

    Batches too small to be shared are left out, so the number of batches per epoch may depend on
    it. A resumed run keeps the batches that it was begun with.
    """
    number = checkpoint.peek(directory.checkpoints).get("processes")
    return number if type(number) is int and 1 <= number <= LARGEST_WHOLE else now


def facts(prepared: PreparedRun) -> dict[str, object]:
    """Return the facts of a checkpoint that identify its run."""
    weight = prepared.dataset.sample_weight
    return {
        "config": prepared.config.table(),
        "fingerprint": prepared.labels.fingerprint,
        "batches": len(prepared.train),
        "processes": prepared.begun_in,
        "preprocessing": prepared.preprocessing.identity,
        "weights": None if weight is None else hashlib.sha256(weight.tobytes()).hexdigest(),
    }


def check_run(directory: RunDirectory, prepared: Begun) -> None:
    """Refuse to resume a run with other options, labels or examples."""
    stored = read_toml(directory.config)
    different = config_file.differences(stored, prepared.config.table())
    if different:
        raise _refusal(
            f"the run {directory.path} was begun with other options: {', '.join(different)}",
            f"use those, or start another run with another {option('out')}",
        )
    if stored.get("fingerprint") != prepared.labels.fingerprint:
        raise _refusal(
            f"the labels are not those that {directory.path} was begun with (fingerprint "
            f"{str(stored.get('fingerprint'))[:12]}… there, {prepared.labels.fingerprint[:12]}… "
            "now)",
            _why_other_examples(prepared),
        )
    # A run that was stopped at its very beginning has neither labels nor a checkpoint.
    if not directory.labels.is_file():
        return
    try:
        begun = Labels.load(directory.labels)
    except InputError:
        return  # `check_files` refuses what is not as it was written
    if begun.rest != prepared.labels.rest:
        raise _refusal(
            f"the examples without a label are not those that {directory.path} was begun with",
            "has the data changed?",
        )
    if _draws_trusted(prepared) and begun.ids != prepared.labels.ids:
        raise _refusal(
            f"the training examples are not those that {directory.path} was begun with, though "
            "their labels are the same",
            _why_other_examples(prepared),
        )


def _refusal(reason: str, fix: str) -> InputError:
    return InputError(reason, field="resume", fix=fix)


def _why_other_examples(prepared: Begun) -> str:
    """Return a likely reason for different examples, and what to do."""
    if not _draws_trusted(prepared):
        return "has the data changed?"
    return (
        "has the data changed? If not, the run was begun by a version of proselflc that drew the "
        f"examples of {option('trusted', prepared.config.trusted)} differently, and this version "
        f"cannot continue it: train it again with {option('overwrite', True)} or another "
        f"{option('out')}"
    )


def _draws_trusted(prepared: Begun) -> bool:
    """Return whether trusted examples are drawn as a share of the data."""
    trusted = prepared.config.trusted
    return trusted is not None and not Path(trusted).exists()


def is_of_run(state: State, prepared: Begun) -> bool:
    """Return whether a checkpoint has the options and the labels of a run."""
    stored, labels = state.facts.get("config"), state.facts.get("fingerprint")
    if not isinstance(stored, dict) or labels != prepared.labels.fingerprint:
        return False
    return not config_file.differences(stored, prepared.config.table())


def check_state(state: State, directory: RunDirectory, prepared: PreparedRun) -> None:
    """Refuse a checkpoint of another run, of other inputs or of another number of processes."""
    then, now = state.facts, facts(prepared)
    if not is_of_run(state, prepared):
        raise _refusal(
            f"the checkpoint in {directory.path} belongs to another run",
            f"train it again with {option('overwrite', True)} instead of {option('resume', True)}",
        )
    if then.get("batches") != now["batches"]:
        raise _refusal(
            f"an epoch of {directory.path} had {then.get('batches')} batches and now has "
            f"{now['batches']}",
            "resume with as many processes as it was begun with",
        )
    if then.get("preprocessing") != now["preprocessing"]:
        raise _refusal(
            f"the inputs are not those that {directory.path} was begun with, their means differ",
            "has the data changed?",
        )
    if then.get("weights") != now["weights"]:
        raise _refusal(
            f"the sample weights are not those that {directory.path} was begun with",
            f"use those, or start another run with another {option('out')}",
        )


def files(written: Written, history: bytes) -> dict[str, object]:
    """Return the facts of a checkpoint about the files written so far."""
    return {
        "files": manifest.to_json(written.files),
        "history": hashlib.sha256(history).hexdigest(),
    }


def check_files(state: State, directory: RunDirectory, history: bytes) -> Written:
    """Refuse to resume from files that changed since the checkpoint, and return what they are.

    A checkpoint of an earlier version lists no files, which are then not checked.
    """
    if "files" not in state.facts:
        return Written(directory.path)
    written = Written(
        directory.path, manifest.from_json(state.facts["files"], directory.checkpoints)
    )
    written.check_all()
    if state.facts.get("history") != hashlib.sha256(history).hexdigest():
        raise _refusal(
            f"{directory.history} differs from what the run wrote before its last checkpoint",
            f"restore it from a copy, or train the run again with {option('overwrite', True)}",
        )
    return written


def check_alike(prepared: PreparedRun, accelerator: Accelerator) -> None:
    """Refuse processes that were started with other options, or that read other data.

    The same file may have another path on another machine.
    """
    if accelerator.num_processes == 1:
        return
    options = {
        name: value
        for name, value in prepared.config.table().items()
        if name != "data" and not isinstance(prepared.config.values()[name], Path)
    }
    kinds = {name: one.storage for name, one in memories(prepared.strategy).items()}
    own = [{**facts(prepared), "config": options, "memories": kinds}]
    first, *others = gather_object(own)
    for rank, theirs in enumerate(others, 1):
        different = config_file.different_options(first["config"], theirs["config"])
        if different:
            values = ", ".join(f"{key}: {a} and {b}" for key, (a, b) in different.items())
            raise InputError(
                f"processes 0 and {rank} were started with different options ({values})",
                fix="start all processes with the same command",
            )
        for name, what in _DATA.items():
            if first[name] != theirs[name]:
                raise InputError(
                    f"processes 0 and {rank} read different data: {what} are not the same",
                    fix="give all machines the same files",
                )
        if first["memories"] != theirs["memories"]:
            raise InputError(
                f"processes 0 and {rank} have different memory limits, so that the method would "
                "keep what it remembers in different ways",
                fix=f"set {memory_budget.VARIABLE} to the same number for all processes",
            )


def check_visible(directory: RunDirectory, accelerator: Accelerator) -> None:
    """Refuse to resume a run that not all processes can read."""
    sees = torch.tensor([float(directory.is_begun)])
    number = int(processes.summed(accelerator, sees))
    if number < accelerator.num_processes:
        raise _refusal(
            f"only {number} of {accelerator.num_processes} processes see the run {directory.path}",
            "put it where all machines can read it",
        )
