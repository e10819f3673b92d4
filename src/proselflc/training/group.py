"""The processes that learn every batch together: sums and rows of a whole batch.

A collective operation is called by all processes in the same order, also by one whose share of the
batch is empty; otherwise the others wait for it. With one process, it changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn

from proselflc.correction.memory import Memory
from proselflc.training import processes

BLOCK = 2**24  # bytes of each process that are exchanged at once


@dataclass(frozen=True)
class Group:
    """The processes of a training; this one alone by default."""

    accelerator: Accelerator | None = None

    @property
    def shard(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        if self.accelerator is None:
            return 0, 1
        return self.accelerator.process_index, self.accelerator.num_processes

    @property
    def is_alone(self) -> bool:
        """Return whether there is one process."""
        return self.shard[1] == 1

    def total(self, numbers: Tensor) -> Tensor:
        """Return a detached tensor summed over all processes."""
        if self.accelerator is None or self.is_alone:
            return numbers.detach()
        total: Tensor = self.accelerator.reduce(numbers.detach(), "sum")
        return total

    def rows(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the rows of tensors [N, …] of all processes, by rank; N may be 0 in some."""
        if self.accelerator is None or self.is_alone:
            return tensors
        return processes.gathered(self.accelerator, *tensors)

    def parts(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors [N, …] of all processes, by rank."""
        if self.accelerator is None or self.is_alone:
            return (tensor,)
        return processes.parts(self.accelerator, tensor)

    def whole(self, own: Tensor, number: int) -> Tensor:
        """Return [n, …] in the order of the examples in the first process, from all [own, …].

        A process has the examples with index ≡ its rank. The others return what they have. It is
        exchanged in blocks and collected on the CPU, since the first process's device has room for
        its own part.
        """
        rank, world = self.shard
        if self.is_alone:
            return own
        result = own
        if rank == 0:
            result = torch.empty(number, *own.shape[1:], dtype=own.dtype, device="cpu")
        of_row = max(1, math.prod(own.shape[1:]) * own.element_size())
        rows = max(1, BLOCK // of_row)
        for start in range(0, -(-number // world), rows):
            parts = self.parts(own[start : start + rows])
            if rank == 0:
                first = start * world
                number_here = sum(map(len, parts))
                here = [part.cpu() for part in parts]
                result[first : first + number_here] = Memory.interleaved(here, number_here)
        return result

    def of_first(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the first process, which has the same shape in all."""
        if self.is_alone:
            return tensor
        # Not every backend exchanges every type.
        content = tensor.detach().clone(memory_format=torch.contiguous_format)
        found: Tensor = broadcast(content.reshape(-1).view(torch.uint8), from_process=0)
        return found.view(tensor.dtype).reshape(tensor.shape)

    def share_state(self, module: nn.Module) -> None:
        """Copy the first process's parameters and buffers to all, except those of memories."""
        if self.is_alone or isinstance(module, Memory):
            return
        with torch.no_grad():
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                tensor.copy_(self.of_first(tensor))
        for child in module.children():
            self.share_state(child)

    def place(self, number: int) -> tuple[slice, int]:
        """Return where this process's N rows are among those of all, and the number of all."""
        if self.accelerator is None or self.is_alone:
            return slice(0, number), number
        sizes = self.accelerator.gather(torch.tensor([number], device=self.accelerator.device))
        first = int(sizes[: self.shard[0]].sum())
        return slice(first, first + number), int(sizes.sum())

    def log_mean(self, log_p: Tensor) -> Tensor:
        """Return [C] the log of the mean of p over the rows of all processes, from log p [N, C].

        Its gradient is such that the mean over processes, each weighted by its share N_r/N of the
        rows, is the gradient for one process with all rows:

            ∂ log s̄_j = (s̄_rj/s̄_j) ∂ log s̄_rj        with s̄_r the mean over the rows of process r
        """
        N = len(log_p)
        log_sum = log_p.logsumexp(0)
        if self.is_alone:
            return log_sum - math.log(N)
        every = self.rows(log_sum.detach()[None])[0].logsumexp(0)
        log_mean = every - math.log(self.place(N)[1])
        if N == 0:
            return log_mean + log_p.sum(0)  # which is 0, and has a gradient
        own = log_sum - math.log(N)
        share = (own.detach() - log_mean).exp()
        return log_mean + share * (own - own.detach())

    def logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits [N, C] of a share of a batch, with any N.

        Batch normalisation needs two examples: a share of one is normalised by the running
        statistics, without dropout. So is an example of zeros that stands for an empty share,
        because all processes have to take part in the exchange of gradients; its own are 0.
        """
        if self.is_alone or len(x) > 1:
            result: Tensor = model(x)
            return result
        was_training = model.training
        model.eval()
        result = model(x if len(x) else x.new_zeros(1, *x.shape[1:]))[: len(x)]
        model.train(was_training)
        return result

    def average_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Replace gradients by their mean over all processes."""
        if self.is_alone:
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(self.total(parameter.grad) / self.shard[1])
