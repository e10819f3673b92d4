"""A model's answers, batch by batch, as it will give them when training is over."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from proselflc.data.batches import Batch, Batches
from proselflc.training import processes


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
