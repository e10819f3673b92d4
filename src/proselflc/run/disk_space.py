"""The disk space that a run needs."""

from __future__ import annotations

import shutil

from proselflc.data import memory_budget
from proselflc.errors import InputError
from proselflc.run.prepare import PreparedRun
from proselflc.training import observations
from proselflc.training.loop import Training
from proselflc.training.run_directory import RunDirectory
from proselflc.wording import option


def check(directory: RunDirectory, prepared: PreparedRun, training: Training) -> None:
    """Refuse a run that needs more disk space than is free.

    Raises:
        InputError: it does.
    """
    needed = needs(prepared, training)
    free = shutil.disk_usage(directory.path).free
    if free < needed:
        raise InputError(
            f"the run needs about {needed / 1e6:,.0f} MB and {directory.path} has "
            f"{free / 1e6:,.0f} MB left",
            field="out",
            fix=f"free some space, or choose another {option('out')}",
        )


def needs(prepared: PreparedRun, training: Training) -> int:
    """Return about how many bytes records, checkpoints and temporary logits take."""
    n, C = len(prepared.dataset.train), prepared.dataset.num_classes
    rows = observations.ROW.itemsize * n * prepared.epochs
    means = 4 * n * min(C, observations.TOP_CLASSES * 2 if n * C > observations.LARGEST else C)
    parts = (prepared.dataset.test, prepared.dataset.validation)
    evaluated = [0 if part is None else len(part) for part in parts]
    logits = sum(4 * m * C for m in evaluated if not memory_budget.keeps_all(m, C))
    weights = sum(p.numel() * p.element_size() for p in training.module.parameters())
    method = sum(t.numel() * t.element_size() for t in training.strategy.buffers())
    # Two checkpoints and one being written, of weights, average, optimiser and method.
    return rows + 4 * means + 14 * weights + 3 * method + logits + 10**6
