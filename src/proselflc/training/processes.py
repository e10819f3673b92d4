"""One run in several processes: the accelerator, sums and gathers, and the process group."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list
from torch import Tensor

from proselflc.errors import InputError
from proselflc.training.recipe import Precision

_HINT = "start the same number on every machine with torchrun and its nproc-per-node option"


def accelerator(precision: Precision) -> Accelerator:
    """Return the accelerator of this process; `torchrun` sets how many processes there are."""
    wanted = int(os.environ.get("WORLD_SIZE", "1"))
    # Accelerate keeps the precision of an earlier run and would refuse another one.
    if AcceleratorState._shared_state.get("_mixed_precision", precision) != precision:
        AcceleratorState._reset_state()
    try:
        result = Accelerator(
            mixed_precision=precision,
            cpu=not torch.cuda.is_available() and not torch.backends.mps.is_available(),
        )
    except (ValueError, RuntimeError) as error:  # of Accelerate or torch
        reason = " ".join(str(error).split())[:200]
        if wanted == 1:
            raise InputError(f"training cannot begin: {reason}") from None
        raise InputError(
            f"{wanted} processes were started and cannot connect ({reason})", fix=_HINT
        ) from None
    if result.num_processes != wanted:
        raise InputError(
            f"{wanted} processes were started and {result.num_processes} take part", fix=_HINT
        )
    return result


def agreed(value: bool) -> bool:
    """Return the main process's value in all processes."""
    values = [value]
    broadcast_object_list(values, from_process=0)
    return values[0]


def gathered(accelerator: Accelerator, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the rows of tensors [N, …] of all processes, in the order of the processes.

    N may differ between processes and be 0.
    """
    if accelerator.num_processes == 1:
        return tensors
    sizes = _sizes(accelerator, len(tensors[0]))
    return tuple(torch.cat(_parts(accelerator, tensor, sizes)) for tensor in tensors)


def parts(accelerator: Accelerator, tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors [N, …] of all processes, of any type; N may differ and be 0."""
    # Not every backend exchanges every type.
    width = math.prod(tensor.shape[1:])
    content = tensor.contiguous().reshape(len(tensor), width).view(torch.uint8)
    found = _parts(accelerator, content, _sizes(accelerator, len(tensor)))
    return tuple(one.view(tensor.dtype).reshape(-1, *tensor.shape[1:]) for one in found)


def _sizes(accelerator: Accelerator, number: int) -> list[int]:
    sizes: list[int] = accelerator.gather(
        torch.tensor([number], device=accelerator.device)
    ).tolist()
    return sizes


def _parts(accelerator: Accelerator, tensor: Tensor, sizes: list[int]) -> list[Tensor]:
    most = max(sizes)
    room = tensor
    if len(tensor) < most:
        room = torch.cat((tensor, tensor.new_zeros(most - len(tensor), *tensor.shape[1:])))
    every: Tensor = accelerator.gather(room.to(accelerator.device))
    return [every[k * most : k * most + size] for k, size in enumerate(sizes)]


def alike(accelerator: Accelerator, number: int) -> bool:
    """Return whether all processes have the same number."""
    if accelerator.num_processes == 1:
        return True
    numbers = accelerator.gather(torch.tensor([number], device=accelerator.device))
    return bool((numbers == number).all())


def summed(accelerator: Accelerator, numbers: Tensor) -> Tensor:
    """Return numbers [k] summed over all processes."""
    if accelerator.num_processes == 1:
        return numbers
    total: Tensor = accelerator.reduce(numbers.to(accelerator.device), "sum")
    return total.to(numbers.device)


def end_group() -> None:
    """Leave the group of processes, so that none of its threads is left when this one exits."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_lost_process(error: RuntimeError) -> bool:
    """Return whether an error means that another process no longer responds."""
    words = ("gloo", "nccl", "connection", "recv", "broken pipe", "socket", "process group")
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return several and any(word in str(error).lower() for word in words)


class ProcessGroup:
    """The rank of this process and the number of processes.

    Trainers connect processes after they start and disconnect them before they end: until then the
    numbers come from the environment, and afterwards the last known ones are used.
    """

    def __init__(self) -> None:
        self._last = (0, 1)

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that writes."""
        return self._place()[0] == 0

    @property
    def size(self) -> int:
        """Return the number of processes."""
        return self._place()[1]

    @property
    def is_together(self) -> bool:
        """Return whether the processes are connected now."""
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def gathered(self, own: Any) -> list[Any]:
        """Return the objects of all processes, in all of them."""
        every: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(every, own)
        return every

    def wait(self) -> None:
        """Wait for all processes, if they are connected."""
        if self.is_together:
            torch.distributed.barrier()

    def _place(self) -> tuple[int, int]:
        known = os.environ
        if self.is_together:
            self._last = torch.distributed.get_rank(), torch.distributed.get_world_size()
        elif int(known.get("WORLD_SIZE", "1")) > 1:
            rank = known.get("RANK", known.get("LOCAL_RANK", "0"))
            self._last = int(rank), int(known["WORLD_SIZE"])
        return self._last
