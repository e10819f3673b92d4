"""A model's answers, batch by batch, as it will give them when training is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from proselflc.data.batches import Batch, Batches
from proselflc.data.memory_budget import keeps_all
from proselflc.training import processes
from proselflc.training.stored_logits import Logits, StoredLogits


def answers(
    model: nn.Module, loader: Batches, device: torch.device
) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch with its logits [N, C], in evaluation mode and without gradients."""
    was_training = model.training
    model.eval()
    try:
        for batch in loader.batches():
            if len(batch.y) == 0:  # a process's share of a short last batch
                continue
            with torch.inference_mode():
                logits = model(batch.x.to(device))
            yield batch, logits.float()
    finally:
        model.train(was_training)


def all_logits(
    model: nn.Module, loader: Batches, num_examples: int, num_classes: int, accelerator: Accelerator
) -> Tensor:
    """[n, C] float32 on the CPU, of all processes' shares, row for row with the examples."""
    logits = torch.full((num_examples, num_classes), torch.nan)
    indices, found = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, num_classes)]
    for batch, some in answers(model, loader, accelerator.device):
        indices.append(batch.index)
        found.append(some.cpu())
    index, rows = processes.gathered(
        accelerator,
        torch.cat(indices).to(accelerator.device),
        torch.cat(found).to(accelerator.device),
    )
    logits[index.cpu()] = rows.cpu()
    return logits


def logits_of_all(
    model: nn.Module,
    loader: Batches,
    num_examples: int,
    num_classes: int,
    accelerator: Accelerator,
    folder: Path,
) -> Logits:
    """Return `all_logits`, or beyond `memory_budget.DENSE_NUMBERS` the same in a temporary file.

    In a process that is not the main one the file stays empty.

    Args:
        model, loader, num_examples, num_classes, accelerator: as of `all_logits`.
        folder: for the file.
    """
    if keeps_all(num_examples, num_classes):
        return all_logits(model, loader, num_examples, num_classes, accelerator)
    if not accelerator.is_main_process:
        logits: Logits = torch.zeros(0, num_classes)
    else:
        logits = StoredLogits(folder, num_examples, num_classes)
    was_training = model.training
    model.eval()
    try:
        for batch in loader.batches():  # as many in every process, some without examples
            found = torch.zeros(0, num_classes, device=accelerator.device)
            if len(batch.y):
                with torch.inference_mode():
                    found = model(batch.x.to(accelerator.device)).float()
            index = batch.index.to(accelerator.device)
            index, found = processes.gathered(accelerator, index, found)
            if isinstance(logits, StoredLogits):
                logits.put(index, found)
    finally:
        model.train(was_training)
    return logits
