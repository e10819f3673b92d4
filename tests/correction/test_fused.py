"""The closed-form twin equals the algebra written plainly, and says what it cannot do."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from proselflc import BootSoft, Fixed, ProSelfLC, Target, functional
from proselflc.correction import fused
from proselflc.correction import target as catalogue
from proselflc.correction.evidence import Evidence
from proselflc.correction.target import Prediction
from proselflc.correction.trust import Trust


def plainly(
    z: Tensor, q: Tensor, eps: Tensor, sign: int, weight: Tensor | None, sums: Tensor | None
) -> Tensor:
    """H(q̃, p) with a dense q̃ [N, C], summed: the formula as it is printed, on autograd."""
    p, log_p = z.softmax(-1), z.log_softmax(-1)
    w = torch.ones(z.shape[-1], dtype=z.dtype) if weight is None else weight
    omega = (w * q).sum(-1, keepdim=True)
    q_tilde = (1 - eps[:, None]) * w * q + sign * eps[:, None] * omega * p
    losses = -(q_tilde * log_p).sum(-1)
    return losses.sum() / (len(z) if sums is None else sums)


METHODS = {
    "boot_soft": (catalogue.boot_soft(0.35), 1),
    "confidence_penalty": (catalogue.confidence_penalty(0.35), -1),
    "proselflc": (catalogue.proselflc(10.0), 1),
    "global": (catalogue.proselflc(10.0, trust="global"), 1),
    "local": (catalogue.proselflc(10.0, trust="local"), 1),
    "global*max_p": (catalogue.proselflc(10.0, trust="global*max_p"), 1),
}


def expected_trust(name: str, z: Tensor, progress: float) -> Tensor:
    p = z.detach().softmax(-1)
    g = 1 / (1 + torch.exp(torch.tensor(-10.0 * (progress - 0.5), dtype=z.dtype)))
    H = torch.special.entr(p).sum(-1)
    local = 1 - H / torch.log(torch.tensor(float(z.shape[-1]), dtype=z.dtype))
    by_name: dict[str, Tensor] = {
        "boot_soft": torch.full_like(H, 0.35),
        "confidence_penalty": torch.full_like(H, 0.35),
        "proselflc": g * local,
        "global": g.expand_as(H),
        "local": local,
        "global*max_p": g * p.max(-1).values,
    }
    return by_name[name]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("block", [2**19, 24], ids=["one block", "several blocks"])
def test_twin_equals_the_printed_formula(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "BLOCK", block)
    target, sign = METHODS[name]
    N, C = 11, 7
    g = torch.Generator().manual_seed(3)
    z = (2 * torch.randn(N, C, generator=g, dtype=torch.float64)).requires_grad_()
    soft = torch.randn(N, C, generator=g, dtype=torch.float64).softmax(-1)
    ids = torch.randint(C, (N,), generator=g)
    some = ids.clone()
    some[::4] = -100
    weight = torch.rand(C, generator=g, dtype=torch.float64)
    for labels, w, progress in product((ids, some, soft), (None, weight), (0.2, 0.9)):
        kept = torch.ones(N, dtype=torch.bool) if labels is soft else labels != -100
        q = soft if labels is soft else F.one_hot(labels.clamp(min=0), C).double()
        eps = expected_trust(name, z, progress)
        sums = None
        if labels is not soft:
            sums = kept.sum() if w is None else w[labels[kept]].sum()
        expected = plainly(z[kept], q[kept], eps[kept], sign, w, sums)
        ours = functional.loss(target, z, labels, progress=progress, weight=w)
        assert ours.grad_fn is not None
        assert "Entropic" in type(ours.grad_fn).__name__
        assert_close(ours, expected)
        (ours_gradient,) = torch.autograd.grad(3.0 * ours, z)
        (gradient,) = torch.autograd.grad(3.0 * expected, z)
        assert_close(ours_gradient, gradient)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_twin_equals_the_unfused_algebra(name: str, reduction: str, dtype: torch.dtype) -> None:
    target, _ = METHODS[name]
    g = torch.Generator().manual_seed(5)
    z = (3 * torch.randn(9, 6, generator=g, dtype=torch.float64)).to(dtype).requires_grad_()
    y = torch.randint(6, (9,), generator=g)
    y[2] = -100
    results = []
    for use in (True, False):
        loss = functional.loss(target, z, y, progress=0.7, reduction=reduction, fused=use)
        outer = torch.linspace(-1, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)
        results.append((loss.detach(), *torch.autograd.grad(loss, z, outer)))
    assert_close(results[0], results[1])


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 8),
    st.integers(2, 12),
    st.integers(0, 2**31),
    st.floats(0, 1),
    st.floats(0.1, 20),
    st.sampled_from([1, -1]),
)
def test_gradcheck(N: int, C: int, seed: int, eps: float, scale: float, sign: int) -> None:
    g = torch.Generator().manual_seed(seed)
    z = (scale * torch.randn(N, C, generator=g, dtype=torch.float64)).requires_grad_()
    y = torch.randint(C, (N,), generator=g)
    target = Target(Prediction(), Fixed(eps), sign=1 if sign > 0 else -1)
    assert torch.autograd.gradcheck(
        lambda z: functional.loss(target, z, y, reduction="none"), z, atol=1e-5
    )


def test_trust_is_a_constant_for_backprop() -> None:
    """With the trust differentiated too, finite differences would tell another gradient."""
    z = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 2, 3])
    (ours,) = torch.autograd.grad(functional.proselflc(z, y, progress=0.9), z)
    trust = functional.correct(catalogue.proselflc(), z, y, progress=0.9).trust
    assert not trust.requires_grad
    (constant,) = torch.autograd.grad(plainly(z, F.one_hot(y, 5).double(), trust, 1, None, None), z)
    assert_close(ours, constant)
    p, log_p = z.softmax(-1), z.log_softmax(-1)
    g = functional.correct(catalogue.proselflc(trust="global"), z, y, progress=0.9).trust[0]
    attached = g * (1 + (p * log_p).sum(-1) / torch.log(torch.tensor(5.0)))
    assert_close(attached.detach(), trust)
    (other,) = torch.autograd.grad(plainly(z, F.one_hot(y, 5).double(), attached, 1, None, None), z)
    assert not torch.allclose(ours, other, atol=1e-3)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_second_derivatives_are_those_of_the_formula(name: str, reduction: str) -> None:
    target, sign = METHODS[name]
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 2])
    eps = expected_trust(name, z, 0.7)
    outer = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)

    def penalty(loss: Tensor) -> Tensor:
        outer_of = outer[: loss.numel()].reshape(loss.shape)
        (gradient,) = torch.autograd.grad(loss, z, outer_of, create_graph=True)
        # by autograd.grad, which follows only what leads to z: a constant would pass unnoticed
        (second,) = torch.autograd.grad(gradient.square().sum(), z)
        return second

    losses = functional.loss(target, z, y, progress=0.7, reduction=reduction)
    p, log_p = z.softmax(-1), z.log_softmax(-1)
    q_tilde = (1 - eps[:, None]) * torch.eye(4)[y] + sign * eps[:, None] * p
    expected = -(q_tilde * log_p).sum(-1)
    expected = {"mean": expected.mean(), "sum": expected.sum(), "none": expected}[reduction]
    assert_close(penalty(losses), penalty(expected))


@pytest.mark.parametrize("fused", [True, False])
def test_gradgradcheck(fused: bool) -> None:
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, -100, 2])
    criterion = BootSoft(0.3, fused=fused)
    assert torch.autograd.gradgradcheck(lambda z: criterion(z, y), z)


def test_per_example_gradients_by_vmap() -> None:
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 2])
    each = torch.func.vmap(torch.func.grad(lambda z, y: functional.proselflc(z, y, progress=0.9)))(
        z.detach(), y
    )
    (whole,) = torch.autograd.grad(functional.proselflc(z, y, progress=0.9, reduction="sum"), z)
    assert_close(each, whole)


def test_function_transforms_work() -> None:
    z = torch.randn(3, 4, dtype=torch.float64)
    y = torch.tensor([0, 1, 2])
    by_transform = torch.func.grad(lambda z: functional.boot_soft(z, y, epsilon=0.3))(z)
    z.requires_grad_()
    (by_autograd,) = torch.autograd.grad(functional.boot_soft(z, y, epsilon=0.3), z)
    assert_close(by_transform, by_autograd)


def test_backward_twice_with_retained_graph_accumulates() -> None:
    z = torch.randn(3, 4, requires_grad=True)
    loss = ProSelfLC(10)(z, torch.tensor([0, 1, 2]), progress=0.9)
    gradients = []
    for _ in range(3):
        loss.backward(retain_graph=True)
        assert z.grad is not None
        gradients.append(z.grad.clone())
    assert_close(gradients[1], 2 * gradients[0])
    assert_close(gradients[2], 3 * gradients[0])


def test_saves_one_buffer() -> None:
    saved: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        saved.append(x)
        return x

    z = torch.randn(16, 10, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        ProSelfLC(10)(z, torch.randint(10, (16,)))
    others = [x for x in saved if x.data_ptr() != z.data_ptr()]  # beside the logits themselves
    assert [tuple(x.shape) for x in others] == [(16, 10)]


@dataclass(frozen=True)
class _Margin(Trust):
    """A user's own trust, which looks at log p too."""

    @property
    def symbol(self) -> str:
        return "m(p)"

    def __call__(self, e: Evidence) -> Tensor:
        top = e.log_p.topk(2, -1).values
        return 1 - (top[:, 1] - top[:, 0]).exp()


