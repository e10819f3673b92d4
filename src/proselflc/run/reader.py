"""A run as typed objects: everything its directory holds, read when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from proselflc.auditing import held_out
from proselflc.auditing.audit import Audit
from proselflc.auditing.examples import read_examples
from proselflc.auditing.records import Records
from proselflc.data.batches import Order
from proselflc.data.dataset import Floats, Inputs, Ints, Part, check_rows
from proselflc.data.labels.class_matrix import ClassMatrix, checked_transition
from proselflc.data.labels.decisions import Decisions, read_decisions
from proselflc.data.labels.label_values import LabelValues, Returned, returned
from proselflc.data.labels.labels import Labels
from proselflc.data.memory_budget import require
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.sources import arrays, npz
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.regular import content_of, is_regular
from proselflc.training import observations
from proselflc.training.inference import predict_batches
from proselflc.training.observations import Epochs, Mean, Rows
from proselflc.training.run_directory import Json, RunDirectory, read_toml
from proselflc.training.saved_model import SavedModel, finished_run
from proselflc.training.serving import loader

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL = 1 << 20  # bytes of a file that is read in passing
_SHORT = 80  # characters of a method's name


@dataclass(frozen=True)
class Predictions:
    """What a model says about n examples.

    Attributes:
        probabilities: [n, C].
        names: C class names.
        values: the labels of the classes as the caller of `fit` wrote them; None where they came
            from files.
    """

    probabilities: Floats
    names: tuple[str, ...]
    values: LabelValues | None = None

    @property
    def classes(self) -> Ints:
        """[n] the likeliest class id of each example."""
        classes: Ints = self.probabilities.argmax(1)
        return classes

    @property
    def labels(self) -> Returned:
        """[n] the likeliest label of each example, in the type of the labels that `fit` was given.

        A list for lists; an array of the same dtype for arrays and for columns of data frames; a
        tensor for tensors. Class names where the run has its labels from files.
        """
        return returned(self.classes, self.names, self.values)

    @property
    def class_names(self) -> list[str]:
        """n names of the likeliest classes."""
        return [self.names[k] for k in self.classes]

    @property
    def confidence(self) -> Floats:
        """[n] the probability of the likeliest class."""
        largest: Floats = self.probabilities.max(1)
        return largest


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: its directory.
        made_by: `package.module:factory` that makes its model, where that was the user's own. A
            run that somebody else has written could name any code, so it is not believed.
        module: the trained model, where it is in memory already.
    """

    path: Path
    made_by: str | None = None
    module: nn.Module | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """One short line: where it is and, as far as small files say it, what it holds."""
        known = [f"{name}={value!r}" for name, value in self._in_short()]
        return f"Run({', '.join([repr(str(self.path)), *known])})"

    def _in_short(self) -> Iterator[tuple[str, object]]:
        summary, audit = (
            _small_json(path) for path in (self.directory.summary, self.directory.audit)
        )
        method = summary.get("method")
        if isinstance(method, str) and len(method) <= _SHORT:
            yield "method", method
        for name in ("examples", "suspects"):
            if type(audit.get(name)) is int:
                yield name, audit[name]

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.path)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the run should know about its files, in sentences."""
        if self.directory.manifest.is_file():
            return ()
        return (
            f"{self.path} has no {self.directory.manifest.name}, because an older version of "
            "proselflc wrote it: damage to its files cannot be detected",
        )

    @cached_property
    def config(self) -> Json:
        """The options of the run."""
        return read_toml(self.directory.checked(self.directory.config))

    @cached_property
    def labels(self) -> Labels:
        """The labels it was trained on."""
        return Labels.load(self.directory.checked(self.directory.labels))

    @cached_property
    def history(self) -> list[Json]:
        """What was measured at every evaluation point."""
        return self.directory.read_history()

    @cached_property
    def stages(self) -> list[Json]:
        """Name, first epoch and step and length of the stages, in order; empty if there was one."""
        path = self.directory.checked(self.directory.stages)
        if not is_regular(path):
            return []
        stages = self.directory.read_json(path).get("stages")
        numbers = ("first_epoch", "epochs", "first_step", "steps")
        if not isinstance(stages, list) or not all(
            isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and all(type(one.get(name)) is int and one[name] >= 0 for name in numbers)
            for one in stages
        ):
            raise InputError(f"{path} lists no stages: it is damaged")
        return stages

    @cached_property
    def summary(self) -> Json:
        """The run in a few numbers."""
        return self.directory.read_json(self.directory.summary)

    @cached_property
    def evaluation(self) -> Json:
        """Everything that was measured on the test and the validation part."""
        return self.directory.read_json(self.directory.evaluation)

    @cached_property
    def examples(self) -> pa.Table:
        """One row per training example, a pyarrow table; `.to_pandas()` gives a data frame."""
        rows = len(self.labels.ids) if is_regular(self.directory.labels) else None
        found = read_examples(self.directory.checked(self.directory.examples), rows)
        if len(found) == 0:
            raise InputError(
                f"{self.directory.examples} has no rows, so nothing is known about labels: train "
                "the run again"
            )
        return found

    @cached_property
    def audit(self) -> Audit:
        """How many labels are wrong, and which way they went."""
        return Audit.load(self.directory)

    @cached_property
    def transition(self) -> ClassMatrix | None:
        """[C, C] the transition matrix that the method worked with; None where it had none.

        Raises:
            InputError: the file is no such matrix.
        """
        path = self.directory.checked(self.directory.transition)
        if not is_regular(path):
            return None
        matrix = npz.array(path)
        try:
            return checked_transition(matrix, matrix.shape[0] if matrix.ndim else 0)
        except InputError as error:
            raise InputError(f"{path} is damaged: {error}") from None

    @property
    def decisions(self) -> Decisions:
        """What people have decided about the labels, as `review.jsonl` has it now.

        Raises:
            InputError: the file is damaged, or is about other examples, labels or classes.
        """
        found = read_decisions(self.directory.review, self.labels.fingerprint)
        found.check(set(self.labels.ids), set(self.labels.names))
        return found

    @property
    def dynamics(self) -> Iterator[Rows]:
        """[n] what was seen of every training example, epoch by epoch, memory-mapped."""
        return iter(epochs_of(self.directory))

    def recent(self, name: str) -> Mean:
        """The mean of "p" or "target" over the last epochs, memory-mapped."""
        folder = self.directory.dynamics
        self.directory.checked(observations.mean_file(folder, name))
        return observations.recent(folder, name)

    @property
    def records(self) -> Records:
        """All that was recorded of the training examples, with what folds have predicted."""
        return replace(
            self.records_of_training, held_out=held_out.of_run(self.directory, self.labels)
        )

    @property
    def records_of_training(self) -> Records:
        """What was recorded of the training examples while they were learned, memory-mapped."""
        return Records(epochs_of(self.directory))

    @property
    def names(self) -> tuple[str, ...]:
        """C class names."""
        return self._saved.names

    @property
    def preprocessing(self) -> Preprocessing:
        """What is done to inputs before the model sees them."""
        return self._saved.preprocessing

    @property
    def model_name(self) -> str:
        """What a model like the run's is made by.

        Raises:
            InputError: by code that the user has not named.
        """
        return self._saved.model_name

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, in evaluation mode; it maps preprocessed inputs to logits [N, C]."""
        if self.module is not None:
            return self.module.eval()
        return self._saved.read()

    def predict(self, x: object, *, batch_size: int = 512, workers: int = 2) -> Predictions:
        """What the model says about arrays, texts or image paths; see `proselflc.fit` for x."""
        return self.judge(arrays.inputs(x), batch_size=batch_size, workers=workers)

    def judge(self, inputs: Inputs, *, batch_size: int = 512, workers: int = 2) -> Predictions:
        """What the model says about inputs.

        Raises:
            InputError: there is not enough memory for a number per example and class.
        """
        n, C = len(inputs), len(self.names)
        require(
            4 * n * C,
            f"what the model says about {n:,} examples of {C:,} classes",
            "ask about fewer examples at a time, or keep the likeliest class alone with "
            "proselflc predict",
        )
        probabilities = np.zeros((n, C), np.float32)
        for rows, some in self.judged(inputs, batch_size=batch_size, workers=workers):
            probabilities[rows] = some
        return Predictions(probabilities, self.names, self._saved.label_values)

    def judged(
        self, inputs: Inputs, *, batch_size: int = 512, workers: int = 2
    ) -> Iterator[tuple[Ints, Floats]]:
        """Yield positions [N] and probabilities [N, C] of the inputs, batch by batch in order."""
        n = len(inputs)
        self.preprocessing.check(inputs)
        ids = tuple(str(k) for k in range(n))
        check_rows("what the model is asked about", inputs, ids)
        if not n:
            return
        part, order = Part(inputs, np.zeros(n, np.int64), ids), Order(batch_size, shuffle=False)
        batches = loader(part, self.preprocessing, order, workers=workers)
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        for batch, logits in predict_batches(self.model, batches, device):
            yield batch.index.numpy(), torch.softmax(logits, 1).cpu().numpy()

    @cached_property
    def _saved(self) -> SavedModel:
        return SavedModel(self.directory, self.made_by)


def epochs_of(directory: RunDirectory) -> Epochs:
    """What was seen of every training example in every epoch, each file checked when it is read.

    Raises:
        InputError: an epoch is missing.
    """
    manifest.check_none_gone(directory.path, directory.dynamics.name)
    return Epochs(directory.dynamics, directory.checked)


def _small_json(path: Path) -> Json:
    """An object in a file; an empty one where there is none, or it is large or damaged."""
    try:
        found = json.loads(content_of(path)) if path.stat().st_size <= _SMALL else {}
    except (OSError, ValueError, RecursionError, InputError):
        return {}
    return found if isinstance(found, dict) else {}


def load_run(path: str | Path, *, model: str | None = None) -> Run:
    """Read a finished run.

    Args:
        path: its directory.
        model: `package.module:factory`, for a run whose model is the user's own.
    """
    return Run(finished_run(Path(path)).path, made_by=model)
