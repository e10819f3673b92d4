"""The boundary to the user's tensors: batches are checked and flattened, losses are reduced.

Shapes and dtypes are checked on every call, since that costs no device time. Values are checked on
every call where the tensors are on the CPU; on an accelerator reading them would wait for it, so
only a criterion's first batch is checked there.
"""

from __future__ import annotations

import torch
from torch import Size, Tensor

from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import is_number, one_of
from proselflc.correction.torch_internals import in_transform

_known_reduction = one_of(("mean", "sum", "none"))


def checked_reduction(reduction: str) -> str:
    """Return the reduction; refuse one that `F.cross_entropy` does not have."""
    return _known_reduction(reduction, "reduction")


def observe(
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    teacher_logits: Tensor | None = None,
    log_offset: float = 0.0,
    look_at_values: bool = False,
    presume: bool = False,
) -> Evidence:
    """Check one batch as `F.cross_entropy` takes it and flatten it to evidence.

    `look_at_values` also checks values on an accelerator, which waits for it; `presume` leaves the
    class ids of an ordinary batch unread: see `read`.
    """
    unreadable = torch.compiler.is_compiling() or in_transform()
    if (
        isinstance(logits, Tensor)
        and isinstance(target, Tensor)
        and target.dtype is torch.int64
        and (logits.dtype is torch.float32 or logits.dtype is torch.float64)
        and logits.dim() == 2
        and target.dim() == 1
        and target.is_cpu
        and logits.is_cpu
        and weight is None
        and teacher_logits is None
        and (progress is None or (type(progress) is float and 0 <= progress <= 1))
        and not unreadable
    ):
        # Most batches are like this, and this is all that checking them costs.
        N, C = logits.shape
        if target.numel() == N and N and ignore_index < 0 and (presume or _all_within(target, C)):
            return Evidence(
                logits,
                target,
                progress=progress,
                ignore_index=ignore_index,
                log_offset=log_offset,
                is_complete=True,
                is_presumed=presume,
            )
    shape, dtype = _checked_logits(logits, target)
    if target.dtype is torch.uint8:  # class ids too, for F.cross_entropy
        target = target.long()
    nothing_ignored = False
    look = not unreadable and (look_at_values or target.is_cpu)
    if target.dtype is torch.int64:
        if target.shape != (shape[:1] if len(shape) == 2 else without_classes(shape)):
            raise ValueError(
                f"class ids for logits shaped {list(shape)} must be shaped "
                f"{list(without_classes(shape))}, got {list(target.shape)}"
            )
        if len(shape) != 2:
            target = target.reshape(-1)
        if look:
            nothing_ignored = _nothing_ignored(target, shape[len(shape) > 1], ignore_index)
    else:
        _check_probabilities(logits, target, ignore_index, look)
        target = _flat(target).to(dtype)
    if teacher_logits is not None:
        if not isinstance(teacher_logits, Tensor) or not teacher_logits.is_floating_point():
            raise TypeError(
                f"teacher_logits must be a floating-point tensor shaped like logits, "
                f"got {_kind(teacher_logits)}"
            )
        if teacher_logits.shape != shape:
            raise ValueError(
                f"teacher_logits must be shaped like logits, {list(shape)}, "
                f"got {list(teacher_logits.shape)}"
            )
        teacher_logits = _flat(teacher_logits.detach()).to(dtype)
    if weight is not None:
        if not isinstance(weight, Tensor):
            raise TypeError(f"weight must be a tensor of one number per class, got {_kind(weight)}")
        if weight.shape != (shape[len(shape) > 1],):
            raise ValueError(
                f"weight must hold one number per class, [{shape[len(shape) > 1]}] for these "
                f"logits, got {list(weight.shape)}"
            )
        weight = weight.to(logits.device, dtype)
    if not unreadable and progress is not None:
        _check_progress(progress)
    if len(shape) != 2:
        logits = _flat(logits)
    return Evidence(
        logits if logits.dtype is dtype else logits.to(dtype),
        target,
        progress=progress,
        weight=weight,
        ignore_index=ignore_index,
        teacher_logits=teacher_logits,
        log_offset=log_offset,
        is_complete=nothing_ignored and weight is None,
    )


def read(e: Evidence) -> Evidence:
    """Return the evidence with its class ids checked, if that was put off.

    Reading them takes 5 % of a step at 256 × 100, and on the CPU an operation that looks up a class
    fails for an id that is out of range. So a caller that looks classes up may presume that the ids
    are valid, and call this only if the operation has failed.
    """
    if not e.is_presumed:
        return e
    return observe(
        e.logits,
        e.target,
        progress=e.progress,
        ignore_index=e.ignore_index,
        log_offset=e.log_offset,
    )


