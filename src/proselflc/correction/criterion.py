"""A criterion, a drop-in for `nn.CrossEntropyLoss`: an objective, and a clock that tells progress.

The objective is a `Target` of the algebra or a loss outside it; `criteria.py` has them by name.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from proselflc.correction import boundary
from proselflc.correction.clock import (
    CachedCounter,
    FollowedOptimizer,
    checked_total,
    stored_total,
)
from proselflc.correction.evidence import Evidence
from proselflc.correction.fused import reduced_loss
from proselflc.correction.memory import Memory
from proselflc.correction.parameter import DEFAULTS, TargetOptions, number, takes, whole_number
from proselflc.correction.target import Correction, Objective, checked_objective, correction
from proselflc.correction.torch_internals import materialize

if TYPE_CHECKING:
    from typing_extensions import Unpack

LATE, FEW = 1.5, 10  # calls beyond 1.5 Γ, and at least 10 beyond Γ, get a second warning


class Criterion(nn.CrossEntropyLoss):
    """Any method as a criterion, called as `criterion(logits, target)` like `nn.CrossEntropyLoss`.

    It takes whatever `F.cross_entropy` takes. It computes in float32 for half precision and in
    float64 for double; the loss has that dtype.

    The clock: a call in training mode with gradients enabled is the (t+1)-th of `total_steps` and
    advances `t`; any other call uses t/Γ and leaves it alone. `progress=` overrides it. Where a
    step has several calls (gradient accumulation, closures), `step_with(optimizer)` makes the clock
    count steps instead.

    Options may be set later, as in `criterion.reduction = "sum"`: a value that cannot be used is
    refused at once. `label_smoothing` must stay 0; use `LabelSmoothing` instead.

    Args:
        method: a `Target`, or a loss outside the algebra.
        total_steps: Γ, the total number of training calls, or of optimiser steps with `step_with`;
            None if the method does not depend on time. It is in `state_dict()`. Loading a state
            with a different Γ keeps this one and warns; 1 means that Γ is not known yet, and is
            replaced by the state's.
        memory: where a `RememberedPrediction` is kept; calls then need `index=`.
        weight: [C] class weights, as in `F.cross_entropy`.
        ignore_index: class id of examples to leave out.
        reduction: "mean", "sum" or "none".
        log_offset: δ in log(p + δ). 0 is the paper; 1e-6 is what its published code computes.
        fused: whether to use the closed-form gradient where there is one; it is only slower
            without.

    Attributes:
        t: 0-d int64 buffer, the number of completed training calls; in `state_dict()`.

    Example:
        >>> import torch
        >>> from proselflc import Growth, Memory, RememberedPrediction, Target
        >>> criterion = Criterion(
        ...     Target(RememberedPrediction(), Growth(sharpness=10)),
        ...     total_steps=100,
        ...     memory=Memory(num_examples=1000, num_classes=3),
        ... )
        >>> loss = criterion(torch.zeros(2, 3), torch.tensor([0, 2]), index=torch.tensor([7, 42]))
        >>> round(loss.item(), 4), criterion.t.item()
        (1.0986, 1)
    """

    t: Tensor

    @takes(TargetOptions)
    def __init__(
        self,
        method: Objective,
        *,
        total_steps: int | None = None,
        memory: Memory | None = None,
        **options: Unpack[TargetOptions],
    ) -> None:
        chosen: TargetOptions = {**DEFAULTS, **options}
        super().__init__(
            weight=_checked_weight(chosen["weight"]),
            ignore_index=chosen["ignore_index"],
            reduction=chosen["reduction"],
        )
        self.method = method
        self.total_steps: int | None = total_steps
        self.memory = memory
        self.log_offset = chosen["log_offset"]
        self.fused = chosen["fused"]
        self.register_buffer("t", torch.zeros((), dtype=torch.int64))
        self._last = CachedCounter()
        self._followed = FollowedOptimizer()
        self._warnings = 0  # given so far because training went on after Γ
        self._looked = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickle made before these were added lacks them.
        complete = {"_followed": FollowedOptimizer(), "_warnings": 0, **state}
        super().__setstate__(complete)  # type: ignore[no-untyped-call]

    def __setattr__(self, name: str, value: Any) -> None:
        check = _CHECKED.get(name)
        super().__setattr__(name, value if check is None else check(value))

    def extra_repr(self) -> str:
        parts = [] if isinstance(self.method, nn.Module) else [str(self.method)]
        if self.total_steps is not None:
            parts.append(f"total_steps={self.total_steps}")
        return ", ".join(parts)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        index: Tensor | None = None,
        progress: float | Tensor | None = None,
        teacher_logits: Tensor | None = None,
    ) -> Tensor:
        """Return the reduced loss.

        Args:
            logits: [N, C], [N, C, d1, …] or [C], raw.
            target: int64 class ids, or probabilities shaped like logits.
            index: [N] positions of the examples in the training set. Required with a memory;
                otherwise ignored, so that one loop serves every method.
            progress: t/Γ in [0, 1]; the clock is then neither read nor advanced.
            teacher_logits: shaped like logits, for distillation; a constant.
        """
        learning = self.training and torch.is_grad_enabled()
        counter = self.t if learning and progress is None else None
        if progress is None and self.total_steps is not None:
            progress = self._progress(logits, ahead=counter is not None)
        memory = self.memory
        e = self._observe(logits, target, progress, teacher_logits, presume=memory is None)
        if memory is not None:
            index = memory.check(index, e.logits.shape)
            remembered = memory.renewed(index, e.p) if learning else memory.at(index)
            e.recall(remembered.average, remembered.seen)
        loss = reduced_loss(self.method, e, self.reduction, self.fused)
        if memory is not None and index is not None and learning:
            memory.keep(index, remembered)
        if counter is not None and not self._followed.is_on:
            counter.add_(1)
            if not torch.compiler.is_compiling():
                self._last.increment(counter)
        elif counter is not None and not torch.compiler.is_compiling():
            self._followed.count_call(self.total_steps)
        if self.reduction == "none":
            return loss.reshape(boundary.without_classes(logits.shape))
        return loss

    def correct(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        index: Tensor | None = None,
        progress: float | Tensor | None = None,
        teacher_logits: Tensor | None = None,
    ) -> Correction:
        """Return what the method would teach now: `Correction(loss [N], target [N, C], trust [N])`.

        Nothing is changed. Shapes follow the input: a dense batch has loss and trust [N, d1, …] and
        a target like logits. An ignored example has zeros in all three.
        """
        if progress is None:
            progress = self._progress(logits, ahead=False)
        e = self.evidence(logits, target, index, progress, teacher_logits)
        return correction(self.method, e, logits.shape)

    def evidence(
        self,
        logits: Tensor,
        target: Tensor,
        index: Tensor | None,
        progress: float | Tensor | None,
        teacher_logits: Tensor | None = None,
    ) -> Evidence:
        """Return what the method looks at, with arguments as for `forward`; nothing is changed."""
        e = self._observe(logits, target, progress, teacher_logits, presume=False)
        if self.memory is not None:
            remembered = self.memory.at(self.memory.check(index, e.logits.shape))
            e.recall(remembered.average, remembered.seen)
        return e

    @property
    def progress(self) -> float | None:
        """Return t/Γ, at most 1; None without Γ."""
        now = self._progress(self.t, ahead=False)
        return now if now is None else float(now)

    def set_progress(self, t: int, total: int | None = None) -> None:
        """Set the clock to t completed calls, out of `total` if given."""
        t = whole_number(t, "t", "it is the number of completed training calls", least=0)
        if total is not None:
            self.total_steps = total
        self.t.fill_(t)
        self._last.store(self.t, t)

    def step_with(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Advance the clock once per step of an optimiser instead of once per call.

        `total_steps` is then the number of optimiser steps. Use this with gradient accumulation,
        with optimisers that call a closure several times, and with gradient scalers, which skip
        steps. It lasts until the next call, with another optimiser or with None to count calls.
        A copy of the criterion counts calls.

        Args:
            optimizer: an optimiser of torch, possibly prepared by Accelerate.
        """
        self._followed.release()
        if optimizer is not None:
            self._followed.follow(optimizer, self._stepped)

    def _stepped(self) -> None:
        """Count a step of the optimiser."""
        self.t.add_(1)
        self._last.increment(self.t)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.total_steps is not None:
            destination[f"{prefix}total_steps"] = torch.tensor(self.total_steps)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = f"{prefix}total_steps"
        if key not in state_dict:  # from an earlier version, or from a criterion without Γ
            return
        if key in unexpected_keys:
            unexpected_keys.remove(key)
        stored, own = stored_total(state_dict[key]), self.total_steps
        if stored is None:
            error_msgs.append(f"{key} must be a whole number of training calls, at least 1")
        elif own is None or own == 1:
            self.total_steps = stored
        elif own != stored:
            t = int(self.t)
            warnings.warn(
                f"the state was saved with total_steps={stored} and this criterion has "
                f"total_steps={own}, which it keeps: after {t} training calls progress is "
                f"{min(t / own, 1):.3g} instead of {min(t / stored, 1):.3g}. To continue the saved "
                f"schedule, call criterion.set_progress({t}, {stored})",
                stacklevel=4,
            )

    def _observe(
        self,
        logits: Tensor,
        target: Tensor,
        progress: float | Tensor | None,
        teacher_logits: Tensor | None,
        *,
        presume: bool,
    ) -> Evidence:
        # Compiling is asked first: a compiled step must not depend on an eager one before it.
        first = not torch.compiler.is_compiling() and not self._looked
        if first:
            self._looked = True
        return boundary.observe(
            logits,
            target,
            progress=progress,
            weight=self.weight,
            ignore_index=self.ignore_index,
            teacher_logits=teacher_logits,
            log_offset=self.log_offset,
            look_at_values=first,
            presume=presume,
        )

    def _progress(self, logits: Tensor, ahead: bool) -> float | Tensor | None:
        """Return t/Γ, or (t+1)/Γ for the call that is under way, at most 1; None without Γ.

        When compiled it is a tensor with the precision of the loss.
        """
        total = self.total_steps
        if total is None:
            return None
        if torch.compiler.is_compiling():
            exact = torch.promote_types(logits.dtype, torch.float32)
            return (materialize(self.t + int(ahead)).to(exact) / total).clamp(max=1)
        t = self._last.read(self.t) + ahead
        if t <= total:
            return t / total
        if self._warnings == 0:
            self._warnings = 1
            warnings.warn(
                f"training continues beyond total_steps={total}: progress stays at 1; "
                f"total_steps counts {self._counted()}",
                stacklevel=5,
            )
        elif self._warnings == 1 and t >= max(LATE * total, total + FEW):
            self._warnings = 2
            warnings.warn(
                f"the schedule ended long before training: this is call {t}, but "
                f"total_steps={total}, so progress has been 1 for the last {t - total} calls; "
                f"total_steps counts {self._counted()}",
                stacklevel=5,
            )
        return 1.0

    def _counted(self) -> str:
        """Return what `total_steps` counts and what may be wrong with it."""
        if self._followed.is_on:
            return "the steps of the optimiser given to step_with"
        return (
            "training calls, len(loader) * epochs of them. With gradient accumulation a step has "
            "several calls: give the number of calls, or call criterion.step_with(optimizer) to "
            "count steps"
        )


