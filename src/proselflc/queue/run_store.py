"""Runs stored by the hash of their config, so that none is trained twice.

A finished run is returned at once, an unfinished one is resumed, and one that another process is
training is waited for.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proselflc import methods
from proselflc.data import noise
from proselflc.data.dataset import Dataset
from proselflc.errors import InputError
from proselflc.files.regular import content_of, file_lock, must_be_own_folder
from proselflc.run.config import MAY_CHANGE, Config, OutputOptions
from proselflc.run.learned.encoded import LARGE
from proselflc.run.train import train
from proselflc.terminal import Display
from proselflc.training import checkpoint
from proselflc.training.loop import Observer
from proselflc.training.run_directory import RunDirectory

_TRAINING = {"training": 1}  # to be raised when the same options train differently than before
_IGNORED = (*MAY_CHANGE, "eval_epochs", "eval_steps")  # evaluation does not change the result


def key(config: Config, dataset: Dataset | None = None) -> str:
    """Return 16 hexadecimal digits that identify everything a run's result depends on.

    These are the options, except those that may change between the parts of a run and the
    interval of evaluations. A file counts by its content, not by its path, and omitted
    parameters of a method count as their defaults. A dataset replaces the data that the config
    names.
    """
    method = {"name": config.method, **methods.resolved(config.method, config.parameters).given()}
    depends: dict[str, Any] = {k: str(v) for k, v in config.table().items() if k not in _IGNORED}
    depends.setdefault("image_size", str(LARGE))  # as when it was always part of the options
    if config.weights is not None:
        depends["weights"] = _identify(config.weights)
        depends.setdefault("normalize", "of the weights")
    if dataset is not None:
        labels = noise.fingerprint(dataset.train.labels, dataset.num_classes)
        depends["dataset"] = [dataset.name, labels]
    return hash_options(
        {**depends, "method": {k: _identify(v) for k, v in method.items()}, **_TRAINING}
    )


def _identify(value: object) -> str:
    if isinstance(value, Path) and value.is_file():
        return _digest(value, value.stat().st_mtime_ns)
    if isinstance(value, Path) and not value.exists():  # a future run, named by its key
        return value.name
    return str(value)


@functools.cache
def _digest(path: Path, changed: int) -> str:
    return hashlib.sha256(content_of(path)).hexdigest()


def stored_run(config: Config, folder: Path, dataset: Dataset | None = None) -> RunDirectory:
    """Return the directory of a config's run, which need not exist."""
    return RunDirectory(folder / f"{config.method}-{key(config, dataset)}")


def hash_options(depends: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that change with any value."""
    text = json.dumps(depends, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def train_once(
    config: Config,
    folder: Path,
    display: Display,
    *,
    dataset: Dataset | None = None,
    observers: Sequence[Observer] = (),
) -> RunDirectory:
    """Return the finished run of a config; train or resume it if it is not finished.

    Checkpoints are removed from the finished run.
    """
    directory = stored_run(config, folder, dataset)
    folder.mkdir(parents=True, exist_ok=True)
    path = directory.path
    must_be_own_folder(path)
    with locked(path.with_name(f".{path.name}.lock"), path):
        if directory.is_begun and directory.is_finished:
            return directory
        resume = directory.is_begun and checkpoint.can_go_on(directory.checkpoints)
        output = OutputOptions(directory.path, resume=resume, overwrite=not resume)
        train(config, output, display, dataset=dataset, observers=observers, is_audited=False)
        directory.clear_checkpoints()
    return directory


@contextmanager
def locked(lock: Path, path: Path) -> Iterator[None]:
    """Hold the lock of a run or a study, after waiting for other processes."""
    held = file_lock(lock)
    try:
        held.acquire()
    except OSError as error:
        raise InputError(f"cannot lock {path}: {error.strerror or error}") from None
    try:
        yield
    finally:
        held.release()
