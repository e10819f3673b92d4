"""The gradient of every method in the logits, in closed form, and the trap of a detached target."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import (
    BootHard,
    BootSoft,
    ConfidencePenalty,
    CrossEntropy,
    Distillation,
    GeneralizedCrossEntropy,
    LabelSmoothing,
    LowTemperatureProSelfLC,
    ProSelfLC,
    SymmetricCrossEntropy,
    functional,
)
from proselflc.correction import target as catalogue
from proselflc.correction.target import Target

Batches = SearchStrategy[tuple[Tensor, Tensor]]
AnnotatedBatches = SearchStrategy[tuple[Tensor, Tensor, Tensor]]
Gradient = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
Entropy = Callable[[Tensor], Tensor]
ProSelfLCTrust = Callable[[Tensor, float, float], Tensor]
few = settings(deadline=None, max_examples=25, derandomize=True)
epsilons = st.floats(0, 1)
both_forms = pytest.mark.parametrize("fused", [True, False])


def gradient_of_entropy(z: Tensor) -> Tensor:
    """∂H(p)/∂z = −p∘(log p + H(p)) [N, C]."""
    p, log_p = z.softmax(-1), z.log_softmax(-1)
    H = -(p * log_p).sum(-1, keepdim=True)
    return -p * (log_p + H)


@few
@given(data=st.data())
def test_gradient_of_cross_entropy(
    annotated_batches: AnnotatedBatches, gradient: Gradient, data: DataObject
) -> None:
    """p − q."""
    z, target, q = data.draw(annotated_batches)
    criterion = CrossEntropy(reduction="sum")
    assert_close(gradient(lambda z: criterion(z, target), z), z.softmax(-1) - q)


@few
@given(data=st.data(), epsilon=epsilons)
def test_gradient_of_label_smoothing(
    annotated_batches: AnnotatedBatches, gradient: Gradient, data: DataObject, epsilon: float
) -> None:
    """p − q̃."""
    z, target, q = data.draw(annotated_batches)
    criterion = LabelSmoothing(epsilon, reduction="sum")
    q_tilde = (1 - epsilon) * q + epsilon / z.shape[1]
    assert_close(gradient(lambda z: criterion(z, target), z), z.softmax(-1) - q_tilde)


@both_forms
@few
@given(data=st.data(), epsilon=epsilons)
def test_gradient_of_confidence_penalty(
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    fused: bool,
    data: DataObject,
    epsilon: float,
) -> None:
    """(1 − ε)(p − q) + ε p∘(log p + H(p))."""
    z, target, q = data.draw(annotated_batches)
    criterion = ConfidencePenalty(epsilon, fused=fused, reduction="sum")
    assert_close(
        gradient(lambda z: criterion(z, target), z),
        (1 - epsilon) * (z.softmax(-1) - q) - epsilon * gradient_of_entropy(z),
    )


@both_forms
@few
@given(data=st.data(), epsilon=epsilons)
def test_gradient_of_label_correction_flows_through_p(
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    fused: bool,
    data: DataObject,
    epsilon: float,
) -> None:
    """(1 − ε)(p − q) − ε p∘(log p + H(p))."""
    z, target, q = data.draw(annotated_batches)
    criterion = BootSoft(epsilon, fused=fused, reduction="sum")
    assert_close(
        gradient(lambda z: criterion(z, target), z),
        (1 - epsilon) * (z.softmax(-1) - q) + epsilon * gradient_of_entropy(z),
    )


@few
@given(data=st.data(), epsilon=epsilons)
def test_gradient_of_hard_label_correction(
    annotated_batches: AnnotatedBatches, gradient: Gradient, data: DataObject, epsilon: float
) -> None:
    """p − q̃ with the constant q̃ = (1 − ε) q + ε onehot(argmax p)."""
    z, target, q = data.draw(annotated_batches)
    criterion = BootHard(epsilon, reduction="sum")
    hard = torch.eye(z.shape[1], dtype=z.dtype)[z.argmax(-1)]
    q_tilde = (1 - epsilon) * q + epsilon * hard

    assert_close(gradient(lambda z: criterion(z, target), z), z.softmax(-1) - q_tilde)
    assert_close(criterion.correct(z, target).target, q_tilde)
    assert_close(criterion(z, target), F.cross_entropy(z, q_tilde, reduction="sum"))


@few
@given(data=st.data(), epsilon=epsilons, tau=st.floats(0.5, 5))
def test_gradient_of_distillation(
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    data: DataObject,
    epsilon: float,
    tau: float,
) -> None:
    """p − q̃; at a temperature (1 − ε)(p − q) + ε τ (softmax(z/τ) − softmax(z_t/τ))."""
    z, target, q = data.draw(annotated_batches)
    z_t = z.roll(1, -1) - z.flip(-1)
    plain = Distillation(epsilon, reduction="sum")
    tempered = Distillation(epsilon, temperature=tau, reduction="sum")
    q_tilde = (1 - epsilon) * q + epsilon * z_t.softmax(-1)

    assert_close(
        gradient(lambda z: plain(z, target, teacher_logits=z_t), z), z.softmax(-1) - q_tilde
    )
    assert_close(
        gradient(lambda z: tempered(z, target, teacher_logits=z_t), z),
        (1 - epsilon) * (z.softmax(-1) - q)
        + epsilon * tau * ((z / tau).softmax(-1) - (z_t / tau).softmax(-1)),
    )


@both_forms
@few
@given(data=st.data(), progress=st.floats(0, 1), B=st.floats(0, 20))
def test_gradient_of_proselflc_flows_through_p_and_not_through_trust(
    proselflc_trust: ProSelfLCTrust,
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    fused: bool,
    data: DataObject,
    progress: float,
    B: float,
) -> None:
    """(1 − ε)(p − q) − ε p∘(log p + H(p)) with ε = g(t)·l(p) of each example, a constant."""
    z, target, q = data.draw(annotated_batches)
    criterion = ProSelfLC(1, sharpness=B, fused=fused, reduction="sum")
    epsilon = proselflc_trust(z, progress - 0.5, B)[:, None]
    expected = (1 - epsilon) * (z.softmax(-1) - q) + epsilon * gradient_of_entropy(z)

    assert_close(gradient(lambda z: criterion(z, target, progress=progress), z), expected)


@both_forms
@pytest.mark.parametrize("kind", ["class ids", "some ignored", "soft"])
def test_gradient_of_proselflc_on_a_large_batch(
    proselflc_trust: ProSelfLCTrust, gradient: Gradient, fused: bool, kind: str
) -> None:
    """The same for a batch so large that it is worked through in parts."""
    generator = torch.Generator().manual_seed(5)
    z = 4 * torch.randn(700, 1000, generator=generator, dtype=torch.float64)
    y = torch.randint(1000, (700,), generator=generator)
    q = F.one_hot(y, 1000).to(z.dtype)
    counted = torch.ones_like(z[:, 0])
    target = y
    if kind == "some ignored":
        counted[::3] = 0
        target = y.masked_fill(counted == 0, -100)
    elif kind == "soft":
        target = q = 0.9 * q + 1e-4
    epsilon = proselflc_trust(z, 0.3, 10)[:, None]
    q_tilde = (1 - epsilon) * q + epsilon * z.softmax(-1)
    expected = (1 - epsilon) * (z.softmax(-1) - q) + epsilon * gradient_of_entropy(z)
    losses = partial(ProSelfLC(1, fused=fused, reduction="none"), target=target, progress=0.8)
    mean = partial(ProSelfLC(1, fused=fused), target=target, progress=0.8)

    assert_close(losses(z), counted * F.cross_entropy(z, q_tilde, reduction="none"))
    assert_close(gradient(losses, z), counted[:, None] * expected)
    assert_close(gradient(mean, z) * counted.sum(), counted[:, None] * expected)


@both_forms
@pytest.mark.parametrize("trust", ["global", "local", "global*max_p"])
@few
@given(data=st.data(), progress=st.floats(0, 1))
def test_gradient_of_proselflc_with_parts_left_out(
    batches: Batches,
    entropy: Entropy,
    gradient: Gradient,
    fused: bool,
    trust: str,
    data: DataObject,
    progress: float,
) -> None:
    """The ablations have the same gradient at another ε."""
    z, y = data.draw(batches)
    p, q = z.softmax(-1), F.one_hot(y, z.shape[1])
    g = torch.full_like(p[:, 0], 1 / (1 + math.exp(-8 * (progress - 0.5))))
    local = 1 - entropy(z) / math.log(z.shape[1])
    epsilon = {"global": g, "local": local, "global*max_p": g * p.amax(-1)}[trust][:, None]
    criterion = ProSelfLC(1, sharpness=8, trust=trust, fused=fused, reduction="sum")

    assert_close(
        gradient(lambda z: criterion(z, y, progress=progress), z),
        (1 - epsilon) * (p - q) + epsilon * gradient_of_entropy(z),
    )


@pytest.mark.parametrize("trust", ["global*max_p", "global*local"])
@few
@given(data=st.data(), progress=st.floats(0, 1), T=st.floats(0.2, 1))
def test_gradient_of_low_temperature_proselflc(
    proselflc_trust: ProSelfLCTrust,
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    trust: str,
    data: DataObject,
    progress: float,
    T: float,
) -> None:
    """p − q̃ with the constant q̃ = (1 − ε) q + ε p_T, where ε looks at p_T = softmax(z/T)."""
    z, target, q = data.draw(annotated_batches)
    p_T = (z / T).softmax(-1)
    if trust == "global*max_p":
        epsilon = p_T.amax(-1, keepdim=True) / (1 + math.exp(-12 * (progress - 0.5)))
    else:
        epsilon = proselflc_trust(z / T, progress - 0.5, 12)[:, None]
    q_tilde = (1 - epsilon) * q + epsilon * p_T
    criterion = LowTemperatureProSelfLC(1, temperature=T, trust=trust, reduction="sum")
    correction = criterion.correct(z, target, progress=progress)

    assert_close(correction.trust, epsilon[:, 0])
    assert_close(correction.target, q_tilde)
    assert_close(
        criterion(z, target, progress=progress), F.cross_entropy(z, q_tilde, reduction="sum")
    )
    assert_close(
        gradient(lambda z: criterion(z, target, progress=progress), z), z.softmax(-1) - q_tilde
    )


@few
@given(data=st.data(), power=st.floats(0.05, 1))
def test_gradient_of_generalised_cross_entropy(
    batches: Batches, gradient: Gradient, data: DataObject, power: float
) -> None:
    """p_y^q (p − onehot y)."""
    z, y = data.draw(batches)
    p, one_hot = z.softmax(-1), F.one_hot(y, z.shape[1])
    criterion = GeneralizedCrossEntropy(power, reduction="sum")
    p_y = p.gather(1, y[:, None])
    assert_close(gradient(lambda z: criterion(z, y), z), p_y**power * (p - one_hot))


@few
@given(data=st.data(), alpha=st.floats(0, 6), beta=st.floats(0, 2), A=st.floats(-10, -1))
def test_gradient_of_symmetric_cross_entropy(
    batches: Batches, gradient: Gradient, data: DataObject, alpha: float, beta: float, A: float
) -> None:
    """(α − β A p_y)(p − onehot y), from α H(q, p) − β A (1 − p_y)."""
    z, y = data.draw(batches)
    p, one_hot = z.softmax(-1), F.one_hot(y, z.shape[1])
    criterion = SymmetricCrossEntropy(alpha, beta, A, reduction="sum")
    p_y = p.gather(1, y[:, None])
    assert_close(gradient(lambda z: criterion(z, y), z), (alpha - beta * A * p_y) * (p - one_hot))


@both_forms
@pytest.mark.parametrize(
    "method",
    [
        catalogue.label_smoothing(0.3),
        catalogue.confidence_penalty(0.3),
        catalogue.boot_soft(0.3),
        catalogue.boot_soft(1.0),
        catalogue.distillation(0.3, temperature=2.0),
    ],
    ids=["label smoothing", "confidence penalty", "label correction", "entropy", "distillation"],
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients_by_finite_differences(method: Target, fused: bool, reduction: str) -> None:
    """Where ε is fixed, the gradient is the plain derivative of the loss, for every reduction."""
    generator = torch.Generator().manual_seed(7)
    z, z_t = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 3, 2, -100, 1])
    weight = torch.tensor([1.0, 0.5, 2.0, 1.5], dtype=torch.float64)
    for soft in (False, True):
        target = (z_t / 2).softmax(-1) if soft else y

        def loss(z: Tensor, target: Tensor = target) -> Tensor:
            return functional.loss(
                method,
                z,
                target,
                teacher_logits=z_t,
                weight=weight,
                reduction=reduction,
                fused=fused,
            )

        assert torch.autograd.gradcheck(loss, z.clone().requires_grad_())


def central_differences(
    function: Callable[[npt.NDArray[np.float64]], float], point: Tensor, step: float = 1e-5
) -> Tensor:
    """The numerical gradient of a function of one array."""
    x = point.numpy().copy()
    slopes = np.empty_like(x)
    for i in np.ndindex(x.shape):
        value = x[i]
        x[i] = value + step
        above = function(x)
        x[i] = value - step
        slopes[i] = (above - function(x)) / (2 * step)
        x[i] = value
    return torch.from_numpy(slopes)


@both_forms
def test_gradient_of_proselflc_by_finite_differences(
    proselflc_trust: ProSelfLCTrust, gradient: Gradient, fused: bool
) -> None:
    """It is the derivative of the loss with ε held still, and not that with ε moving."""
    generator = torch.Generator().manual_seed(3)
    z = 2 * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 4, 2, 2])
    criterion = ProSelfLC(1, fused=fused, reduction="sum")
    found = gradient(lambda z: criterion(z, y, progress=0.8), z)
    trust = proselflc_trust(z, 0.3, 10).numpy()

    def with_constant_trust(z: npt.NDArray[np.float64]) -> float:
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        annotation = -np.log(p[np.arange(4), y.numpy()])
        entropy = -(p * np.log(p)).sum(1)
        return float(((1 - trust) * annotation + trust * entropy).sum())

    def as_it_is(z: npt.NDArray[np.float64]) -> float:
        return float(criterion(torch.from_numpy(z), y, progress=0.8))

    assert_close(found, central_differences(with_constant_trust, z), rtol=1e-6, atol=1e-8)
    assert ((found - central_differences(as_it_is, z)).abs().amax(-1) > 1e-2).all()


@few
@given(data=st.data(), epsilon=epsilons)
def test_detached_target_only_scales_cross_entropy(
    annotated_batches: AnnotatedBatches, gradient: Gradient, data: DataObject, epsilon: float
) -> None:
    """With p detached the gradient is (1 − ε)(p − q): a smaller learning rate, no correction."""
    z, target, q = data.draw(annotated_batches)
    for method in (catalogue.boot_soft(epsilon), catalogue.confidence_penalty(epsilon)):
        q_tilde = functional.correct(method, z, target).target.detach()
        loss = partial(F.cross_entropy, target=q_tilde, reduction="sum")
        assert_close(gradient(loss, z), (1 - epsilon) * (z.softmax(-1) - q))


@both_forms
@few
@given(data=st.data(), epsilon=st.floats(0.05, 0.95))
def test_only_the_gradient_through_p_tells_correction_from_penalty(
    batches: Batches, gradient: Gradient, fused: bool, data: DataObject, epsilon: float
) -> None:
    """Attached, label correction and confidence penalty differ by 2ε ∂H(p)/∂z; detached, by 0."""
    z, y = data.draw(batches)
    correction = catalogue.boot_soft(epsilon)
    penalty = catalogue.confidence_penalty(epsilon)

    def attached(method: Target) -> Tensor:
        return gradient(lambda z: functional.loss(method, z, y, reduction="sum", fused=fused), z)

    def detached(method: Target) -> Tensor:
        q_tilde = functional.correct(method, z, y).target.detach()
        return gradient(lambda z: F.cross_entropy(z, q_tilde, reduction="sum"), z)

    apart = attached(correction) - attached(penalty)
    assert_close(apart, 2 * epsilon * gradient_of_entropy(z))
    assert (apart.abs().amax(-1) > 0).all()
    assert_close(detached(correction), detached(penalty))


def test_correction_leaves_p_attached_and_trust_constant(gradient: Gradient) -> None:
    """What `correct` shows can be differentiated: through p as ε ∂p/∂z, through ε not at all."""
    z = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64)
    y = torch.tensor([1])
    criterion = ProSelfLC(1)
    shown = criterion.correct(z.clone().requires_grad_(), y, progress=0.9)
    p = z.softmax(-1)[0]
    slope = gradient(lambda z: criterion.correct(z, y, progress=0.9).target[:, 0], z)[0]

    assert not shown.trust.requires_grad
    assert shown.target.requires_grad
    assert_close(slope, shown.trust * p[0] * (torch.eye(3, dtype=torch.float64)[0] - p))


@few
@given(data=st.data(), progress=st.floats(0, 1), B=st.floats(0, 20))
def test_low_temperature_1_is_detached_proselflc(
    proselflc_trust: ProSelfLCTrust,
    annotated_batches: AnnotatedBatches,
    gradient: Gradient,
    data: DataObject,
    progress: float,
    B: float,
) -> None:
    """Same loss, trust and target as ProSelfLC, but the gradient is (1 − ε)(p − q)."""
    z, target, q = data.draw(annotated_batches)
    attached = ProSelfLC(1, sharpness=B, reduction="none")
    detached = LowTemperatureProSelfLC(
        1, sharpness=B, temperature=1.0, trust="global*local", reduction="none"
    )
    epsilon = proselflc_trust(z, progress - 0.5, B)[:, None]
    one = attached.correct(z, target, progress=progress)
    other = detached.correct(z, target, progress=progress)

    for mine, yours in zip(one, other, strict=True):
        assert_close(mine, yours)
    assert_close(attached(z, target, progress=progress), detached(z, target, progress=progress))
    assert_close(
        gradient(lambda z: detached(z, target, progress=progress), z),
        (1 - epsilon) * (z.softmax(-1) - q),
    )


@few
@given(data=st.data(), epsilon=epsilons)
def test_being_ones_own_teacher_corrects_nothing(
    batches: Batches, gradient: Gradient, data: DataObject, epsilon: float
) -> None:
    """A teacher with the student's own logits leaves (1 − ε)(p − q), the detached gradient."""
    z, y = data.draw(batches)
    criterion = Distillation(epsilon, reduction="sum")
    found = gradient(lambda x: criterion(x, y, teacher_logits=z), z)
    assert_close(found, (1 - epsilon) * (z.softmax(-1) - F.one_hot(y, z.shape[1])))


