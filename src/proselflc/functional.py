"""The same maths without state: every method as a function of logits, target and progress.

Each function takes `weight`, `ignore_index` and `reduction` as `F.cross_entropy` does and returns
the loss. `correct` returns what a method would teach. Where the target holds the prediction itself,
the gradient flows through it; ε is a constant.

    >>> import torch
    >>> from proselflc import functional
    >>> from proselflc.correction import catalogue
    >>> logits, y = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([1])
    >>> functional.proselflc(logits, y, progress=0.9).shape
    torch.Size([])
    >>> functional.correct(catalogue.boot_soft(0.75), logits, y).target.argmax(-1)
    tensor([0])
"""

from torch import Tensor

from proselflc.correction import boundary, catalogue, defaults
from proselflc.correction.method import Method, check_method, correction, reduced_loss
from proselflc.correction.robust import Generalized, Symmetric
from proselflc.correction.target import Correction
from proselflc.correction.transition import Backward, Forward
from proselflc.correction.trust import Trust

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


def loss(
    method: Method,
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor | None = None,
    teacher_logits: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    log_offset: float = 0.0,
    fused: bool = True,
) -> Tensor:
    """The loss of any method: one of the catalogue, or a `Target` of your own."""
    boundary.check_reduction(reduction)
    check_method(method)
    e = boundary.observe(
        logits,
        target,
        progress=progress,
        weight=weight,
        ignore_index=ignore_index,
        teacher_logits=teacher_logits,
        log_offset=log_offset,
        presume=True,
    )
    result = reduced_loss(method, e, reduction, fused)
    return result.reshape(boundary.without_classes(logits.shape)) if reduction == "none" else result


def correct(
    method: Method,
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor | None = None,
    teacher_logits: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    log_offset: float = 0.0,
) -> Correction:
    """What any method would teach: `Correction(loss [N], target [N, C], trust [N])`."""
    check_method(method)
    e = boundary.observe(
        logits,
        target,
        progress=progress,
        weight=weight,
        ignore_index=ignore_index,
        teacher_logits=teacher_logits,
        log_offset=log_offset,
    )
    return correction(method, e, logits.shape)


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """H(q, p)."""
    return loss(
        catalogue.cce(),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def label_smoothing(
    logits: Tensor,
    target: Tensor,
    *,
    epsilon: float,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """H(q̃, p) with q̃ = (1 − ε) q + ε u."""
    return loss(
        catalogue.label_smoothing(epsilon),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def confidence_penalty(
    logits: Tensor,
    target: Tensor,
    *,
    epsilon: float,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """(1 − ε) H(q, p) − ε H(p)."""
    return loss(
        catalogue.confidence_penalty(epsilon),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def boot_soft(
    logits: Tensor,
    target: Tensor,
    *,
    epsilon: float,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """(1 − ε) H(q, p) + ε H(p)."""
    return loss(
        catalogue.boot_soft(epsilon),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def boot_hard(
    logits: Tensor,
    target: Tensor,
    *,
    epsilon: float,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """H(q̃, p) with q̃ = (1 − ε) q + ε onehot(argmax p)."""
    return loss(
        catalogue.boot_hard(epsilon),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def distillation(
    logits: Tensor,
    target: Tensor,
    *,
    teacher_logits: Tensor,
    epsilon: float,
    temperature: float = defaults.TEMPERATURE,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """(1 − ε) H(q, p) + ε τ² KL(p_t‖p), both at temperature τ."""
    return loss(
        catalogue.distillation(epsilon, temperature),
        logits,
        target,
        teacher_logits=teacher_logits,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def proselflc(
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor,
    sharpness: float = defaults.SHARPNESS,
    midpoint: float = defaults.MIDPOINT,
    trust: str | Trust = defaults.TRUST,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """(1 − ε) H(q, p) + ε H(p) with ε = g(t)·l(p)."""
    return loss(
        catalogue.proselflc(sharpness, midpoint, trust),
        logits,
        target,
        progress=progress,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def low_temperature_proselflc(
    logits: Tensor,
    target: Tensor,
    *,
    progress: float | Tensor,
    sharpness: float = defaults.LOW_TEMPERATURE_SHARPNESS,
    midpoint: float = defaults.MIDPOINT,
    temperature: float = defaults.LOW_TEMPERATURE,
    trust: str | Trust = defaults.LOW_TEMPERATURE_TRUST,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """H(q̃, p) with the constant q̃ = (1 − ε) q + ε softmax(z/T)."""
    return loss(
        catalogue.low_temperature_proselflc(sharpness, midpoint, temperature, trust),
        logits,
        target,
        progress=progress,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def generalized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    q: float = defaults.POWER,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """(1 − p_y^q)/q."""
    return loss(
        Generalized(q),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def symmetric_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = defaults.ALPHA,
    beta: float = defaults.BETA,
    A: float = defaults.LOG_ZERO,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """α H(q, p) + β H(p, q) with log 0 := A."""
    return loss(
        Symmetric(alpha, beta, A),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def forward_correction(
    logits: Tensor,
    target: Tensor,
    *,
    transition: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """−log (Tᵀp)_y; T has a row per clean class."""
    return loss(
        Forward(transition),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def backward_correction(
    logits: Tensor,
    target: Tensor,
    *,
    transition: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Σ_j (T⁻¹)_yj (−log p_j); T has a row per clean class."""
    return loss(
        Backward(transition),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )
