"""Criteria in Lightning's real Trainer, on a tiny model."""

from __future__ import annotations

import logging
import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import proselflc
from proselflc import CrossEntropy, ProSelfLC
from proselflc.errors import InputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it imports is not up to date with what it uses
    lightning = pytest.importorskip("lightning.pytorch")
    from proselflc.integrations.lightning import ClockCallback

N, CLASSES, BATCH = 40, 3, 8
pytestmark = pytest.mark.filterwarnings(
    "ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning",
)
for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)


def examples() -> tuple[Tensor, Tensor]:
    """Inputs that show their class, and labels every fifth of which is wrong."""
    g = torch.Generator().manual_seed(0)
    clean = torch.arange(N) % CLASSES
    x = torch.eye(CLASSES)[clean] + 0.1 * torch.randn(N, CLASSES, generator=g)
    return x, torch.where(torch.arange(N) % 5 == 0, (clean + 1) % CLASSES, clean)


class Watch(ProSelfLC):
    """Keeps at what time it was called in training, and its clock when it was not."""

    def __init__(self) -> None:
        super().__init__(total_steps=1)
        self.learned: list[float] = []
        self.evaluated: list[int] = []

    def forward(self, *args: Any, **options: Any) -> Tensor:
        loss = super().forward(*args, **options)
        if self.training and torch.is_grad_enabled():
            assert self.total_steps is not None
            self.learned.append(int(self.t) / self.total_steps)
        else:
            self.evaluated.append(int(self.t))
        return loss


class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self, criterion: nn.Module, returns: str = "all") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Linear(CLASSES, CLASSES)
        self.criterion = criterion
        self.returns = returns

    def training_step(self, batch: Any, number: int) -> Any:
        x, y, index = batch
        logits = self.model(x)
        loss = self.criterion(logits, y)
        if self.returns != "all":
            return loss
        return {"loss": loss, "logits": logits, "labels": y, "index": index}

    def validation_step(self, batch: Any, number: int) -> None:
        self.criterion(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def loader(**options: Any) -> DataLoader[Any]:
    x, y = examples()
    return DataLoader(TensorDataset(x, y, torch.arange(N)), batch_size=BATCH, **options)


def fitted(
    module: Module,
    callback: ClockCallback,
    folder: Path,
    ckpt_path: Path | None = None,
    more_callbacks: Sequence[Any] = (),
    **options: Any,
) -> Any:
    chosen = {"max_epochs": 2, **options}
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[callback, *more_callbacks],
        **chosen,
    )
    shuffled = loader(shuffle=True, generator=torch.Generator().manual_seed(0))
    trainer.fit(module, shuffled, loader(), ckpt_path=ckpt_path, weights_only=True)
    return trainer


def test_accumulated_batches_are_one_step_and_validation_is_none(tmp_path: Path) -> None:
    """5 batches an epoch, 2 at a time: 3 steps an epoch, 6 in all."""
    criterion = Watch()
    fitted(Module(criterion, "loss"), ClockCallback(), tmp_path, accumulate_grad_batches=2)
    assert criterion.learned == pytest.approx([k / 6 for k in (1, 1, 2, 2, 3, 4, 4, 5, 5, 6)])
    assert set(criterion.evaluated) == {0, 3, 6}  # before training, after each epoch
    assert (int(criterion.t), criterion.total_steps) == (6, 6)


def test_a_run_that_is_resumed_goes_on_where_it_was(tmp_path: Path) -> None:
    module = Module(Watch())
    fitted(module, ClockCallback(), tmp_path, max_epochs=1).save_checkpoint(tmp_path / "one.ckpt")
    again = Watch()
    clock = ClockCallback(criterion=again)
    fitted(Module(again), clock, tmp_path, ckpt_path=tmp_path / "one.ckpt")
    assert again.learned == pytest.approx([k / 10 for k in range(6, 11)])


def test_examples_are_recorded(tmp_path: Path) -> None:
    x, given = examples()
    criterion = ProSelfLC(total_steps=1)
    module = Module(criterion)
    with proselflc.record(N, CLASSES, out=tmp_path / "run", criterion=criterion) as rec:
        fitted(module, ClockCallback(rec), tmp_path, max_epochs=8)
    run = proselflc.load_run(tmp_path / "run")
    assert len(list(run.dynamics)) == 8
    assert run.labels.given.tolist() == given.tolist()
    suspect = run.examples["is_suspect"].to_numpy()
    wrong = np.arange(N) % 5 == 0
    assert suspect[wrong].sum() >= 7
    assert suspect[~wrong].sum() <= 1
    # In the first epoch the model of the first batch is the one that it began with.
    first = Module(CrossEntropy())
    p = first.model(x).softmax(1).detach().gather(1, given[:, None])[:, 0].numpy()
    there = next(iter(run.dynamics))["p_given"].astype(np.float32)
    assert (np.abs(there - p) < 1e-3).sum() >= BATCH


def test_a_loss_that_is_not_ours_is_recorded_without_an_end_in_sight(tmp_path: Path) -> None:
    class Stop(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.should_stop = trainer.current_epoch == 2

    with proselflc.record(N, CLASSES) as rec:
        module = Module(nn.CrossEntropyLoss())
        fitted(module, ClockCallback(rec), tmp_path, max_epochs=-1, more_callbacks=[Stop()])
    assert rec.epoch == 3


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Module has no criterion"):
        fitted(Module(nn.CrossEntropyLoss(), "loss"), ClockCallback(), tmp_path)
    with pytest.raises(InputError, match="number of training steps is unknown"):
        fitted(Module(CrossEntropy(), "loss"), ClockCallback(), tmp_path, max_epochs=-1)
    recording = proselflc.record(N, CLASSES)
    with pytest.raises(InputError, match="training_step returned no index"):
        fitted(Module(CrossEntropy(), "loss"), ClockCallback(recording), tmp_path)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    from proselflc.integrations import lightning as ours

    with pytest.raises(
        ImportError, match=r'needs lightning: pip install "proselflc\[lightning\]"$'
    ):
        runpy.run_path(str(ours.__file__))
