"""The fast twin of the algebra where the reference is p: forward and gradient in closed form.

    L      = (1 − ε) H(q, p) ± ε H(p)
    ∂L/∂z  = (1 − ε)(p − q) ∓ ε p∘(log p + H(p))

One softmax, no one-hot for class ids, one saved [N, C] buffer (the gradient), and temporaries that
stay in the cache because a large batch is worked through in blocks of rows. `Target.losses` is
the specification; a test proves the two equal.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from proselflc.correction.evidence import Evidence
from proselflc.correction.reference import Prediction
from proselflc.correction.target import Target

BLOCK = 2**19  # elements of one block of rows: 2 MiB of float32


def applies(target: Target, e: Evidence) -> bool:
    """Whether the twin can stand in: r is p, the logarithm is exact, and nothing is traced."""
    return (
        type(target.reference) is Prediction
        and not e.log_offset
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


def loss(target: Target, e: Evidence, reduction: str) -> Tensor:
    """The reduced loss, or [N] losses for "none"; see `boundary.reduce` for what a mean is.

    The evidence is used up: what it has computed may be detached afterwards.
    """
    result: Tensor = _EntropicCrossEntropy.apply(e.logits, e, target, reduction)  # type: ignore[no-untyped-call]
    return result


class _EntropicCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, e: Evidence, target: Target, reduction: str) -> Tensor:
        # A logit of −∞ makes 0·log 0, which is NaN. On the CPU it is cheaper to look whether that
        # has happened than to guard against it; elsewhere looking would wait for the device.
        guarded = logits.device.type != "cpu"
        losses, gradient = _losses_and_gradient(e, target, guarded)
        mean = losses.mean()
        if not guarded and math.isnan(mean):
            losses, gradient = _losses_and_gradient(e, target, guarded=True)
            mean = losses.mean()
        ctx.save_for_backward(gradient)
        ctx.scale = 1.0
        if reduction == "none":
            return losses
        if reduction == "sum":
            return losses.sum()
        if e.is_complete or not e.has_class_ids:
            ctx.scale = 1 / max(len(losses), 1)
            return mean
        weight = e.omega.sum()
        ctx.scale = weight.reciprocal()
        return losses.sum() / weight

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = grad_outputs
        (gradient,) = ctx.saved_tensors
        if factor.dim():
            factor = factor.unsqueeze(1)
        elif factor.is_cpu:
            factor = factor.item() * ctx.scale
        else:
            factor = factor * ctx.scale
        gradient = gradient * factor
        if torch.is_grad_enabled():
            gradient = _Once.apply(gradient.detach().requires_grad_())  # type: ignore[no-untyped-call]
        return gradient, None, None, None


def _losses_and_gradient(e: Evidence, target: Target, guarded: bool) -> tuple[Tensor, Tensor]:
    """[N] losses and their [N, C] gradient, a block of rows at a time."""
    N, C = e.logits.shape
    if N * C <= BLOCK:
        return _block(e, target, guarded)
    losses, gradient = e.logits.new_empty(N), torch.empty_like(e.logits)
    scratch = e.logits.new_empty(max(1, BLOCK // C), C)
    for start in range(0, N, len(scratch)):
        rows = slice(start, start + len(scratch))
        part = e.rows(rows)
        room = scratch[: len(part.logits)]
        losses[rows], _ = _block(part, target, guarded, room, gradient[rows])
    return losses, gradient


def _block(
    e: Evidence,
    target: Target,
    guarded: bool,
    scratch: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """[N] losses and their [N, C] gradient, for evidence that fits the cache.

    With ω the weight of an example, a = (1 − ε)ω and b = ±εω:

        loss     = (1 − ε) Σ_j w_j q_j (−log p_j) + b H
        gradient = p∘(a − b (log p + H)) − (1 − ε) w∘q

    Args:
        e: the evidence, whose p and entropy are set here.
        target: whose reference is p.
        guarded: make sure that 0·log 0 = 0.
        scratch: [N, C] to overwrite, or None.
        out: [N, C] for the gradient, or None.
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
    negentropy = p_log_p.sum(-1, keepdim=True)
    e.remember(p, negentropy.squeeze(1).neg())
    trust = target.trust(e)
    if isinstance(trust, Tensor) and trust.dim():
        b = trust.unsqueeze(1)
    else:
        b = torch.full_like(negentropy, 1.0).mul_(trust)
    a = share = torch.rsub(b, 1)
    if target.sign < 0:
        b = -b
    if not e.is_complete:
        omega = e.omega.unsqueeze(1)
        a, b = a * omega, b * omega
    coefficient = torch.addcmul(a, b, negentropy)
    gradient = p.mul_(coefficient).addcmul_(p_log_p, b, value=-1)
    if e.has_class_ids:
        losses = torch.addcmul(a * given, b, negentropy).neg_()
        gradient.scatter_add_(1, y, a.neg_())
        if not e.is_complete:
            losses.masked_fill_(~e.valid.unsqueeze(1), 0.0)  # 0 even where the logits are NaN
    else:
        losses = torch.addcmul(share * given, b, negentropy).neg_()
        gradient.addcmul_(wq, share, value=-1)
    return losses.squeeze(1), gradient


class _Once(torch.autograd.Function):
    """A gradient that says plainly that it has none of its own, instead of acting as a constant."""

    @staticmethod
    def forward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Tensor) -> Tensor:
        raise RuntimeError(
            "the closed-form gradient of this criterion cannot be differentiated a second time: "
            "build the criterion with fused=False, which can"
        )
