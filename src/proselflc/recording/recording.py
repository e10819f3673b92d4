"""`proselflc.record`: a run recorded from any training loop.

Nothing is trained here. The loop passes the positions and logits of its batches, which are recorded
as in a run that `proselflc` trains, so that audit, export, report and review work.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from proselflc.auditing.caveats import epoch_warnings
from proselflc.correction.criteria import CrossEntropy, Distillation
from proselflc.correction.criterion import Criterion
from proselflc.data.batches import Batch
from proselflc.data.inputs import Bools, Ints
from proselflc.errors import InputError, invalid_option
from proselflc.recording.recorded_run import (
    RecordedExamples,
    RecordedRun,
    checked_batch,
    checked_examples,
)
from proselflc.run.config import OutputOptions
from proselflc.run.reader import Run, run_in
from proselflc.training.observations import ROW, Observations, observe
from proselflc.training.processes import ProcessGroup
from proselflc.training.strategy import CorrectedBatch, Strategy

_MOST_WAITING = 1 << 16  # examples whose facts may stay on an accelerator
_FORGOTTEN = 3  # epochs' worth of examples without a call of end_epoch
_REPEATS = "pass repeats=True to record and call rec.end_epoch() after each epoch"


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
    """Record how any training loop learns its examples, and audit their labels at the end.

    An epoch ends when every example has occurred or one occurs again, or when you call
    `rec.end_epoch()`. With several processes of `torch.distributed`, each makes a recording, calls
    it with its own batches and calls `end_epoch()`; the first process gathers the records and
    writes them.

    Args:
        n: number of training examples.
        num_classes: C.
        out: the run's directory; by default a temporary one that lives as long as `rec.run`.
        labels: n given labels, class ids or names; by default they are gathered from the calls, and
            every example must occur in the first epoch.
        clean: n true labels, if known; used only for measurements.
        names: C class names; by default the class ids.
        ids: n distinct names of the examples; by default their positions.
        inputs: n images, texts, paths of image files or rows of numbers, as `proselflc.fit` takes
            them; kept in the run so that its pages can show them.
        data: a name or path of data as `proselflc.train` takes it, instead of labels, names, ids
            and inputs; positions are then those in its training part.
        criterion: the proselflc criterion that the loop minimises, if any, so that its targets are
            recorded too.
        repeats: whether an example may occur more than once in an epoch (weighted sampling, a
            sampler that fills up the last batch); its last occurrence counts.
        resume: True to continue the run in `out` after its last whole epoch, or the number of
            epochs after which to continue, if the model is from an earlier one.
        overwrite: whether to replace a run in `out`.

    Returns:
        A context manager to call with every batch: `rec(index, logits, labels)`. When it ends
        without an error the run is finished, and `rec.run` has `.examples`, `.audit` and more.

    Raises:
        InputError: an argument cannot be used.

    Example:
        >>> import torch
        >>> logits = torch.eye(3).repeat(4, 1) * 5  # 12 examples, the first is labelled 2
        >>> given = torch.tensor([2, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
        >>> with record(12, 3) as rec:
        ...     for epoch in range(4):
        ...         for index in torch.arange(12).split(5):
        ...             rec(index, logits[index], given[index])
        >>> rec.run.examples["is_suspect"].to_pylist().index(True)
        0
    """
    for name, value, least in (("n", n, 1), ("num_classes", num_classes, 2)):
        if not _is_whole(value) or value < least:
            raise invalid_option(name, f"must be a whole number of at least {least}, got {value!r}")
    if not isinstance(resume, bool) and not (_is_whole(resume) and resume >= 0):
        raise invalid_option("resume", f"must be a bool or a number of epochs, got {resume!r}")
    is_resumed = resume is not False  # 0 is a number of epochs
    OutputOptions(None if out is None else Path(out), is_resumed, overwrite)
    if isinstance(criterion, Distillation):
        raise InputError(
            "the targets of a teacher are not recorded", field="criterion", fix="leave it out"
        )
    group = ProcessGroup()
    if out is None and group.size > 1:
        raise InputError("several processes need one directory", field="out", fix="pass out")
    n, num_classes = int(n), int(num_classes)
    about = checked_examples(n, num_classes, labels, clean, names, ids, inputs, data)
    run = run_in(out)
    written = RecordedRun(run.directory, about, criterion, lasting=out is not None)
    made = Recording(about, written, group, run, criterion, repeats)
    if group.is_first:
        made.epoch = written.begin(resume, overwrite)
    return made


class Recording:
    """Records the examples of a training loop; made by `record`, which documents its use.

    Attributes:
        run: the run, to be read when the recording is finished.
        epoch: number of whole epochs recorded.
    """

    def __init__(
        self,
        about: RecordedExamples,
        written: RecordedRun,
        group: ProcessGroup,
        run: Run,
        criterion: Criterion | None,
        repeats: bool,
    ) -> None:
        self.run = run
        self.epoch = 0
        self._about = about
        self._written = written
        self._group = group
        self._criterion = criterion
        self._strategy = Strategy(CrossEntropy() if criterion is None else criterion)
        self._current = CurrentEpoch(len(about.given), repeats=repeats)
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # index, labels and facts
        self._all_labels: Tensor | None = None  # where the index is
        self._has_warned = False
        self._is_finished = False

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._written.close()

    def __call__(
        self,
        index: object,
        logits: object,
        labels: object | None = None,
        *,
        progress: float | None = None,
    ) -> None:
        """Record the logits of N examples from the step that learned them.

        Tensors on an accelerator stay there for a while, so that no step waits for them; errors in
        a batch may be reported a few batches later.

        Args:
            index: [N] positions in the training set, 0 … n−1.
            logits: [N, C] of any floating-point type; no gradient flows back.
            labels: [N] given class ids; may be omitted if `record` was given all labels.
            progress: t/Γ of the criterion; by default that of its clock, which has counted the step
                if the criterion was called first.
        """
        if self._is_finished:
            raise InputError("the recording is finished", fix="make another one with record(…)")
        about = self._about
        which, z, given = checked_batch(index, logits, labels, about.num_classes)
        if given is None:
            given = self._known_labels(which)
        # Wrong class ids are reported when they are read; here they must not crash a device.
        inside = given.clamp(0, about.num_classes - 1).to(z.device)
        if progress is None and self._criterion is not None:
            progress = self._criterion.progress
        at = 1.0 if progress is None else progress
        corrected = CorrectedBatch(self._strategy, z, Batch(z, inside, which), at)
        facts = observe(corrected, means=False).facts
        self._waiting.append((which, given, facts))
        waiting = sum(len(batch[0]) for batch in self._waiting)
        if not _may_wait(facts) or waiting >= _MOST_WAITING:
            self._record_waiting()

    def expect_end_epoch(self) -> None:
        """Let no epoch end by itself, if `end_epoch` will be called."""
        self._current.expect_end()

    def end_epoch(self) -> None:
        """End an epoch; with several processes, each must call this."""
        self._record_waiting()
        self._current.end()
        self._close_epoch()

    def finish(self) -> Run:
        """End the last epoch, audit the labels and write the results of the run.

        Raises:
            InputError: nothing was recorded, or the labels of some examples are not known.
        """
        self._finish()
        return self.run

    def _finish(self) -> None:
        if self._is_finished:
            return
        self._record_waiting()
        self._close_epoch()
        if self.epoch == 0:
            raise InputError(
                "nothing was recorded",
                fix="call rec(index, logits, labels) for every batch of the training loop",
            )
        if self._group.is_first:
            self._written.finish(self.epoch)
        self._group.wait()
        self._is_finished = True
        self._written.close()
        for warning in epoch_warnings(self.epoch) if self._group.is_first else ():
            warnings.warn(warning.message, stacklevel=3)  # the caller that ended the recording

    def _known_labels(self, which: Tensor) -> Tensor:
        """Return the labels [N] of examples that were passed without labels."""
        if not self._about.source:
            raise InputError(
                "the labels are unknown",
                field="labels",
                fix="call rec(index, logits, labels), or pass all labels to record(…, labels=…)",
            )
        every = self._all_labels
        if every is None or every.device != which.device:
            every = self._all_labels = torch.from_numpy(self._about.given).to(which.device)
        return every[which.clamp(0, len(every) - 1)]  # a wrong position is reported later

    def _record_waiting(self) -> None:
        """Record the batches that are waiting."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # One copy for all of them, since every copy waits for the device.
        index, given, facts = (
            torch.cat([part.to(parts[0].device) for part in parts]).cpu()
            for parts in zip(*waiting, strict=True)
        )
        sizes = [len(batch[0]) for batch in waiting]
        batches = (torch.split(tensor, sizes) for tensor in (index, given, facts))
        for positions, labels, rows in zip(*batches, strict=True):
            self._record_batch(positions.numpy(), labels.numpy(), rows)

    def _record_batch(self, index: Ints, given: Ints, facts: Tensor) -> None:
        about, current, processes = self._about, self._current, self._group.size
        about.check(index, given)
        if current.is_over_before(index, processes):
            self._close_epoch()
        about.given[index] = given  # not before: it belongs to the new epoch
        current.add(index)
        # If an example occurs twice in a batch, its last row counts.
        last = np.unique(index[::-1], return_index=True)[1]
        finite = facts.isfinite().all(1).numpy()
        kept = np.sort(len(index) - 1 - last)
        kept = kept[finite[kept]]
        if not finite.all() and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"logits in epoch {self.epoch + 1} are not finite, first of example "
                f"{index[~finite][0]}: such examples are not recorded",
                stacklevel=4,  # the caller of the recording
            )
        rows = torch.from_numpy(index[kept]), facts[torch.from_numpy(kept)]
        self._written.recorder.add(self.epoch, Observations(*rows, ()))
        if current.is_full(processes):  # now, so that a kill does not lose it
            self._close_epoch()

    def _close_epoch(self) -> None:
        """Write the epoch and begin the next one."""
        self._gather()
        current, written = self._current, self._written
        if not current.seen.any():
            return
        if self._group.is_first:
            self._about.check_all_known()
            written.end_epoch(self.epoch, current.steps, current.count)
        else:
            written.recorder.begin_epoch()
        self.epoch += 1
        current.begin_next()

    def _gather(self) -> None:
        """Gather the epoch's records of all processes in every process."""
        group, current = self._group, self._current
        if group.size == 1:
            return
        if not group.is_together:
            if not current.seen.any():
                return  # everything was gathered before the processes disconnected
            raise InputError(
                f"cannot gather the records of {group.size} processes, since torch.distributed "
                "is not initialised",
                fix="call rec.end_epoch() while it is",
            )
        about, recorder = self._about, self._written.recorder
        index = np.flatnonzero(current.seen)
        own = index, about.given[index], recorder.rows[index].tobytes()
        every = group.gathered((self.epoch, current.steps, current.count, *own))
        self.epoch = every[0][0]  # the first process knows where it was resumed
        current.steps = sum(process[1] for process in every)
        current.count = sum(process[2] for process in every)
        for *_, which, given, rows in every:
            about.check(which, given)
            about.given[which] = given
            recorder.rows[which] = np.frombuffer(rows, ROW)
            current.seen[which] = True


class CurrentEpoch:
    """The examples recorded in the current epoch, and whether it has ended.

    An epoch ends by itself when all examples are recorded or one occurs again. After the first call
    of `end`, epochs end by such calls only, as from the beginning if examples may be repeated.
    """

    def __init__(self, num_examples: int, *, repeats: bool) -> None:
        self.seen: Bools = np.zeros(num_examples, np.bool_)  # [n] whether an example is recorded
        self.count = 0  # of recorded examples, repetitions included
        self.steps = 0  # batches
        self._repeats = repeats
        self._is_explicit = False  # whether epochs end by calls of `end`
        self._ended_at: int | None = None  # the example that ended an epoch by occurring again
        self._ended_full = False  # whether one ended because all examples were recorded

    def is_over_before(self, index: Ints, processes: int) -> bool:
        """Return whether a batch [N] belongs to the next epoch, since an example occurs again."""
        if not self._ends_by_itself:
            return False
        again = index[self.seen[index]]
        if not len(again) and len(np.unique(index)) == len(index):
            return False
        if processes > 1:
            raise InputError(
                "an example occurred again, and no single one of several processes can tell where "
                "an epoch ends",
                fix="call rec.end_epoch() there, in all of them",
            )
        if not len(again):
            raise InputError(
                "an example occurred twice in one batch", field="repeats", fix=_REPEATS
            )
        seen, n = int(self.seen.sum()), len(self.seen)
        if 2 * seen < n:
            raise InputError(
                f"example {again[0]} occurred again after {seen:,} of {n:,} examples, so it is not "
                "clear where an epoch ends",
                field="repeats",
                fix=_REPEATS,
            )
        self._ended_at = int(again[0])
        return True

    def add(self, index: Ints) -> None:
        """Add a batch."""
        self.steps += 1
        self.count += len(index)
        self.seen[index] = True
        if self._repeats and not self._is_explicit and self.count > _FORGOTTEN * len(self.seen):
            raise InputError(
                f"{self.count:,} examples were recorded without a call of rec.end_epoch(), which "
                "repeats=True needs",
                fix="call it after each epoch",
            )

    def is_full(self, processes: int) -> bool:
        """Return whether the epoch has ended because all examples are recorded."""
        is_over = self._ends_by_itself and processes == 1 and bool(self.seen.all())
        self._ended_full |= is_over
        return is_over

    def expect_end(self) -> None:
        """Let no epoch end by itself from now on."""
        self._is_explicit = True

    def end(self) -> None:
        """End the epoch by the caller's request."""
        went_on = self._ended_full and self.seen.any() and not self._is_explicit
        if self._ended_at is not None or went_on:
            again = int(np.argmax(self.seen)) if self._ended_at is None else self._ended_at
            raise InputError(
                "rec.end_epoch() was called after an epoch had ended by itself, when example "
                f"{again} occurred again",
                field="repeats",
                fix="if examples occur more than once in an epoch, pass repeats=True to record",
            )
        self._is_explicit = True

    def begin_next(self) -> None:
        """Begin the next epoch."""
        self.seen[:] = False
        self.count = self.steps = 0

    @property
    def _ends_by_itself(self) -> bool:
        return not self._repeats and not self._is_explicit


def _may_wait(facts: Tensor) -> bool:
    return facts.device.type != "cpu"  # reading them now would wait for the accelerator


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
