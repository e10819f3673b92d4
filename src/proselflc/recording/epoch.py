"""Where an epoch of somebody else's training loop ends, which nobody may have said."""

from __future__ import annotations

import numpy as np

from proselflc.data.inputs import Bools, Ints
from proselflc.errors import InputError

_FORGOTTEN = 3  # epochs' worth of examples without anybody saying where one ends
_REPEATS = "pass repeats=True to record and say with rec.end_epoch() where each epoch ends"


class EpochUnderWay:
    """Which of n examples came in the epoch under way, and whether it is over.

    By itself it is over when every example has come, or one comes again; once somebody says where
    an epoch ends, that alone counts.

    Args:
        num_examples: n.
        repeats: examples may come more than once, so that somebody has to say where an epoch ends.

    Attributes:
        seen: [n] who came.
        count: how many came, each time they did.
        steps: in how many batches.
    """

    def __init__(self, num_examples: int, *, repeats: bool) -> None:
        self.seen: Bools = np.zeros(num_examples, np.bool_)
        self.count = 0
        self.steps = 0
        self._repeats = repeats
        self._is_told = False  # whether somebody says where epochs end
        self._ended_at: int | None = None  # the example that ended an epoch by coming again
        self._ended_full = False  # whether one ended because every example had come

    def is_over_before(self, index: Ints, processes: int) -> bool:
        """Whether a batch is of the next epoch: an example comes again.

        Args:
            index: [N] of the batch, which is not added yet.
            processes: how many there are; of several none sees all examples.

        Raises:
            InputError: it comes again so early that this cannot be meant.
        """
        if not self._ends_by_itself:
            return False
        again = index[self.seen[index]]
        if not len(again) and len(np.unique(index)) == len(index):
            return False
        if processes > 1:
            raise InputError(
                "an example came again, and of several processes none can see alone where an epoch "
                "ends: call rec.end_epoch() there, in all of them"
            )
        if not len(again):
            raise InputError(f"an example came twice in one batch: {_REPEATS}")
        seen, n = int(self.seen.sum()), len(self.seen)
        if 2 * seen < n:
            raise InputError(
                f"example {again[0]} came again after {seen:,} of {n:,} examples, so it is not "
                f"clear where an epoch ends: {_REPEATS}"
            )
        self._ended_at = int(again[0])
        return True

    def add(self, index: Ints) -> None:
        """Take in a batch.

        Raises:
            InputError: so many have come that somebody must have forgotten to say when it is over.
        """
        self.steps += 1
        self.count += len(index)
        self.seen[index] = True
        if self._repeats and not self._is_told and self.count > _FORGOTTEN * len(self.seen):
            raise InputError(
                f"{self.count:,} examples came and nobody said where an epoch ends: call "
                "rec.end_epoch() there, as repeats=True asks"
            )

    def is_full(self, processes: int) -> bool:
        """Whether it is over because every example has come."""
        is_over = self._ends_by_itself and processes == 1 and bool(self.seen.all())
        self._ended_full |= is_over
        return is_over

    def expect_word(self) -> None:
        """Let none end by itself from now on."""
        self._is_told = True

    def end(self) -> None:
        """Somebody says that it is over.

        Raises:
            InputError: an earlier one was already taken to be over where an example came again.
        """
        went_on = self._ended_full and self.seen.any() and not self._is_told
        if self._ended_at is not None or went_on:
            again = int(np.argmax(self.seen)) if self._ended_at is None else self._ended_at
            raise InputError(
                "rec.end_epoch() came after an epoch was taken to end by itself, for example "
                f"{again} came again: if examples come more than once in an epoch, pass "
                "repeats=True to record"
            )
        self._is_told = True

    def begin_another(self) -> None:
        """Nobody has come yet."""
        self.seen[:] = False
        self.count = self.steps = 0

    @property
    def _ends_by_itself(self) -> bool:
        return not self._repeats and not self._is_told
