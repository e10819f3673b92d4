"""How a criterion knows how far training is: a counter that may live on a device, and Γ."""

from __future__ import annotations

from torch import Tensor

from proselflc.correction.parameter import whole_number


class Reading:
    """The last known value of a counter.

    Reading a buffer waits for its device, so that is done only when somebody else has written it
    (a checkpoint, `.to()`, a compiled step): its version tells. What is written past the version,
    by `t.data.fill_(…)` or through memory shared with numpy, goes unnoticed: use `t.fill_(…)`, or
    the criterion's `set_progress`.
    """

    __slots__ = ("counter", "value", "version")

    def __init__(self) -> None:
        self.counter: Tensor | None = None
        self.version = -1
        self.value = 0

    def of(self, counter: Tensor) -> int:
        """The counter's value."""
        if counter.is_inference():  # they have no version
            return int(counter)
        if self.counter is not counter or self.version != counter._version:
            self.keep(counter, int(counter))
        return self.value

    def keep(self, counter: Tensor, value: int) -> None:
        """Know that the counter holds this value now."""
        if not counter.is_inference():
            self.counter, self.version, self.value = counter, counter._version, value

    def moved_on(self, counter: Tensor) -> None:
        """Know that the counter was just raised by one, if it was known before."""
        if self.counter is counter and self.version + 1 == counter._version:
            self.version += 1
            self.value += 1

    def __reduce__(self) -> tuple[type[Reading], tuple[()]]:
        return Reading, ()  # a copy knows nothing


def checked_total(total_steps: int) -> int:
    """Γ, if it can be one."""
    what = "how many training calls there will be, len(loader) * epochs"
    return whole_number(total_steps, "total_steps", what, least=1)
