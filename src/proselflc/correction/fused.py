"""The loss of a batch, and its fast twin where the reference is p: a gradient in closed form.

    L      = (1 − ε) H(q, p) ± ε H(p)
    ∂L/∂z  = (1 − ε)(p − q) ∓ ε p∘(log p + H(p))

One softmax, no one-hot for class ids, one saved [N, C] buffer beside the logits (the gradient), and
temporaries that stay in the cache because a large batch is worked through in blocks of rows.
`Target.losses` is the specification, and what a second derivative is taken of; a test proves the
two equal.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from proselflc.correction import boundary
from proselflc.correction.evidence import Evidence
from proselflc.correction.target import Objective, Prediction, Target
from proselflc.correction.torch_internals import (
    in_forward_mode,
    in_transform,
    is_batched,
    keeps_graph,
    materialize,
)
from proselflc.correction.trust import Confidence, Fixed, Growth, MaxProbability, Product, Trust

BLOCK = 2**19  # elements of one block of rows: 2 MiB of float32


def reduced_loss(method: Objective, e: Evidence, reduction: str, allow_fused: bool) -> Tensor:
    """Return the loss, from the fast twin where there is one and it is allowed; [N] for "none"."""
    try:
        return _reduced_loss(method, e, reduction, allow_fused)
    except (IndexError, RuntimeError):
        if not e.is_presumed:
            raise
    # Not all class ids are 0 … C−1, as was presumed: some are ignored, or an error says which.
    return _reduced_loss(method, boundary.read(e), reduction, allow_fused)


def _reduced_loss(method: Objective, e: Evidence, reduction: str, allow_fused: bool) -> Tensor:
    if isinstance(method, Target):
        if method.is_neutral and not e.log_offset:
            # Cross entropy is not worth writing again.
            return F.cross_entropy(
                e.logits,
                e.target,
                weight=e.weight,
                ignore_index=e.ignore_index,
                reduction=reduction,
            )
        if allow_fused and applies(method, e):
            return loss(method, e, reduction)
    e = boundary.read(e)
    return boundary.reduce(method.losses(e), e, reduction)


def applies(target: Target, e: Evidence) -> bool:
    """Return whether the twin can be used for a loss.

    It can if r is p, the logarithm is exact, and the loss can be differentiated only backwards and
    only with respect to the logits.
    """
    return (
        type(target.reference) is Prediction
        and not e.log_offset
        and not e.target.requires_grad
        and (e.has_class_ids if torch.compiler.is_compiling() else not in_forward_mode())
        and not in_transform()
    )


def loss(target: Target, e: Evidence, reduction: str) -> Tensor:
    """Return the reduced loss, or [N] losses for "none"; `boundary.reduce` defines the mean.

    The evidence is used up: what it has computed may be detached afterwards.
    """
    if torch.compiler.is_compiling():
        return boundary.reduce(_traced(target, e), e, reduction)
    if not (e.logits.requires_grad and torch.is_grad_enabled()):
        return _value(target, e, reduction)
    result: Tensor = _EntropicCrossEntropy.apply(e.logits, e, target, reduction)  # type: ignore[no-untyped-call]
    return result


def _traced(target: Target, e: Evidence) -> Tensor:
    """Return [N] losses of class ids, in operations that a compiler fuses.

    With the largest logit subtracted from z, so that exp z does not overflow, and S = Σ_j exp z_j,
    the entropy is H(p) = log S − Σ_j z_j exp(z_j)/S: both sums in one pass over the classes. The
    gradient is made in the same forward, where exp z is at hand, and kept for the backward.
    """
    z = e.logits.detach()
    z = z - z.amax(-1, keepdim=True)
    weights = z.exp()
    S = weights.sum(-1, keepdim=True)
    log_S = S.log()
    is_0 = weights == 0  # where 0·log 0 = 0
    H = log_S - torch.where(is_0, 0.0, z * weights).sum(-1, keepdim=True) / S
    eps = _trust(target.trust, e, weights / S, -H, 1.0)
    omega = e.omega.unsqueeze(1)
    a, b = (1 - eps) * omega, target.sign * eps * omega
    y = e.y.unsqueeze(1)
    losses = b * H - a * (z.gather(1, y) - log_S)
    # p∘(a − b (log p + H)) with what belongs to a row taken out, and a less at the given class
    classes = torch.arange(e.num_classes, dtype=torch.int32, device=y.device)
    gradient = torch.where(is_0, 0.0, weights * ((a - b * (H - log_S)) / S - b / S * z))
    gradient = gradient - torch.where(classes == y.to(torch.int32), a, 0.0)
    result: Tensor = _Traced.apply(e.logits, losses, materialize(gradient))  # type: ignore[no-untyped-call]
    return result.squeeze(1)


class _Traced(torch.autograd.Function):
    """[N, 1] losses as a function of the logits, by the [N, C] gradient of each."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, losses: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return losses.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0], None, None


