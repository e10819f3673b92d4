"""What the corrections by a transition matrix promise when they are told the true one.

T_ij = P(given = j | clean = i). An example of clean posterior π is given labels distributed as Tᵀπ.
"""

from collections.abc import Callable
from functools import partial

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

from proselflc import BackwardCorrection, ForwardCorrection, functional

Batches = SearchStrategy[tuple[Tensor, Tensor]]
AnnotatedBatches = SearchStrategy[tuple[Tensor, Tensor, Tensor]]
Gradient = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
few = settings(deadline=None, max_examples=25, derandomize=True)
rates = st.floats(0.05, 0.45)


def noise(C: int, rate: float) -> Tensor:
    """[C, C] a transition that keeps at least 1 − rate of each class and has no symmetry."""
    generator = torch.Generator().manual_seed(C)
    flips = (2 * torch.randn(C, C, generator=generator, dtype=torch.float64)).softmax(-1)
    return (1 - rate) * torch.eye(C, dtype=torch.float64) + rate * flips


def for_every_given_label(loss: Callable[..., Tensor], z: Tensor) -> Tensor:
    """[N, C] the loss of each example under each label that it might be given."""
    N, C = z.shape
    return torch.stack([loss(z, torch.full((N,), j), reduction="none") for j in range(C)], dim=-1)


@few
@given(data=st.data(), rate=rates)
def test_forward_is_the_likelihood_of_the_given_label(
    annotated_batches: AnnotatedBatches, data: DataObject, rate: float
) -> None:
    """−log (Tᵀp)_y, and its average over q for a distribution."""
    z, target, q = data.draw(annotated_batches)
    T = noise(z.shape[1], rate)
    given_label = torch.from_numpy(np.einsum("ni,ij->nj", z.softmax(-1).numpy(), T.numpy()))

    assert_close(
        ForwardCorrection(T, reduction="none")(z, target), -(q * given_label.log()).sum(-1)
    )


@few
@given(data=st.data(), rate=rates)
def test_backward_is_a_combination_of_the_losses_of_all_classes(
    annotated_batches: AnnotatedBatches, data: DataObject, rate: float
) -> None:
    """Σ_j (T⁻¹)_yj (−log p_j), and its average over q for a distribution."""
    z, target, q = data.draw(annotated_batches)
    T = noise(z.shape[1], rate)
    solved = np.linalg.solve(T.numpy(), -z.log_softmax(-1).numpy().T).T  # [N, C]

    assert_close(
        BackwardCorrection(T, reduction="none")(z, target),
        (q * torch.from_numpy(solved)).sum(-1),
    )


@few
@given(data=st.data(), rate=rates)
def test_backward_with_the_true_transition_is_unbiased(
    batches: Batches, gradient: Gradient, data: DataObject, rate: float
) -> None:
    """Averaged over the labels that noise may give, loss and gradient are those of the clean one.

    Without correction they are not.
    """
    z, clean = data.draw(batches)
    T = noise(z.shape[1], rate)
    chances = T[clean]  # [N, C] of the given labels
    backward = partial(functional.backward_correction, transition=T)

    def expected(loss: Callable[..., Tensor], z: Tensor) -> Tensor:
        return (chances * for_every_given_label(loss, z)).sum(-1)

    assert_close(expected(backward, z), F.cross_entropy(z, clean, reduction="none"))
    assert_close(
        gradient(partial(expected, backward), z),
        z.softmax(-1) - F.one_hot(clean, z.shape[1]),
    )
    assert_close(gradient(partial(expected, F.cross_entropy), z), z.softmax(-1) - chances)
    assert ((chances - F.one_hot(clean, z.shape[1])).abs().amax(-1) > 1e-4).all()


@few
@given(data=st.data(), rate=rates)
def test_backward_is_unbiased_for_uncertain_examples_too(
    batches: Batches, data: DataObject, rate: float
) -> None:
    """For a clean posterior π the expected loss is H(π, p), given one by one or as Tᵀπ."""
    z, _ = data.draw(batches)
    T, pi = noise(z.shape[1], rate), z.flip(1).softmax(-1)
    backward = partial(functional.backward_correction, transition=T)
    one_by_one = ((pi @ T) * for_every_given_label(backward, z)).sum(-1)

    assert_close(one_by_one, F.cross_entropy(z, pi, reduction="none"))
    assert_close(backward(z, pi @ T, reduction="none"), one_by_one)


