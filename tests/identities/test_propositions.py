"""Propositions 1 to 4 of the paper.

The third needs the gradient through p, and the fourth holds for the confidence penalty only in
part; both are shown.
"""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import functional
from proselflc.correction import target as catalogue
from proselflc.correction.target import Target

Batches = SearchStrategy[tuple[Tensor, Tensor]]
AnnotatedBatches = SearchStrategy[tuple[Tensor, Tensor, Tensor]]
Gradient = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
Entropy = Callable[[Tensor], Tensor]
ProSelfLCTrust = Callable[[Tensor, float, float], Tensor]
few = settings(deadline=None, max_examples=25, derandomize=True)
some_trust = st.floats(0.01, 0.99)
both_forms = pytest.mark.parametrize("fused", [True, False])


@both_forms
@pytest.mark.parametrize(
    "make",
    [
        catalogue.label_smoothing,
        catalogue.confidence_penalty,
        catalogue.boot_soft,
        catalogue.boot_hard,
    ],
)
@few
@given(data=st.data(), epsilon=some_trust)
def test_proposition_1_the_learning_target_is_modified(
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    make: Callable[[float], Target],
    fused: bool,
    data: DataObject,
    epsilon: float,
) -> None:
    """The loss, and its gradient too, is that of cross entropy with q̃ in place of q; q̃ ≠ q."""
    z, target, q = data.draw(annotated_batches)
    method = make(epsilon)

    def cross_entropy_of_modified_target(z: Tensor) -> Tensor:
        q_tilde = functional.correct(method, z, target).target
        return F.cross_entropy(z, q_tilde, reduction="none")

    def loss(z: Tensor) -> Tensor:
        return functional.loss(method, z, target, reduction="none", fused=fused)

    assert_close(loss(z), cross_entropy_of_modified_target(z))
    assert_close(gradient(loss, z), gradient(cross_entropy_of_modified_target, z))
    q_tilde = functional.correct(method, z, target).target
    inconsistent = z.argmax(-1) != q.argmax(-1)
    mass = torch.full_like(z[:, 0], 1 - epsilon + method.sign * epsilon)

    assert ((q_tilde - q).abs().amax(-1)[inconsistent] > 1e-3).all()
    assert_close(q_tilde.sum(-1), mass)


@few
@given(data=st.data(), epsilon=st.floats(0, 1))
def test_proposition_2_distillation_is_label_correction(
    entropy: Entropy,
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    data: DataObject,
    epsilon: float,
) -> None:
    """(1 − ε) H(q, p) + ε KL(p_t‖p) has the gradient of H(q̃, p), and lies εH(p_t) below it."""
    z, target, q = data.draw(annotated_batches)
    z_t = z.roll(1, -1) - z.flip(-1)
    q_tilde = (1 - epsilon) * q + epsilon * z_t.softmax(-1)

    def distilled(z: Tensor) -> Tensor:
        return functional.distillation(
            z, target, teacher_logits=z_t, epsilon=epsilon, reduction="none"
        )

    def corrected(z: Tensor) -> Tensor:
        return F.cross_entropy(z, q_tilde, reduction="none")

    assert_close(gradient(distilled, z), gradient(corrected, z))
    assert_close(corrected(z) - distilled(z), epsilon * entropy(z_t))
    taught = functional.correct(catalogue.distillation(epsilon), z, target, teacher_logits=z_t)
    assert_close(taught.target, q_tilde)


def test_proposition_2_the_teacher_is_fixed() -> None:
    """No gradient reaches the teacher."""
    z = torch.tensor([[1.0, -1.0, 0.5]], dtype=torch.float64, requires_grad=True)
    z_t = torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64, requires_grad=True)
    loss = functional.distillation(z, torch.tensor([0]), teacher_logits=z_t, epsilon=0.5)
    to_student, to_teacher = torch.autograd.grad(loss, (z, z_t), allow_unused=True)

    assert to_teacher is None
    assert (to_student != 0).all()


def beyond_cross_entropy(
    method: Target, z: Tensor, y: Tensor, epsilon: float, fused: bool = True
) -> Tensor:
    """What a method adds to (1 − ε) H(q, p) [N]."""
    loss = functional.loss(method, z, y, reduction="none", fused=fused)
    return loss - (1 - epsilon) * F.cross_entropy(z, y, reduction="none")


