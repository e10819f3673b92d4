"""When a network knows what labels share: its loss on labels that it does not learn tells.

As long as a network learns what examples have in common, its loss on held-out labels falls. What it
memorises after that does not lower it, and often raises it. So trust may begin where the fall has
ended. The loss of a few hundred labels is rough, so the fall must have ended beyond its standard
error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

EARLIEST = 3  # epochs
LAST = 3  # the last third of the epochs is compared with all
SETTLED = 0.02  # share of the whole fall that the last third may have


def fall(losses: Sequence[float], num_classes: int) -> tuple[float, float]:
    """Return how far held-out losses of all epochs so far fell: in all, and in the last third.

    Before the first epoch the loss is that of a guess, log C. The whole fall is from there to the
    lowest loss; the last third's is negative if the loss rose.
    """
    every = [math.log(num_classes), *losses]
    return every[0] - min(every), every[len(losses) - len(losses) // LAST] - every[-1]


def recent_error(losses: Sequence[Tensor]) -> float:
    """Return the standard error of the fall in the last third, from the losses of every label.

    Args:
        losses: [H] of every epoch; the same held-out labels in the same order.
    """
    fell = losses[len(losses) - len(losses) // LAST - 1] - losses[-1]
    return float(fell.std() / math.sqrt(len(fell))) if len(fell) > 1 else math.inf


def has_settled(losses: Sequence[float], num_classes: int, error: float) -> bool:
    """Return whether the held-out losses of all epochs so far have stopped falling.

    They have if the last third of the epochs has less than a fiftieth of the whole fall, even if
    it fell by a standard error more, after at least three epochs. The last third grows with the
    time, so that a low learning rate is not taken for an end.

    Args:
        losses: means of the epochs.
        num_classes: C.
        error: the standard error of the fall in the last third.
    """
    if len(losses) < EARLIEST:
        return False
    whole, recent = fall(losses, num_classes)
    return whole > 0 and recent + error < SETTLED * whole
