"""The model of a finished run: the network, its classes and how its inputs are prepared."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from proselflc.data import serving
from proselflc.data.image import SUFFIXES
from proselflc.data.labels import LabelValues
from proselflc.data.opening import DATASETS
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.request import is_table
from proselflc.errors import InputError
from proselflc.learners import catalogue as learners
from proselflc.learners.rows import RowsForTrees, columns_for_trees
from proselflc.models import catalogue
from proselflc.models.weights import load_strictly, read_state
from proselflc.training.run_directory import RunDirectory
from proselflc.wording import command, option

_FIRST = 1000  # files that are looked at to recognise a folder of images


@dataclass(frozen=True)
class ModelDescription:
    """The parts of `model.json` that a prediction needs."""

    names: tuple[str, ...]  # of the C classes
    model: str | None = None  # its name in the catalogue, or the code that makes it
    preprocessing: Any = None  # of the inputs, as its `to_json` wrote it
    label_type: Any = None  # the labels as the caller wrote them, if they are not class names


@dataclass(frozen=True)
class SavedModel:
    """The model of a run, read when it is needed."""

    directory: RunDirectory
    # `package.module:factory` that makes the model, if it is the user's own. The run itself is not
    # trusted with this: it could name any code.
    made_by: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return C class names."""
        return self._description.names

    @cached_property
    def label_values(self) -> LabelValues | None:
        """Return the labels of the classes as the caller wrote them; None for class names."""
        stored = self._description.label_type
        return LabelValues.from_json(stored, len(self.names), self.directory.model)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """Return the preprocessing of the model's inputs."""
        return serving.from_json(self._description.preprocessing)

    @property
    def served_by(self) -> Preprocessing:
        """Return what turns inputs into the tensors that the model takes."""
        if self.claimed_name in learners.LEARNERS:
            return RowsForTrees(self.preprocessing)
        return self.preprocessing

    @property
    def claimed_name(self) -> str:
        """Return the model's name or code as the run claims it, which is not trusted."""
        return str(self._description.model)

    @property
    def is_ours(self) -> bool:
        """Whether the run claims that its model is one of the catalogue."""
        return self.claimed_name in catalogue.MODELS or self.claimed_name in learners.LEARNERS

    @property
    def model_name(self) -> str:
        """Return the name or the code that makes a model like the run's."""
        if self.made_by is None and not self.is_ours:
            raise InputError(
                f"the model of {self.directory.path} is not in the catalogue ({self.claimed_name})",
                field="model",
                fix=f"name it with {option('model', 'package.module:factory')}, or with "
                "load_run(path, model=…) in Python",
            )
        return self.made_by or self.claimed_name

    def read(self) -> nn.Module:
        """Return the trained model in evaluation mode; it maps inputs to logits [N, C]."""
        if learners.is_estimator(self.claimed_name):
            raise InputError(
                f"{self.directory.path} keeps no model, because {self.claimed_name} can only be "
                "saved by pickling it",
                fix="fit it on the corrected labels, or train a run with "
                f"{option('model', 'boosting')}",
            )
        if self.model_name in learners.LEARNERS:
            return self._read_learner()
        shape = self.preprocessing.shape
        module = catalogue.build(self.model_name, shape, len(self.names), generator_seed=0)
        weights = self.directory.checked(self.directory.weights)
        state = read_state(weights)
        self._check_finite(state, {name for name, _ in module.named_parameters()})
        load_strictly(module, state, weights)
        return module.eval()

    def _read_learner(self) -> nn.Module:
        weights = self.directory.checked(self.directory.weights)
        columns = columns_for_trees(self.preprocessing)
        try:
            state = read_state(weights)
            return learners.read(self.model_name, state, len(self.names), columns).eval()
        except InputError as error:
            raise InputError(
                f"{weights} is damaged: {error.reason}",
                fix="restore the file from a copy, or train the run again",
            ) from None

    def _check_finite(self, state: Mapping[str, Tensor], parameters: Collection[str]) -> None:
        """Refuse NaN and infinite weights; a buffer of a user's model may be a mask of −∞."""
        for name, tensor in state.items():
            may_be_infinite = name not in parameters and not self.is_ours
            is_bad = tensor.isnan() if may_be_infinite else ~tensor.isfinite()
            if bool(is_bad.any()):
                raise InputError(
                    f'the tensor "{name}" in {self.directory.weights} holds {int(is_bad.sum()):,} '
                    "NaN or infinite numbers, so the model cannot predict",
                    fix="restore the file from a copy, or train the run again with a lower "
                    f"{option('lr')}",
                )

    @cached_property
    def _description(self) -> ModelDescription:
        if self.directory.is_recorded:
            raise InputError(
                f"{self.directory.path} was recorded from your own training loop and has no model",
                fix="use the model that you trained",
            )
        return self.directory.read(self.directory.model, ModelDescription)


