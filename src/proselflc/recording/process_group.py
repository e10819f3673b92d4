"""The processes of `torch.distributed`, also before they connect and after they disconnect."""

from __future__ import annotations

import os
from typing import Any

import torch


class ProcessGroup:
    """The rank of this process and the number of processes.

    Trainers connect processes later than they start them, and disconnect them earlier: before that
    the environment holds both numbers, and after it the last known ones are used.
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
        """Return rank and number of processes, as far as they are known now."""
        known = os.environ
        if self.is_together:
            self._last = torch.distributed.get_rank(), torch.distributed.get_world_size()
        elif int(known.get("WORLD_SIZE", "1")) > 1:
            rank = known.get("RANK", known.get("LOCAL_RANK", "0"))
            self._last = int(rank), int(known["WORLD_SIZE"])
        return self._last
