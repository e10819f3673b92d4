"""Reading a buffer that the same compiled step will write."""

import torch
from torch import Tensor


def snapshot(value: Tensor) -> Tensor:
    """What was read from a buffer, so that a compiled backward sees it too and not what came after.

    PyTorch's partitioner may repeat a cheap reading in the backward to save memory, though the
    forward has written the buffer meanwhile (pytorch/pytorch#197039): the gradient would silently
    be that of the next step. A minimum is among the operations that it never repeats; this one is
    over a dimension of 1, and the value is kept for the backward.
    """
    return value.unsqueeze(-1).amin(-1) if torch.compiler.is_compiling() else value
