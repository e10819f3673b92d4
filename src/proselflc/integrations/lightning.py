"""Any criterion in Lightning's Trainer, with its clock kept and its examples recorded."""

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
    """Keeps the clock of criteria: t is the number of optimiser steps, Γ how many there will be.

    Accumulated batches are of one step, validation does not move it, and a run that is resumed goes
    on where it was.

    Args:
        recording: of `proselflc.record`, to see what is learned of every example. `training_step`
            then returns {"loss": …, "index": …, "logits": …, "labels": …}: the loss, and of the
            batch the positions in the training set, the logits [N, C] and the given labels.
        criterion: whose clock to keep; left out, that of every criterion in the module.

    Raises:
        InputError: while training begins, if there is no criterion or no end in sight; while it
            goes on, if a recording is not given what it needs.
    """

    def __init__(
        self, recording: Recording | None = None, criterion: Criterion | None = None
    ) -> None:
        self.recording = recording
        self.criterion = criterion
        self._criteria: list[Criterion] = []
        self._total = 1

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin(trainer, pl_module)  # which is before training, and has losses too

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin(trainer, pl_module)

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
                    f"training_step returns no {missing[0]}, which is to be recorded: return "
                    '{"loss": …, "index": …, "logits": …, "labels": …}'
                )
            self.recording(*(given[name] for name in _RECORDED))
        self._set(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.recording is not None:
            self.recording.end_epoch()

    def _begin(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = [one for one in pl_module.modules() if isinstance(one, Criterion)]
        self._criteria = found if self.criterion is None else [self.criterion]
        if not self._criteria and self.recording is None:
            raise InputError(
                f"{type(pl_module).__name__} has no criterion of ours whose clock could be kept: "
                "make it an attribute, or give it to ClockCallback(criterion=…)"
            )
        if self._criteria:
            total = trainer.estimated_stepping_batches
            if not math.isfinite(total):
                raise InputError(
                    "nobody says how long training will be, which the clock of a criterion must "
                    "know: give the Trainer max_epochs or max_steps"
                )
            self._total = max(int(total), 1)
        if self.recording is not None:
            self.recording.expect_end_epoch()
        self._set(trainer)

    def _set(self, trainer: Trainer) -> None:
        """The next training call is of the step to come, whichever of its batches it has."""
        for criterion in self._criteria:
            criterion.set_progress(trainer.global_step, self._total)
