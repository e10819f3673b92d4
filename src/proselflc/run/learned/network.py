"""A run of a network that is trained in the loop."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from proselflc.auditing.caveats import label_warnings
from proselflc.auditing.verdict import Compared
from proselflc.data.inputs import Ints
from proselflc.errors import InputError
from proselflc.files.manifest import Written
from proselflc.run import neighbours, resumption, unlabelled
from proselflc.run.learned import judges
from proselflc.run.observers import (
    Checkpointer,
    History,
    Meter,
    Progress,
    RecordWriter,
)
from proselflc.run.prepare import PreparedRun
from proselflc.run.summary import (
    evaluate,
    final_measures,
    write_model,
    write_results,
    write_transition,
)
from proselflc.terminal import Display, Interrupted, stop_signals
from proselflc.training import checkpoint, processes
from proselflc.training.checkpoint import State
from proselflc.training.inference import predict_together
from proselflc.training.loop import DivergenceError, Observer, StepResult, Training, train_steps
from proselflc.training.observations import Recorder
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.strategy import Snapshot, described
from proselflc.wording import option


class TrainingRun:
    """A run in training. The main process alone writes."""

    def __init__(
        self,
        prepared: PreparedRun,
        directory: RunDirectory,
        accelerator: Accelerator,
        display: Display,
        *,
        is_audited: bool = True,
    ) -> None:
        self.prepared = prepared
        self.is_audited = is_audited
        self.directory = directory
        self.accelerator = accelerator
        self.display = display
        self.is_main = bool(accelerator.is_main_process)
        self.training = Training(
            prepared.model,
            prepared.strategy,
            prepared.config.recipe,
            prepared.total_steps,
            len(prepared.train),
            accelerator=accelerator,
        )
        recorder = Recorder(
            directory.dynamics,
            len(prepared.dataset.train),
            prepared.dataset.num_classes,
            prepared.epochs,
            first=self.training.spans[-1].first // len(prepared.train),
        )
        self.records = RecordWriter(recorder, accelerator, Written(directory.path))
        self.history = History(directory)
        self.meter = Meter()
        self.checkpointer = Checkpointer(
            self.training, directory, prepared.config.checkpoint_seconds, self._contents
        )
        self.notes: list[str] = []  # of the method about its estimates, for the summary

    def begin(self, resume: bool) -> None:
        """Restore the last checkpoint, or write what a new run begins with."""
        prepared, directory = self.prepared, self.directory
        state = self._last_state() if resume and processes.agreed(directory.is_begun) else None
        if state is not None:
            self._restore(state)
            if self.is_main:
                checkpoint.remove_beyond(directory.checkpoints, state.step)
                directory.sweep()
        elif self.is_main:
            if resume and directory.summary.is_file():
                raise InputError(
                    f"{directory.path} has no {directory.manifest.name} and no checkpoint to make "
                    "it from",
                    field="resume",
                    fix="restore it from a copy, or train the run again with "
                    f"{option('overwrite', True)} (or set format = 1 in {directory.config.name} "
                    "to have it read unchecked)",
                )
            if resume:
                self.display.note(f"{directory.path} holds no checkpoint yet: the run begins")
            resumption.check_disk_space(directory, prepared, self.training)
            directory.clear()
            prepared.config.write(directory.config, prepared.labels.fingerprint)
            prepared.labels.save(directory.labels)
            spans = self.training.spans
            if len(spans) > 1:
                stages = described(spans, len(prepared.train))
                directory.write_json(directory.stages, {"stages": stages})
            for path in directory.listed():
                self.records.written.add(path)
        self.accelerator.wait_for_everyone()

    def learn(self, observers: Sequence[Observer] = ()) -> bool:
        """Train to the end and return whether it was reached; an observer may have stopped it."""
        training, total = self.training, self.prepared.total_steps
        own: tuple[Observer, ...] = (self.records,)
        if self.is_main:
            self.display.begin(self._titles(), training.step, total)
            own = (*own, self.history, Progress(self.display, self.meter, training))
        # The meter is last: what observers do after an evaluation is not training time.
        every = (*own, *observers, self.checkpointer, self.meter)
        self.checkpointer.start(self.checkpointer.saved_step)
        self.meter.start()
        try:
            deque(self.steps(every), maxlen=0)  # no variable keeps a result alive
        except DivergenceError:
            self.checkpointer.save_before_divergence()
            raise
        if training.step == total:
            return True
        self.accelerator.wait_for_everyone()
        stops = any(observer.stop_reason is not None for observer in observers)
        counts = torch.tensor([stops, training.is_interrupted], dtype=torch.float32)
        stopped, interrupted = processes.summed(self.accelerator, counts).tolist()
        if stopped and not interrupted:
            return False
        raise Interrupted(f"stopped after step {training.step} of {total}", self._advice())

    def steps(self, observers: Sequence[Observer]) -> Iterator[StepResult]:
        """Yield the steps of the run, with evaluations where the config asks for them."""
        return train_steps(
            self.training,
            self.prepared.train,
            self._snapshot,
            observers=observers,
            evaluate=self._evaluate,
        )

    def stop_signals(self) -> AbstractContextManager[None]:
        """Let the first signal request a stop after the present step, or soon within a long one.

        One of several processes must not leave a step that the others wait in.
        """
        is_alone = self.accelerator.num_processes == 1
        return stop_signals(
            self.training, (lambda: self.checkpointer.is_saving) if is_alone else None
        )

    @contextlib.contextmanager
    def resumable(self) -> Iterator[None]:
        """Turn what stops the run in the middle of a step into an interruption.

        That is a signal, or that it ended the worker processes of the loader. The state within a
        step cannot be saved.
        """
        try:
            yield
        except Interrupted:
            raise
        except KeyboardInterrupt:
            where = f"stopped after step {self.training.step} of {self.prepared.total_steps}"
            raise Interrupted(where, self._advice_within_step()) from None
        except RuntimeError as error:
            if not self.training.wants_stop or "DataLoader worker" not in str(error):
                raise
            where = "stopped together with the processes that read images"
            raise Interrupted(where, self._advice_within_step()) from None

    def _advice_within_step(self) -> str:
        step = self.checkpointer.saved_step
        if step >= 0 and step == self.training.step:
            return self._advice()
        saved = "no state was saved yet; begin again"
        if step >= 0:
            saved = f"the state after step {step} is saved; resume"
        return f"{saved} with: {resumption.command(self.prepared, self.directory)}"

    def finish(self) -> None:
        """Write the model, the neighbours, the audit and the summary."""
        prepared, directory, training = self.prepared, self.directory, self.training
        training.share_buffers()
        measured = final_measures(prepared, training, directory.path)
        unlabelled.predict(directory, prepared, training)
        if self.is_main:
            self.records.recorder.end()
            write_model(directory, prepared, training.evaluated)
            write_transition(directory, training.strategy)
            seed, labels = prepared.config.recipe.seed, prepared.labels
            compared = self._compared() if self.is_audited else Compared()
            train = prepared.dataset.train.inputs
            held = judges.of_network(train, labels, prepared.preprocessing, compared, seed)
            if held is not None:
                judges.write(directory, labels, held, seed)
            write_results(
                directory,
                self.records.written,
                labels,
                self.history.lines,
                method=prepared.config.method,
                data=prepared.dataset.name,
                seed=seed,
                steps=training.step,
                seconds=round(self.meter.seconds, 3),
                measured=measured,
                facts=prepared.strategy.facts(),
                notes=self.notes,
                warnings=tuple(label_warnings(prepared.config.table(), prepared.leaking)),
                compared=compared,
                held_out=held,
            )
        self.accelerator.wait_for_everyone()

    def _compared(self) -> Compared:
        """Return what the inputs say about the labels, and write the neighbours."""
        prepared = self.prepared
        given, preprocessing = prepared.labels.given, prepared.preprocessing
        return neighbours.compare_parts(
            self.directory, prepared.dataset, given, preprocessing, self._note
        )

    def _last_state(self) -> State | None:
        """Return the newest checkpoint of a run that is to be resumed, or None if there is none."""
        directory = self.directory
        resumption.check_run(directory, self.prepared)
        state, notes = checkpoint.read_last(directory.checkpoints)
        if state is None and notes:
            raise InputError(
                f"all checkpoints of {directory.path} are damaged",
                field="resume",
                fix=f"train the run again with {option('overwrite', True)} instead of "
                f"{option('resume', True)}",
            )
        for note in notes if self.is_main else ():
            self.display.note(note)
        # 60 bits of the digest fit into a number of 64.
        seen = -1 if state is None else int(state.digest[:15], 16)
        if not processes.alike(self.accelerator, seen):
            raise InputError(
                f"not all processes see the same checkpoint in {directory.path}",
                fix="put the run where all machines can read it, and try again",
            )
        return state

    def _restore(self, state: State) -> None:
        resumption.check_state(state, self.directory, self.prepared)
        self.training.restore(state)
        self.meter.restore(state.facts.get("meter"))
        notes = state.facts.get("notes")
        self.notes = [str(note) for note in notes] if isinstance(notes, list) else []
        self.checkpointer.start(state.step)
        if self.is_main:
            self.history.read(state.step)
            self.records.written = resumption.check_files(
                state, self.directory, self.history.content()
            )
            self.directory.reopen()  # a manifest or a summary would describe what is replaced now
            batches, total = len(self.prepared.train), self.prepared.total_steps
            epoch = self.prepared.epochs if state.step == total else state.step // batches
            self.records.recorder.restore(checkpoint.part(state.tensors, "recorder"), epoch)
            self.directory.write_history(self.history.lines)

    def _contents(self) -> tuple[dict[str, Any], Json]:
        """Return the tensors and facts of a checkpoint; all processes collect the tensors."""
        tensors = self.training.tensors()
        self.records.exchange()
        if not self.is_main:
            return {}, {}
        tensors |= checkpoint.named("recorder", self.records.recorder.tensors())
        return tensors, {
            **self.training.facts(),
            **resumption.facts(self.prepared),
            "meter": self.meter.facts(),
            "notes": self.notes,
            **resumption.files(self.records.written, self.history.content()),
        }

    def _evaluate(self, result: StepResult) -> Json | None:
        if not self.prepared.is_point(result.step):
            return None
        return evaluate(self.prepared, self.training, self.meter, result)

    def _snapshot(self, model: nn.Module) -> Snapshot:
        """Return what a strategy may read when a stage begins or an epoch ends."""
        prepared, C = self.prepared, self.prepared.dataset.num_classes

        def predict(rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
            self.training.share_buffers()
            part = prepared.dataset.train
            batches = prepared.for_evaluation(part if rows is None else part.take(rows))
            found = predict_together(model, batches, C, self.accelerator)
            for index, logits in found:
                yield index if rows is None else torch.from_numpy(rows)[index.cpu()], logits

        return Snapshot(model, prepared.labels.given, C, predict, self._note)

    def _note(self, sentence: str) -> None:
        """Show a note of the method now, and keep it for the summary."""
        if self.is_main:
            self.display.note(sentence)
            self.notes.append(sentence)

    def _titles(self) -> tuple[str, str]:
        """Return two lines that describe the data and the training."""
        prepared, labels = self.prepared, self.prepared.labels
        count, steps = self.accelerator.num_processes, prepared.total_steps
        n, C = len(labels.given), len(labels.names)
        data = f"{prepared.dataset.name}: {n:,} examples of {C} classes"
        if labels.clean is not None:
            data += f", {labels.flipped.mean():.1%} of the labels wrong"
        return data, (
            f"{prepared.config.method} with {prepared.config.model}, {steps:,} "
            f"step{'s' * (steps != 1)}{f' in {count} processes' * (count > 1)}, into "
            f"{self.directory.path}"
        )

    def _advice(self) -> str:
        """Say how to continue after a stop."""
        if self.is_main and self.checkpointer.saved_step != self.training.step:
            return "and the state could not be saved, since its weights are not finite"
        return (
            f"the state is saved; resume with: {resumption.command(self.prepared, self.directory)}"
        )
