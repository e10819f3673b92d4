"""The run of a recording: its examples and batches as `record` is given them, and its directory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc import methods
from proselflc.auditing.fitting import Fitting
from proselflc.correction.criterion import Criterion
from proselflc.data.dataset import Part, check_rows, check_unicode
from proselflc.data.inputs import Features, Inputs, Ints, write_kept
from proselflc.data.labels import Labels, LabelValues, labelled
from proselflc.data.noise import fingerprint
from proselflc.data.opening import open_data
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.data.sources import arrays
from proselflc.errors import InputError, unknown
from proselflc.files.manifest import Written
from proselflc.files.regular import fleeting
from proselflc.run import neighbours
from proselflc.run.config import OutputOptions, check_output, write_config
from proselflc.run.reader import epochs_of
from proselflc.run.summary import history_line, write_results
from proselflc.training.observations import Recorder
from proselflc.training.run_directory import RECORDED, Json, RunDirectory, read_toml

METHOD = "A recorded loop"  # if the loop uses no criterion of proselflc


@dataclass
class RecordedExamples:
    """What is known about n examples of C classes before recording begins."""

    given: Ints  # [n] class ids, −1 if unknown so far
    names: tuple[str, ...]
    ids: tuple[str, ...]
    clean: Ints | None = None  # [n] true class ids
    inputs: Inputs | None = None  # to keep in the run
    data: str | None = None  # the data by the name that `train` takes
    title: str | None = None  # name of the data
    source: str = ""  # origin of the labels, for messages; empty if batches bring them
    label_values: LabelValues | None = None  # as the caller wrote them; None for those of `data`

    @property
    def num_classes(self) -> int:
        return len(self.names)

    def check(self, index: Ints, given: Ints) -> None:
        """Refuse positions [N] or class ids [N] of a batch that do not fit these examples."""
        n, C = len(self.given), self.num_classes
        outside = index[(index < 0) | (index >= n)]
        if len(outside):
            raise InputError(
                f"index {outside[0]} is not a position among {n} examples",
                field="index",
                fix=f"pass positions in the training set, 0 … {n - 1}",
            )
        strange = given[(given < 0) | (given >= C)]
        if len(strange):
            raise InputError(
                f"label {strange[0]} is not a class id, expected 0 … {C - 1}", field="labels"
            )
        known = self.given[index]
        other = np.flatnonzero((known >= 0) & (known != given))
        if len(other):
            k = other[0]
            before = f"in {self.source}" if self.source else "before"
            raise InputError(
                f"example {index[k]} has the label {given[k]}, but had {known[k]} {before}",
                field="index",
                fix="pass each example's position in the training set, the same in every epoch",
            )

    def check_all_known(self) -> None:
        """Refuse examples whose labels are still unknown."""
        missing = np.flatnonzero(self.given < 0)
        if len(missing):
            raise InputError(
                f"{len(missing):,} of {len(self.given):,} examples did not occur in the first "
                f"epoch (such as example {missing[0]}), so their labels are unknown",
                field="labels",
                fix="pass all labels to record(…, labels=…)",
            )


def checked_examples(
    n: int,
    num_classes: int,
    labels: object | None,
    clean: object | None,
    names: Sequence[str] | None,
    ids: Sequence[str] | None,
    inputs: object | None,
    data: str | Path | None,
) -> RecordedExamples:
    """Return the examples that the arguments of `record` describe."""
    if data is not None:
        others = {"labels": labels, "names": names, "ids": ids, "inputs": inputs}
        return _examples_of_data(n, num_classes, others, clean, str(data))
    known = tuple(str(name) for name in (range(num_classes) if names is None else names))
    _check_count("names", known, num_classes, "classes")
    own_ids = tuple(str(value) for value in (range(n) if ids is None else ids))
    _check_count("ids", own_ids, n, "examples")
    if len(set(known)) < num_classes:
        raise InputError("two classes have the same name", field="names")
    about = RecordedExamples(np.full(n, -1, np.int64), known, own_ids)
    about.label_values = LabelValues.class_ids(num_classes)  # if batches bring the labels
    if labels is not None:
        about.given, are_names = _class_ids(labels, known, n, "labels")
        about.label_values = (
            LabelValues.like(labels, known)
            if are_names
            else LabelValues.class_ids(num_classes, labels)
        )
        about.source = "labels"
    if clean is not None:
        about.clean, _ = _class_ids(clean, known, n, "clean")
    if inputs is not None:
        about.inputs = arrays.inputs(inputs, "inputs")
        _check_count("inputs", about.inputs, n, "examples")
        if about.inputs.strings is not None:  # refused now, not after the first epoch
            check_unicode("inputs", *about.inputs.strings)
    check_unicode("the recording", "class", about.names)
    nothing = Features(np.zeros((n, 0), np.float32))
    check_rows("the recording", Part(about.inputs or nothing, None, about.ids))
    return about


def _examples_of_data(
    n: int, num_classes: int, others: Mapping[str, object], clean: object, data: str
) -> RecordedExamples:
    for name, value in others.items():
        if value is not None:
            raise InputError(f"data has its own {name}", field=name, fix=f"leave {name} out")
    found = open_data(Request(data=data))
    if found.unlabelled is not None:
        many, fix = len(found.unlabelled.part), "drop them, and predict them after training"
        raise InputError(f"{many:,} rows of {data} have no label", field="data", fix=fix)
    if (len(found.train), found.num_classes) != (n, num_classes):
        raise InputError(
            f"{data} has {len(found.train)} training examples of {found.num_classes} classes, "
            f"expected {n} of {num_classes}",
            field="data",
            fix="pass the data that the loop trains on",
        )
    return RecordedExamples(
        found.train.labels,
        found.names,
        found.train.ids,
        found.clean if clean is None else _class_ids(clean, found.names, n, "clean")[0],
        data=data,
        title=found.name,
        source=data,
    )


def _check_count(what: str, given: Sequence[object] | Inputs, expected: int, of: str) -> None:
    if len(given) != expected:
        raise InputError(f"there are {len(given)} {what} for {expected} {of}", field=what)


def _class_ids(values: object, names: tuple[str, ...], n: int, what: str) -> tuple[Ints, bool]:
    """Return the class ids [n] of labels that are ids or names, and whether they are names."""
    values = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    array: npt.NDArray[Any] = np.asarray(values)
    if array.shape != (n,):
        raise InputError(f"{what} has shape {list(array.shape)}, expected {n} labels", field=what)
    if array.dtype.kind in "UO":
        place = {name: k for k, name in enumerate(names)}
        labels = [str(label) for label in array.tolist()]
        strange = [label for label in labels if label not in place]
        if strange:
            raise InputError(f"{what}: " + unknown("class", strange[0], names), field=what)
        return np.array([place[label] for label in labels], dtype=np.int64), True
    if array.dtype.kind not in "iu":
        raise InputError(f"{what} is {array.dtype}, expected class ids or names", field=what)
    outside = array[(array < 0) | (array >= len(names))]
    if len(outside):
        raise InputError(
            f"{what} has the label {outside[0]}, expected class ids 0 … {len(names) - 1}",
            field=what,
        )
    return array.astype(np.int64), False


def checked_batch(
    index: object, logits: object, labels: object | None, num_classes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return index [N], logits [N, C] and labels [N] as detached tensors on any device.

    Types and shapes are checked without reading the values.
    """
    z = _tensor(logits, "logits").detach()
    if z.dim() != 2 or z.size(1) != num_classes or not z.is_floating_point():
        raise InputError(
            f"expected floating-point logits [N, {num_classes}], a row per example and a column "
            f"per class, got {z.dtype} {list(z.shape)}",
            field="logits",
        )
    if z.dtype in (torch.float16, torch.bfloat16):
        z = z.float()
    given = None if labels is None else _whole_numbers(labels, "labels", len(z))
    return _whole_numbers(index, "index", len(z)), z, given


