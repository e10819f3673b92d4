"""How a criterion knows the progress of training: a counter that may live on a device, and Γ."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from proselflc.correction.parameter import whole_number

_WHOLE = (torch.int64, torch.int32)
MOST_CALLS = 1000  # per step, before a warning that the optimiser takes none


class CachedCounter:
    """The last known value of a counter.

    Reading a buffer waits for its device, so that is done only after other code has written it (a
    checkpoint, `.to()`, a compiled step), which changes its version. `t.data.fill_(…)` and memory
    shared with numpy do not: use `t.fill_(…)`, or the criterion's `set_progress`.
    """

    __slots__ = ("counter", "value", "version")

    def __init__(self) -> None:
        self.counter: Tensor | None = None
        self.version = -1
        self.value = 0

    def read(self, counter: Tensor) -> int:
        """Return the counter's value."""
        if counter.is_inference():  # they have no version
            return int(counter)
        if self.counter is not counter or self.version != counter._version:
            self.store(counter, int(counter))
        return self.value

    def store(self, counter: Tensor, value: int) -> None:
        """Take note that the counter holds this value now."""
        if not counter.is_inference():
            self.counter, self.version, self.value = counter, counter._version, value

    def increment(self, counter: Tensor) -> None:
        """Take note that the counter was just raised by one, if its value was known before."""
        if self.counter is counter and self.version + 1 == counter._version:
            self.version += 1
            self.value += 1

    def __reduce__(self) -> tuple[type[CachedCounter], tuple[()]]:
        return CachedCounter, ()  # a copy starts without a value


class FollowedOptimizer:
    """The optimiser whose steps advance a counter; if there is none, calls advance it."""

    __slots__ = ("calls", "handle", "is_on", "warned")

    def __init__(self) -> None:
        self.is_on = False  # torch.compile can look at this, but not at a handle
        self.handle: RemovableHandle | None = None
        self.calls = 0  # since the last step
        self.warned = False

    def follow(self, optimizer: Optimizer, stepped: Callable[[], None]) -> None:
        """Have `stepped` called after every step that an optimiser takes."""
        # An optimiser prepared by Accelerate wraps the one that takes the steps.
        inner = getattr(optimizer, "optimizer", optimizer)
        if not isinstance(inner, Optimizer):
            raise TypeError(
                f"step_with needs an optimiser of torch, got {type(optimizer).__name__}: pass the "
                "one whose step() you call"
            )

        def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self.calls = 0
            stepped()

        self.handle, self.is_on = inner.register_step_post_hook(hook), True

    def release(self) -> None:
        """Let calls advance the counter again."""
        if self.handle is not None:
            self.handle.remove()
        self.handle, self.is_on, self.calls, self.warned = None, False, 0, False

    def count_call(self, total_steps: int | None) -> None:
        """Count a call, and warn if the optimiser does not seem to be the one in use."""
        self.calls += 1
        if self.calls > max(MOST_CALLS, total_steps or 0) and not self.warned:
            self.warned = True
            warnings.warn(
                f"the optimiser given to step_with has taken no step in {self.calls} training "
                "calls, so the clock stands still: call step_with with the optimiser in use",
                stacklevel=4,
            )

    def __reduce__(self) -> tuple[type[FollowedOptimizer], tuple[()]]:
        return FollowedOptimizer, ()  # no optimiser advances a copy


def stored_total(value: object) -> int | None:
    """Return the Γ that a state holds, or None if it is not a whole number ≥ 1."""
    if not isinstance(value, Tensor) or value.numel() != 1 or value.dtype not in _WHOLE:
        return None
    return int(value) if int(value) >= 1 else None


def checked_total(total_steps: int) -> int:
    """Return Γ, if it can be one."""
    meaning = "it is the number of training calls, len(loader) * epochs"
    return whole_number(total_steps, "total_steps", meaning, least=1)
