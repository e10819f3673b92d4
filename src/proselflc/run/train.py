"""One run from end to end: train, watch, stop, resume, leave a directory that explains itself."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from proselflc.auditing import doubts, suspects
from proselflc.auditing.examples import write_parquet
from proselflc.auditing.records import Records
from proselflc.correction.target import Target
from proselflc.correction.trust import global_part
from proselflc.data.dataset import Dataset, Ints
from proselflc.data.preprocessing import Preprocessing
from proselflc.errors import InputError
from proselflc.files.manifest import Written
from proselflc.run import disk_space, measurement, resumption, tracking
from proselflc.run import wording as run_words
from proselflc.run.config import Config
from proselflc.run.output_options import OutputOptions, may_begin, place
from proselflc.run.prepare import PreparedRun, prepare, resumed_config
from proselflc.run.summary import summary, write_model, write_transition
from proselflc.terminal.display import Display, showing
from proselflc.terminal.interruption import Interrupted, stop_signals
from proselflc.training import checkpoint, observations, processes
from proselflc.training.checkpoint import State
from proselflc.training.fit import DivergenceError, StepResult, Training, lessons
from proselflc.training.inference import answers
from proselflc.training.meter import Meter
from proselflc.training.observations import Recorder, Seen, see
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.strategy import Snapshot, described

SHOWN_EVERY = 0.2  # seconds between two movements of the bar


def train(
    config: Config,
    start: OutputOptions,
    display: Display,
    *,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    preprocessing: Preprocessing | None = None,
) -> Path:
    """Train as the config says; the run's directory.

    Args:
        config: what to do.
        start: where to put it.
        display: who is told how it goes.
        dataset: instead of what the config names.
        model: instead of what the config names.
        preprocessing: of the inputs, instead of fitting it to them.

    Raises:
        InputError: something in the config, the data or the directory is not as it must be.
        DivergenceError: the loss is no number any more; the last good state is kept.
        Interrupted: somebody wanted it to stop; the state is saved.
    """
    if config.tracker is not None:
        tracking.check(config.tracker)
    accelerator = processes.accelerator(config.recipe.precision)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_settled(config.recipe.deterministic))
        directory = RunDirectory(place(config, start))
        is_begun = True
        if accelerator.is_main_process:
            is_new = directory.make()
            stack.enter_context(directory.locked())
            if is_new:
                stack.callback(directory.remove_unused)  # a mistyped option leaves nothing behind
            is_begun = may_begin(directory, start)
            if not is_begun:
                display.note(f"the run {directory.path} is finished: there is nothing to resume")
        # The main process decides: others may be on machines that do not see the directory.
        if not processes.agreed(is_begun):
            return directory.path
        if start.resume and directory.is_begun:
            config = resumed_config(config, directory)
        count = accelerator.num_processes
        begun_in = resumption.begun_in(directory, count) if start.resume else count
        if begun_in != count:
            display.note(
                f"the run was begun in {begun_in} process{'es' * (begun_in > 1)} and goes on in "
                f"{count}: it learns from the same batches, but batch normalisation and dropout "
                "depend on the number of processes"
            )
        prepared = prepare(
            config,
            dataset,
            model=model,
            preprocessing=preprocessing,
            shard=(accelerator.process_index, count),
            begun_in=begun_in,
            report=display.note if accelerator.is_main_process else _nobody,
        )
        run = _Run(prepared, directory, accelerator, display)
        run.begin(start.resume)
        if config.tracker is not None:
            tracking.start(accelerator, prepared.config, directory, stack)
        with showing(display), run.losing_its_workers():
            run.learn(stack)
        run.finish()
    return directory.path


class _Run:
    """A run that is under way. The main process alone writes."""

    def __init__(
        self,
        prepared: PreparedRun,
        directory: RunDirectory,
        accelerator: Accelerator,
        display: Display,
    ) -> None:
        self.prepared = prepared
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
        self.recorder = Recorder(
            directory.dynamics,
            len(prepared.dataset.train),
            prepared.dataset.num_classes,
            prepared.epochs,
            first=self.training.spans[-1].first // len(prepared.train),
        )
        self.history: list[Json] = []
        self.written = Written(directory.path)
        self.notes: list[str] = []  # what the method wants to be known of its estimates
        self.meter = Meter()
        self.saved_step = -1
        self.is_evaluating = False

    def begin(self, resume: bool) -> None:
        """Put everything where the last checkpoint left it, or at the beginning."""
        prepared, directory = self.prepared, self.directory
        state = None
        if resume and processes.agreed(directory.is_begun):
            resumption.check_everybody_sees(directory, self.accelerator)
            resumption.check_run(directory, prepared)
            state, notes = checkpoint.read_last(directory.checkpoints)
            if state is None and notes:
                raise InputError(
                    f"no checkpoint of {directory.path} can be used, all are damaged: begin anew "
                    "with --overwrite instead of --resume"
                )
            for note in notes if self.is_main else ():
                self.display.note(note)
            if not processes.alike(self.accelerator, -1 if state is None else state.step):
                raise InputError(
                    f"not all processes see the same checkpoint in {directory.path}: put it where "
                    "all machines can read it, and try again"
                )
        if state is not None:
            self._restore(state)
            if self.is_main:
                checkpoint.remove_beyond(directory.checkpoints, state.step)
                directory.sweep()
        elif self.is_main:
            if resume and directory.summary.is_file():
                raise InputError(
                    f"{directory.path} has no {directory.manifest.name} and no checkpoint to make "
                    "it from: restore it from a copy, or train the run again with --overwrite "
                    f"(or set format = 1 in {directory.config.name}: it is then read unchecked)"
                )
            if resume:
                self.display.note(f"there is no state in {directory.path} yet: the run begins")
            disk_space.check(directory, prepared, self.training)
            directory.clear()
            prepared.config.write(directory.config, prepared.labels.fingerprint)
            prepared.labels.save(directory.labels)
            spans = self.training.spans
            if len(spans) > 1:
                stages = described(spans, len(prepared.train))
                directory.write_json(directory.stages, {"stages": stages})
            for path in directory.listed():
                self.written.add(path)
        self.accelerator.wait_for_everyone()

    def learn(self, stack: contextlib.ExitStack) -> None:
        """Train to the end, recording, evaluating and saving on the way."""
        prepared, training = self.prepared, self.training
        stack.enter_context(stop_signals(training))
        if self.is_main:
            self.display.begin(
                run_words.title(self.prepared, self.directory, self.accelerator.num_processes),
                training.step,
                prepared.total_steps,
            )
        saved = shown = time.monotonic()
        self.meter.start()
        for lesson in self._lessons():
            now = time.monotonic()
            is_point = prepared.is_point(lesson.step)  # its evaluation has shown it already
            if self.is_main and not is_point and now - shown >= SHOWN_EVERY:
                shown = now
                numbers = {"epoch": float(lesson.epoch + 1), **self.meter.numbers(self._g())}
                self.display.step(lesson.step, numbers)
            due = now - saved >= prepared.config.checkpoint_seconds
            if self.is_main and (due or lesson.stop or lesson.step == prepared.total_steps):
                self._save()
                saved = time.monotonic()
            if lesson.stop and lesson.step < prepared.total_steps:
                self.accelerator.wait_for_everyone()
                raise Interrupted(
                    f"stopped after step {lesson.step} of {prepared.total_steps}", self._advice()
                )

    @contextlib.contextmanager
    def losing_its_workers(self) -> Iterator[None]:
        """A stop that reached the processes that decode images as well ends in the usual way.

        What they leave may come in the middle of a step, so the state at hand is not saved.
        """
        try:
            yield
        except RuntimeError as error:
            if not self.training.wants_stop or "DataLoader worker" not in str(error):
                raise
            saved = "no state was saved yet; begin again"
            if self.saved_step >= 0:
                saved = f"the state after step {self.saved_step} is saved; go on"
            raise Interrupted(
                "stopped together with the processes that read images",
                f"{saved} with: {run_words.command(self.directory, self.prepared.config)}",
            ) from None

    def _lessons(self) -> Iterator[StepResult]:
        """Take the steps; where the loss of one is not finite, the state before it is saved.

        Where the model's outputs are not finite after a step, that state is not worth saving.
        """
        try:
            yield from lessons(self.training, self.prepared.train, self._scene, self._watch)
        except DivergenceError:
            is_usable = self.saved_step < self.training.step and not self.is_evaluating
            if self.is_main and is_usable:
                self._save()
            raise

    def _scene(self, model: nn.Module) -> Snapshot:
        """What a strategy may look at when a stage begins or an epoch is over."""
        prepared = self.prepared

        def said(rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
            self.training.share_buffers()
            part = prepared.dataset.train
            batches = prepared.for_evaluation(part if rows is None else part.take(rows))
            for batch, logits in answers(model, batches, self.accelerator.device):
                yield batch.index if rows is None else torch.from_numpy(rows)[batch.index], logits

        return Snapshot(
            model,
            prepared.labels.given,
            prepared.dataset.num_classes,
            said,
            self._note,
        )

    def _note(self, sentence: str) -> None:
        """Say it now, and in the summary."""
        if self.is_main:
            self.display.note(sentence)
            self.notes.append(sentence)

    def finish(self) -> None:
        """Write what a reader of the run wants, then the summary and last the manifest."""
        prepared, directory, training = self.prepared, self.directory, self.training
        training.share_buffers()
        test, validation = (
            measurement.logits(prepared, training, part, directory.path)
            for part in (prepared.dataset.test, prepared.dataset.validation)
        )
        if self.is_main:
            self.recorder.end()
            write_model(directory, prepared, training.evaluated)
            write_transition(directory, training.strategy)
            table, audit = suspects.examine(
                prepared.labels,
                Records(observations.Epochs(directory.dynamics, self.written.checked)),
            )
            write_parquet(table, directory.examples)
            audit.save(directory)
            measured = measurement.everything(prepared.dataset, test, validation)
            directory.write_json(directory.evaluation, measured)
            steps, seconds = training.step, self.meter.seconds
            numbers = summary(
                prepared,
                self.history,
                measured,
                table,
                audit,
                steps=steps,
                seconds=seconds,
                notes=[*self.notes, *doubts.of_labels(prepared.config.table())],
            )
            directory.write_json(directory.summary, numbers)
            self.written.seal(directory.listed())
        self.accelerator.wait_for_everyone()

    def _restore(self, state: State) -> None:
        resumption.check_state(state, self.directory, self.prepared)
        self.training.restore(state)
        self.meter.restore(state.facts.get("meter"))
        notes = state.facts.get("notes")
        self.notes = [str(note) for note in notes] if isinstance(notes, list) else []
        self.saved_step = state.step
        if self.is_main:
            lines = self.directory.read_history()
            self.history = [line for line in lines if _integer(line.get("step")) <= state.step]
            self.written = resumption.check_files(
                state, self.directory, self.directory.history_of(self.history)
            )
            self.directory.reopen()  # a manifest or a summary would be of what is replaced now
            batches, total = len(self.prepared.train), self.prepared.total_steps
            epoch = self.prepared.epochs if state.step == total else state.step // batches
            self.recorder.restore(checkpoint.part(state.tensors, "recorder"), epoch)
            self.directory.write_history(self.history)

    def _advice(self) -> str:
        """How to go on after a stop."""
        if self.is_main and self.saved_step != self.training.step:
            return "and the state could not be saved, for its weights are not finite numbers"
        command = run_words.command(self.directory, self.prepared.config)
        return f"the state is saved; go on with: {command}"

    def _save(self) -> None:
        """Save the state, unless its weights are no numbers: the next step will say so."""
        module = self.training.module
        finite = all(bool(weight.isfinite().all()) for weight in module.parameters())
        if not finite or any(bool(buffer.isnan().any()) for buffer in module.buffers()):
            return
        tensors = self.training.tensors()
        tensors |= checkpoint.named("recorder", self.recorder.tensors())
        facts = {
            **self.training.facts(),
            **resumption.facts(self.prepared),
            "meter": self.meter.facts(),
            "notes": self.notes,
            **resumption.files(self.written, self.directory.history_of(self.history)),
        }
        checkpoint.write(self.directory.checkpoints, State(self.training.step, tensors, facts))
        self.saved_step = self.training.step

    def _watch(self, lesson: StepResult) -> None:
        """Record a step and evaluate after it, before the strategy changes at an epoch's end.

        So the history's ε is that of the targets of this step, as in the records.
        """
        self._record(lesson)
        self.meter.add(lesson)
        if self.prepared.is_point(lesson.step):
            self.is_evaluating = True
            self._evaluate(lesson)
            self.is_evaluating = False

    def _record(self, lesson: StepResult) -> None:
        """Keep what the step has shown, all processes' in the main one."""
        seen = see(
            self.training.strategy,
            lesson.logits,
            lesson.batch,
            self.training.progress,
            means=self.recorder.wants_means(lesson.epoch),
        )
        index, facts, *means = processes.gathered(
            self.accelerator, seen.index, seen.facts, *seen.means
        )
        self.meter.see(facts)
        if self.is_main:
            means = [mean.cpu() for mean in means]
            self.recorder.add(lesson.epoch, Seen(index.cpu(), facts.cpu(), tuple(means)))
            if lesson.ends_epoch:
                self.written.add(self.recorder.end_epoch(lesson.epoch))

    def _evaluate(self, lesson: StepResult) -> None:
        self.meter.pause()
        prepared, training = self.prepared, self.training
        training.share_buffers()
        fitting = measurement.fitting(prepared, training)
        accuracies = {
            name: measurement.accuracy(prepared, training, part)
            for name, part in (
                ("test_accuracy", prepared.dataset.test),
                ("val_accuracy", prepared.dataset.validation),
            )
        }
        measured = {**asdict(fitting), **accuracies}
        line: Json = {
            "step": lesson.step,
            "epoch": round(lesson.step / len(prepared.train), 6),
            "progress": lesson.step / prepared.total_steps,
            "stage": training.span.stage.name if len(training.spans) > 1 else None,
            "train_loss": self.meter.loss,
            "train_accuracy": measured.pop("train_accuracy"),
            "test_accuracy": measured.pop("test_accuracy"),
            "val_accuracy": measured.pop("val_accuracy"),
            "lr": lesson.lr,
            "g": self._g(),
            **measured,
            "seconds": round(self.meter.seconds, 3),
            "images_per_second": self.meter.speed,
        }
        if self.is_main:
            self.history.append(line)
            self.directory.write_history(self.history)
            self.display.point(line)
        if prepared.config.tracker is not None:
            numbers = {key: one for key, one in line.items() if isinstance(one, int | float)}
            self.accelerator.log(numbers, step=lesson.step)
        self.meter.start_anew()

    def _g(self) -> float | None:
        """g(t) of a method that has one."""
        method = self.training.criterion.method
        part = global_part(method.trust) if isinstance(method, Target) else None
        return None if part is None else part.at(self.training.progress)


@contextlib.contextmanager
def _settled(deterministic: bool) -> Iterator[None]:
    """Torch's global state as it was before, whatever a run does to it."""
    was = torch.are_deterministic_algorithms_enabled()
    warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng():
        if deterministic:
            # Without it cuBLAS refuses; it is read when CUDA is first used.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(was, warn_only=warned_only)


def _integer(value: object) -> int:
    return value if isinstance(value, int) else sys.maxsize


def _nobody(text: str) -> None:
    pass