def _whole_numbers(values: object, what: str, n: int) -> Tensor:
    tensor = _tensor(values, what).detach()
    is_whole = not (tensor.dtype is torch.bool or tensor.is_floating_point() or tensor.is_complex())
    if tensor.shape != (n,) or not is_whole:
        raise InputError(
            f"expected {n} whole numbers as {what}, one per row of logits, got {tensor.dtype} "
            f"{list(tensor.shape)}",
            field=what,
        )
    return tensor.long()


def _tensor(values: object, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"{what} is a {type(values).__name__} that cannot be converted to a tensor",
            field=what,
            fix="pass a tensor, an array or a list of numbers",
        ) from None


class RecordedRun:
    """The files of a recording. Only the first of several processes calls methods that write.

    Files that are not `lasting` need not survive a crash of the machine.
    """

    def __init__(
        self,
        directory: RunDirectory,
        about: RecordedExamples,
        criterion: Criterion | None,
        *,
        lasting: bool,
    ) -> None:
        self.recorder = Recorder(
            directory.dynamics, len(about.given), about.num_classes, 0, means=False
        )
        self._directory = directory
        self._about = about
        self._trusts = criterion is not None
        self._method = _method(criterion)
        self._lasting = lasting
        self._history: list[Json] = []
        self._written = Written(directory.path)
        self._steps = 0
        self._started = self._epoch_started = time.monotonic()
        self._held = ExitStack()

    def begin(self, resume: bool | int, overwrite: bool) -> int:
        """Lock the directory, begin or resume a recording, and return its number of epochs."""
        directory = self._directory
        with ExitStack() as stack:
            is_new = directory.make()
            stack.enter_context(directory.locked())
            if is_new:
                stack.callback(directory.remove_unused)  # a mistake leaves nothing behind
            with self._writing():
                if resume is not False and directory.is_begun:
                    epochs = self._restore(resume)
                else:
                    self._check_kept(resume, 0)
                    check_output(directory, OutputOptions(directory.path, False, overwrite))
                    epochs = self._begin_anew()
            self._held = stack.pop_all()  # before, an error releases the lock
        return epochs

    def end_epoch(self, epoch: int, steps: int, count: int) -> None:
        """Write the records of an epoch, counted from 0, that had a number of examples.

        Examples that were repeated are counted as often.
        """
        total = self._steps + steps
        history = [*self._history, self._measured(epoch, total, count)]
        with self._writing():
            if epoch == 0 and not self._about.source:
                self._write_beginning()
            # The history first: a line without the record of its epoch is dropped on resuming.
            self._directory.write_history(history)
            path = self.recorder.end_epoch(epoch)
            self._written.add(path)
        self._steps, self._history = total, history
        self._epoch_started = time.monotonic()

    def finish(self, epochs: int) -> None:
        """Audit the labels and write the results of the run."""
        directory, labels = self._directory, self._labels()
        lines = [{**line, "progress": k / epochs} for k, line in enumerate(self._history, 1)]
        with self._writing():
            directory.write_history(lines)
            self._write_config(labels, epochs)
            notes: list[str] = []
            compared, inputs = None, self._about.inputs
            if inputs is not None:
                compared = neighbours.compare(
                    directory, inputs, None, labels.given, len(labels.names), None, notes.append
                )
            write_results(
                directory,
                self._written,
                labels,
                lines,
                method=self._method,
                data=self._about.title,
                seed=None,
                steps=self._steps,
                seconds=lines[-1].get("seconds"),
                measured={},
                facts={},
                notes=notes,
                compared=compared,
            )

    def close(self) -> None:
        """Release the lock of the directory."""
        self._held.close()

    def _writing(self) -> AbstractContextManager[None]:
        return nullcontext() if self._lasting else fleeting()

    def _restore(self, resume: bool | int) -> int:
        """Restore a recording that ended or was killed, and return its number of epochs."""
        directory, about = self._directory, self._about
        directory.check_format()
        if not directory.is_recorded:
            raise InputError(
                f"{directory.path} holds a run that was trained, not recorded: choose another out"
            )
        records = epochs_of(directory)
        there = len(records)
        if there == 0 and not directory.labels.is_file():  # it was killed at its very beginning
            self._check_kept(resume, 0)
            return self._begin_anew()
        stored = Labels.load(directory.checked(directory.labels))
        mine = fingerprint(about.given, about.num_classes)
        if (
            (stored.names, stored.ids) != (about.names, about.ids)
            or (about.source and stored.fingerprint != mine)
            or stored.fingerprint != read_toml(directory.config).get("fingerprint")
        ):
            raise InputError(
                f"{directory.path} was begun with other examples, labels or classes: resume it "
                "with the same, or choose another out"
            )
        if resume is True and directory.is_finished:
            raise InputError(
                f"the recording {directory.path} is finished: say after how many of its {there} "
                f"epochs to go on, as in resume={there}, or replace it with overwrite=True"
            )
        self._check_kept(resume, there)
        kept = there if resume is True else int(resume)
        self._history = directory.read_history()[:kept]
        for path in records.paths[:kept]:
            self._written.add(directory.checked(path))
        directory.reopen()  # first: a resumed recording is not finished
        directory.sweep()
        self.recorder.keep(kept)
        directory.write_history(self._history)
        if self._history:
            steps, seconds = (self._history[-1].get(name) for name in ("step", "seconds"))
            self._steps = steps if isinstance(steps, int) else 0
            self._started -= seconds if isinstance(seconds, int | float) else 0
        about.given, about.source = stored.given, "the recording"
        return kept

    def _check_kept(self, resume: bool | int, there: int) -> None:
        """Refuse to resume after more epochs than there are."""
        if not isinstance(resume, bool) and resume > there:
            raise InputError(
                f"{self._directory.path} has {there} whole epochs, not {resume} to resume after",
                field="resume",
            )

    def _begin_anew(self) -> int:
        """Remove an earlier run and return its number of epochs, 0."""
        self._directory.clear()
        if self._about.source:
            self._write_beginning()
        return 0

    def _write_beginning(self) -> None:
        """Write what makes the directory a run, the labels last."""
        labels = self._labels()
        self._write_config(labels)
        if self._about.inputs is not None:
            files = self._directory.inputs_table, self._directory.inputs_arrays
            write_kept(self._about.inputs, *files)
        labels.save(self._directory.labels)
        self._written.add(self._directory.labels)

    def _write_config(self, labels: Labels, epochs: int | None = None) -> None:
        table: dict[str, Any] = {RECORDED: True, "data": self._about.data or FROM_PYTHON}
        if epochs is not None:
            table["epochs"] = epochs
        table["method"] = {"name": self._method}
        write_config(self._directory.config, labels.fingerprint, table)

    def _labels(self) -> Labels:
        about = self._about
        return labelled(about.given, about.clean, about.names, about.ids, values=about.label_values)

    def _measured(self, epoch: int, step: int, count: int) -> Json:
        """Return a line of the history, measured on the examples that an epoch had."""
        about, rows = self._about, self.recorder.rows
        seen = np.flatnonzero(~np.isnan(rows["p_given"]))
        fitting = Fitting(about.num_classes, about.clean is not None)
        predicted, entropy, trust = (
            torch.from_numpy(rows[name][seen].astype(np.float32))
            for name in ("predicted", "entropy", "trust")
        )
        clean = None if about.clean is None else torch.from_numpy(about.clean[seen])
        given = torch.from_numpy(about.given[seen])
        fitting.add_measured(predicted, entropy, given, clean, trust)
        found = fitting.result()
        if not self._trusts:  # how far the loop trusts its predictions is unknown
            found = replace(found, epsilon=None, epsilon_clean=None, epsilon_noisy=None)
        now = time.monotonic()
        seconds = now - self._epoch_started
        return history_line(
            found,
            step=step,
            epoch=epoch + 1,
            seconds=now - self._started,
            images_per_second=count / seconds if seconds > 0 else None,
        )


def _method(criterion: Criterion | None) -> str:
    """Return the name of the method of a criterion, or `METHOD` for an unknown criterion."""
    kind = type(criterion)
    known = (name for name, m in methods.every().items() if m.criterion == kind.__name__)
    return METHOD if kind is Criterion else next(known, METHOD)
