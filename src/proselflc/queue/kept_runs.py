"""Runs that are kept by the hash of their config, so that none is trained twice.

Whoever wants a run that is there has it; one that was begun is gone on with; one that another
process trains at the moment is waited for.
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
from proselflc.files.locking import file_lock
from proselflc.files.regular import content_of
from proselflc.files.whole import must_be_own_folder
from proselflc.run.config import MAY_CHANGE, Config
from proselflc.run.output_options import OutputOptions
from proselflc.run.train import train
from proselflc.terminal.display import Display
from proselflc.training import checkpoint
from proselflc.training.loop import Observer
from proselflc.training.run_directory import RunDirectory

_TRAINING = {"training": 1}  # raise where the same options train otherwise than before
_ASIDE = (*MAY_CHANGE, "eval_epochs", "eval_steps")  # looking at a run changes nothing in it


def key(config: Config, dataset: Dataset | None = None) -> str:
    """16 hexadecimal digits of all that a run's result depends on.

    Those are the options, but for those that may change between the parts of a run and for how
    often it is looked at; a file counts by what is in it, not by where it is.

    Args:
        config: a method's parameters that are left out count as their defaults.
        dataset: instead of what the config names.
    """
    method = {"name": config.method, **methods.resolved(config.method, config.parameters).given()}
    depends: dict[str, Any] = {k: str(v) for k, v in config.table().items() if k not in _ASIDE}
    if config.weights is not None:
        depends["weights"] = _said(config.weights)
        depends.setdefault("normalize", "of the weights")
    if dataset is not None:
        labels = noise.fingerprint(dataset.train.labels, dataset.num_classes)
        depends["dataset"] = [dataset.name, labels]
    return hashed({**depends, "method": {k: _said(v) for k, v in method.items()}, **_TRAINING})


def _said(value: object) -> str:
    if isinstance(value, Path) and value.is_file():
        return _digest(value, value.stat().st_mtime_ns)
    if isinstance(value, Path) and not value.exists():  # a run to come, named by its key
        return value.name
    return str(value)


@functools.cache
def _digest(path: Path, changed: int) -> str:
    return hashlib.sha256(content_of(path)).hexdigest()


def place(config: Config, folder: Path, dataset: Dataset | None = None) -> RunDirectory:
    """Where the run of a config is, or would be."""
    return RunDirectory(folder / f"{config.method}-{key(config, dataset)}")


def hashed(depends: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that change with anything in it."""
    text = json.dumps(depends, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def once(
    config: Config,
    folder: Path,
    display: Display,
    *,
    dataset: Dataset | None = None,
    observers: Sequence[Observer] = (),
) -> RunDirectory:
    """The finished run of a config; trained now if it is not there, from where it was left.

    States to resume from are removed from a run that is finished.

    Args:
        config: of the run.
        folder: of the runs.
        display: shows the progress of training.
        dataset: instead of what the config names.
        observers: follow the training; if one stops it, the run is not finished.

    Raises:
        InputError: something in the config, the data or the directory is not as it must be.
        DivergenceError: the loss is not finite.
        Interrupted: somebody wanted it to stop; the state is saved.
    """
    directory = place(config, folder, dataset)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(directory.path):
        if directory.is_begun and directory.is_finished:
            return directory
        goes_on = directory.is_begun and checkpoint.can_go_on(directory.checkpoints)
        start = OutputOptions(directory.path, resume=goes_on, overwrite=not goes_on)
        train(config, start, display, dataset=dataset, observers=observers)
        directory.clear_checkpoints()
    return directory


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for other processes that want the same run; the lock goes with the process."""
    must_be_own_folder(path)
    lock = file_lock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire()
    except OSError as error:
        raise InputError(f"cannot lock {path}: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()
