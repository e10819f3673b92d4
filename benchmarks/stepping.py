"""A run as the command line does it, step by step, so that two can take turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from proselflc.data.dataset import Dataset
from proselflc.run.config import Config
from proselflc.run.learned.network import TrainingRun
from proselflc.run.prepare import prepare
from proselflc.terminal import Silent
from proselflc.training import processes
from proselflc.training.run_directory import RunDirectory

Phase = tuple[int, bool]  # a stage, and whether the method trusts its predictions there


def steps(config: Config, dataset: Dataset, folder: Path) -> Iterator[tuple[Phase, bool, float]]:
    """Yield the phase of every step, whether it begins a stage, and its seconds of processor time.

    With the records of every example; evaluations, checkpoints and the audit are left out. A method
    that finds out when to begin to trust its predictions has two phases.
    """
    directory = RunDirectory(folder)
    directory.make()
    setting = prepare(config, dataset, report=_ignore)
    run = TrainingRun(setting, directory, processes.accelerator("no"), Silent())
    results = run.steps((run.records, run.meter))
    while run.training.step < setting.total_steps:
        begins = run.training.begins_stage() is not None
        trusts = getattr(setting.strategy, "onset", None) is not None
        start = time.process_time()
        next(results)
        seconds = time.process_time() - start
        yield (run.training.stage, trusts), begins, seconds


def _ignore(note: str) -> None:
    """Drop a note."""