@dataclass(frozen=True)
class _View(Trust):
    """A user's own trust that hands out a part of p itself."""

    symbol = "v(p)"

    def __call__(self, e: Evidence) -> Tensor:
        return e.p[:, 0]


@dataclass(frozen=True)
class _Relative(Trust):
    """A user's own trust that looks at the whole batch, in another dtype."""

    symbol = "h(p)"

    def __call__(self, e: Evidence) -> Tensor:
        return (e.entropy / e.entropy.max()).double()


@dataclass(frozen=True)
class _Mask(Trust):
    """A user's own trust that is all or nothing."""

    symbol = "m(p)"

    def __call__(self, e: Evidence) -> Tensor:
        return e.entropy < 1


@pytest.mark.parametrize("trust", [_View(), _Relative(), _Mask(), Fixed(0.9) * _Relative()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_trust_is_taken_as_the_algebra_takes_it(
    trust: Trust, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "BLOCK", 10)
    z = torch.randn(6, 5, dtype=dtype, requires_grad=True)
    y = torch.randint(5, (6,))
    both = []
    for use in (True, False):
        loss = ProSelfLC(10, trust=trust, fused=use)(z, y)
        both.append((loss.detach(), *torch.autograd.grad(loss, z)))
    assert_close(both[0], both[1])


def test_a_trust_of_ones_own() -> None:
    z = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randint(5, (6,))
    both = [
        ProSelfLC(10, trust=Fixed(0.9) * _Margin(), fused=use, reduction="none")(z, y)
        for use in (True, False)
    ]
    assert_close(both[0], both[1])
    p = z.detach().softmax(-1).sort(-1, descending=True).values
    trust = ProSelfLC(10, trust=Fixed(0.9) * _Margin()).correct(z, y).trust
    assert_close(trust, 0.9 * (1 - p[:, 1] / p[:, 0]))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("block", [2**19, 24], ids=["one block", "several blocks"])
def test_without_gradients_the_loss_is_the_same_to_the_bit(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "BLOCK", block)
    g = torch.Generator().manual_seed(2)
    z = (3 * torch.randn(11, 7, generator=g)).requires_grad_()
    masked = z.detach().clone()
    masked[:, -1] = -torch.inf
    ids = torch.randint(6, (11,), generator=g)
    some = ids.where(ids != 3, -100)
    soft = torch.randn(11, 7, generator=g).softmax(-1)
    for logits, y, weight, reduction in product(
        (z, masked.requires_grad_()),
        (ids, some, soft),
        (None, torch.rand(7, generator=g)),
        ("mean", "sum", "none"),
    ):
        if logits is not z and y is soft:
            continue  # a class that p rules out costs ∞

        def loss(
            logits: Tensor, y: Tensor = y, w: Tensor | None = weight, r: str = reduction
        ) -> Tensor:
            return functional.loss(METHODS[name][0], logits, y, progress=0.7, weight=w, reduction=r)

        with_gradient = loss(logits)
        assert with_gradient.requires_grad
        with torch.no_grad():
            quietly = loss(logits)
        with torch.inference_mode():
            inferred = loss(logits)
        detached = loss(logits.detach())
        for value in (quietly, inferred, detached):
            assert not value.requires_grad
            assert torch.equal(value, with_gradient)


class _Results(TorchDispatchMode):
    """Counts the operations whose result has a given shape."""

    def __init__(self, *shape: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += isinstance(result, Tensor) and result.shape == self.shape
        return result


def test_without_gradients_no_gradient_is_made() -> None:
    z, y = torch.randn(16, 6), torch.randint(6, (16,))
    with _Results(16, 6) as quietly:
        ProSelfLC(10)(z, y)
    assert quietly.count == 3  # log p, p and p log p
    z.requires_grad_()
    with _Results(16, 6) as learning:
        ProSelfLC(10)(z, y)
    assert learning.count > 3


def test_without_gradients_a_large_batch_needs_a_block_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "BLOCK", 24)
    z, y = torch.randn(16, 6), torch.randint(6, (16,))
    with _Results(16, 6) as whole, _Results(4, 6) as blocks:
        ProSelfLC(10)(z, y)
    assert whole.count == 0
    assert blocks.count > 0


def tangent(f: Callable[[Tensor], Tensor], z: Tensor, direction: Tensor) -> Tensor:
    """The derivative of f at z in a direction, by forward-mode differentiation."""
    ad: Any = forward_ad
    with ad.dual_level():
        return ad.unpack_dual(f(ad.make_dual(z, direction))).tangent  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_forward_mode_goes_by_the_formula(name: str, reduction: str) -> None:
    g = torch.Generator().manual_seed(4)
    z = torch.randn(5, 4, generator=g, dtype=torch.float64)
    direction = torch.randn(5, 4, generator=g, dtype=torch.float64)
    y = torch.randint(4, (5,), generator=g)
    target = METHODS[name][0]

    def loss(z: Tensor) -> Tensor:
        return functional.loss(target, z, y, progress=0.7, reduction=reduction)

    ours = tangent(loss, z, direction)
    assert_close(torch.func.jvp(loss, (z,), (direction,))[1], ours)
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(z).sum(), z)
    each = (gradient * direction).sum(-1)
    assert_close(ours, each if reduction == "none" else each.sum())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_through_a_criterion_advances_its_clock() -> None:
    criterion = ProSelfLC(10)
    z, y = torch.randn(3, 4), torch.tensor([0, 1, 2])
    ours = tangent(lambda z: criterion(z, y), z, torch.ones(3, 4))
    # p is invariant to a constant added to all logits
    assert_close(ours, torch.tensor(0.0), atol=1e-6, rtol=0)
    assert criterion.t == 1


@pytest.mark.parametrize("name", METHODS)
def test_probabilities_may_be_differentiated_too(name: str) -> None:
    """As in `F.cross_entropy`; the algebra can, so it stands in for the twin."""
    z = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    q = torch.randn(5, 4, dtype=torch.float64).softmax(-1).requires_grad_()
    eps = expected_trust(name, z, 0.7)
    loss = functional.loss(METHODS[name][0], z, q, progress=0.7)
    ours = torch.autograd.grad(loss, (z, q))
    expected = plainly(z, q, eps, METHODS[name][1], None, None)
    assert_close(ours, torch.autograd.grad(expected, (z, q)))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 3.0, 4.0])])
