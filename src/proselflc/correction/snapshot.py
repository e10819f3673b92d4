"""What a compiled backward finds as the forward has left it, and does not compute anew."""

import torch
from torch import Tensor


def snapshot(value: Tensor) -> Tensor:
    """The value itself, kept for a compiled backward that needs it.

    PyTorch's partitioner repeats cheap operations in the backward to save memory. That is slower
    where they are not so cheap after all; and it is wrong where they read a buffer that the forward
    has written meanwhile (pytorch/pytorch#197039): the gradient would silently be that of the next
    step. A minimum is among the operations that it never repeats; this one is over a dimension
    of 1.
    """
    return value.unsqueeze(-1).amin(-1) if torch.compiler.is_compiling() else value
