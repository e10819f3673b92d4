"""Training a run from end to end: begin or resume, train, and write the results."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from accelerate import Accelerator
from torch import nn

from proselflc.data.dataset import Dataset
from proselflc.data.preprocessing import Preprocessing
from proselflc.errors import InputError
from proselflc.learners.catalogue import is_learner
from proselflc.learners.learner import Learner
from proselflc.run import resumption
from proselflc.run.config import Config, OutputOptions, check_output, run_path
from proselflc.run.learned import backbones
from proselflc.run.learned.choice import AUTO, NETWORK, Choice, choose, chooses
from proselflc.run.learned.encoded import located
from proselflc.run.learned.fitted import FittedRun, prepare_table
from proselflc.run.learned.network import TrainingRun
from proselflc.run.observers import Tracker, check_tracker
from proselflc.run.prepare import LabelledData, label_data, prepare
from proselflc.terminal import Display, showing
from proselflc.training import processes
from proselflc.training.loop import Observer
from proselflc.training.run_directory import RunDirectory


def train(
    config: Config,
    start: OutputOptions,
    display: Display,
    *,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    preprocessing: Preprocessing | None = None,
    learner: Learner | None = None,
    observers: Sequence[Observer] = (),
    is_audited: bool = True,
) -> Path:
    """Train a run and return its directory.

    Data, model, learner and preprocessing that are given replace what the config names. A run that
    an observer stopped is not finished: its state is saved and it can be resumed. A run that is
    not audited, one of many, has no second opinion on its labels and no neighbours; an audit finds
    them later.

    Raises:
        DivergenceError: the loss is not finite; the last good state is kept.
        Interrupted: a signal stopped the run; the state is saved.
    """
    if config.tracker is not None:
        check_tracker(config.tracker)
    accelerator = processes.accelerator(config.recipe.precision)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_isolated_torch_state(config.recipe.deterministic))
        directory = RunDirectory(run_path(config, start))
        is_begun = True
        if accelerator.is_main_process:
            is_new = directory.make()
            stack.enter_context(directory.locked())
            if is_new:
                stack.callback(directory.remove_unused)  # a mistyped option leaves nothing behind
            is_begun = check_output(directory, start)
            if not is_begun:
                display.note(f"the run {directory.path} is finished: there is nothing to resume")
        # The main process decides: the others may be on machines without the directory.
        if not processes.agreed(is_begun):
            return directory.path
        if start.resume and processes.agreed(directory.is_begun):
            resumption.check_visible(directory, accelerator)
            config = resumption.resumed_config(config, directory)
        count = accelerator.num_processes
        begun_in = resumption.begun_in(directory, count) if start.resume else count
        if begun_in != count:
            display.note(
                f"the run was begun in {begun_in} process{'es' * (begun_in > 1)} and is resumed in "
                f"{count}: it learns from the same batches, but batch normalisation and dropout "
                "depend on the number of processes"
            )
        config = located(config)
        report = display.note if accelerator.is_main_process else lambda note: None
        data = label_data(config, dataset, report)
        if model is None and preprocessing is None and backbones.chooses(config, data):
            data = replace(data, config=backbones.choose(data.config, data, report, display))
            config = replace(config, model=data.config.model, backbone=data.config.backbone)
        data = backbones.with_features(config, data, display)
        if config.model == AUTO and data.dataset.train.inputs.medium != "table":
            config = replace(config, model=None)
            data = replace(data, config=replace(data.config, model=None))
        if model is None and chooses(config, data):
            config, data = _chosen(config, data, preprocessing, count, report)
        run: LearningRun
        if learner is not None or (model is None and is_learner(config.model)):
            _check_one_process(accelerator, config)
            table = prepare_table(data, preprocessing, learner)
            run = FittedRun(table, directory, display, is_audited=is_audited)
            resolved = table.config
        else:
            prepared = prepare(
                config,
                data=data,
                model=model,
                preprocessing=preprocessing,
                shard=(accelerator.process_index, count),
                begun_in=begun_in,
                report=report,
            )
            resumption.check_alike(prepared, accelerator)
            run = TrainingRun(prepared, directory, accelerator, display, is_audited=is_audited)
            resolved = prepared.config
        run.begin(start.resume)
        if config.tracker is not None:
            tracker = Tracker(accelerator, resolved, directory)
            stack.callback(tracker.close)
            observers = (tracker, *observers)
        stack.enter_context(run.stop_signals())
        with run.resumable():
            with showing(display):
                is_complete = run.learn(observers)
            if is_complete:
                run.finish()
    return directory.path


class LearningRun(Protocol):
    """A run that learns: a network in the loop, or a learner of tables (`FittedRun`)."""

    def begin(self, resume: bool) -> None:
        """Restore the last checkpoint, or write what a new run begins with."""

    def learn(self, observers: Sequence[Observer] = ()) -> bool:
        """Learn to the end and return whether it was reached."""

    def finish(self) -> None:
        """Write the model, the neighbours, the audit and the summary."""

    def stop_signals(self) -> AbstractContextManager[None]:
        """Let Ctrl-C, SIGTERM and SIGHUP stop the run so that it can be resumed."""

    def resumable(self) -> AbstractContextManager[None]:
        """Turn what stops the run into an interruption that says how to resume it."""


def _chosen(
    config: Config,
    data: LabelledData,
    preprocessing: Preprocessing | None,
    processes: int,
    report: Callable[[str], None],
) -> tuple[Config, LabelledData]:
    """Return the config with the model that suits the data, and say why it was chosen."""
    if processes > 1:
        chosen = Choice(NETWORK, f"{processes} processes train, so {NETWORK} learns the table")
    else:
        chosen = choose(config, data, preprocessing)
    report(chosen.why)
    name = chosen.name or None
    return replace(config, model=name), replace(data, config=replace(data.config, model=name))


def _check_one_process(accelerator: Accelerator, config: Config) -> None:
    if accelerator.num_processes > 1:
        raise InputError(
            f"{config.model} learns in one process, and {accelerator.num_processes} were started",
            field="model",
            fix="start it without torchrun",
        )


@contextlib.contextmanager
def _isolated_torch_state(deterministic: bool) -> Iterator[None]:
    """Restore torch's global state after a run."""
    was = torch.are_deterministic_algorithms_enabled()
    warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng():
        if deterministic:
            # cuBLAS needs this variable, and reads it when CUDA is first used.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(was, warn_only=warned_only)
