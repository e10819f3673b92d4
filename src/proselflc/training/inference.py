"""Predictions of a model in evaluation mode, batch by batch or for all examples."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from proselflc.data.batches import Batch, Batches
from proselflc.data.memory_budget import keeps_all
from proselflc.training import processes


class StoredLogits:
    """Logits [n, C] in a temporary file, read some rows at a time.

    The file has no name and disappears with the object or the process.
    """

    ndim = 2

    def __init__(self, folder: Path, num_examples: int, num_classes: int) -> None:
        self.shape = torch.Size((num_examples, num_classes))
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by the finalizer
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return self.shape[0]

    def size(self, dim: int) -> int:
        """Return n or C, as a tensor does."""
        return self.shape[dim]

    def put(self, index: Tensor, rows: Tensor) -> None:
        """Keep the logits [N, C] of the examples at index [N]."""
        width = 4 * self.shape[1]
        for k, content in zip(index.tolist(), rows.float().cpu().numpy(), strict=True):
            self._file.seek(k * width)
            self._file.write(np.ascontiguousarray(content, "<f4").data)

    def __getitem__(self, rows: slice) -> Tensor:
        """Return the logits of neighbouring examples."""
        begin, end, step = rows.indices(len(self))
        assert step == 1
        found = np.zeros((end - begin, self.shape[1]), np.float32)
        self._file.seek(4 * begin * self.shape[1])
        self._file.readinto(found.data)
        return torch.from_numpy(found)


Logits: TypeAlias = Tensor | StoredLogits


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside the `with` block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def predict_batches(
    model: nn.Module, loader: Batches, device: torch.device
) -> Iterator[tuple[Batch, Tensor]]:
    """Yield every batch with its logits [N, C], in evaluation mode and without gradients."""
    with _evaluating(model):
        for batch in loader.batches():
            if len(batch.y) == 0:  # a process's share of a short last batch
                continue
            with torch.inference_mode():
                logits = model(batch.x.to(device))
            yield batch, logits.float()


def logits_of_all(
    model: nn.Module,
    loader: Batches,
    num_examples: int,
    num_classes: int,
    accelerator: Accelerator,
    folder: Path,
) -> Logits:
    """Return the logits [n, C] of all processes in the order of the examples, on the CPU.

    Beyond `memory_budget.DENSE_NUMBERS` they are in a temporary file, and processes other than the
    main one return no rows.
    """
    logits: Logits
    if keeps_all(num_examples, num_classes):
        logits = torch.full((num_examples, num_classes), torch.nan)
    elif accelerator.is_main_process:
        logits = StoredLogits(folder, num_examples, num_classes)
    else:
        logits = torch.zeros(0, num_classes)
    with _evaluating(model):
        for batch in loader.batches():  # as many in every process, some without examples
            found = torch.zeros(0, num_classes, device=accelerator.device)
            if len(batch.y):
                with torch.inference_mode():
                    found = model(batch.x.to(accelerator.device)).float()
            index = batch.index.to(accelerator.device)
            index, found = processes.gathered(accelerator, index, found)
            if isinstance(logits, StoredLogits):
                logits.put(index, found)
            elif len(logits):
                logits[index.cpu()] = found.cpu()
    return logits
