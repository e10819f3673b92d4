"""One run in several processes: who is the main one, and how rows come together there."""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list
from torch import Tensor

from proselflc.errors import InputError
from proselflc.training.recipe import Precision

_HINT = "start them with torchrun --nproc-per-node, on every machine alike"


def accelerator(precision: Precision) -> Accelerator:
    """The one that this process trains with; `torchrun` says how many there are.

    Raises:
        InputError: not all the processes that were asked for take part.
    """
    wanted = int(os.environ.get("WORLD_SIZE", "1"))
    # What Accelerate knows of precision outlives a run, and it refuses another one.
    if AcceleratorState._shared_state.get("_mixed_precision", precision) != precision:
        AcceleratorState._reset_state()
    try:
        result = Accelerator(
            mixed_precision=precision,
            cpu=not torch.cuda.is_available() and not torch.backends.mps.is_available(),
        )
    except (ValueError, RuntimeError) as error:  # in its words, or torch's
        reason = " ".join(str(error).split())[:200]
        if wanted == 1:
            raise InputError(f"training cannot begin: {reason}") from None
        raise InputError(
            f"{wanted} processes were asked for and do not come together ({reason}): {_HINT}"
        ) from None
    if result.num_processes != wanted:
        raise InputError(
            f"{wanted} processes were asked for and {result.num_processes} take part: {_HINT}"
        )
    return result


def agreed(value: bool) -> bool:
    """What the main process says, in all of them."""
    values = [value]
    broadcast_object_list(values, from_process=0)
    return values[0]


def gathered(accelerator: Accelerator, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The rows of all processes, in the order of the processes; there may be none in some.

    Args:
        accelerator: this process's.
        tensors: [N, …] each, N the same for all of them but not in all processes.
    """
    if accelerator.num_processes == 1:
        return tensors
    size = torch.tensor([len(tensors[0])], device=accelerator.device)
    sizes: list[int] = accelerator.gather(size).tolist()
    most = max(sizes)
    result = []
    for tensor in tensors:
        room = tensor.new_zeros(most, *tensor.shape[1:])
        room[: len(tensor)] = tensor
        every: Tensor = accelerator.gather(room.to(accelerator.device))
        result.append(torch.cat([every[k * most : k * most + s] for k, s in enumerate(sizes)]))
    return tuple(result)


def alike(accelerator: Accelerator, number: int) -> bool:
    """Whether all processes have the same number."""
    if accelerator.num_processes == 1:
        return True
    numbers = accelerator.gather(torch.tensor([number], device=accelerator.device))
    return bool((numbers == number).all())


def summed(accelerator: Accelerator, numbers: Tensor) -> Tensor:
    """[k] numbers added up over all processes."""
    if accelerator.num_processes == 1:
        return numbers
    total: Tensor = accelerator.reduce(numbers.to(accelerator.device), "sum")
    return total.to(numbers.device)


def is_lost_process(error: RuntimeError) -> bool:
    """Whether an error says that another process does not answer any more."""
    words = ("gloo", "nccl", "connection", "recv", "broken pipe", "socket", "process group")
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return several and any(word in str(error).lower() for word in words)
