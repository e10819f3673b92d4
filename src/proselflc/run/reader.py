"""A finished run: the content of its directory as typed objects, read when it is needed."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import torch
from torch import nn

from proselflc.auditing import held_out, witness
from proselflc.auditing.audit import Audit
from proselflc.auditing.examples import read_examples
from proselflc.auditing.mapping import points
from proselflc.auditing.neighbours import Neighbours
from proselflc.auditing.records import Records
from proselflc.data.batches import Order
from proselflc.data.class_matrix import ClassMatrix, checked_transition
from proselflc.data.dataset import Part, check_rows
from proselflc.data.decisions import Decisions, read_decisions
from proselflc.data.inputs import Floats, Inputs, Ints
from proselflc.data.labels import Labels, LabelValues, Returned, returned
from proselflc.data.memory_budget import require
from proselflc.data.preprocessing import Preprocessing, Standardization
from proselflc.data.serving import loader
from proselflc.data.sources import arrays, npz
from proselflc.data.tables import frames
from proselflc.data.tables.encoding import TableEncoding
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.files.regular import decoded, is_regular
from proselflc.files.typed import Count, decode_json
from proselflc.training import observations
from proselflc.training.inference import predict_batches
from proselflc.training.observations import Epochs, Mean, Rows
from proselflc.training.run_directory import Json, RunDirectory, read_toml
from proselflc.training.saved_model import SavedModel, finished_run
from proselflc.wording import command

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL = 1 << 20  # bytes of a file that `repr` reads


@dataclass(frozen=True)
class _Stage:
    """A stage of `stages.json`; epochs and steps count from 0."""

    name: str
    first_epoch: Count
    epochs: Count
    first_step: Count
    steps: Count


@dataclass(frozen=True)
class _Stages:
    stages: list[_Stage]


_METHOD: dict[str, Any] = {"method": Annotated[str, msgspec.Meta(max_length=80)]}
_COUNTS: dict[str, Any] = {"examples": Count, "suspects": Count, "changes": Count}


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for n examples.

    Attributes:
        probabilities: [n, C] class probabilities.
        names: C class names.
        values: the labels of the classes as the caller of `fit` wrote them; None if they came
            from files.
    """

    probabilities: Floats
    names: tuple[str, ...]
    values: LabelValues | None = None

    @property
    def classes(self) -> Ints:
        """Return [n] the likeliest class id of each example."""
        classes: Ints = self.probabilities.argmax(1)
        return classes

    @property
    def labels(self) -> Returned:
        """Return [n] the likeliest label of each example, in the type of the labels given to `fit`.

        This is a list for lists, an array of the same dtype for arrays and for columns of data
        frames, a tensor for tensors, and class names if the labels of the run came from files.
        """
        return returned(self.classes, self.names, self.values)

    @property
    def class_names(self) -> list[str]:
        """Return the n names of the likeliest classes."""
        return [self.names[k] for k in self.classes]

    @property
    def confidence(self) -> Floats:
        """Return [n] the probability of the likeliest class."""
        largest: Floats = self.probabilities.max(1)
        return largest


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: the directory.
        made_by: `package.module:factory` that makes the model, if it is the user's own. The run
            itself is not trusted with this: it could name any code.
        module: the trained model, if it is in memory already.
    """

    path: Path
    made_by: str | None = None
    module: nn.Module | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Return a line with the path and, if small files hold them, a few facts."""
        files = {self.directory.summary: _METHOD, self.directory.audit: _COUNTS}
        facts = [fact for path, kinds in files.items() for fact in _facts(path, kinds)]
        known = [f"{name}={value!r}" for name, value in facts]
        return f"Run({', '.join([repr(str(self.path)), *known])})"

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.path)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences about the run's files that a reader should know."""
        if self.directory.manifest.is_file():
            return ()
        return (
            f"{self.path} has no {self.directory.manifest.name}, because an older version of "
            "proselflc wrote it: damage to its files cannot be detected",
        )

    @cached_property
    def config(self) -> Json:
        """Return the options of the run."""
        return read_toml(self.directory.checked(self.directory.config))

    @cached_property
    def labels(self) -> Labels:
        """Return the labels that the run was trained on."""
        return Labels.load(self.directory.checked(self.directory.labels))

    @cached_property
    def history(self) -> list[Json]:
        """Return the numbers of every evaluation point."""
        return self.directory.read_history()

    @cached_property
    def stages(self) -> list[Json]:
        """Return name, first epoch and step and length of each stage; empty if there was one."""
        if not is_regular(self.directory.checked(self.directory.stages)):
            return []
        return [
            asdict(stage) for stage in self.directory.read(self.directory.stages, _Stages).stages
        ]

    @cached_property
    def summary(self) -> Json:
        """Return the final numbers of the run."""
        return self.directory.read_json(self.directory.summary)

    @cached_property
    def evaluation(self) -> Json:
        """Return all measurements on the test and the validation part."""
        return self.directory.read_json(self.directory.evaluation)

    @cached_property
    def examples(self) -> pa.Table:
        """Return a pyarrow table with a row per training example; `.to_pandas()` converts it.

        Examples without a label are among them; their `given_label` is null.
        """
        rows = len(self.labels.all_ids) if is_regular(self.directory.labels) else None
        found = read_examples(self.directory.checked(self.directory.examples), rows)
        if len(found) == 0:
            raise InputError(
                f"{self.directory.examples} has no rows, so nothing is known about the labels",
                fix="train the run again",
            )
        return found

    @property
    def labelled_examples(self) -> pa.Table:
        """Return the rows of the examples that have a label, in the order of `labels`."""
        found = self.examples
        column = found["given_label"]
        return found.filter(column.is_valid()) if column.null_count else found

    @cached_property
    def audit(self) -> Audit:
        """Return the audit: the noise rate and the classes that are confused."""
        return Audit.load(self.directory)

    @cached_property
    def transition(self) -> ClassMatrix | None:
        """Return [C, C] the transition matrix of the method, or None if it has none.

        Raises:
            InputError: the file does not hold such a matrix.
        """
        path = self.directory.checked(self.directory.transition)
        if not is_regular(path):
            return None
        matrix = npz.array(path)
        try:
            return checked_transition(matrix, matrix.shape[0] if matrix.ndim else 0)
        except InputError as error:
            raise InputError(f"{path} is damaged: {error}") from None

    @cached_property
    def neighbours(self) -> Neighbours | None:
        """Return the nearest neighbours of every training example; None if they are not known."""
        path = self.directory.checked(self.directory.neighbours)
        return Neighbours.load(path, len(self.labels.ids)) if is_regular(path) else None

    @cached_property
    def map(self) -> Floats | None:
        """Return [n, 2] a point in a plane for every training example; None if there is none."""
        path = self.directory.checked(self.directory.map)
        return points.load(path, len(self.labels.ids)) if is_regular(path) else None

    @property
    def decisions(self) -> Decisions:
        """Return people's decisions about the labels, as `review.jsonl` holds them now.

        Raises:
            InputError: the file is damaged, or is about other examples, labels or classes.
        """
        found = read_decisions(self.directory.review, self.labels.fingerprint)
        found.check(set(self.labels.all_ids), set(self.labels.names))
        return found

    @property
    def dynamics(self) -> Iterator[Rows]:
        """Return [n] the record of every training example, epoch by epoch, memory-mapped."""
        return iter(epochs_of(self.directory))

    def recent(self, name: str) -> Mean:
        """Return the mean of "p" or "target" over the last epochs, memory-mapped."""
        folder = self.directory.dynamics
        self.directory.checked(observations.mean_file(folder, name))
        return observations.recent(folder, name)

    @property
    def records(self) -> Records:
        """Return the records of the training examples, with the predictions of folds."""
        return replace(
            self.records_of_training, held_out=held_out.of_run(self.directory, self.labels)
        )

    @property
    def records_of_training(self) -> Records:
        """Return the records of the training examples without the predictions of folds."""
        shape = len(self.labels.given), len(self.labels.names)
        return Records(epochs_of(self.directory), witness=witness.of_run(self.directory, shape))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the C class names."""
        return self._saved.names

    @property
    def preprocessing(self) -> Preprocessing:
        """Return the preprocessing of the model's inputs."""
        return self._saved.preprocessing

    @property
    def served_by(self) -> Preprocessing:
        """Return what turns inputs into the tensors that the model takes; see `preprocessing`."""
        return self._saved.served_by

    @property
    def model_name(self) -> str:
        """Return the name or the code that makes a model like the run's."""
        return self._saved.model_name

    @cached_property
    def model(self) -> nn.Module:
        """Return the trained model in evaluation mode; it maps inputs to logits [N, C]."""
        if self.module is not None:
            return self.module.eval()
        return self._saved.read()

    def predict(self, x: object, *, batch_size: int = 512, workers: int = 2) -> Predictions:
        """Predict arrays, data frames, texts or image paths; see `proselflc.fit` for x.

        Missing numbers of a data frame count as the median of their column in training. Columns
        that were constant in training may be absent.
        """
        scaling, kinds, absent = self.preprocessing, None, frozenset[str]()
        if frames.is_frame(x) and isinstance(scaling, Standardization | TableEncoding):
            absent = scaling.optional - set(frames.column_names(x))
        if isinstance(scaling, TableEncoding):
            kinds = tuple(one for one in scaling.kinds if one.name not in absent) or scaling.kinds
        taken = arrays.inputs(x, kinds=kinds)
        if isinstance(scaling, Standardization) and isinstance(taken, MixedColumns):
            names, fill = scaling.columns, scaling.fill
            if names is not None:
                there = [k for k, name in enumerate(names) if name not in absent]
                names, fill = tuple(names[k] for k in there), tuple(fill[k] for k in there)
            taken = frames.numbers(x, "x", names, fill)
        return self.predict_inputs(taken, batch_size=batch_size, workers=workers)

    def predict_inputs(
        self, inputs: Inputs, *, batch_size: int = 512, workers: int = 2
    ) -> Predictions:
        """Return the predictions for inputs.

        Raises:
            InputError: there is not enough memory for a number per example and class.
        """
        n, C = len(inputs), len(self.names)
        require(
            4 * n * C,
            f"predictions for {n:,} examples of {C:,} classes",
            "predict fewer examples at a time, or keep only the likeliest classes with "
            f"{command('predict', self.path)}",
        )
        probabilities = np.zeros((n, C), np.float32)
        for rows, p in self.predict_batches(inputs, batch_size=batch_size, workers=workers):
            probabilities[rows] = p
        return Predictions(probabilities, self.names, self._saved.label_values)

    def predict_batches(
        self, inputs: Inputs, *, batch_size: int = 512, workers: int = 2
    ) -> Iterator[tuple[Ints, Floats]]:
        """Yield positions [N] and probabilities [N, C] of the inputs, batch by batch in order."""
        n = len(inputs)
        self.preprocessing.check(inputs)
        part = Part(inputs, np.zeros(n, np.int64), tuple(str(k) for k in range(n)))
        check_rows("the inputs to predict", part)
        if not n:
            return
        order = Order(batch_size, shuffle=False)
        batches = loader(part, self.served_by, order, workers=workers)
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        for batch, logits in predict_batches(self.model, batches, device):
            yield batch.index.numpy(), torch.softmax(logits, 1).cpu().numpy()

    @cached_property
    def _saved(self) -> SavedModel:
        return SavedModel(self.directory, self.made_by)


