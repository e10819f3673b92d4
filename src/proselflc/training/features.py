"""What a model's last linear layer sees: the features of an example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proselflc.errors import InputError


@dataclass(frozen=True)
class Who:
    """Who looks at features, for the errors.

    Attributes:
        name: of it.
        instead: what to do about a model without such a layer.
    """

    name: str
    instead: str


class Seen:
    """A hook that keeps what a layer sees until it is taken.

    An object, not a closure: a model with it can still be copied and pickled.

    Args:
        who: looks at it.
    """

    def __init__(self, who: Who) -> None:
        self.who = who
        self._h: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._h = inputs[0]

    def taken(self, number: int) -> Tensor:
        """[N, F] what was last seen.

        Args:
            number: N.

        Raises:
            InputError: it was not that: the layer is not where the model ends.
        """
        h, self._h = self._h, None
        if h is None or h.dim() != 2 or len(h) != number:
            came = "does not see a batch" if h is None else f"sees {list(h.shape)}"
            raise InputError(
                f"{self.who.name} looks at the features that the model's last linear layer sees, "
                f"a row for each of {number} examples, and that layer {came}: {self.who.instead}, "
                "or a model that ends in nn.Linear"
            )
        return h


@contextmanager
def watched(layer: nn.Module, who: Who) -> Iterator[Seen]:
    """Keep what a layer sees, for as long as this lasts; nothing is compiled meanwhile.

    What is compiled already would not see a new hook.
    """
    seen = Seen(who)
    handle = layer.register_forward_pre_hook(seen)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield seen
    finally:
        handle.remove()


def last_linear(model: nn.Module, num_classes: int, who: Who) -> nn.Linear:
    """The layer that makes logits of features.

    Args:
        model: whose.
        num_classes: C.
        who: looks at the features.

    Raises:
        InputError: the model does not end in a linear layer.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != num_classes:
        raise InputError(
            f"{who.name} looks at the features that the model's last linear layer sees, and "
            f"{type(model).__name__} does not end in one: {who.instead}, or a model whose last "
            "module is nn.Linear"
        )
    return layers[-1]
