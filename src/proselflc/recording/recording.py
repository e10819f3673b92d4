"""`proselflc.record`: a run recorded from any training loop.

Nothing is trained here. The loop passes the positions and logits of its batches, which are recorded
as in a run that `proselflc` trains, so that audit, export, report and review work.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from proselflc.auditing.caveats import epoch_caveats
from proselflc.correction.criteria import CrossEntropy, Distillation
from proselflc.correction.criterion import Criterion
from proselflc.data.batches import Batch
from proselflc.data.inputs import Ints
from proselflc.errors import InputError
from proselflc.recording.epoch import CurrentEpoch, check_batch
from proselflc.recording.recorded_examples import RecordedExamples
from proselflc.recording.recorded_run import RecordedRun
from proselflc.run.reader import Run
from proselflc.training.observations import ROW, Observations, observe
from proselflc.training.processes import ProcessGroup
from proselflc.training.run_directory import RunDirectory
from proselflc.training.strategy import CorrectedBatch, Strategy

_MOST_WAITING = 1 << 16  # examples whose facts may stay on an accelerator


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
    so. In several processes of `torch.distributed` every one makes a recording, calls it with its
    own batches and calls `end_epoch()`; the records come together in the first process, which alone
    writes.

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
        if not _is_whole(value) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if not isinstance(resume, bool) and not _is_whole(resume):
        raise InputError(f"resume must be True, False or a number of epochs, got {resume!r}")
    if resume is not False and overwrite:
        raise InputError("resume goes on with a run and overwrite replaces it: give one")
    if resume is not False and out is None:
        raise InputError("resume needs out, the directory of the run to go on with")
    if isinstance(criterion, Distillation):
        raise InputError("what a teacher says is not recorded: leave criterion out")
    group = ProcessGroup()
    if out is None and group.size > 1:
        raise InputError("several processes record into one directory: name it with out")
    n, num_classes = int(n), int(num_classes)
    about = RecordedExamples.of(n, num_classes, labels, clean, names, ids, inputs, data)
    path = Path(tempfile.mkdtemp(prefix="proselflc-")) if out is None else Path(out)
    run = Run(path)
    if out is None:
        weakref.finalize(run, shutil.rmtree, path, ignore_errors=True)
    written = RecordedRun(RunDirectory(path), about, criterion, lasting=out is not None)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """Record what the model said of N examples, as it was when they were learned.

        Whatever is on an accelerator stays there for a while, so that no step waits for it; what
        is wrong with it is then said a little later.

        Args:
            index: [N] positions in the training set, 0 … n−1.
            logits: [N, C] what the model said, of any floating type; nothing flows back.
            labels: [N] given class ids; may be left out where `record` was given all of them.
            progress: t/Γ of the criterion; left out, what its clock says, which has counted the
                step if it was called before this.
        """
        if self._is_finished:
            raise InputError("the recording is finished: make another one with record(…)")
        about = self._about
        z, which, given = check_batch(index, logits, labels, about.num_classes)
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
        waiting = sum(len(one[0]) for one in self._waiting)
        if not _may_wait(facts) or waiting >= _MOST_WAITING:
            self._look()

    def expect_end_epoch(self) -> None:
        """Let no epoch end by itself, if `end_epoch` will be called."""
        self._current.expect_end()

    def end_epoch(self) -> None:
        """End an epoch; with several processes, each must call this.

        Raises:
            InputError: an epoch ended before by itself, because an example occurred again.
        """
        self._look()
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
        self._look()
        self._close_epoch()
        if self.epoch == 0:
            raise InputError(
                "nothing was recorded: call rec(index, logits, labels) for every batch of the "
                "training loop"
            )
        if self._group.is_first:
            self._written.finish(self.epoch)
        self._group.wait()
        self._is_finished = True
        self._written.close()
        for caveat in epoch_caveats(self.epoch) if self._group.is_first else ():
            warnings.warn(caveat, stacklevel=3)  # the caller that ended the recording

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

    def _look(self) -> None:
        """Record the batches that have waited."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # One copy for all of them, since every copy waits for the device.
        index, given, facts = (
            torch.cat([one.to(some[0].device) for one in some]).cpu()
            for some in zip(*waiting, strict=True)
        )
        sizes = [len(one[0]) for one in waiting]
        batches = (torch.split(every, sizes) for every in (index, given, facts))
        for which, labels, seen in zip(*batches, strict=True):
            self._take(which.numpy(), labels.numpy(), seen)

    def _take(self, index: Ints, given: Ints, facts: Tensor) -> None:
        about, current, processes = self._about, self._current, self._group.size
        about.check(index, given)
        if current.is_over_before(index, processes):
            self._close_epoch()
        about.given[index] = given  # not before: it belongs to the new epoch
        current.add(index)
        # Of an example that occurs twice in a batch the last row counts.
        last = np.unique(index[::-1], return_index=True)[1]
        finite = facts.isfinite().all(1).numpy()
        kept = np.sort(len(index) - 1 - last)
        kept = kept[finite[kept]]
        if not finite.all() and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"logits in epoch {self.epoch + 1} are not finite, first of example "
                f"{index[~finite][0]}: such examples count as not seen",
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
        """Give every process the epoch's records of all processes."""
        group, current = self._group, self._current
        if group.size == 1:
            return
        if not group.is_together:
            if not current.seen.any():
                return  # everything was gathered before the processes disconnected
            raise InputError(
                f"this is one of {group.size} processes and torch.distributed is not initialised, "
                "so records cannot come together: call rec.end_epoch() while it is"
            )
        about, recorder = self._about, self._written.recorder
        index = np.flatnonzero(current.seen)
        own = index, about.given[index], recorder.rows[index].tobytes()
        every = group.gathered((self.epoch, current.steps, current.count, *own))
        self.epoch = every[0][0]  # the first process knows where it was resumed
        current.steps = sum(one[1] for one in every)
        current.count = sum(one[2] for one in every)
        for *_, which, given, rows in every:
            about.check(which, given)
            about.given[which] = given
            recorder.rows[which] = np.frombuffer(rows, ROW)
            current.seen[which] = True


def _may_wait(facts: Tensor) -> bool:
    """Return whether reading the facts now would wait for an accelerator."""
    return facts.device.type != "cpu"


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
