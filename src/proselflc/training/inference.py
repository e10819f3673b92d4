"""Predictions of a model in evaluation mode, batch by batch or for all examples, and its features.

The features of an example are the input of the model's last linear layer.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from proselflc.data.batches import Batch, Batches
from proselflc.data.memory_budget import keeps_all
from proselflc.errors import InputError
from proselflc.training import processes
from proselflc.training.group import Group


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
    for index, found in predict_together(model, loader, num_classes, accelerator):
        if isinstance(logits, StoredLogits):
            logits.put(index, found)
        elif len(logits):
            logits[index.cpu()] = found.cpu()
    return logits


def predict_together(
    model: nn.Module, loader: Batches, num_classes: int, accelerator: Accelerator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield index [N] and logits [N, C] of every batch of all processes, in each of them.

    A process computes the logits of its share of the batch alone. All must call it.
    """
    with _evaluating(model):
        for batch in loader.batches():  # as many in every process, some without examples
            found = torch.zeros(0, num_classes, device=accelerator.device)
            if len(batch.y):
                with torch.inference_mode():
                    found = model(batch.x.to(accelerator.device)).float()
            index, found = processes.gathered(
                accelerator, batch.index.to(accelerator.device), found
            )
            yield index, found


@dataclass(frozen=True)
class Caller:
    """The part of the program that needs features, as its errors name it."""

    name: str  # the subject of a sentence
    # Returns what to do if the model has no such layer, an imperative. It is a named function,
    # since hooks are pickled with their models.
    instead: Callable[[], str]


class FeatureHook:
    """A forward pre-hook that keeps the input of a layer until it is taken.

    It is an object and not a closure, so that a model with this hook can be copied and pickled.
    """

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._h: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._h = inputs[0]

    def take(self, number: int) -> Tensor:
        """Return the last input [N, F] and forget it."""
        h, self._h = self._h, None
        return self._checked(h, number)

    def take_together(self, number: int, layer: nn.Linear, group: Group) -> Tensor:
        """Return the last inputs [N, F] of a layer for a batch that the processes shared."""
        h, self._h = self._h, None
        if not group.is_alone and (h is None or h.dim() == 2):
            # A process with an empty share has not called its model.
            own = layer.weight.new_zeros(0, layer.in_features) if h is None else h.float()
            h = group.rows(own)[0]
        return self._checked(h, number)

    def _checked(self, h: Tensor | None, number: int) -> Tensor:
        if h is None or h.dim() != 2 or len(h) != number:
            got = "receives no batch" if h is None else f"receives {list(h.shape)}"
            raise InputError(
                f"{self.caller.name} needs one row of features per example from the input of the "
                f"model's last linear layer, and for {number} examples that layer {got}",
                fix=f"{self.caller.instead()}, or use a model that ends in nn.Linear",
            )
        return h


@contextmanager
def capture_features(layer: nn.Module, caller: Caller) -> Iterator[FeatureHook]:
    """Hook a layer inside the `with` block, and run compiled code eagerly.

    Code that is already compiled would not call a new hook.
    """
    hook = FeatureHook(caller)
    handle = layer.register_forward_pre_hook(hook)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield hook
    finally:
        handle.remove()


def last_linear(model: nn.Module, num_classes: int, caller: Caller) -> nn.Linear:
    """Return the layer that maps features to logits."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != num_classes:
        raise InputError(
            f"{caller.name} needs the features that the model's last linear layer receives, and "
            f"{type(model).__name__} does not end in one",
            fix=f"{caller.instead()}, or use a model whose last module is nn.Linear",
        )
    return layers[-1]
