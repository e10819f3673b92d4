"""What follows a run while it trains: clock, records, progress display, tracker, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from accelerate import Accelerator

from proselflc.errors import InputError, unknown
from proselflc.files.manifest import Written
from proselflc.files.typed import Count, convert
from proselflc.run.config import Config
from proselflc.terminal import Display
from proselflc.training import checkpoint, processes
from proselflc.training.checkpoint import State
from proselflc.training.loop import Observer, StepResult, Training
from proselflc.training.observations import Observations, Recorder, observe
from proselflc.training.run_directory import Json, RunDirectory

EXCHANGED = 2**18  # numbers of records that processes exchange at once
DISPLAY_INTERVAL = 0.2  # seconds between two updates of the progress bar


@dataclass(frozen=True)
class MeterState:
    """What a checkpoint keeps of a meter."""

    seconds: float  # spent training
    at_point: float  # the same at the last evaluation
    examples: Count  # since then
    loss_sum: float  # of these examples


class Meter(Observer):
    """Measures the loss and the speed since the last evaluation, and the time spent training.

    It must come after all other observers: what they do after an evaluation is not training time.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._before = 0.0  # seconds of training up to the last pause
        self._at_point = 0.0  # of these, up to the last evaluation
        self.examples = 0
        self.loss_sum = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds spent training, without evaluations."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self._before + running

    @property
    def loss(self) -> float | None:
        """Return the mean loss since the last evaluation."""
        return self.loss_sum / self.examples if self.examples else None

    @property
    def speed(self) -> float | None:
        """Return the examples per second since the last evaluation."""
        seconds = self.seconds - self._at_point
        return self.examples / seconds if seconds > 0 else None

    def start(self) -> None:
        """Start the clock."""
        self._since = time.monotonic()

    def pause(self) -> None:
        """Stop the clock for an evaluation."""
        self._before, self._since = self.seconds, None

    def observe(self, result: StepResult) -> None:
        self.examples += result.size
        self.loss_sum += result.loss * result.size

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        self.examples, self.loss_sum = 0, 0.0
        self._at_point = self._before
        self.start()

    def facts(self) -> Json:
        """Return the fields of a `MeterState`."""
        return asdict(MeterState(self.seconds, self._at_point, self.examples, self.loss_sum))

    def restore(self, facts: object) -> None:
        """Continue from what `facts` returned."""
        state = convert(facts, MeterState, "the meter in the checkpoint")
        self._before, self._at_point = state.seconds, state.at_point
        self.examples, self.loss_sum = state.examples, state.loss_sum


class RecordWriter(Observer):
    """Records every step's observations of all processes in the main one, a file per epoch.

    Several processes exchange them every few steps, at the end of an epoch, and before a checkpoint
    is written.
    """

    def __init__(self, recorder: Recorder, accelerator: Accelerator, written: Written) -> None:
        self.recorder = recorder
        self.written = written
        self._accelerator = accelerator
        self._epoch = 0
        self._waiting: list[Observations] = []  # of this process, not exchanged yet
        self._numbers = 0  # in those of all processes

    def observe(self, result: StepResult) -> None:
        own = observe(result.corrected, means=self.recorder.wants_means(result.epoch))
        self._epoch = result.epoch
        self._waiting.append(own)
        self._numbers += result.size * sum(one.size(1) for one in (own.facts, *own.means))
        alone = self._accelerator.num_processes == 1
        if alone or result.ends_epoch or self._numbers > EXCHANGED:
            self.exchange()
        if result.ends_epoch and self._accelerator.is_main_process:
            self.written.add(self.recorder.end_epoch(result.epoch))

    def exchange(self) -> None:
        """Add what was observed since the last time to the main process's records; all call it."""
        if not self._waiting:
            return
        columns = zip(*((one.index, one.facts, *one.means) for one in self._waiting), strict=True)
        own = [column[0] if len(column) == 1 else torch.cat(column) for column in columns]
        self._waiting, self._numbers = [], 0
        index, facts, *means = processes.gathered(self._accelerator, *own)
        if self._accelerator.is_main_process:
            every = Observations(index.cpu(), facts.cpu(), tuple(mean.cpu() for mean in means))
            self.recorder.add(self._epoch, every)


class History(Observer):
    """Keeps the lines of a run and writes `history.jsonl` after every evaluation."""

    def __init__(self, directory: RunDirectory) -> None:
        self.lines: list[Json] = []
        self._directory = directory

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        self.lines.append(dict(line))
        self._directory.write_history(self.lines)

    def content(self) -> bytes:
        """Return what `history.jsonl` holds."""
        return self._directory.history_of(self.lines)

    def read(self, step: int) -> None:
        """Take the lines up to a step from the directory."""
        self.lines = [
            line
            for line in self._directory.read_history()
            if isinstance(number := line.get("step"), int) and number <= step
        ]


