"""The processes of `torch.distributed`, also before they come together and after they part."""

from __future__ import annotations

import os
from typing import Any

import torch


class ProcessGroup:
    """Which process this is of how many.

    Trainers bring processes together later than they start them, and part them earlier: before that
    the environment tells, and after it what was last seen holds.
    """

    def __init__(self) -> None:
        self._last = (0, 1)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self._place()[0] == 0

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self._place()[1]

    @property
    def is_together(self) -> bool:
        """Whether they can hear each other now."""
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def gathered(self, own: Any) -> list[Any]:
        """What every process has, in all of them."""
        every: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(every, own)
        return every

    def wait(self) -> None:
        """Until all are here, where they can hear each other."""
        if self.is_together:
            torch.distributed.barrier()

    def _place(self) -> tuple[int, int]:
        """(which, of how many) as far as can be told now."""
        known = os.environ
        if self.is_together:
            self._last = torch.distributed.get_rank(), torch.distributed.get_world_size()
        elif int(known.get("WORLD_SIZE", "1")) > 1:
            rank = known.get("RANK", known.get("LOCAL_RANK", "0"))
            self._last = int(rank), int(known["WORLD_SIZE"])
        return self._last
