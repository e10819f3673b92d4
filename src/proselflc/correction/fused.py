"""The fast twin of the algebra where the reference is p: forward and gradient in closed form.

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

from proselflc.correction import boundary
from proselflc.correction.evidence import Evidence
from proselflc.correction.information import expected_surprise
from proselflc.correction.reference import Prediction
from proselflc.correction.target import Target
from proselflc.correction.trust import Confidence, Fixed, Growth, MaxProbability, Product, Trust

BLOCK = 2**19  # elements of one block of rows: 2 MiB of float32


def applies(target: Target, e: Evidence) -> bool:
    """Whether the twin can stand in: r is p, the logarithm is exact, no function is transformed."""
    return (
        type(target.reference) is Prediction
        and not e.log_offset
        and (not torch.compiler.is_compiling() or e.has_class_ids)
        and not torch._C._are_functorch_transforms_active()
    )


def loss(target: Target, e: Evidence, reduction: str) -> Tensor:
    """The reduced loss, or [N] losses for "none"; see `boundary.reduce` for what a mean is.

    The evidence is used up: what it has computed may be detached afterwards.
    """
    if torch.compiler.is_compiling():
        return boundary.reduce(_traced(target, e), e, reduction)
    result: Tensor = _EntropicCrossEntropy.apply(e.logits, e, target, reduction)  # type: ignore[no-untyped-call]
    return result


def _traced(target: Target, e: Evidence) -> Tensor:
    """[N] losses of class ids, for a compiler that fuses what is simple."""
    log_p = torch.log_softmax(e.logits.detach(), -1)
    p = log_p.exp()
    H = expected_surprise(p, log_p)
    eps = _trust(target.trust, e, p, H.unsqueeze(1)).squeeze(1)
    omega = e.omega
    a, b = (1 - eps) * omega, target.sign * eps * omega
    losses: Tensor = _Traced.apply(e.logits, log_p, e.y, H, a, b)  # type: ignore[no-untyped-call]
    return losses


class _Traced(torch.autograd.Function):
    """a H(q, p) + b H(p), all [N], from what is known of p; its gradient sums over no classes."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, log_p: Tensor, y: Tensor, H: Tensor, a: Tensor, b: Tensor
    ) -> Tensor:
        ctx.save_for_backward(log_p, y, H, a, b)
        return b * H - a * log_p.gather(1, y.unsqueeze(1)).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        log_p, y, H, a, b = ctx.saved_tensors
        a, b = (x.mul(grad_outputs[0]).unsqueeze(1) for x in (a, b))
        given = torch.arange(log_p.shape[1], device=y.device) == y.unsqueeze(1)
        surprise = log_p.clamp(min=torch.finfo(log_p.dtype).min) + H.unsqueeze(1)
        gradient = log_p.exp() * (a - b * surprise) - torch.where(given, a, 0.0)
        return gradient, None, None, None, None, None


class _EntropicCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, e: Evidence, target: Target, reduction: str) -> Tensor:
        # A logit of −∞ makes 0·log 0, which is NaN. On the CPU it is cheaper to look whether that
        # has happened than to guard against it; elsewhere looking would wait for the device.
        guarded = not logits.is_cpu
        losses, gradient = _in_blocks(e, target, guarded)
        mean = losses.mean()
        if not guarded and math.isnan(mean):
            losses, gradient = _in_blocks(e, target, guarded=True)
            mean = losses.mean()
        ctx.save_for_backward(gradient, logits)
        ctx.plainly = e, target, reduction
        if reduction == "mean" and (e.is_complete or not e.has_class_ids):
            ctx.scale = 1 / max(len(losses), 1)
            return mean
        ctx.scale = 1.0
        if reduction == "none":
            return losses.squeeze(1)
        if reduction == "sum":
            return losses.sum()
        weight = e.omega.sum()
        ctx.scale = weight.reciprocal()
        return losses.sum() / weight

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = grad_outputs
        gradient, logits = ctx.saved_tensors
        if torch.is_grad_enabled():
            # Somebody will differentiate the gradient too, so it is made by the formula, which can.
            e, target, reduction = ctx.plainly
            e = e.with_logits(logits)
            loss = boundary.reduce(target.losses(e), e, reduction)
            return *torch.autograd.grad(loss, logits, factor, create_graph=True), None, None, None
        if factor.dim():
            return gradient * factor.unsqueeze(1), None, None, None
        if factor.is_cpu:
            return gradient * (factor.item() * ctx.scale), None, None, None
        return gradient * (factor * ctx.scale), None, None, None


def _in_blocks(e: Evidence, target: Target, guarded: bool) -> tuple[Tensor, Tensor]:
    """[N, 1] losses and their [N, C] gradient, a block of rows at a time."""
    N, C = e.logits.shape
    if N * C <= BLOCK or not _looks_at_rows(target.trust):
        return _block(e, target, guarded)
    losses, gradient = e.logits.new_empty(N, 1), torch.empty_like(e.logits)
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
    """[N, 1] losses and their [N, C] gradient, for evidence that fits the cache.

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
    H = p_log_p.sum(-1, keepdim=True).neg_()
    b = _trust(target.trust, e, p, H)
    a = share = torch.rsub(b, 1)
    if target.sign < 0:
        b = -b
    if not e.is_complete:
        omega = e.omega.unsqueeze(1)
        a, b = a * omega, b * omega
    bH = b * H
    gradient = p.mul_(a - bH).addcmul_(p_log_p, b, value=-1)
    if e.has_class_ids:
        losses = bH.addcmul_(a, given, value=-1)
        gradient.scatter_add_(1, y, a.neg_())
        if not e.is_complete:
            losses.masked_fill_(~e.valid.unsqueeze(1), 0.0)  # 0 even where the logits are NaN
    else:
        losses = bH.addcmul_(share, given, value=-1)
        gradient.addcmul_(wq, share, value=-1)
    return losses, gradient


def _trust(trust: Trust, e: Evidence, p: Tensor, H: Tensor) -> Tensor:
    """[N, 1] ε, from p [N, C] and its entropy H [N, 1]."""
    if (
        type(trust) is Product
        and type(trust.first) is Growth
        and type(trust.second) is Confidence
        and type(e.progress) is float
        and not torch.compiler.is_compiling()
    ):
        # ProSelfLC's own g(t)·l(p) in two operations: g − g H/H(u), from 0 to g.
        g = trust.first.at(e.progress)
        return torch.rsub(H, g, alpha=g / max(math.log(e.num_classes), 1e-12)).clamp_(0, g)
    e.remember(p, H.squeeze(1))
    eps = trust(e)
    if isinstance(eps, Tensor) and eps.dim():
        eps = eps.unsqueeze(1)
    return torch.zeros_like(H).add_(eps)  # a copy: somebody's trust may be a view of p


def _looks_at_rows(trust: Trust) -> bool:
    """Whether an example's trust depends on nothing but that example, so that blocks will do."""
    if isinstance(trust, Product):
        return _looks_at_rows(trust.first) and _looks_at_rows(trust.second)
    return type(trust) in (Fixed, Growth, Confidence, MaxProbability)