@torch.no_grad()
def _value(target: Target, e: Evidence, reduction: str) -> Tensor:
    """Return the reduced loss without making its gradient."""
    return _forward(target, e, reduction, wanted=False)[0]


class _EntropicCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, e: Evidence, target: Target, reduction: str) -> Tensor:
        result, gradient, ctx.scale = _forward(target, e, reduction, wanted=True)
        ctx.save_for_backward(gradient, logits)
        ctx.plainly = e, target, reduction
        return result

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = grad_outputs
        gradient, logits = ctx.saved_tensors
        if torch.is_grad_enabled():
            # The gradient will be differentiated too, so it is made by the formula.
            e, target, reduction = ctx.plainly
            e = e.with_logits(logits)
            loss = boundary.reduce(target.losses(e), e, reduction)
            return *torch.autograd.grad(loss, logits, factor, create_graph=True), None, None, None
        if is_batched(factor):
            return gradient * (factor * ctx.scale).reshape(-1, 1), None, None, None
        # Where the graph is not kept, there is no second backward: the buffer becomes the result.
        kept = keeps_graph()
        times = gradient.mul if kept else gradient.mul_
        if factor.dim():
            return times(factor.unsqueeze(1)), None, None, None
        if not factor.is_cpu:
            return times(factor * ctx.scale), None, None, None
        scale = factor.item() * ctx.scale
        return gradient if scale == 1 and not kept else times(scale), None, None, None


def _forward(
    target: Target, e: Evidence, reduction: str, *, wanted: bool
) -> tuple[Tensor, Tensor | None, Tensor | float]:
    """Return the reduced loss, its [N, C] gradient if wanted, and what scales that gradient."""
    N = len(e.logits)
    # A mean in which all count alike is a sum of N-ths, and nothing is left to scale.
    is_sum = reduction == "sum" or (
        reduction == "mean" and N > 0 and (e.is_complete or not e.has_class_ids)
    )
    share = 1 / N if is_sum and reduction == "mean" else 1.0
    # A logit of −∞ makes 0·log 0, which is NaN. On the CPU it is cheaper to look whether that has
    # happened than to guard against it; elsewhere looking would wait for the device.
    guarded = not e.logits.is_cpu
    losses, gradient = _in_blocks(e, target, share, guarded, wanted)
    total = losses.sum()
    if not guarded and math.isnan(total):
        losses, gradient = _in_blocks(e, target, share, True, wanted)
        total = losses.sum()
    if is_sum:
        return total, gradient, 1.0
    if reduction == "none":
        return losses.squeeze(1), gradient, 1.0
    weight = e.omega.sum()
    return total / weight, gradient, weight.reciprocal()