class Progress(Observer):
    """Shows the progress of training on a display."""

    def __init__(self, display: Display, meter: Meter, training: Training) -> None:
        self._display = display
        self._meter = meter
        self._training = training
        self._updated = time.monotonic()

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        self._display.point(line)
        self._updated = time.monotonic()

    def after_step(self, result: StepResult) -> None:
        now = time.monotonic()
        if now - self._updated < DISPLAY_INTERVAL:
            return
        self._updated = now
        if len(result.logits) == 0:  # this process had no example of the batch
            return
        meter, predicted = self._meter, result.logits.argmax(1)
        numbers = {
            "epoch": float(result.epoch + 1),
            "loss": math.nan if meter.loss is None else meter.loss,
            "fits given": float((predicted == result.batch.y.to(predicted)).float().mean()),
        }
        g = self._training.strategy.global_trust(self._training.progress)
        if g is not None:
            numbers["g"] = g
        numbers |= {"ε": float(result.corrected.trust.mean()), "examples/s": meter.speed or 0.0}
        self._display.step(result.step, numbers)


class Tracker(Observer):
    """Sends the numbers of every evaluation to a tracker such as TensorBoard."""

    def __init__(self, accelerator: Accelerator, config: Config, directory: RunDirectory) -> None:
        self._accelerator = accelerator
        accelerator.project_configuration.set_directories(str(directory.tracking))
        accelerator.log_with = [config.tracker]
        options = {  # trackers take no nested tables
            key: str(value) if isinstance(value, dict) else value
            for key, value in config.table().items()
        }
        try:
            accelerator.init_trackers(directory.path.name, options)
        except Exception as error:  # trackers are third-party code
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"the tracker {config.tracker} cannot be started: {reason}", field="tracker"
            ) from None

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        numbers = {key: value for key, value in line.items() if isinstance(value, int | float)}
        self._accelerator.log(numbers, step=line["step"])

    def close(self) -> None:
        """Let the tracker write what it has."""
        for tracker in self._accelerator.trackers:
            tracker.finish()


def check_tracker(name: str) -> None:
    """Refuse a tracker that Accelerate does not know or that is not installed."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, LoggerType, get_available_trackers

    if name not in LOGGER_TYPE_TO_CLASS:
        raise InputError(unknown("tracker", name, LOGGER_TYPE_TO_CLASS), field="tracker")
    if name in LoggerType.list() and name not in map(str, get_available_trackers()):
        extra = '"proselflc[tensorboard]"' if name == "tensorboard" else name.replace("_", "-")
        raise InputError(
            f"the tracker {name} is not installed", field="tracker", fix=f"pip install {extra}"
        )


class Checkpointer(Observer):
    """Saves the state every few seconds, before a stop and at the end.

    The main process decides when, and writes. All processes collect the state, since each may have
    a share of what the method keeps per example: if there are several, they save after the step
    that follows the decision and carries it. `contents` returns tensors and facts of the whole
    state. `saved_step` is the step of the last checkpoint, or -1. `is_saving` is true while one is
    written.
    """

    def __init__(
        self,
        training: Training,
        directory: RunDirectory,
        interval: float,  # in seconds
        contents: Callable[[], tuple[dict[str, Any], Json]],
    ) -> None:
        self.saved_step = -1
        self.is_saving = False
        self._training = training
        self._directory = directory
        self._interval = interval
        self._contents = contents
        self._completed = 0  # the last step after which nothing was left to do
        self._saved_at = time.monotonic()

    def start(self, saved_step: int) -> None:
        """Begin with the state of a checkpoint, or with -1 for none."""
        self.saved_step = saved_step
        self._completed = self._training.step
        self._saved_at = time.monotonic()

    def after_step(self, result: StepResult) -> None:
        self._completed = result.step
        accelerator = self._training.accelerator
        is_due = time.monotonic() - self._saved_at >= self._interval
        if accelerator.num_processes > 1:
            wants = is_due and bool(accelerator.is_main_process) and not result.save
            self._training.wants_checkpoint, is_due = wants, result.save
        if is_due or result.stop or result.step == self._training.total_steps:
            self._save()
            self._saved_at = time.monotonic()

    def save_before_divergence(self) -> None:
        """Save the state before a step whose loss is not finite.

        A state after which the evaluation failed is not worth saving.
        """
        if self.saved_step < self._training.step == self._completed:
            self._save()

    def _save(self) -> None:
        """Save the state, unless its weights are not finite: the next step will report it."""
        module = self._training.module
        finite = all(bool(weight.isfinite().all()) for weight in module.parameters())
        is_sound = finite and not any(bool(buffer.isnan().any()) for buffer in module.buffers())
        if not processes.agreed(is_sound):  # running statistics differ between processes
            return
        step = self._training.step
        self.is_saving = True
        try:
            tensors, facts = self._contents()
            if self._training.accelerator.is_main_process:
                checkpoint.write(self._directory.checkpoints, State(step, tensors, facts))
            self.saved_step = step
        finally:
            self.is_saving = False