def test_a_confidently_wrong_annotation_is_let_go_only_if_p_is_attached(
    gradient: Gradient,
) -> None:
    """Late in training, p = [.9, .06, .04] and y = 2. Attached, a step raises the predicted class;
    detached, it still drags p to the annotation, only more slowly."""
    z = torch.tensor([[0.9, 0.06, 0.04]], dtype=torch.float64).log()
    y = torch.tensor([2])
    trust = 0.95

    def step(loss: Callable[[Tensor], Tensor]) -> float:
        after = (z - 0.1 * gradient(loss, z)).softmax(-1)
        return (after[0, 0] - 0.9).item()

    q_tilde = functional.correct(catalogue.boot_soft(trust), z, y).target
    assert q_tilde.argmax().item() == 0
    assert step(lambda z: functional.boot_soft(z, y, epsilon=trust)) > 1e-4
    assert step(lambda z: F.cross_entropy(z, q_tilde.detach())) < -1e-4
    assert step(lambda z: F.cross_entropy(z, y)) < -1e-4


@pytest.mark.parametrize("p_y", [1.5e-8, 1e-6, 0.3])
def test_the_published_logarithm_loses_the_gradient_of_unlikely_labels(
    gradient: Gradient, p_y: float
) -> None:
    """With log(p + δ) cross entropy keeps p_y/(p_y + δ) of its gradient: 1.5 % at p_y = 1.5e-8."""
    p = torch.tensor([[1 - p_y, p_y]], dtype=torch.float64)
    z, y = p.log(), torch.tensor([1])
    exact, published = CrossEntropy(), CrossEntropy(log_offset=1e-6)
    kept = gradient(lambda z: published(z, y), z) / gradient(lambda z: exact(z, y), z)

    assert_close(kept, torch.full_like(kept, p_y / (p_y + 1e-6)))
    assert_close(published(z, y), torch.tensor(-math.log(p_y + 1e-6), dtype=torch.float64))