def _in_blocks(
    e: Evidence, target: Target, share: float, guarded: bool, wanted: bool
) -> tuple[Tensor, Tensor | None]:
    """Return [N, 1] losses and their [N, C] gradient if wanted, a block of rows at a time."""
    N, C = e.logits.shape
    if N * C <= BLOCK or not _looks_at_rows(target.trust):
        return _block(e, target, share, guarded, wanted)
    losses, gradient = e.logits.new_empty(N, 1), torch.empty_like(e.logits) if wanted else None
    height = max(1, BLOCK // C)
    room = e.logits.new_empty(1 if wanted else 2, height, C)
    for start in range(0, N, height):
        rows = slice(start, start + height)
        part = e.with_logits(e.logits[rows])
        part.target = e.target[rows]
        fitting = room[:, : len(part.logits)]
        out = fitting[1] if gradient is None else gradient[rows]
        losses[rows], _ = _block(part, target, share, guarded, wanted, fitting[0], out)
    return losses, gradient


def _block(
    e: Evidence,
    target: Target,
    share: float,
    guarded: bool,
    wanted: bool,
    scratch: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return [N, 1] losses and their [N, C] gradient if wanted, for evidence that fits the cache.

    With ω the weight of an example and s its share in the result, a = s(1 − ε)ω and b = ±sεω:

        loss     = s(1 − ε) Σ_j w_j q_j (−log p_j) + b H
        gradient = p∘(a − b (log p + H)) − s(1 − ε) w∘q

    Computed with −H, −a and −s(1 − ε), each of which is an operation less away. If guarded,
    0·log 0 = 0 is ensured. `scratch` [N, C] is overwritten, and so is `out`, by the gradient.
    """
    log_p = torch.log_softmax(e.logits, -1, out=scratch)
    if e.has_class_ids:
        y = e.y.unsqueeze(1)
        given = log_p.gather(1, y)  # [N, 1] E_q log p
    else:
        wq = e.weighted_q
        given = (wq * log_p).sum(-1, keepdim=True)
    if guarded:
        log_p.clamp_min_(torch.finfo(log_p.dtype).min)
    p = torch.exp(log_p, out=out)
    p_log_p = log_p.mul_(p)
    minus_H = p_log_p.sum(-1, keepdim=True)
    b = _trust(target.trust, e, p, minus_H, share)
    minus_a = minus_rest = b - share
    if target.sign < 0:
        b = -b
    if not e.is_complete:
        omega = e.omega.unsqueeze(1)
        minus_a, b = minus_a * omega, b * omega
    minus_bH = b * minus_H
    gradient = p.mul_(minus_bH - minus_a).addcmul_(p_log_p, b, value=-1) if wanted else None
    if e.has_class_ids:
        losses = (minus_a * given).sub_(minus_bH)
        if not e.is_complete:
            losses.masked_fill_(~e.valid.unsqueeze(1), 0.0)  # 0 even where the logits are NaN
        if gradient is not None:
            gradient.scatter_add_(1, y, minus_a)
    else:
        losses = (minus_rest * given).sub_(minus_bH)
        if gradient is not None:
            gradient.addcmul_(wq, minus_rest)
    return losses, gradient


def _trust(trust: Trust, e: Evidence, p: Tensor, minus_H: Tensor, share: float) -> Tensor:
    """Return [N, 1] sε with the share s, from p [N, C] and −H(p) [N, 1]."""
    if (
        type(trust) is Product
        and type(trust.first) is Growth
        and type(trust.second) is Confidence
        and type(e.progress) is float
        and not torch.compiler.is_compiling()
    ):
        # ProSelfLC's own g(t)·l(p): g − g H/H(u), which rounding could make negative.
        g = share * trust.first.at(e.progress)
        slope = g / max(math.log(e.num_classes), 1e-12)
        return minus_H.mul(slope).add_(g).clamp_min_(0)
    e.remember(p, minus_H.squeeze(1).neg())
    eps = trust(e)
    if not isinstance(eps, Tensor):
        return torch.full_like(minus_H, share * eps)
    if eps.dim():
        eps = eps.unsqueeze(1)
    return torch.zeros_like(minus_H).add_(eps).mul_(share)  # a copy: a trust may be a view of p


def _looks_at_rows(trust: Trust) -> bool:
    """Return whether an example's trust depends on that example alone, so that blocks will do."""
    if isinstance(trust, Product):
        return _looks_at_rows(trust.first) and _looks_at_rows(trust.second)
    return type(trust) in (Fixed, Growth, Confidence, MaxProbability)