@both_forms
@few
@given(data=st.data(), epsilon=some_trust)
def test_proposition_3_who_pulls_towards_the_uniform_distribution(
    batches: Batches, fused: bool, data: DataObject, epsilon: float
) -> None:
    """What is added beside a constant: +KL(u‖p) by LS, +KL(p‖u) by CP, −KL(p‖u) by LC."""
    z, y = data.draw(batches)
    p, u = Categorical(logits=z), Categorical(logits=torch.zeros_like(z))
    constant = epsilon * math.log(z.shape[1])
    smoothing = beyond_cross_entropy(catalogue.label_smoothing(epsilon), z, y, epsilon, fused)
    penalty = beyond_cross_entropy(catalogue.confidence_penalty(epsilon), z, y, epsilon, fused)
    correction = beyond_cross_entropy(catalogue.boot_soft(epsilon), z, y, epsilon, fused)

    assert_close(smoothing - constant, epsilon * kl_divergence(u, p))
    assert_close(penalty + constant, epsilon * kl_divergence(p, u))
    assert_close(correction - constant, -epsilon * kl_divergence(p, u))
    assert (smoothing >= constant - 1e-12).all()
    assert (penalty >= -constant - 1e-12).all()
    assert (correction <= constant + 1e-12).all()


@both_forms
@few
@given(data=st.data(), epsilon=some_trust)
def test_proposition_3_slope_along_a_path_of_falling_entropy(
    batches: Batches, gradient: Gradient, fused: bool, data: DataObject, epsilon: float
) -> None:
    """Scaling the logits up lowers H(p). On that path LS and CP rise, LC falls, exactly by

    d/ds H(u, p_s) = E_p z − E_u z  and  d/ds H(p_s) = −Var_p z  at s = 1.
    """
    z, y = data.draw(batches)
    p = z.softmax(-1)
    mean = (p * z).sum(-1)
    variance = (p * (z - mean[:, None]) ** 2).sum(-1)
    assume((variance > 1e-4).all())

    def slope(method: Target) -> Tensor:
        field = gradient(lambda x: beyond_cross_entropy(method, x, y, epsilon, fused), z)
        return (field * z).sum(-1)

    smoothing = slope(catalogue.label_smoothing(epsilon))
    penalty = slope(catalogue.confidence_penalty(epsilon))
    correction = slope(catalogue.boot_soft(epsilon))

    assert_close(smoothing, epsilon * (mean - z.mean(-1)))
    assert_close(penalty, epsilon * variance)
    assert_close(correction, -epsilon * variance)
    assert (smoothing > 0).all()
    assert (penalty > 0).all()
    assert (correction < 0).all()


@few
@given(data=st.data(), epsilon=some_trust)
def test_proposition_3_all_along_the_path(
    entropy: Entropy, batches: Batches, data: DataObject, epsilon: float
) -> None:
    """From the uniform distribution to a confident one, LS and CP only rise and LC only falls."""
    z, y = data.draw(batches)
    assume((z.std(-1) > 0.05).all())
    path = [s * z / z.std(-1, keepdim=True) for s in torch.linspace(0, 3, 13)]
    H = torch.stack([entropy(x) for x in path])
    assert (H.diff(dim=0) < 0).all()
    for method, direction in (
        (catalogue.label_smoothing(epsilon), 1),
        (catalogue.confidence_penalty(epsilon), 1),
        (catalogue.boot_soft(epsilon), -1),
    ):
        added = torch.stack([beyond_cross_entropy(method, x, y, epsilon) for x in path])
        assert (direction * added.diff(dim=0) > 0).all()


@few
@given(data=st.data(), progress=st.floats(0.1, 1))
def test_proposition_3_proselflc_rewards_low_entropy(
    proselflc_trust: ProSelfLCTrust,
    batches: Batches,
    gradient: Gradient,
    data: DataObject,
    progress: float,
) -> None:
    """Its slope on the path is (1 − ε) that of H(q, p) less ε Var_p z, each at its own ε."""
    z, y = data.draw(batches)
    p = z.softmax(-1)
    mean = (p * z).sum(-1)
    variance = (p * (z - mean[:, None]) ** 2).sum(-1)
    epsilon = proselflc_trust(z, progress - 0.5, 10)
    field = gradient(lambda x: functional.proselflc(x, y, progress=progress, reduction="none"), z)
    cross_entropy = gradient(lambda x: F.cross_entropy(x, y, reduction="none"), z)

    added = (field * z).sum(-1) - (1 - epsilon) * (cross_entropy * z).sum(-1)
    assert_close(added, -epsilon * variance)
    assert (added <= 0).all()


