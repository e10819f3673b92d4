"""A run in words: what it is, and the command that goes on with it."""

from __future__ import annotations

import shlex

from proselflc.data.request import FROM_PYTHON
from proselflc.models.named_code import flag_for
from proselflc.run.config import Config
from proselflc.run.prepare import PreparedRun
from proselflc.training.run_directory import RunDirectory


def title(prepared: PreparedRun, directory: RunDirectory, processes: int) -> tuple[str, str]:
    """What is learned from, and how and where."""
    config, labels = prepared.config, prepared.labels
    first = (
        f"{prepared.dataset.name}: {len(labels.given):,} examples of {len(labels.names)} classes"
    )
    if labels.clean is not None:
        first += f", {labels.flipped.mean():.1%} of the labels wrong"
    return first, (
        f"{config.method} with {config.model}, {prepared.total_steps:,} "
        f"step{'s' if prepared.total_steps != 1 else ''}"
        f"{f' in {processes} processes' if processes > 1 else ''}, into {directory.path}"
    )


def command(directory: RunDirectory, config: Config) -> str:
    """That goes on with a run that was stopped."""
    if config.request.data == FROM_PYTHON:
        return f"fit(…, out={str(directory.path)!r}, resume=True)"
    place = shlex.quote(str(directory.path))
    return f"proselflc train --out {place} --resume{flag_for(config.model)}"
