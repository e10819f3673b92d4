"""The run directory of a recording: begun or resumed, written by epochs, finished."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from proselflc import methods
from proselflc.auditing.fitting import Fitting
from proselflc.correction.criterion import Criterion
from proselflc.data import kept_inputs
from proselflc.data.labels.labels import Labels, labelled
from proselflc.data.noise import fingerprint
from proselflc.data.request import FROM_PYTHON
from proselflc.errors import InputError
from proselflc.files.manifest import Written
from proselflc.files.regular import fleeting
from proselflc.recording.recorded_examples import RecordedExamples
from proselflc.run.config import OutputOptions, check_output, write_config
from proselflc.run.reader import epochs_of
from proselflc.run.summary import history_line, write_results
from proselflc.training.observations import Recorder
from proselflc.training.run_directory import RECORDED, Json, RunDirectory, read_toml

METHOD = "A recorded loop"  # if the loop uses no criterion of proselflc


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
        kept = there if resume is True else int(resume)
        if not 0 <= kept <= there:
            raise InputError(
                f"{directory.path} has {there} whole epochs, not {kept} to resume after"
            )
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
            kept_inputs.write(self._about.inputs, *files)
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