def reduce(losses: Tensor, e: Evidence, reduction: str) -> Tensor:
    """Return the losses [N] reduced as by `F.cross_entropy`, still [N] for "none".

    The mean divides by Σ_i w[y_i] over the examples that are not ignored for class ids, and by the
    number of examples for probabilities.
    """
    if e.has_class_ids and not e.is_complete:
        losses = torch.where(e.valid, losses, 0.0)  # ignored: 0 even where the logits are NaN
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if e.is_complete or not e.has_class_ids:
        return losses.mean()
    return losses.sum() / e.omega.sum()


def without_classes(shape: Size) -> Size:
    """Return the shape of logits without the class dimension, that of an unreduced loss."""
    return Size([*shape[:1], *shape[2:]] if len(shape) > 1 else [])


def _nothing_ignored(y: Tensor, num_classes: int, ignore_index: int) -> bool:
    """Return whether no class id [N] is `ignore_index`; refuse others that are not 0 … C−1."""
    if y.numel() == 0:
        return False
    if not 0 <= ignore_index < num_classes and _all_within(y, num_classes):
        return True
    ignored = y == ignore_index
    wrong = ((y < 0) | (y >= num_classes)) & ~ignored
    if bool(wrong.any()):
        position = int(wrong.nonzero()[0])
        raise ValueError(
            f"target holds class id {int(y[position])} at position {position}, but the logits have "
            f"{num_classes} classes: ids must be 0 … {num_classes - 1}, or ignore_index "
            f"({ignore_index}) for an example to leave out"
        )
    return not bool(ignored.any())


def _all_within(y: Tensor, num_classes: int) -> bool:
    """Return whether class ids [N] are all 0 … C−1, N ≥ 1."""
    smallest, largest = y.aminmax()
    return bool(smallest.item() >= 0 and largest.item() < num_classes)


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


def _flat(x: Tensor) -> Tensor:
    """Return [N, C, d1, …] or [C] as [N·d1·…, C]."""
    if x.dim() == 2:
        return x
    return x[None] if x.dim() == 1 else x.movedim(1, -1).reshape(-1, x.shape[1])


def _checked_logits(logits: Tensor, target: Tensor) -> tuple[Size, torch.dtype]:
    """Return the shape of logits and the dtype to compute in."""
    if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
        raise TypeError(
            f"logits and target must be torch tensors, got {type(logits).__name__} and "
            f"{type(target).__name__}"
        )
    shape, dtype = logits.shape, logits.dtype
    if not shape or shape[len(shape) > 1] == 0:
        raise ValueError(
            f"logits must be shaped [N, C], [N, C, d1, …] or [C] with C ≥ 1, got {list(shape)}"
        )
    if dtype is not torch.float32 and dtype is not torch.float64:
        if not logits.is_floating_point():
            raise TypeError(
                f"logits must be floating point, got {dtype}: "
                "pass the model's raw scores [N, C], and the class ids second"
            )
        dtype = torch.float32
    return shape, dtype


def _check_probabilities(logits: Tensor, target: Tensor, ignore_index: int, look: bool) -> None:
    if not target.is_floating_point():
        raise TypeError(
            f"target must hold int64 class ids (or uint8) or floating-point probabilities, "
            f"got {target.dtype}: use target.long()"
        )
    if target.shape != logits.shape:
        raise ValueError(
            f"floating-point targets are probabilities and must be shaped like logits, "
            f"{list(logits.shape)}, got {list(target.shape)}; class ids must be int64"
        )
    if ignore_index >= 0:
        raise ValueError(
            f"ignore_index={ignore_index} is for class ids and the target holds probabilities: "
            "leave it at its default, or drop those examples first"
        )
    if not look or target.numel() == 0:
        return
    q = _flat(target.detach())
    tolerance = 1e-3 if target.dtype in (torch.float32, torch.float64) else 2e-2
    total = q.sum(-1, dtype=torch.float32 if q.dtype != torch.float64 else None)
    wrong = ~((total - 1).abs() <= tolerance) | (q.amin(-1) < 0)
    if bool(wrong.any()):
        position = int(wrong.nonzero()[0])
        raise ValueError(
            f"the probabilities of example {position} sum to {float(total[position]):.4g} with a "
            f"smallest one of {float(q[position].min()):.4g}: each example's must be ≥ 0 and sum "
            "to 1; apply a softmax to them if they are logits"
        )


def _check_progress(progress: float | Tensor) -> None:
    if isinstance(progress, Tensor):
        if progress.dim() != 0:
            raise ValueError(
                f"progress must be a number or a 0-d tensor, got one shaped {list(progress.shape)}"
            )
        if progress.device.type != "cpu":
            return
    elif not is_number(progress):
        raise TypeError(f"progress must be a number or a 0-d tensor, got {progress!r}")
    if not 0 <= progress <= 1:
        raise ValueError(
            f"progress is t/Γ, the share of training that is done, between 0 and 1; "
            f"got {float(progress)}"
        )