@few
@given(data=st.data(), epsilon=st.floats(0, 0.999))
def test_proposition_4_cross_entropy_and_label_smoothing_keep_the_class(
    batches: Batches, data: DataObject, epsilon: float
) -> None:
    """The semantic class is y, and all other classes are equally likely: 0, or ε/C."""
    z, y = data.draw(batches)
    C = z.shape[1]
    others = F.one_hot(y, C) == 0
    for method, share in (
        (catalogue.cce(), 0.0),
        (catalogue.label_smoothing(epsilon), epsilon / C),
    ):
        q_tilde = functional.correct(method, z, y).target
        assert_close(q_tilde.argmax(-1), y)
        assert_close(q_tilde[others], torch.full_like(q_tilde[others], share))


def test_proposition_4_needs_some_annotation_in_label_smoothing() -> None:
    """At ε = 1, which the proof leaves out, the target is uniform and has no semantic class."""
    z, y = torch.zeros(1, 4, dtype=torch.float64), torch.tensor([2])
    q_tilde = functional.correct(catalogue.label_smoothing(1), z, y).target
    assert_close(q_tilde, torch.full_like(z, 0.25))


@few
@given(data=st.data(), epsilon=st.floats(0, 0.499))
def test_proposition_4_clipped_confidence_penalty_keeps_the_class(
    batches: Batches, data: DataObject, epsilon: float
) -> None:
    """For ε < ½: max(q̃, 0) is (1 − ε) − ε p_y at y and 0 elsewhere; q̃ itself is negative there."""
    z, y = data.draw(batches)
    p = z.softmax(-1)
    others = F.one_hot(y, z.shape[1]) == 0
    q_tilde = functional.correct(catalogue.confidence_penalty(epsilon), z, y).target
    clipped = q_tilde.clamp(min=0)

    assert_close(q_tilde[others], -epsilon * p[others])
    assert_close(clipped[others], torch.zeros_like(clipped[others]))
    assert_close(clipped[~others], 1 - epsilon - epsilon * p[~others])
    assert (clipped[~others] > 0).all()
    assert_close(clipped.argmax(-1), y)


@few
@given(data=st.data(), epsilon=st.floats(0, 1))
def test_proposition_4_when_the_clipped_confidence_penalty_has_a_class(
    batches: Batches, data: DataObject, epsilon: float
) -> None:
    """Something is left of it iff ε (1 + p_y) < 1: always below ½, not always above."""
    z, y = data.draw(batches)
    p_y = z.softmax(-1).gather(1, y[:, None])[:, 0]
    margin = 1 - epsilon * (1 + p_y)
    assume((margin.abs() > 1e-9).all())
    q_tilde = functional.correct(catalogue.confidence_penalty(epsilon), z, y).target
    assert_close(q_tilde.amax(-1) > 0, margin > 0)


def test_proposition_4_fails_for_a_large_confidence_penalty() -> None:
    """At ε = 0.75 and p = [.9, .05, .05] the clipped target is all zero: there is no class."""
    z = torch.tensor([[0.9, 0.05, 0.05]], dtype=torch.float64).log()
    q_tilde = functional.correct(catalogue.confidence_penalty(0.75), z, torch.tensor([0])).target

    assert_close(q_tilde, torch.tensor([[-0.425, -0.0375, -0.0375]], dtype=torch.float64))
    assert_close(q_tilde.clamp(min=0), torch.zeros_like(q_tilde))


@few
@given(data=st.data(), epsilon=some_trust)
def test_proposition_4_does_not_extend_to_label_correction(
    batches: Batches, data: DataObject, epsilon: float
) -> None:
    """LC hands p's differences between the other classes on to the target."""
    z, y = data.draw(batches)
    q = F.one_hot(y, z.shape[1]).to(z.dtype)
    given = functional.correct(catalogue.boot_soft(epsilon), z, y).target - (1 - epsilon) * q
    p = z.softmax(-1)
    differences = given[:, :, None] - given[:, None, :]

    assert_close(differences, epsilon * (p[:, :, None] - p[:, None, :]))
    if z.shape[1] > 2:
        others = p.masked_fill(q == 1, torch.nan)
        assert (others.nan_to_num(nan=-1).amax(-1) > others.nan_to_num(nan=2).amin(-1)).all()