def _checked_weight(weight: Tensor | None) -> Tensor | None:
    if weight is not None and not (isinstance(weight, Tensor) and weight.dim() == 1):
        got = list(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"weight must be a 1-d tensor, one number per class, got {got}")
    return weight


def _checked_ignore_index(ignore_index: int) -> int:
    try:
        return operator.index(ignore_index)
    except TypeError:
        raise TypeError(
            f"ignore_index must be a whole number, the class id of examples to leave out, got "
            f"{ignore_index!r}"
        ) from None


def _checked_smoothing(label_smoothing: float) -> float:
    if label_smoothing != 0:
        raise ValueError(
            f"label_smoothing={label_smoothing!r} would have no effect, as the criterion makes its "
            f"own targets: use proselflc.LabelSmoothing({label_smoothing!r}) instead"
        )
    return 0.0


_log_offset = number(
    "at least 0 and below 1",
    "it is δ in log(p + δ), 0 in the paper and 1e-6 in its published code",
    lambda x: 0 <= x < 1,
)
# The attributes that are checked whenever they are set.
_CHECKED: dict[str, Callable[[Any], Any]] = {
    "weight": _checked_weight,
    "reduction": boundary.checked_reduction,
    "ignore_index": _checked_ignore_index,
    "label_smoothing": _checked_smoothing,
    "log_offset": lambda offset: _log_offset(offset, "log_offset"),
    "method": checked_objective,
    "total_steps": lambda total: None if total is None else checked_total(total),
}
