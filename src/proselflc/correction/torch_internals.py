"""The private parts of PyTorch that the algebra needs, and a workaround, in one place.

`benchmarks/step_cost.py` measures what they are for: without them a step of ProSelfLC at 256 × 100
takes about 4 % longer and needs a second [N, C] buffer, or a second derivative would be wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def in_transform() -> bool:
    """Return whether a function transform such as vmap is active, inside which no value is read."""
    return torch._C._are_functorch_transforms_active()


def in_forward_mode() -> bool:
    """Return whether derivatives are being computed in forward mode."""
    return forward_ad._current_level >= 0


def is_batched(gradient: Tensor) -> bool:
    """Return whether a backward pass computes several gradients at once: is_grads_batched=True."""
    return bool(torch._C._functorch.is_legacy_batchedtensor(gradient))


def keeps_graph() -> bool:
    """Return whether the backward pass that is running may be repeated: retain_graph=True."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def materialize(value: Tensor) -> Tensor:
    """Return the value itself, kept for a compiled backward pass that needs it.

    PyTorch's partitioner repeats cheap operations in the backward pass to save memory. That is
    slower where they are not so cheap after all; and it is wrong where they read a buffer that the
    forward pass has written meanwhile (pytorch/pytorch#197039): the gradient would silently be that
    of the next step. A minimum is among the operations that it never repeats; this one is over a
    dimension of 1.
    """
    return value.unsqueeze(-1).amin(-1) if torch.compiler.is_compiling() else value
