"""The features of an example: the input of a model's last linear layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proselflc.errors import InputError


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
