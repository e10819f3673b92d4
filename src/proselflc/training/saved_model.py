"""The model of a finished run: the network, its classes and how its inputs are prepared."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn

from proselflc.data import preprocessing
from proselflc.data.labels.label_values import LabelValues
from proselflc.data.preprocessing import Preprocessing
from proselflc.errors import InputError
from proselflc.models import catalogue
from proselflc.models.weights import load_strictly, read_state
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.serving import shape_of


@dataclass(frozen=True)
class SavedModel:
    """What a run has left to predict with, read when it is asked for.

    Attributes:
        directory: of the run.
        made_by: `package.module:factory` that makes the model, where that was the user's own. A
            run that somebody else has written could name any code, so it is not believed.
    """

    directory: RunDirectory
    made_by: str | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """C class names."""
        names = self._description.get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{self.directory.model} lists no class names: it is damaged")
        return tuple(names)

    @cached_property
    def label_values(self) -> LabelValues | None:
        """The labels of the classes as the caller wrote them; None for class names."""
        said = self._description.get("label_type")
        return LabelValues.from_json(said, len(self.names), self.directory.model)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """What is done to inputs before the model sees them."""
        return preprocessing.from_json(self._description.get("preprocessing"))

    @property
    def claimed_name(self) -> str:
        """What the run says that its model is made by, not to be believed."""
        return str(self._description.get("model"))

    @property
    def is_ours(self) -> bool:
        """Whether the run says that its model is one of the catalogue."""
        return self.claimed_name in catalogue.MODELS

    @property
    def model_name(self) -> str:
        """What a model like the run's is made by.

        Raises:
            InputError: by code that the user has not named.
        """
        if self.made_by is None and not self.is_ours:
            raise InputError(
                f"the model of {self.directory.path} is not one of ours ({self.claimed_name}): say "
                "who makes it, with --model package.module:factory, or load_run(path, model=…) in "
                "Python"
            )
        return self.made_by or self.claimed_name

    def read(self) -> nn.Module:
        """The trained model, in evaluation mode; it maps preprocessed inputs to logits [N, C].

        Raises:
            InputError: it is made by code that the user has not named, it cannot be made, or its
                weights do not fit.
        """
        shape = shape_of(self.preprocessing)
        module = catalogue.build(self.model_name, shape, len(self.names), generator_seed=0)
        weights = self.directory.checked(self.directory.weights)
        state = read_state(weights)
        self._check_finite(state, {name for name, _ in module.named_parameters()})
        load_strictly(module, state, weights)
        return module.eval()

    def _check_finite(self, state: Mapping[str, Tensor], parameters: Collection[str]) -> None:
        """Refuse weights that are NaN or infinite; a buffer of the user's may be a mask of −∞."""
        for name, tensor in state.items():
            may_be_infinite = name not in parameters and not self.is_ours
            is_bad = tensor.isnan() if may_be_infinite else ~tensor.isfinite()
            if bool(is_bad.any()):
                raise InputError(
                    f'the tensor "{name}" in {self.directory.weights} holds {int(is_bad.sum()):,} '
                    "NaN or infinite numbers, so the model cannot predict: restore the file from a "
                    "copy, or train the run again with a lower --lr"
                )

    @cached_property
    def _description(self) -> Json:
        if self.directory.is_recorded:
            raise InputError(
                f"{self.directory.path} was recorded from a training loop of your own and has no "
                "model: ask the one that you trained"
            )
        return self.directory.read_json(self.directory.model)


def finished_run(path: Path) -> RunDirectory:
    """The directory of a finished run.

    Raises:
        InputError: there is none, it is not finished, or a later version has written it.
    """
    directory = RunDirectory(path)
    if not path.is_dir():
        raise no_run(path)
    if not directory.is_begun:
        raise InputError(f"{path} is not a run: it has no config.toml")
    directory.check_format()
    directory.checked(directory.config)
    if not directory.is_finished and directory.is_recorded:
        raise InputError(
            f"the recording {path} is not finished: go on with record(…, out={str(path)!r}, "
            "resume=True), with more epochs or with none"
        )
    if not directory.is_finished and directory.summary.is_file():
        raise InputError(
            f"the run {path} has a {directory.summary.name} and no {directory.manifest.name}: it "
            "was killed at its very end, or the file was removed; restore it, write it anew with "
            f"proselflc train --out {path} --resume, or set format = 1 in {directory.config.name} "
            "to have the run read without checks"
        )
    if not directory.is_finished:
        raise InputError(
            f"the run {path} is not finished: go on with proselflc train --out {path} "
            "--resume, or with fit(…, resume=True) if it was begun in Python"
        )
    return directory


def no_run(path: Path) -> InputError:
    """That there is none; it names those beside it."""
    beside = _runs_in(path.parent)
    advice = f"there are {', '.join(beside)}" if beside else "proselflc train makes one"
    return InputError(f"there is no run {path}: {advice}")


def _runs_in(directory: Path, most: int = 9) -> list[str]:
    """Some of the runs that a directory holds, by path and in order, as far as we may look."""
    found = []
    with contextlib.suppress(OSError):
        for one in sorted(directory.iterdir()):
            with contextlib.suppress(OSError):
                if RunDirectory(one).config.is_file():
                    found.append(str(one))
    return [*found[:most], "…"] if len(found) > most else found
