"""`proselflc.record`: a run made of what somebody else's training loop shows of its examples.

Nothing is trained here. The loop says which examples it has just asked its model about and what
that said; this is recorded as in a run of ours, so that audit, export, report and review follow.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proselflc.analysis import suspects
from proselflc.analysis.examples import write_parquet
from proselflc.analysis.fitting import Fitting
from proselflc.analysis.records import Records
from proselflc.analysis.run import Run
from proselflc.app.config import versions
from proselflc.app.recorded_examples import RecordedExamples
from proselflc.app.start import Start, may_begin
from proselflc.app.summary import of_labels
from proselflc.correction.catalogue import METHODS
from proselflc.correction.criteria import CrossEntropy, Distillation
from proselflc.correction.criterion import Criterion
from proselflc.data import kept_inputs
from proselflc.data.batches import Batch
from proselflc.data.dataset import Ints
from proselflc.data.labels import Labels, labelled
from proselflc.data.noise import fingerprint
from proselflc.data.opening import FROM_PYTHON
from proselflc.data.writing import whole_file
from proselflc.errors import InputError
from proselflc.training import observations
from proselflc.training.observations import Recorder, Seen, see
from proselflc.training.run_directory import (
    FORMAT,
    RECORDED,
    Json,
    RunDirectory,
    read_toml,
)
from proselflc.training.strategy import Strategy

METHOD = "A recorded loop"  # where no criterion of ours is known to have been used
_PENDING = 1 << 16  # examples whose facts may wait on an accelerator
_FORGOTTEN = 3  # epochs' worth of examples without anybody saying where one ends
_REPEATS = "pass repeats=True to record and say with rec.end_epoch() where each epoch ends"


def record(
    n: int,
    num_classes: int,
    *,
    out: str | Path | None = None,
    labels: object | None = None,
    clean: object | None = None,
    names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    inputs: object | None = None,
    data: str | Path | None = None,
    criterion: Criterion | None = None,
    repeats: bool = False,
    resume: bool | int = False,
    overwrite: bool = False,
) -> Recording:
    """Record what any training loop shows of its examples, and audit their labels at the end.

    An epoch ends when every example has come or one comes again, or where `rec.end_epoch()` says
    so. In several
    processes of `torch.distributed` every one makes a recording, calls it with its own batches and
    calls `end_epoch()`; the records come together in the first process, which alone writes.

    Args:
        n: number of training examples.
        num_classes: C.
        out: the run's directory; left out, a temporary one that lives as long as `rec.run`.
        labels: n given labels, class ids or names; left out, they are gathered from the calls, and
            then every example must come in the first epoch.
        clean: n true labels, where they are known: for measuring alone.
        names: C class names; left out, the class ids.
        ids: n distinct names of the examples; left out, their positions.
        inputs: n images, texts, paths of image files or rows of numbers, as `proselflc.fit` takes
            them: kept in the run so that its pages can show them.
        data: what `--data` takes, in place of labels, names, ids and inputs: examples are then
            counted as in its training part.
        criterion: of ours, if the loop learns with one: what it teaches is then recorded too.
        repeats: an example may come more than once in an epoch (weighted sampling, a sampler that
            fills up the last batch): the last time counts.
        resume: go on with what is in `out`, after the last whole epoch; or after so many, where the
            model that goes on is from before the last ones.
        overwrite: replace a run that is in `out`.

    Returns:
        A context manager to call with every batch: `rec(index, logits, labels)`. When it ends
        without an error the run is finished, and `rec.run` has `.examples`, `.audit` and more.

    Raises:
        InputError: something does not fit together.

    Example:
        >>> import torch
        >>> logits = torch.eye(3).repeat(4, 1) * 5  # 12 examples, the first is called a 2
        >>> given = torch.tensor([2, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
        >>> with record(12, 3) as rec:
        ...     for epoch in range(4):
        ...         for index in torch.arange(12).split(5):
        ...             rec(index, logits[index], given[index])
        >>> rec.run.examples["is_suspect"].to_pylist().index(True)
        0
    """
    for name, value, least in (("n", n, 1), ("num_classes", num_classes, 2)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if resume is not False and overwrite:
        raise InputError("resume goes on with a run and overwrite replaces it: give one")
    if resume is not False and out is None:
        raise InputError("resume needs out, the directory of the run to go on with")
    if isinstance(criterion, Distillation):
        raise InputError("what a teacher says is not recorded: leave criterion out")
    if out is None and _place() is not None:
        raise InputError("several processes record into one directory: name it with out")
    about = RecordedExamples.of(n, num_classes, labels, clean, names, ids, inputs, data)
    path = Path(tempfile.mkdtemp(prefix="proselflc-")) if out is None else Path(out)
    made = Recording(RunDirectory(path), about, criterion, repeats)
    if out is None:
        weakref.finalize(made.run, shutil.rmtree, path, ignore_errors=True)
    made.begin(resume, overwrite)
    return made


class Recording:
    """What a training loop shows of n examples. `record` makes it and says how it is used.

    Attributes:
        run: the run, to be read when the recording is finished.
        epoch: how many whole epochs are recorded.
    """

    def __init__(
        self,
        directory: RunDirectory,
        about: RecordedExamples,
        criterion: Criterion | None,
        repeats: bool,
    ) -> None:
        self.run = Run(directory.path)
        self.epoch = 0
        self._directory = directory
        self._about = about
        self._criterion = criterion
        self._strategy = Strategy(CrossEntropy() if criterion is None else criterion)
        n = len(about.given)
        self._recorder = Recorder(directory.dynamics, n, about.num_classes, 0, means=False)
        self._pending: list[tuple[Tensor, Tensor | None, Tensor]] = []
        self._seen = np.zeros(n, np.bool_)  # in this epoch
        self._count = 0  # examples that came in this epoch, each time they did
        self._repeats = repeats
        self._told = False  # whether rec.end_epoch() says where epochs end
        self._ended_at: int | None = None  # the example that ended an epoch by coming again
        self._ended_full = False  # whether one ended by having seen every example
        self._steps = 0
        self._history: list[Json] = []
        self._started = self._epoch_started = time.monotonic()
        self._warned = False
        self._all_labels: Tensor | None = None  # where the index is
        self._held = ExitStack()
        self._is_finished = False
        self._last_place = (0, 1)  # of the process among all of them, as was last seen

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self._held.close()

    def __call__(
        self,
        index: object,
        logits: object,
        labels: object | None = None,
        *,
        progress: float | None = None,
    ) -> None:
        """Record what the model said of N examples, as it was when they were learned.

        Whatever is on an accelerator stays there for a while, so that no step waits for it; what
        is wrong with it is then said a little later.

        Args:
            index: [N] positions in the training set, 0 … n−1.
            logits: [N, C] what the model said, of any floating type; nothing flows back.
            labels: [N] given class ids; may be left out where `record` was given all of them.
            progress: t/Γ of the criterion, where its own clock does not keep the time.
        """
        if self._is_finished:
            raise InputError("the recording is finished: make another one with record(…)")
        z, which, given = self._checked(index, logits, labels)
        known = given
        if known is None:
            if not self._about.source:
                raise InputError(
                    "no labels came: call rec(index, logits, labels), or give all of them to "
                    "record(…, labels=…)"
                )
            every = self._labels_on(which.device)
            known = every[which.clamp(0, len(every) - 1)]
        # What is no class is told when it is looked at; here it must not break an accelerator.
        inside = known.clamp(0, self._about.num_classes - 1).to(z.device)
        if progress is None and self._criterion is not None:
            progress = self._criterion.progress
        batch = Batch(z, inside, which)
        at = 1.0 if progress is None else progress
        seen = see(self._strategy, z, batch, at, means=False)
        self._pending.append((which, given, seen.facts))
        waiting = sum(len(one[0]) for one in self._pending)
        if not _may_wait(seen.facts) or waiting >= _PENDING:
            self._look()

    def expect_end_epoch(self) -> None:
        """Let no epoch end by itself, as `repeats=True` does; for who will call `end_epoch`."""
        self._repeats = True

    def end_epoch(self) -> None:
        """Say that an epoch is over; every process must, if there are several.

        Raises:
            InputError: an epoch was already taken to be over where an example came again.
        """
        self._look()
        went_on = self._ended_full and self._seen.any() and not self._told
        if self._ended_at is not None or went_on:
            again = int(np.argmax(self._seen)) if self._ended_at is None else self._ended_at
            raise InputError(
                f"rec.end_epoch() came after an epoch was taken to end by itself, for example "
                f"{again} came again: if examples come more than once in an epoch, pass "
                "repeats=True to record"
            )
        self._told = True
        self._close_epoch()

    def finish(self) -> Run:
        """End the last epoch, judge every label and write what a reader of the run wants.

        Raises:
            InputError: nothing was recorded, or the labels of some examples are not known.
        """
        if self._is_finished:
            return self.run
        self._look()
        self._close_epoch()
        self._is_finished = True
        if self.epoch == 0:
            raise InputError(
                "nothing was recorded: call rec(index, logits, labels) for every batch of the "
                "training loop"
            )
        if self._process == 0:
            self._write_all()
        if _is_together():
            torch.distributed.barrier()
        self._held.close()
        return self.run

    def begin(self, resume: bool | int, overwrite: bool) -> None:
        """Take the directory, and go on with what is in it where that is wanted."""
        directory, wanted = self._directory, resume is not False
        if self._process == 0:
            is_new = directory.make()
            self._held.enter_context(directory.locked())
            if is_new:
                self._held.callback(directory.remove_unused)
            if wanted and directory.is_begun:
                self._restore(resume)
            else:
                may_begin(directory, Start(directory.path, False, overwrite))
                directory.clear()
                if self._about.source:
                    self._write_beginning()

    def _restore(self, resume: bool | int) -> None:
        """Put everything where a recording that was ended or killed has left it."""
        directory, about = self._directory, self._about
        directory.check_format()
        if not directory.is_recorded:
            raise InputError(
                f"{directory.path} holds a run that was trained, not recorded: choose another out"
            )
        if not directory.labels.is_file():  # it was killed in its very beginning
            directory.clear()
            if about.source:
                self._write_beginning()
            return
        stored = Labels.load(directory.labels)
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
        there = len(observations.Epochs(directory.dynamics))
        if resume is True and directory.is_finished:
            raise InputError(
                f"the recording {directory.path} is finished: say after how many of its {there} "
                f"epochs to go on, as in resume={there}, or replace it with overwrite=True"
            )
        kept = there if resume is True else resume
        if not 0 <= kept <= there:
            raise InputError(
                f"{directory.path} has {there} whole epochs, not {kept} to resume after"
            )
        directory.summary.unlink(missing_ok=True)  # first: what goes on is not finished
        directory.sweep()
        self._recorder.keep(kept)
        self._history = directory.read_history()[:kept]
        directory.write_history(self._history)
        steps = self._history[-1].get("step") if self._history else 0
        self._steps = steps if isinstance(steps, int) else 0
        about.given, about.source = stored.given, "the recording"
        self.epoch = kept

    def _checked(
        self, index: object, logits: object, labels: object | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits [N, C] float32, index [N] and labels [N], checked without waiting."""
        C = self._about.num_classes
        z = _tensor(logits, "logits").detach()
        if z.dim() != 2 or z.size(1) != C or not z.is_floating_point():
            raise InputError(
                f"logits are {z.dtype} {list(z.shape)}, but a floating-point [N, {C}] is expected: "
                "a row for every example of the batch, a column for every class"
            )
        if z.dtype in (torch.float16, torch.bfloat16):
            z = z.float()
        which, given = (
            _tensor(index, "index"),
            None if labels is None else _tensor(labels, "labels"),
        )
        for name, one in (("index", which), ("labels", given)):
            if one is not None and (one.shape != z.shape[:1] or _is_no_integer(one)):
                raise InputError(
                    f"{name} is {one.dtype} {list(one.shape)}, but {len(z)} whole numbers are "
                    "expected: one for every row of logits"
                )
        return z, which.long(), None if given is None else given.long()

    def _look(self) -> None:
        """Take in what has waited, batch by batch."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        # One copy for all of them: every copy waits for the device.
        facts = torch.cat([one[2] for one in pending]).cpu()
        index = torch.cat([one[0].to(pending[0][0].device) for one in pending]).cpu().numpy()
        first = 0
        for which, given, _ in pending:
            rows = slice(first, first + len(which))
            first += len(which)
            self._take(index[rows], None if given is None else given.cpu().numpy(), facts[rows])

    def _take(self, index: Ints, given: Ints | None, facts: Tensor) -> None:
        n = len(self._seen)
        outside = index[(index < 0) | (index >= n)]
        if len(outside):
            raise InputError(
                f"index {outside[0]} is no position among {n} examples: give 0 … {n - 1}, where "
                "each is in the training set"
            )
        if given is not None:
            self._check_labels(index, given)
        if not self._repeats and not self._told:
            self._end_by_itself(index)
        if given is not None:
            self._about.given[index] = given
        self._steps += 1
        self._seen[index] = True
        self._count += len(index)
        if self._repeats and not self._told and self._count > _FORGOTTEN * n:
            raise InputError(
                f"{self._count:,} examples came and nobody said where an epoch ends: call "
                "rec.end_epoch() there, as repeats=True asks"
            )
        # An example that comes twice in a batch counts the last time.
        last = np.unique(index[::-1], return_index=True)[1]
        finite = facts.isfinite().all(1).numpy()
        kept = np.sort(len(index) - 1 - last)
        kept = kept[finite[kept]]
        if not finite.all() and not self._warned:
            self._warned = True
            warnings.warn(
                f"logits that are no finite numbers came in epoch {self.epoch}, first of example "
                f"{index[~finite][0]}: such examples count as not seen",
                stacklevel=2,
            )
        rows = torch.from_numpy(kept)
        self._recorder.add(self.epoch, Seen(torch.from_numpy(index[kept]), facts[rows], ()))
        by_itself = not self._repeats and not self._told and self._processes == 1
        if by_itself and self._seen.all():  # not later: it would be lost in a kill
            self._close_epoch()
            self._ended_full = True

    def _check_labels(self, index: Ints, given: Ints) -> None:
        about = self._about
        outside = given[(given < 0) | (given >= about.num_classes)]
        if len(outside):
            raise InputError(
                f"label {outside[0]} is no class of {about.num_classes}: give class ids "
                f"0 … {about.num_classes - 1}"
            )
        known = about.given[index]
        other = np.flatnonzero((known >= 0) & (known != given))
        if len(other):
            k = other[0]
            was = f"{about.source} says {known[k]}" if about.source else f"had {known[k]} before"
            raise InputError(
                f"example {index[k]} comes with the label {given[k]}, but {was}: index must be "
                "the position in the training set, the same for an example in every epoch"
            )

    def _end_by_itself(self, index: Ints) -> None:
        """End the epoch if an example comes again, as long as that can be meant."""
        again = index[self._seen[index]]
        if not len(again) and len(np.unique(index)) == len(index):
            return
        seen, n = int(self._seen.sum()), len(self._seen)
        if self._processes > 1:
            raise InputError(
                "an example came again, and of several processes none can see alone where an epoch "
                "ends: call rec.end_epoch() there, in all of them"
            )
        if not len(again):
            raise InputError(f"an example came twice in one batch: {_REPEATS}")
        if 2 * seen < n:
            raise InputError(
                f"example {again[0]} came again after {seen:,} of {n:,} examples, so it is not "
                f"clear where an epoch ends: {_REPEATS}"
            )
        self._close_epoch()
        self._ended_at = int(again[0])

    def _close_epoch(self) -> None:
        """Write what was seen in the epoch, and begin another one."""
        self._gather()
        if not self._seen.any():
            return
        rows, labels = self._recorder.rows.copy(), self._about.given
        if self._process == 0 and (labels < 0).any():
            missing = np.flatnonzero(labels < 0)
            raise InputError(
                f"{len(missing):,} of {len(labels):,} examples did not come in the first epoch, "
                f"the first is {missing[0]}, so their labels are not known: give all labels to "
                "record(…, labels=…)"
            )
        if self._process == 0:
            if self.epoch == 0 and not self._about.source:
                self._write_beginning()
            self._recorder.end_epoch(self.epoch)
            self._history.append(self._measured(rows))
            self._directory.write_history(self._history)
        self.epoch += 1
        self._seen[:] = False
        self._count = 0
        self._epoch_started = time.monotonic()

    def _gather(self) -> None:
        """Have the first process see what all have seen in the epoch."""
        if self._processes == 1:
            return
        if not _is_together():
            if not self._seen.any():
                return  # all of it came together before they parted
            raise InputError(
                f"this is one of {self._processes} processes and torch.distributed is not "
                "initialised, so records cannot come together: call rec.end_epoch() while it is"
            )
        index = np.flatnonzero(self._seen)
        own = index, self._about.given[index], self._recorder.rows[index].tobytes()
        every: list[Any] = [None] * self._processes
        torch.distributed.all_gather_object(every, (self.epoch, self._steps, self._count, *own))
        self.epoch = every[0][0]  # the first process knows where it was resumed
        self._count = sum(one[2] for one in every)
        self._steps = sum(one[1] for one in every) if self._process == 0 else 0
        for *_, which, given, rows in every:
            self._check_labels(which, given)
            self._about.given[which] = given
            self._recorder.rows[which] = np.frombuffer(rows, observations.ROW)
            self._seen[which] = True

    @property
    def _process(self) -> int:
        """Which process this is; the first one is 0 and writes."""
        return self._here()[0]

    @property
    def _processes(self) -> int:
        """How many there are."""
        return self._here()[1]

    def _here(self) -> tuple[int, int]:
        self._last_place = _place() or self._last_place
        return self._last_place

    def _labels_on(self, device: torch.device) -> Tensor:
        if self._all_labels is None or self._all_labels.device != device:
            self._all_labels = torch.from_numpy(self._about.given).to(device)
        return self._all_labels

    def _labels(self) -> Labels:
        about = self._about
        return labelled(about.given, about.clean, about.names, about.ids)

    def _write_beginning(self) -> None:
        """Write what makes the directory a run; the labels last, so that they are whole with it."""
        labels = self._labels()
        self._write_config(labels.fingerprint)
        if self._about.inputs is not None:
            kept_inputs.write(self._directory.path, self._about.inputs)
        labels.save(self._directory.labels)

    def _write_config(self, of_labels: str, **more: object) -> None:
        import tomli_w

        said: dict[str, Any] = {"format": FORMAT, "fingerprint": of_labels, RECORDED: True}
        said |= {"data": self._about.data or FROM_PYTHON, **more}
        with whole_file(self._directory.config) as file:
            tomli_w.dump({**said, "method": {"name": self._method}, "versions": versions()}, file)

    @property
    def _method(self) -> str:
        """The method of the criterion as the catalogue calls it."""
        kind = type(self._criterion).__name__
        return next((name for name, one in METHODS.items() if one.criterion == kind), METHOD)

    def _measured(self, rows: observations.Rows) -> Json:
        """A line of the history: what the epoch has shown of the examples that it saw."""
        about = self._about
        seen = np.flatnonzero(~np.isnan(rows["p_given"]))
        fitting = Fitting(about.num_classes, about.clean is not None)
        predicted, entropy, trust = (
            torch.from_numpy(rows[name][seen].astype(np.float32))
            for name in ("predicted", "entropy", "trust")
        )
        clean = None if about.clean is None else torch.from_numpy(about.clean[seen])
        given = torch.from_numpy(about.given[seen])
        fitting.add_measured(predicted, entropy, given, clean, trust)
        measured = asdict(fitting.result())
        if self._criterion is None:  # how far the loop trusts its predictions is not known
            measured |= dict.fromkeys(name for name in measured if name.startswith("epsilon"))
        now = time.monotonic()
        seconds = now - self._epoch_started
        return {
            "step": self._steps,
            "epoch": self.epoch + 1,
            "progress": None,  # nobody knows yet how many epochs there will be
            "stage": None,
            "train_loss": None,
            "train_accuracy": measured.pop("train_accuracy"),
            "test_accuracy": None,
            "val_accuracy": None,
            "lr": None,
            "g": None,
            **measured,
            "seconds": round(now - self._started, 3),
            "images_per_second": self._count / seconds if seconds > 0 else None,
        }

    def _write_all(self) -> None:
        """Write what a reader of the run wants, the summary last."""
        directory, labels = self._directory, self._labels()
        lines = [{**one, "progress": (k + 1) / self.epoch} for k, one in enumerate(self._history)]
        directory.write_history(lines)
        self._write_config(labels.fingerprint, epochs=self.epoch)
        records = Records(observations.Epochs(directory.dynamics))
        table, audit = suspects.examine(labels, records)
        write_parquet(table, directory.examples)
        audit.save(directory)
        directory.write_json(directory.evaluation, {})
        last = lines[-1]
        fitting = ("correct_fitting", "wrong_fitting", "semantic_correction")
        unknown = dict.fromkeys(("test_accuracy", "test_accuracy_at_best_validation"))
        directory.write_json(
            directory.summary,
            {
                "method": self._method,
                "data": self._about.title,
                "noise": labels.generator,
                "seed": None,
                "steps": self._steps,
                **unknown,
                **{name: last.get(name) for name in fitting},
                **dict.fromkeys(("ece", "nll", "brier")),
                **of_labels(labels, table, audit),
                "seconds": last.get("seconds"),
                "fingerprint": labels.fingerprint,
            },
        )


def _tensor(values: object, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"{what} is a {type(values).__name__} that cannot be made a tensor: give a tensor, an "
            "array or a list of numbers"
        ) from None


def _is_no_integer(tensor: Tensor) -> bool:
    kind = tensor.dtype
    return kind is torch.bool or kind.is_floating_point or kind.is_complex


def _may_wait(facts: Tensor) -> bool:
    """Whether to look at them now would stop an accelerator."""
    return facts.device.type != "cpu"


def _is_together() -> bool:
    """Whether processes can hear each other now."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _place() -> tuple[int, int] | None:
    """Which process this is of how many, as far as can be told now."""
    if _is_together():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    # Trainers bring processes together later than they start them, and part them earlier.
    known = os.environ
    if int(known.get("WORLD_SIZE", "1")) == 1:
        return None
    return int(known.get("RANK", known.get("LOCAL_RANK", "0"))), int(known["WORLD_SIZE"])
