"""Criteria in Lightning's Trainer: a callback sets their clocks and records examples."""

from __future__ import annotations

import math
from typing import Any

from proselflc.correction.criterion import Criterion
from proselflc.errors import InputError
from proselflc.recording.recording import Recording

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise ImportError(
        'the integration with Lightning needs lightning: pip install "proselflc[lightning]"'
    ) from None

_RECORDED = ("index", "logits", "labels")


class ClockCallback(Callback):
    """Sets the clock of criteria: t is the number of optimiser steps, Γ their total number.

    Accumulated batches count as one step, validation does not advance the clock, and a resumed run
    continues where it stopped.

    Args:
        recording: the result of `proselflc.record`, to record how every example is learned.
            `training_step` must then return {"loss": …, "index": …, "logits": …, "labels": …}: the
            loss, and the batch's positions in the training set, logits [N, C] and given labels.
        criterion: the criterion whose clock is set; by default every criterion in the module.

    Raises:
        InputError: when training begins, if there is no criterion or the number of steps is
            unknown; during training, if a recording lacks what it needs.
    """

    def __init__(
        self, recording: Recording | None = None, criterion: Criterion | None = None
    ) -> None:
        self.recording = recording
        self.criterion = criterion
        self._criteria: list[Criterion] = []
        self._total = 1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = [module for module in pl_module.modules() if isinstance(module, Criterion)]
        self._criteria = found if self.criterion is None else [self.criterion]
        if not self._criteria and self.recording is None:
            raise InputError(
                f"{type(pl_module).__name__} has no criterion of proselflc",
                field="criterion",
                fix="make it an attribute, or pass it as ClockCallback(criterion=…)",
            )
        if self._criteria:
            total = trainer.estimated_stepping_batches
            if not math.isfinite(total):
                raise InputError(
                    "the number of training steps is unknown, but the clock needs it",
                    fix="give the Trainer max_epochs or max_steps",
                )
            self._total = max(int(total), 1)
        if self.recording is not None:
            self.recording.expect_end_epoch()
        self._set(trainer)

    on_sanity_check_start = on_train_start  # it comes before, and computes losses too

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._set(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.recording is not None:
            given = outputs if isinstance(outputs, dict) else {}
            missing = [name for name in _RECORDED if name not in given]
            if missing:
                raise InputError(
                    f"training_step returned no {missing[0]}, which the recording needs",
                    fix='return {"loss": …, "index": …, "logits": …, "labels": …}',
                )
            self.recording(*(given[name] for name in _RECORDED))
        self._set(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.recording is not None:
            self.recording.end_epoch()

    def _set(self, trainer: Trainer) -> None:
        """Set the clocks, so that every batch of the next step has the same progress."""
        for criterion in self._criteria:
            criterion.set_progress(trainer.global_step, self._total)