@few
@given(data=st.data(), rate=rates)
def test_forward_with_the_true_transition_is_stationary_at_the_clean_posterior(
    batches: Batches, gradient: Gradient, data: DataObject, rate: float
) -> None:
    """At p = π the expected gradient is 0; cross entropy would pull p to Tᵀπ instead."""
    z, _ = data.draw(batches)
    T, pi = noise(z.shape[1], rate), z.softmax(-1)
    assume(((pi @ T - pi).abs().amax(-1) > 1e-4).all())
    forward = partial(functional.forward_correction, transition=T)

    def expected(loss: Callable[..., Tensor], z: Tensor) -> Tensor:
        return ((pi @ T) * for_every_given_label(loss, z)).sum(-1)

    assert_close(gradient(partial(expected, forward), z), torch.zeros_like(z))
    assert_close(gradient(partial(expected, F.cross_entropy), z), pi - pi @ T)


@few
@given(data=st.data(), rate=rates)
def test_forward_with_the_true_transition_costs_more_everywhere_else(
    batches: Batches, data: DataObject, rate: float
) -> None:
    """L(p) − L(π) = KL(Tᵀπ‖Tᵀp), which is 0 only where Tᵀp = Tᵀπ, that is at p = π."""
    z, _ = data.draw(batches)
    T, pi = noise(z.shape[1], rate), (z.flip(1) / 2).softmax(-1)
    loss = partial(functional.forward_correction, target=pi @ T, transition=T, reduction="none")
    excess = loss(z) - loss(pi.log())

    assert_close(
        excess, kl_divergence(Categorical(probs=pi @ T), Categorical(probs=z.softmax(-1) @ T))
    )
    assert (excess >= 0).all()


@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_forward_recovers_the_clean_posterior_from_noisy_labels(rate: float) -> None:
    """Minimised from the uniform prediction, Forward ends at π and cross entropy at Tᵀπ."""
    pi = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]], dtype=torch.float64)
    T = noise(3, rate)

    def minimiser(loss: Callable[..., Tensor]) -> Tensor:
        z = torch.zeros_like(pi, requires_grad=True)
        optimizer = torch.optim.LBFGS([z], max_iter=200, line_search_fn="strong_wolfe")

        def closure() -> float:
            optimizer.zero_grad()
            value = loss(z, pi @ T)
            (z.grad,) = torch.autograd.grad(value, z)
            return value.item()

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return z.detach().softmax(-1)

    corrected = minimiser(partial(functional.forward_correction, transition=T))
    assert_close(corrected, pi, rtol=0, atol=1e-3)
    assert_close(minimiser(F.cross_entropy), pi @ T, rtol=0, atol=1e-3)
    assert ((pi @ T - pi).abs().amax(-1) > 1e-2).all()


@pytest.mark.parametrize("correct", [functional.forward_correction, functional.backward_correction])
def test_rows_are_clean_classes(correct: Callable[..., Tensor], gradient: Gradient) -> None:
    """Class i flips to i + 1. Told the reverse, neither correction is at rest at the truth."""
    pi = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    T = 0.7 * eye + 0.3 * eye.roll(1, 1)
    at_truth = gradient(lambda z: correct(z, pi @ T, transition=T), pi.log())
    reversed_ = gradient(lambda z: correct(z, pi @ T, transition=T.T), pi.log())

    assert_close(at_truth, torch.zeros_like(pi))
    assert reversed_.abs().max() > 0.05


def test_backward_can_be_negative() -> None:
    """A confident prediction of an unlikely given label costs less than nothing."""
    T = torch.tensor([[0.6, 0.4], [0.4, 0.6]], dtype=torch.float64)
    z = torch.tensor([[3.0, 0.0]], dtype=torch.float64)
    loss = functional.backward_correction(z, torch.tensor([0]), transition=T)
    expected = 3 * np.log1p(np.exp(-3)) - 2 * np.log1p(np.exp(3))

    assert_close(loss, torch.tensor(expected, dtype=torch.float64))
    assert loss < 0
