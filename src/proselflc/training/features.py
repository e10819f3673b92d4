"""What a model's last linear layer sees: the features of an example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from proselflc.errors import InputError


class Seen:
    """A hook that keeps what a layer sees until it is taken.

    An object, not a closure: a model with it can still be copied and pickled.

    Attributes:
        wanted: whether to keep anything.
    """

    def __init__(self) -> None:
        self.wanted = True
        self._h: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self.wanted:
            self._h = inputs[0]

    def taken(self) -> Tensor:
        """[N, F] what was last seen."""
        h, self._h = self._h, None
        assert h is not None
        return h


@contextmanager
def watched(layer: nn.Module) -> Iterator[Seen]:
    """Keep what a layer sees, for as long as this lasts; nothing is compiled meanwhile.

    What is compiled already would not see a new hook.
    """
    seen = Seen()
    handle = layer.register_forward_pre_hook(seen)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield seen
    finally:
        handle.remove()


def last_linear(model: nn.Module, num_classes: int, *, who: str, instead: str) -> nn.Linear:
    """The layer that makes logits of features.

    Args:
        model: whose.
        num_classes: C.
        who: looks at the features, for the error.
        instead: what to do about a model that has no such layer.

    Raises:
        InputError: the model does not end in a linear layer.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != num_classes:
        raise InputError(
            f"{who} looks at the features that the model's last linear layer sees, and "
            f"{type(model).__name__} does not end in one: {instead}, or a model whose last module "
            "is nn.Linear"
        )
    return layers[-1]
