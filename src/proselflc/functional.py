"""The same maths without state: every method as a function of logits, target and progress.

Each function takes `weight`, `ignore_index` and `reduction` as `F.cross_entropy` does and returns
the loss. `correct` returns what a method would teach. Where the target holds the prediction itself,
the gradient flows through it; ε is a constant.

    >>> import torch
    >>> from proselflc import Fixed, Prediction, Target, functional
    >>> logits, y = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([1])
    >>> functional.proselflc(logits, y, progress=0.9).shape
    torch.Size([])
    >>> functional.correct(Target(Prediction(), Fixed(0.75)), logits, y).target.argmax(-1)
    tensor([0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from proselflc.correction import boundary, parameter
from proselflc.correction import target as targets
from proselflc.correction.fused import reduced_loss
from proselflc.correction.parameter import DEFAULTS, Options, TargetOptions, takes
from proselflc.correction.robust import Backward, Forward, Generalized, Symmetric
from proselflc.correction.target import Correction, Objective, checked_objective, correction
from proselflc.correction.trust import Trust

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "backward_correction",
    "boot_hard",
    "boot_soft",
    "confidence_penalty",
    "correct",
    "cross_entropy",
    "distillation",
    "forward_correction",
    "generalized_cross_entropy",
    "label_smoothing",
    "loss",
    "low_temperature_proselflc",
    "proselflc",
    "symmetric_cross_entropy",
]


@takes(TargetOptions)
def loss(
    method: Objective,
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor | None = None,
    teacher_logits: Tensor | None = None,
    **options: Unpack[TargetOptions],
) -> Tensor:
    """Return the loss of any method: a `Target`, or an `Objective` outside the algebra."""
    chosen: TargetOptions = {**DEFAULTS, **options}
    reduction = boundary.checked_reduction(chosen["reduction"])
    e = boundary.observe(
        logits,
        target,
        progress=progress,
        weight=chosen["weight"],
        ignore_index=chosen["ignore_index"],
        teacher_logits=teacher_logits,
        log_offset=chosen["log_offset"],
        presume=True,
    )
    result = reduced_loss(checked_objective(method), e, reduction, chosen["fused"])
    return result.reshape(boundary.without_classes(logits.shape)) if reduction == "none" else result


def correct(
    method: Objective,
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor | None = None,
    teacher_logits: Tensor | None = None,
    weight: Tensor | None = DEFAULTS["weight"],
    ignore_index: int = DEFAULTS["ignore_index"],
    log_offset: float = DEFAULTS["log_offset"],
) -> Correction:
    """Return what any method would teach: `Correction(loss [N], target [N, C], trust [N])`."""
    e = boundary.observe(
        logits,
        target,
        progress=progress,
        weight=weight,
        ignore_index=ignore_index,
        teacher_logits=teacher_logits,
        log_offset=log_offset,
    )
    return correction(checked_objective(method), e, logits.shape)


@takes(Options)
def cross_entropy(logits: Tensor, target: Tensor, **options: Unpack[Options]) -> Tensor:
    """Return the loss of `CrossEntropy`."""
    return loss(targets.cce(), logits, target, **options)


@takes(Options)
def label_smoothing(
    logits: Tensor, target: Tensor, *, epsilon: float, **options: Unpack[Options]
) -> Tensor:
    """Return the loss of `LabelSmoothing`."""
    return loss(targets.label_smoothing(epsilon), logits, target, **options)


@takes(Options)
def confidence_penalty(
    logits: Tensor, target: Tensor, *, epsilon: float, **options: Unpack[Options]
) -> Tensor:
    """Return the loss of `ConfidencePenalty`."""
    return loss(targets.confidence_penalty(epsilon), logits, target, **options)


@takes(Options)
def boot_soft(
    logits: Tensor, target: Tensor, *, epsilon: float, **options: Unpack[Options]
) -> Tensor:
    """Return the loss of `BootSoft`."""
    return loss(targets.boot_soft(epsilon), logits, target, **options)


@takes(Options)
def boot_hard(
    logits: Tensor, target: Tensor, *, epsilon: float, **options: Unpack[Options]
) -> Tensor:
    """Return the loss of `BootHard`."""
    return loss(targets.boot_hard(epsilon), logits, target, **options)


@takes(Options)
def distillation(
    logits: Tensor,
    target: Tensor,
    *,
    teacher_logits: Tensor,
    epsilon: float,
    temperature: float = parameter.TEMPERATURE,
    **options: Unpack[Options],
) -> Tensor:
    """Return the loss of `Distillation`."""
    method = targets.distillation(epsilon, temperature)
    return loss(method, logits, target, teacher_logits=teacher_logits, **options)


@takes(Options)
def proselflc(
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor,
    sharpness: float = parameter.SHARPNESS,
    midpoint: float = parameter.MIDPOINT,
    trust: str | Trust = parameter.TRUST,
    **options: Unpack[Options],
) -> Tensor:
    """Return the loss of `ProSelfLC`."""
    method = targets.proselflc(sharpness, midpoint, trust)
    return loss(method, logits, target, progress=progress, **options)


@takes(Options)
def low_temperature_proselflc(
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor,
    sharpness: float = parameter.LOW_TEMPERATURE_SHARPNESS,
    midpoint: float = parameter.MIDPOINT,
    temperature: float = parameter.LOW_TEMPERATURE,
    trust: str | Trust = parameter.LOW_TEMPERATURE_TRUST,
    **options: Unpack[Options],
) -> Tensor:
    """Return the loss of `LowTemperatureProSelfLC`."""
    method = targets.low_temperature_proselflc(sharpness, midpoint, temperature, trust)
    return loss(method, logits, target, progress=progress, **options)


@takes(Options)
def generalized_cross_entropy(
    logits: Tensor, target: Tensor, *, q: float = parameter.POWER, **options: Unpack[Options]
) -> Tensor:
    """Return the loss of `GeneralizedCrossEntropy`."""
    return loss(Generalized(q), logits, target, **options)


@takes(Options)
def symmetric_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = parameter.ALPHA,
    beta: float = parameter.BETA,
    A: float = parameter.LOG_ZERO,
    **options: Unpack[Options],
) -> Tensor:
    """Return the loss of `SymmetricCrossEntropy`."""
    return loss(Symmetric(alpha, beta, A), logits, target, **options)


@takes(Options)
def forward_correction(
    logits: Tensor, target: Tensor, *, transition: Tensor, **options: Unpack[Options]
) -> Tensor:
    """Return the loss of `ForwardCorrection`."""
    return loss(Forward(transition), logits, target, **options)


@takes(Options)
def backward_correction(
    logits: Tensor, target: Tensor, *, transition: Tensor, **options: Unpack[Options]
) -> Tensor:
    """Return the loss of `BackwardCorrection`."""
    return loss(Backward(transition), logits, target, **options)
