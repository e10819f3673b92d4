"""Every numbered equation of the paper, against PyTorch's own losses and distributions."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import (
    BootSoft,
    ConfidencePenalty,
    CrossEntropy,
    Distillation,
    LabelSmoothing,
    ProSelfLC,
)
from proselflc.correction import evidence as information
from proselflc.correction.evidence import Evidence

Batches = SearchStrategy[tuple[Tensor, Tensor]]
AnnotatedBatches = SearchStrategy[tuple[Tensor, Tensor, Tensor]]
Entropy = Callable[[Tensor], Tensor]
ProSelfLCTrust = Callable[[Tensor, float, float], Tensor]
few = settings(deadline=None, max_examples=25, derandomize=True)
epsilons = st.floats(0, 1)
both_forms = pytest.mark.parametrize("fused", [True, False])


def minus_log(p: Tensor) -> Tensor:
    """−log p by numpy."""
    return torch.from_numpy(-np.log(p.numpy()))


@few
@given(data=st.data())
def test_equation_1_softmax(batches: Batches, data: DataObject) -> None:
    """p_j = exp(z_j) / Σ_m exp(z_m), wherever the library shows p."""
    z, y = data.draw(batches)
    exponentials = np.exp(z.numpy())
    p = torch.from_numpy(exponentials / exponentials.sum(1, keepdims=True))

    assert_close(Evidence(z, y).p, p)
    assert_close(Evidence(z, y).log_p, -minus_log(p))
    assert_close(BootSoft(1).correct(z, y).target, p)
    assert_close(Distillation(1).correct(-z, y, teacher_logits=z).target, p)


@few
@given(data=st.data())
def test_equation_2_cross_entropy(annotated_batches: AnnotatedBatches, data: DataObject) -> None:
    """L = H(q, p) = E_q(−log p), and what is taught is q."""
    z, target, q = data.draw(annotated_batches)
    correction = CrossEntropy().correct(z, target)
    loss = CrossEntropy(reduction="none")(z, target)

    assert_close(loss, (q * minus_log(z.softmax(-1))).sum(-1))
    assert_close(loss, F.cross_entropy(z, q, reduction="none"))
    assert_close(CrossEntropy()(z, target), F.cross_entropy(z, target))
    assert_close(correction.loss, loss)
    assert_close(correction.target, q)
    assert_close(correction.trust, torch.zeros_like(loss))


@few
@given(data=st.data(), epsilon=epsilons)
def test_equation_3_label_smoothing(
    annotated_batches: AnnotatedBatches, data: DataObject, epsilon: float
) -> None:
    """q̃ = (1 − ε) q + ε u  ⇒  L = H(q̃, p) = (1 − ε) H(q, p) + ε H(u, p)."""
    z, target, q = data.draw(annotated_batches)
    u = torch.full_like(z, 1 / z.shape[1])
    q_tilde = (1 - epsilon) * q + epsilon * u
    correction = LabelSmoothing(epsilon).correct(z, target)
    loss = LabelSmoothing(epsilon, reduction="none")(z, target)

    assert_close(correction.target, q_tilde)
    assert_close(correction.trust, torch.full_like(loss, epsilon))
    assert_close(correction.loss, loss)
    assert_close(loss, F.cross_entropy(z, q_tilde, reduction="none"))
    assert_close(
        loss,
        (1 - epsilon) * F.cross_entropy(z, q, reduction="none")
        + epsilon * F.cross_entropy(z, u, reduction="none"),
    )
    weight = torch.linspace(0.5, 2, z.shape[1], dtype=z.dtype)
    assert_close(
        LabelSmoothing(epsilon, weight=weight)(z, target),
        F.cross_entropy(z, target, weight=weight, label_smoothing=epsilon),
    )


@both_forms
@few
@given(data=st.data(), epsilon=epsilons)
def test_equation_4_confidence_penalty(
    entropy: Entropy,
    annotated_batches: AnnotatedBatches,
    fused: bool,
    data: DataObject,
    epsilon: float,
) -> None:
    """L = (1 − ε) H(q, p) − ε H(p, p), which is E_q̃(−log p) with q̃ = (1 − ε) q − ε p."""
    z, target, q = data.draw(annotated_batches)
    p = z.softmax(-1)
    q_tilde = (1 - epsilon) * q - epsilon * p
    correction = ConfidencePenalty(epsilon).correct(z, target)
    loss = ConfidencePenalty(epsilon, fused=fused, reduction="none")(z, target)

    assert_close(
        loss,
        (1 - epsilon) * F.cross_entropy(z, q, reduction="none") - epsilon * entropy(z),
    )
    assert_close(loss, (q_tilde * minus_log(p)).sum(-1))
    assert_close(correction.target, q_tilde)
    assert_close(correction.trust, torch.full_like(loss, epsilon))
    assert_close(correction.loss, loss)


@both_forms
@few
@given(data=st.data(), epsilon=epsilons)
def test_equation_5_label_correction(
    entropy: Entropy,
    annotated_batches: AnnotatedBatches,
    fused: bool,
    data: DataObject,
    epsilon: float,
) -> None:
    """q̃ = (1 − ε) q + ε p  ⇒  L = H(q̃, p) = (1 − ε) H(q, p) + ε H(p, p)."""
    z, target, q = data.draw(annotated_batches)
    p = z.softmax(-1)
    q_tilde = (1 - epsilon) * q + epsilon * p
    correction = BootSoft(epsilon).correct(z, target)
    loss = BootSoft(epsilon, fused=fused, reduction="none")(z, target)

    assert_close(correction.target, q_tilde)
    assert_close(correction.trust, torch.full_like(loss, epsilon))
    assert_close(correction.loss, loss)
    assert_close(loss, F.cross_entropy(z, q_tilde, reduction="none"))
    assert_close(
        loss,
        (1 - epsilon) * F.cross_entropy(z, q, reduction="none") + epsilon * entropy(z),
    )


@few
@given(data=st.data(), epsilon=epsilons)
def test_equation_6_distillation(
    entropy: Entropy, annotated_batches: AnnotatedBatches, data: DataObject, epsilon: float
) -> None:
    """L = (1 − ε) H(q, p) + ε KL(p_t‖p), summed over classes; q̃ = (1 − ε) q + ε p_t."""
    z, target, q = data.draw(annotated_batches)
    z_t = z.roll(1, -1) - z.flip(-1)
    p_t = z_t.softmax(-1)
    q_tilde = (1 - epsilon) * q + epsilon * p_t
    correction = Distillation(epsilon).correct(z, target, teacher_logits=z_t)
    loss = Distillation(epsilon, reduction="none")(z, target, teacher_logits=z_t)

    assert_close(
        loss,
        (1 - epsilon) * F.cross_entropy(z, q, reduction="none")
        + epsilon * kl_divergence(Categorical(logits=z_t), Categorical(logits=z)),
    )
    assert_close(
        loss + epsilon * entropy(z_t),
        F.cross_entropy(z, q_tilde, reduction="none"),
    )
    assert_close(correction.target, q_tilde)
    assert_close(correction.trust, torch.full_like(loss, epsilon))
    assert_close(correction.loss, loss)


@few
@given(data=st.data(), epsilon=epsilons, tau=st.floats(0.25, 20))
def test_equation_6_distillation_at_a_temperature(
    batches: Batches, data: DataObject, epsilon: float, tau: float
) -> None:
    """The divergence is taken at temperature τ on both sides and scaled by τ²."""
    z, y = data.draw(batches)
    z_t = z.roll(1, -1) - z.flip(-1)
    divergence = F.kl_div((z / tau).log_softmax(-1), (z_t / tau).softmax(-1), reduction="batchmean")

    assert_close(
        Distillation(epsilon, temperature=tau)(z, y, teacher_logits=z_t),
        (1 - epsilon) * F.cross_entropy(z, y) + epsilon * tau**2 * divergence,
    )


@both_forms
@few
@given(data=st.data(), B=st.floats(0, 20), progress=st.floats(0, 1))
def test_equation_7_proselflc(
    proselflc_trust: ProSelfLCTrust,
    annotated_batches: AnnotatedBatches,
    fused: bool,
    data: DataObject,
    B: float,
    progress: float,
) -> None:
    """ε = g(t)·l(p), label q̃ = (1 − ε) q + ε p, loss H(q̃, p)."""
    z, target, q = data.draw(annotated_batches)
    epsilon = proselflc_trust(z, progress - 0.5, B)
    q_tilde = (1 - epsilon)[:, None] * q + epsilon[:, None] * z.softmax(-1)
    for moment in (progress, torch.tensor(progress, dtype=torch.float64)):
        criterion = ProSelfLC(total_steps=1, sharpness=B, fused=fused, reduction="none")
        correction = criterion.correct(z, target, progress=moment)
        loss = criterion(z, target, progress=moment)

        assert_close(correction.trust, epsilon)
        assert_close(correction.target, q_tilde)
        assert_close(correction.loss, loss)
        assert_close(loss, F.cross_entropy(z, q_tilde, reduction="none"))


@few
@given(data=st.data(), total=st.integers(1, 500))
def test_equation_7_counts_iterations(
    proselflc_trust: ProSelfLCTrust, batches: Batches, data: DataObject, total: int
) -> None:
    """The k-th training call is at t = k of Γ; looking at it afterwards does not move the clock."""
    z, y = data.draw(batches)
    t = data.draw(st.integers(1, total))
    criterion = ProSelfLC(total_steps=total, sharpness=8)
    criterion.set_progress(t - 1)
    epsilon = proselflc_trust(z, t / total - 0.5, 8)
    q = F.one_hot(y, z.shape[1]).to(z.dtype)
    q_tilde = (1 - epsilon)[:, None] * q + epsilon[:, None] * z.softmax(-1)

    assert_close(criterion(z, y), F.cross_entropy(z, q_tilde))
    assert_close(criterion.correct(z, y).target, q_tilde)
    assert criterion.t.item() == t


@few
@given(data=st.data(), progress=st.floats(0, 1), midpoint=st.floats(0, 1))
def test_equation_7_with_parts_left_out(
    entropy: Entropy, batches: Batches, data: DataObject, progress: float, midpoint: float
) -> None:
    """The ablations: either trust alone, max p as the local one, another midpoint."""
    z, y = data.draw(batches)
    g = 1 / (1 + math.exp(-12 * (progress - midpoint)))
    local = 1 - entropy(z) / math.log(z.shape[1])
    expected = {
        "global": torch.full_like(local, g),
        "local": local,
        "global*local": g * local,
        "global*max_p": g * z.softmax(-1).amax(-1),
    }
    for name, epsilon in expected.items():
        criterion = ProSelfLC(1, sharpness=12, midpoint=midpoint, trust=name)
        assert_close(criterion.correct(z, y, progress=progress).trust, epsilon)


@few
@given(data=st.data())
def test_equation_8_cross_entropy_is_a_divergence(batches: Batches, data: DataObject) -> None:
    """H(q, p) = KL(q‖p) + H(q, q), and H(q, q) = 0 for a one-hot q."""
    z, y = data.draw(batches)
    q = F.one_hot(y, z.shape[1]).to(z.dtype)
    loss = CrossEntropy(reduction="none")(z, y)

    assert_close(loss, kl_divergence(Categorical(probs=q), Categorical(logits=z)))
    assert_close(loss, information.kl_divergence(q.log(), z.log_softmax(-1)))
    assert_close(information.entropy(q.log()), torch.zeros_like(loss))


@few
@given(data=st.data(), epsilon=epsilons)
def test_equation_9_label_smoothing_as_divergences(
    batches: Batches, data: DataObject, epsilon: float
) -> None:
    """L = (1 − ε) KL(q‖p) + ε KL(u‖p) + ε H(u, u), and H(u, u) = log C."""
    z, y = data.draw(batches)
    p, u = Categorical(logits=z), Categorical(logits=torch.zeros_like(z))
    q = Categorical(probs=F.one_hot(y, z.shape[1]).to(z.dtype))

    assert_close(
        LabelSmoothing(epsilon, reduction="none")(z, y),
        (1 - epsilon) * kl_divergence(q, p)
        + epsilon * kl_divergence(u, p)
        + epsilon * math.log(z.shape[1]),
    )
    assert_close(information.kl_divergence(u.logits, p.logits), kl_divergence(u, p))
    H_u = information.entropy(u.logits)
    assert_close(H_u, torch.full_like(H_u, math.log(z.shape[1])))


@both_forms
@few
@given(data=st.data(), epsilon=epsilons)
def test_equation_10_confidence_penalty_as_divergences(
    batches: Batches, fused: bool, data: DataObject, epsilon: float
) -> None:
    """L = (1 − ε) KL(q‖p) + ε KL(p‖u) − ε·constant, the constant H(p, u) = H(u, u) = log C."""
    z, y = data.draw(batches)
    p, u = Categorical(logits=z), Categorical(logits=torch.zeros_like(z))
    q = Categorical(probs=F.one_hot(y, z.shape[1]).to(z.dtype))
    constant = information.cross_entropy(p.probs, u.logits)

    assert_close(constant, torch.full_like(constant, math.log(z.shape[1])))
    assert_close(
        ConfidencePenalty(epsilon, fused=fused, reduction="none")(z, y),
        (1 - epsilon) * kl_divergence(q, p)
        + epsilon * kl_divergence(p, u)
        - epsilon * math.log(z.shape[1]),
    )


@both_forms
@few
@given(data=st.data(), epsilon=epsilons)
def test_equation_11_label_correction_as_divergences(
    batches: Batches, fused: bool, data: DataObject, epsilon: float
) -> None:
    """L = (1 − ε) KL(q‖p) − ε KL(p‖u) + ε·constant."""
    z, y = data.draw(batches)
    p, u = Categorical(logits=z), Categorical(logits=torch.zeros_like(z))
    q = Categorical(probs=F.one_hot(y, z.shape[1]).to(z.dtype))

    assert_close(
        BootSoft(epsilon, fused=fused, reduction="none")(z, y),
        (1 - epsilon) * kl_divergence(q, p)
        - epsilon * kl_divergence(p, u)
        + epsilon * math.log(z.shape[1]),
    )


@few
@given(data=st.data())
def test_information_is_measured_in_nats(
    entropy: Entropy, batches: Batches, data: DataObject
) -> None:
    """H(q, p), H(p) and KL(q‖p) = H(q, p) − H(q) agree with torch.distributions."""
    z, _ = data.draw(batches)
    assume(len(z) > 1)
    log_p, log_q = z.log_softmax(-1), z.flip(0).log_softmax(-1)
    p, q = Categorical(logits=z), Categorical(logits=z.flip(0))

    assert_close(information.entropy(log_p), entropy(z))
    assert_close(
        information.cross_entropy(log_q.exp(), log_p), entropy(z.flip(0)) + kl_divergence(q, p)
    )
    assert_close(information.kl_divergence(log_q, log_p), kl_divergence(q, p))


def test_a_class_without_probability_carries_no_information(
    entropy: Entropy,
) -> None:
    """0·log 0 = 0: a class masked with a logit of −∞ changes neither value nor gradient."""
    z = torch.tensor([[1.0, 2.0, -torch.inf]], dtype=torch.float64, requires_grad=True)
    found = information.entropy(z.log_softmax(-1))
    (masked,) = torch.autograd.grad(found.sum(), z)
    kept = z.detach()[:, :2].requires_grad_()
    expected = entropy(kept)
    (without,) = torch.autograd.grad(expected.sum(), kept)

    assert_close(found, expected)
    assert_close(masked, F.pad(without, (0, 1)))