def test_gradients_of_a_kept_graph_are_each_ones_own(reduction: str, weight: Tensor | None) -> None:
    z, y = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 1, 2])
    loss = BootSoft(0.3, reduction=reduction, weight=weight)(z, y)
    for factor in (torch.ones_like(loss), torch.full_like(loss, 2.0)):
        first, second = (
            torch.autograd.grad(loss, z, factor, retain_graph=True)[0] for _ in range(2)
        )
        again = second.clone()
        assert_close(first, second)
        first.zero_()
        assert_close(second, again)
    (last,) = torch.autograd.grad(loss, z, torch.ones_like(loss))
    assert_close(2 * last, again)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_many_factors_at_once(reduction: str) -> None:
    z, y = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 1, -100])
    criterion = BootSoft(0.3, reduction=reduction)
    loss = criterion(z, y)
    factors = torch.randn(5, *loss.shape)
    (together,) = torch.autograd.grad(loss, z, factors, is_grads_batched=True)
    each = [torch.autograd.grad(criterion(z, y), z, factor)[0] for factor in factors]
    assert_close(together, torch.stack(each))


def test_a_gradient_that_is_handed_over_leaves_others_alone() -> None:
    """Where it is added to others, in a graph that is not kept."""
    y = torch.tensor([0, 1, 2])
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 4, dtype=torch.float64)
    both = {}
    for use in (True, False):
        logits = z @ w
        losses = [
            functional.loss(catalogue.proselflc(), logits, y, progress=at, fused=use)
            for at in (0.9, 0.4)
        ]
        total = losses[0] + 3 * losses[1] + logits.square().sum()
        both[use] = torch.autograd.grad(total, (logits, z))
    assert_close(both[True], both[False])


@pytest.mark.parametrize("kept", [True, False])
def test_a_leaf_adds_up_its_gradients(kept: bool) -> None:
    z, y = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 1, 2])
    criterion = BootSoft(0.3)
    (once,) = torch.autograd.grad(criterion(z, y), z)
    torch.autograd.backward(criterion(z, y), retain_graph=kept)
    torch.autograd.backward(criterion(z, y), retain_graph=kept)
    assert_close(z.grad, 2 * once)