def epochs_of(directory: RunDirectory) -> Epochs:
    """Return the records of every epoch; each file is checked when it is read."""
    manifest.check_none_gone(directory.path, directory.dynamics.name)
    return Epochs(directory.dynamics, directory.checked)


def _facts(path: Path, kinds: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Return values of a small file that have the given types; none if it cannot be read."""
    try:
        found = decode_json(decoded(path, _SMALL), dict[str, Any], path)
    except InputError:
        return
    for name, kind in kinds.items():
        with suppress(msgspec.ValidationError):
            yield name, msgspec.convert(found.get(name), kind)


def run_in(
    out: str | Path | None, *, made_by: str | None = None, module: nn.Module | None = None
) -> Run:
    """Return the run in a directory, or in a temporary one that lives as long as the result."""
    path = Path(tempfile.mkdtemp(prefix="proselflc-")) if out is None else Path(out)
    run = Run(path, made_by, module)
    if out is None:
        weakref.finalize(run, shutil.rmtree, path, ignore_errors=True)
    return run


def load_run(path: str | Path, *, model: str | None = None) -> Run:
    """Read a finished run.

    Args:
        path: the directory.
        model: `package.module:factory`, for a run whose model is the user's own.
    """
    return Run(finished_run(Path(path)).path, made_by=model)
