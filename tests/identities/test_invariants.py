"""Limits, bounds and invariances that every method keeps."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import ProSelfLC, functional
from proselflc.correction import target as catalogue
from proselflc.correction.robust import Backward, Forward, Generalized, Symmetric
from proselflc.correction.trust import Growth

Batches = SearchStrategy[tuple[Tensor, Tensor]]
AnnotatedBatches = SearchStrategy[tuple[Tensor, Tensor, Tensor]]
Gradient = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
Entropy = Callable[[Tensor], Tensor]
Loss = Callable[..., Tensor]
few = settings(deadline=None, max_examples=25, derandomize=True)


def every_method(z_t: Tensor, T: Tensor) -> dict[str, Loss]:
    """Every method as a loss of logits and target, for teacher logits z_t and a transition T."""
    plain = partial(functional.loss, progress=0.8, fused=False)
    return {
        "cross entropy": functional.cross_entropy,
        "label smoothing": partial(functional.label_smoothing, epsilon=0.3),
        "confidence penalty": partial(functional.confidence_penalty, epsilon=0.3),
        "confidence penalty, plain": partial(plain, catalogue.confidence_penalty(0.3)),
        "boot soft": partial(functional.boot_soft, epsilon=0.3),
        "boot soft, plain": partial(plain, catalogue.boot_soft(0.3)),
        "boot hard": partial(functional.boot_hard, epsilon=0.3),
        "distillation": partial(
            functional.distillation, teacher_logits=z_t, epsilon=0.3, temperature=2.0
        ),
        "proselflc": partial(functional.proselflc, progress=0.8),
        "proselflc, plain": partial(plain, catalogue.proselflc()),
        "proselflc, as published": partial(plain, catalogue.proselflc(), log_offset=1e-6),
        "low temperature": partial(functional.low_temperature_proselflc, progress=0.8),
        "generalised": functional.generalized_cross_entropy,
        "symmetric": functional.symmetric_cross_entropy,
        "forward": partial(functional.forward_correction, transition=T),
        "backward": partial(functional.backward_correction, transition=T),
    }


every_name = pytest.mark.parametrize("name", list(every_method(torch.zeros(1, 2), torch.eye(2))))


def some_teacher(z: Tensor) -> Tensor:
    return z.roll(1, -1) - z.flip(-1)


def some_transition(C: int) -> Tensor:
    """[C, C] rows that sum to 1, mostly on the diagonal, no symmetry."""
    generator = torch.Generator().manual_seed(C)
    noise = torch.randn(C, C, generator=generator, dtype=torch.float64).softmax(-1)
    return 0.7 * torch.eye(C, dtype=torch.float64) + 0.3 * noise


without_trust: dict[str, Loss] = {
    "cross entropy": functional.cross_entropy,
    "label smoothing": partial(functional.label_smoothing, epsilon=0),
    "confidence penalty": partial(functional.confidence_penalty, epsilon=0),
    "boot soft": partial(functional.boot_soft, epsilon=0),
    "boot soft, plain": partial(functional.loss, catalogue.boot_soft(0), fused=False),
    "boot hard": partial(functional.boot_hard, epsilon=0),
    "proselflc": partial(functional.proselflc, progress=0, sharpness=1e4),
    "low temperature": partial(functional.low_temperature_proselflc, progress=0, sharpness=1e4),
}


@pytest.mark.parametrize("name", [*without_trust, "distillation"])
@few
@given(
    data=st.data(),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    weighted=st.booleans(),
    ignoring=st.booleans(),
    dense=st.booleans(),
)
def test_without_trust_all_are_cross_entropy(
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    name: str,
    data: DataObject,
    reduction: str,
    weighted: bool,
    ignoring: bool,
    dense: bool,
) -> None:
    """ε = 0: value and gradient of `F.cross_entropy`, for every option and shape it takes."""
    z, target, _ = data.draw(annotated_batches)
    if dense:
        z, target = (
            torch.stack([x, x.roll(1, 0)], -1)[..., None].expand(*x.shape, 2, 3)
            for x in (z, target)
        )
    loss = without_trust.get(
        name, partial(functional.distillation, teacher_logits=some_teacher(z), epsilon=0)
    )
    weight = torch.linspace(0.5, 2, z.shape[1], dtype=z.dtype) if weighted else None
    ignore_index = int(target.max()) if ignoring and not target.is_floating_point() else -100
    options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}

    expected = F.cross_entropy(z, target, **options)  # type: ignore[arg-type]
    assert_close(loss(z, target, **options), expected, equal_nan=True)
    if not expected.isnan().any():
        assert_close(
            gradient(lambda z: loss(z, target, **options), z),
            gradient(lambda z: F.cross_entropy(z, target, **options), z),  # type: ignore[arg-type]
        )


@few
@given(data=st.data())
def test_full_trust_leaves_only_the_reference(
    annotated_batches: AnnotatedBatches, entropy: Entropy, data: DataObject
) -> None:
    """ε = 1: H(p) for LC, −H(p) for CP, H(u, p) for LS, −log max p for Boot-hard, KL for KD."""
    z, target, _ = data.draw(annotated_batches)
    log_p, z_t = z.log_softmax(-1), some_teacher(z)
    divergence = F.kl_div(log_p, z_t.softmax(-1), reduction="none").sum(-1)
    plain = partial(functional.loss, fused=False)
    for loss, expected in (
        (partial(functional.boot_soft, epsilon=1), entropy(z)),
        (partial(plain, catalogue.boot_soft(1)), entropy(z)),
        (partial(functional.confidence_penalty, epsilon=1), -entropy(z)),
        (partial(plain, catalogue.confidence_penalty(1)), -entropy(z)),
        (partial(functional.label_smoothing, epsilon=1), -log_p.mean(-1)),
        (partial(functional.boot_hard, epsilon=1), -log_p.amax(-1)),
        (partial(functional.distillation, epsilon=1, teacher_logits=z_t), divergence),
    ):
        assert_close(loss(z, target, reduction="none"), expected)


def global_trust(progress: float, sharpness: float, midpoint: float = 0.5) -> Tensor:
    """g(t) as ProSelfLC uses it, from a float and from a tensor, and by itself [3]."""
    z, y = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0])
    criterion = ProSelfLC(1, sharpness=sharpness, midpoint=midpoint, trust="global")
    moment = torch.tensor(progress, dtype=torch.float64)
    return torch.stack(
        [
            criterion.correct(z, y, progress=progress).trust[0],
            criterion.correct(z, y, progress=moment).trust[0],
            torch.tensor(Growth(sharpness, midpoint).at(progress), dtype=torch.float64),
        ]
    )


@pytest.mark.parametrize(
    ("sharpness", "values"),
    [(8, [0.018, 0.119, 0.5, 0.881, 0.982]), (16, [0.0003, 0.018, 0.5, 0.982, 0.9997])],
)
def test_global_trust_at_the_quarters_of_training(sharpness: float, values: list[float]) -> None:
    """g at t/Γ = 0, ¼, ½, ¾, 1, to the digits that are known."""
    for progress, value in zip((0, 0.25, 0.5, 0.75, 1), values, strict=True):
        digits = 4 if value in (0.0003, 0.9997) else 3
        found = global_trust(progress, sharpness)
        assert [round(g, digits) for g in found.tolist()] == [value] * 3


@few
@given(progress=st.floats(0, 1), midpoint=st.floats(0, 1))
def test_global_trust_without_sharpness_is_one_half(progress: float, midpoint: float) -> None:
    found = global_trust(progress, 0, midpoint)
    assert_close(found, torch.full_like(found, 0.5))


@few
@given(progress=st.floats(0, 1), midpoint=st.floats(0, 1))
def test_global_trust_of_great_sharpness_is_a_step(progress: float, midpoint: float) -> None:
    """0 before the midpoint, ½ at it, 1 after it; nothing overflows."""
    found = global_trust(progress, 1e300, midpoint)
    expected = 0.5 if progress == midpoint else float(progress > midpoint)
    assert_close(found, torch.full_like(found, expected))


@few
@given(sharpness=st.floats(0.1, 20), times=st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_global_trust_grows_with_time(sharpness: float, times: list[float]) -> None:
    """And is symmetric: g(½ − x) = 1 − g(½ + x)."""
    trust = torch.stack([global_trust(t, sharpness) for t in sorted(times)])
    mirrored = torch.stack([global_trust(1 - t, sharpness) for t in sorted(times)])

    assert (trust.diff(dim=0) >= -1e-15).all()
    assert_close(trust, 1 - mirrored)
    assert (global_trust(0.6, sharpness) > global_trust(0.4, sharpness)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("C", [2, 3, 7, 10, 100, 1000, 21843])
def test_local_trust_of_the_extremes(C: int, dtype: torch.dtype) -> None:
    """l(u) = 0 and l(one-hot) = 1, and rounding does not carry it out of [0, 1]."""
    certain = torch.zeros(1, C, dtype=dtype)
    certain[0, -1] = 1e4
    z = torch.cat([torch.zeros(1, C, dtype=dtype), certain])
    method = catalogue.proselflc(trust="local")
    trust = functional.correct(method, z, torch.tensor([0, 0])).trust

    assert_close(trust, torch.tensor([0.0, 1.0], dtype=dtype), rtol=0, atol=1e-5)
    assert 0 <= trust.min() <= trust.max() <= 1


def test_local_trust_stays_below_1_with_the_published_logarithm() -> None:
    """log(p + δ) makes the entropy of a certain prediction negative, −log(1 + δ); l remains 1."""
    z, y = torch.tensor([[1e4, 0.0, 0.0]], dtype=torch.float64), torch.tensor([1])
    method = catalogue.proselflc(trust="local")
    trust = functional.correct(method, z, y, log_offset=1e-6).trust
    assert_close(trust, torch.ones_like(trust), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@few
@given(
    data=st.data(),
    scale=st.sampled_from([0.0, 1e-8, 1e-4, 1.0, 1e4]),
    progress=st.floats(0, 1),
    B=st.floats(0, 20),
)
def test_trust_lies_between_0_and_global_trust(
    batches: Batches,
    dtype: torch.dtype,
    data: DataObject,
    scale: float,
    progress: float,
    B: float,
) -> None:
    """0 ≤ ε ≤ g(t), from uniform to certain predictions."""
    z, y = data.draw(batches)
    z = (scale * z).to(dtype)
    g = torch.tensor(1 / (1 + math.exp(-B * (progress - 0.5))), dtype=dtype)
    trust = ProSelfLC(1, sharpness=B).correct(z, y, progress=progress).trust

    assert (trust >= 0).all()
    assert (trust <= g * (1 + 1e-6)).all()


@few
@given(data=st.data())
def test_local_trust_rises_as_entropy_falls(
    batches: Batches, entropy: Entropy, data: DataObject
) -> None:
    """Of two predictions the one with less entropy is trusted more."""
    z, y = data.draw(batches)
    z, y = torch.cat([z, 2 * z, z.flip(1) / 2]), y.repeat(3)
    trust = functional.correct(catalogue.proselflc(trust="local"), z, y).trust
    order = entropy(z).argsort()

    assert (trust[order].diff() <= 1e-12).all()
    assert (trust[len(trust) // 3 :][: len(trust) // 3] > trust[: len(trust) // 3]).all()


EXTREMES = [
    [1e4, -1e4, -1e4],
    [-1e4, 1e4, -1e4],
    [-1e4, -1e4, 1e4],
    [1e4, 1e4, 1e4],
    [-1e4, -1e4, -1e4],
    [1e4, 1e4, -1e4],
    [0.0, 1e4, -1e4],
]


@every_name
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_extreme_logits_give_finite_losses_and_gradients(
    gradient: Gradient, name: str, soft: bool, dtype: torch.dtype
) -> None:
    """Logits of ±1e4 in any precision, the annotated class among the least and most likely."""
    z = torch.tensor(EXTREMES, dtype=dtype)
    q = torch.tensor([[0.5, 0.25, 0.25]] * len(z), dtype=dtype)
    target = q if soft else torch.zeros(len(z), dtype=torch.int64)
    for T in (some_transition(3), torch.eye(3)):
        loss = every_method(z.flip(0), T)[name]
        found = gradient(lambda z, loss=loss: loss(z, target), z)  # type: ignore[misc]
        losses = loss(z, target, reduction="none")

        assert losses.isfinite().all()
        assert losses.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert found.isfinite().all()
        assert found.dtype == dtype
        assert (found != 0).any()


@every_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
def test_class_ids_are_their_one_hot(
    gradient: Gradient, name: str, dtype: torch.dtype, scale: float
) -> None:
    """A class id and the distribution that is sure of it give the same loss and gradient."""
    z = scale * torch.tensor(EXTREMES, dtype=dtype)
    y = torch.arange(len(z)) % 3
    loss = partial(every_method(z.flip(0), some_transition(3))[name], reduction="none")
    by_id, by_distribution = (
        partial(loss, target=target) for target in (y, F.one_hot(y, 3).to(dtype))
    )

    assert_close(by_id(z), by_distribution(z))
    assert_close(gradient(by_id, z), gradient(by_distribution, z))


@every_name
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@few
@given(data=st.data())
def test_half_precision_is_computed_in_single(
    batches: Batches, name: str, dtype: torch.dtype, data: DataObject
) -> None:
    """The loss of half-precision logits is that of the same numbers in float32."""
    z, y = data.draw(batches)
    half = z.to(dtype)
    loss = every_method(some_teacher(z), some_transition(z.shape[1]))[name]
    assert_close(loss(half, y), loss(half.float(), y), rtol=0, atol=0)


@pytest.mark.parametrize("A", [-4.0, math.log(1e-4)])
@few
@given(data=st.data())
def test_reverse_cross_entropy(
    annotated_batches: AnnotatedBatches, A: float, data: DataObject
) -> None:
    """−Σ_j p_j log q_j with q clipped at exp(A), which is −A (1 − p_y) for a one-hot q."""
    z, target, q = data.draw(annotated_batches)
    p = z.softmax(-1)
    found = functional.symmetric_cross_entropy(z, target, alpha=0, beta=1, A=A, reduction="none")

    assert_close(found, -(p * q.clamp(min=math.exp(A)).log()).sum(-1))
    if q.amax() == 1:
        assert_close(found, -A * (1 - (p * q).sum(-1)))


@few
@given(data=st.data(), alpha=st.floats(0, 6), beta=st.floats(0, 2))
def test_symmetric_cross_entropy_is_a_sum(
    annotated_batches: AnnotatedBatches, data: DataObject, alpha: float, beta: float
) -> None:
    """α H(q, p) + β RCE, with A = −4 unless told otherwise."""
    z, target, q = data.draw(annotated_batches)
    reverse = -(z.softmax(-1) * q.clamp(min=math.exp(-4)).log()).sum(-1)
    assert_close(
        functional.symmetric_cross_entropy(z, target, alpha=alpha, beta=beta, reduction="none"),
        alpha * F.cross_entropy(z, q, reduction="none") + beta * reverse,
    )


@few
@given(data=st.data(), power=st.floats(0.01, 1))
def test_generalised_cross_entropy_and_its_limits(
    annotated_batches: AnnotatedBatches, data: DataObject, power: float
) -> None:
    """(1 − p_y^q)/q: at q = 1 it is 1 − p_y, near 0 cross entropy, to first order in q."""
    z, target, q = data.draw(annotated_batches)
    p = z.softmax(-1)
    loss = partial(functional.generalized_cross_entropy, reduction="none")
    almost = loss(z, target, q=1e-4)
    cross_entropy = F.cross_entropy(z, q, reduction="none")
    second_order = (q * p.log() ** 2).sum(-1) / 2

    assert_close(loss(z, target, q=power), (q * (1 - p**power) / power).sum(-1))
    assert_close(loss(z, target, q=1), 1 - (q * p).sum(-1))
    assert_close(almost, cross_entropy - 1e-4 * second_order, rtol=1e-5, atol=1e-8)
    assert (almost < cross_entropy).all()


@pytest.mark.parametrize("name", ["forward", "backward"])
@few
@given(data=st.data(), weighted=st.booleans())
def test_transition_without_noise_is_cross_entropy(
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    name: str,
    data: DataObject,
    weighted: bool,
) -> None:
    """T = I: nothing to correct."""
    z, target, _ = data.draw(annotated_batches)
    weight = torch.linspace(0.5, 2, z.shape[1], dtype=z.dtype) if weighted else None
    loss = partial(every_method(z, torch.eye(z.shape[1]))[name], target=target, weight=weight)
    plain = partial(F.cross_entropy, target=target, weight=weight)

    assert_close(loss(z), plain(z))
    assert_close(gradient(loss, z), gradient(plain, z))


@every_name
@few
@given(data=st.data(), shift=st.floats(-50, 50))
def test_adding_a_constant_to_the_logits_changes_nothing(
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    name: str,
    data: DataObject,
    shift: float,
) -> None:
    """Softmax does not see it, in student or teacher; so the gradient sums to 0 over classes."""
    z, target, _ = data.draw(annotated_batches)
    z_t, T = some_teacher(z), some_transition(z.shape[1])
    loss = partial(every_method(z_t, T)[name], target=target, reduction="none")
    shifted = partial(every_method(z_t + shift, T)[name], target=target, reduction="none")
    slope = gradient(loss, z)

    assert_close(shifted(z + shift), loss(z))
    assert_close(gradient(shifted, z + shift), slope)
    assert_close(slope.sum(-1), torch.zeros_like(slope[:, 0]))


@every_name
@few
@given(data=st.data())
def test_renaming_the_classes_changes_nothing(
    annotated_batches: AnnotatedBatches, gradient: Gradient, name: str, data: DataObject
) -> None:
    """Classes permuted everywhere: the same losses, the gradient permuted with them."""
    z, target, _ = data.draw(annotated_batches)
    C = z.shape[1]
    order = torch.tensor(data.draw(st.permutations(range(C))))
    z_t, T = some_teacher(z), some_transition(C)
    renamed = target[:, order] if target.is_floating_point() else order.argsort()[target]
    weight = torch.linspace(0.5, 2, C, dtype=z.dtype)
    loss = partial(every_method(z_t, T)[name], target=target, weight=weight)
    again = partial(
        every_method(z_t[:, order], T[order][:, order])[name],
        target=renamed,
        weight=weight[order],
    )

    assert_close(again(z[:, order]), loss(z))
    assert_close(gradient(again, z[:, order]), gradient(loss, z)[:, order])


@pytest.mark.parametrize(
    "name",
    [
        "cross entropy",
        "confidence penalty",
        "confidence penalty, plain",
        "boot soft",
        "boot soft, plain",
        "boot hard",
        "distillation",
        "generalised",
        "symmetric",
    ],
)
@few
@given(data=st.data())
def test_a_masked_class_might_as_well_not_be_there(
    batches: Batches, gradient: Gradient, name: str, data: DataObject
) -> None:
    """A logit of −∞ takes a class out. (Label smoothing, trust in l(p) and T count the classes.)"""
    z, y = data.draw(batches)
    z_t, T = some_teacher(z), some_transition(z.shape[1])
    without = partial(every_method(z_t, T)[name], target=y, reduction="none")
    wider, z_t = (F.pad(x, (0, 1), value=-torch.inf) for x in (z, z_t))
    masked = partial(every_method(z_t, T)[name], target=y, reduction="none")

    assert_close(masked(wider), without(z))
    assert_close(gradient(masked, wider), F.pad(gradient(without, z), (0, 1)))


@every_name
@few
@given(data=st.data(), reduction=st.sampled_from(["mean", "sum"]))
def test_ignored_examples_might_as_well_not_be_there(
    batches: Batches, gradient: Gradient, name: str, data: DataObject, reduction: str
) -> None:
    """Neither the loss nor the gradient of the others feels them, and they get none."""
    z, y = data.draw(batches)
    N, T = len(z), some_transition(z.shape[1])
    more, z_t = torch.cat([z, 3 * z]), some_teacher(torch.cat([z, 3 * z]))
    target = torch.cat([y, torch.full_like(y, -1)])
    weight = torch.linspace(0.5, 2, z.shape[1], dtype=z.dtype)
    options = {"weight": weight, "reduction": reduction}
    alone = partial(every_method(z_t[:N], T)[name], target=y, **options)
    among = partial(every_method(z_t, T)[name], target=target, ignore_index=-1, **options)
    found = gradient(among, more)

    assert_close(among(more), alone(z))
    assert_close(found[:N], gradient(alone, z))
    assert_close(found[N:], torch.zeros_like(z))


@every_name
@few
@given(data=st.data())
def test_every_example_and_every_position_counts_by_itself(
    batches: Batches, name: str, data: DataObject
) -> None:
    """Dense logits [N, C, d1, d2] give what each position gives alone; the mean is theirs."""
    z, y = data.draw(batches)
    N, C = z.shape
    grid = torch.stack([z, z.flip(0), -z, 2 * z, z / 2, z.roll(1, 1)], -1).reshape(N, C, 2, 3)
    target = torch.stack([y, y, y.flip(0), y, y, y.flip(0)], -1).reshape(N, 2, 3)
    z_t, T = some_teacher(grid.movedim(1, -1)).movedim(-1, 1), some_transition(C)
    dense = every_method(z_t, T)[name]
    found = dense(grid, target, reduction="none")
    alone = [
        every_method(z_t[i, :, j, k], T)[name](grid[i, :, j, k], target[i, j, k])
        for i in range(N)
        for j in range(2)
        for k in range(3)
    ]

    assert_close(found, torch.stack(alone).reshape(N, 2, 3))
    assert_close(dense(grid, target), found.mean())
    assert_close(dense(grid, target, reduction="sum"), found.sum())


@pytest.mark.parametrize(
    "name",
    [
        "confidence penalty",
        "confidence penalty, plain",
        "boot soft",
        "boot soft, plain",
        "boot hard",
        "distillation",
        "low temperature",
    ],
)
@few
@given(data=st.data())
def test_class_weights_weight_the_annotation_and_the_reference(
    annotated_batches: AnnotatedBatches, entropy: Entropy, name: str, data: DataObject
) -> None:
    """(1 − ε) Σ_j w_j q_j (−log p_j) ± ε ω H(r, p) with ω = Σ_j w_j q_j.

    The mean divides by Σ ω for class ids and by N for probabilities, as `F.cross_entropy` does.
    """
    z, target, q = data.draw(annotated_batches)
    z_t, log_p = some_teacher(z), z.log_softmax(-1)
    p_T = (2 * z).softmax(-1)  # T = ½
    divergence = F.kl_div((z / 2).log_softmax(-1), (z_t / 2).softmax(-1), reduction="none")
    reference = {
        "confidence penalty": -entropy(z),
        "boot soft": entropy(z),
        "boot hard": -log_p.amax(-1),
        "distillation": 4 * divergence.sum(-1),
        "low temperature": -(p_T * log_p).sum(-1),
    }[name.removesuffix(", plain")]
    trust = torch.full_like(reference, 0.3)
    if name == "low temperature":
        trust = p_T.amax(-1) / (1 + math.exp(-12 * 0.3))
    weight = torch.linspace(0.5, 2, z.shape[1], dtype=z.dtype)
    omega = (weight * q).sum(-1)
    annotation = F.cross_entropy(z, q, weight=weight, reduction="none")
    expected = (1 - trust) * annotation + trust * omega * reference
    divisor = len(z) if target.is_floating_point() else omega.sum()
    loss = partial(every_method(z_t, torch.eye(z.shape[1]))[name], z, target, weight=weight)

    assert_close(loss(reduction="none"), expected)
    assert_close(loss(reduction="sum"), expected.sum())
    assert_close(loss(reduction="mean"), expected.sum() / divisor)


@every_name
@few
@given(data=st.data())
def test_class_weights_weight_examples(batches: Batches, name: str, data: DataObject) -> None:
    """For class ids the loss is w[y] times the one without weights, and the mean divides by Σ w[y].

    Label smoothing alone, like `F.cross_entropy`, weights each class of its uniform part.
    """
    z, y = data.draw(batches)
    weight = torch.linspace(0.5, 2, z.shape[1], dtype=z.dtype)
    loss = partial(every_method(some_teacher(z), some_transition(z.shape[1]))[name], z, y)
    if name == "label smoothing":
        expected = F.cross_entropy(z, y, weight=weight, label_smoothing=0.3, reduction="none")
    else:
        expected = weight[y] * loss(reduction="none")

    assert_close(loss(weight=weight, reduction="none"), expected)
    assert_close(loss(weight=weight), expected.sum() / weight[y].sum())


@few
@given(data=st.data())
def test_losses_outside_the_algebra_teach_the_annotation(
    annotated_batches: AnnotatedBatches, data: DataObject
) -> None:
    """Their target is q and their trust 0."""
    z, target, q = data.draw(annotated_batches)
    T = some_transition(z.shape[1])
    for method in (Generalized(0.7), Symmetric(6, 0.1, -4), Forward(T), Backward(T)):
        correction = functional.correct(method, z, target)
        assert_close(correction.target, q)
        assert_close(correction.trust, torch.zeros_like(z[:, 0]))
        assert_close(correction.loss, functional.loss(method, z, target, reduction="none"))