def finished_run(path: Path) -> RunDirectory:
    """Return the directory of a finished run."""
    directory = RunDirectory(path)
    if not path.is_dir():
        raise no_run(path)
    if not directory.is_begun:
        raise _not_a_run(path)
    directory.check_format()
    directory.checked(directory.config)
    if directory.is_finished:
        return directory
    resume = command("train", out=path, resume=True)
    if directory.is_recorded:
        raise InputError(
            f"the recording {path} is not finished",
            fix=f"continue it with record(…, out={str(path)!r}, resume=True), with or without "
            "more epochs",
        )
    if directory.summary.is_file():
        raise InputError(
            f"the run {path} has a {directory.summary.name} but no {directory.manifest.name}: it "
            "was killed at its very end, or the file was removed; restore it, write it again with "
            f"{resume}, or set format = 1 in {directory.config.name} to read the run without checks"
        )
    raise InputError(
        f"the run {path} is not finished",
        fix=f"continue it with {resume}, or with fit(…, resume=True) if it was begun in Python",
    )


def no_run(path: Path) -> InputError:
    """Return the error for a run that does not exist, which names the runs beside it."""
    if os.path.isfile(path) or str(path) in DATASETS:
        return _not_a_run(path)
    runs = _runs_in(path.parent)
    train = command("train")
    return InputError(
        f"there is no run {path}",
        fix=f"the runs beside it are {', '.join(runs)}" if runs else f"{train} makes one",
    )


def _not_a_run(path: Path) -> InputError:
    """Return the error for something else in the place of a run: data, a file or other runs."""
    begin = f"train on it first with {command('train', data=path)}"
    if not path.exists():
        return InputError(f"{path} is the name of a data set, not a run", fix=begin)
    if path.is_file():
        if RunDirectory(path.parent).config.is_file():
            return InputError(
                f"{path} is a file in a run, not a run", fix=f"pass its folder, {path.parent}"
            )
        is_data = is_table(path) or path.suffix.lower() == ".npz"
        return InputError(
            f"{path} is a {'file of data' if is_data else 'file'}, not a run",
            fix=begin if is_data else f"pass the folder that {command('train')} has written",
        )
    if any(one.suffix.lower() in SUFFIXES for one in islice(path.glob("*/*"), _FIRST)):
        return InputError(f"{path} is a folder of images, not a run", fix=begin)
    runs = _runs_in(path)
    if runs:
        one = runs[0] if len(runs) == 1 else f"one of {', '.join(runs)}"
        return InputError(f"{path} is a folder of runs, not a run", fix=f"pass {one}")
    return InputError(
        f"{path} is not a run: it has no {RunDirectory(path).config.name} that a run has written; "
        f"if it holds data, {begin}"
    )


def _runs_in(directory: Path, most: int = 9) -> list[str]:
    """Return the paths of some runs in a directory, skipping what cannot be read."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            with contextlib.suppress(OSError):
                if RunDirectory(path).config.is_file():
                    found.append(str(path))
    return [*found[:most], "…"] if len(found) > most else found
