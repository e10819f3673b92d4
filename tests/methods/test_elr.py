"""ELR: its memory follows its recurrence, and its gradient its formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc.data import memory_budget
from proselflc.errors import InputError
from proselflc.methods.elr import EarlyLearningRegularization
from proselflc.training.loop import train_steps


def strategy(
    crowd: Any, epochs: int = 6, momentum: float = 0.7, weight: float = 3.0
) -> EarlyLearningRegularization:
    return EarlyLearningRegularization(crowd.context(epochs), momentum=momentum, weight=weight)


def clamped(logits: Any) -> Any:
    """p as the method has it, by numpy."""
    p = np.exp(logits - logits.max(1, keepdims=True))
    return np.clip(p / p.sum(1, keepdims=True), 1e-4, 1 - 1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.7, 0.9])
def test_the_memory_follows_its_recurrence(crowd: Any, momentum: float) -> None:
    one = strategy(crowd, momentum=momentum)
    assert one.memory.average.abs().max() == 0
    expected = np.zeros((crowd.n, 4))
    generator = torch.Generator().manual_seed(0)
    for epoch in range(4):
        for batch in crowd.batches(epoch):
            z = 4 * torch.randn(20, 4, generator=generator)
            before = one.memory.average.clone()
            one.loss(z, batch, 0.5)
            assert torch.equal(
                one.memory.average, before
            )  # a step that is not taken leaves no trace
            one.after_step(z, batch)
            p = clamped(z.double().numpy())
            for row, i in zip(p, batch.index.tolist(), strict=True):
                expected[i] = momentum * expected[i] + (1 - momentum) * row / row.sum()
            taught, trust = one.taught(one.evidence(z, batch, 0.5), batch)
            of_batch = expected[batch.index]
            np.testing.assert_allclose(taught, of_batch / of_batch.sum(1, keepdims=True), atol=1e-5)
            assert trust.tolist() == [0] * 20
        np.testing.assert_allclose(one.memory.average, expected, atol=1e-6)
        np.testing.assert_allclose(
            one.memory.average.sum(1), 1 - momentum ** (epoch + 1), rtol=1e-5
        )


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_loss_and_gradient_are_the_formula(
    crowd: Any, finite_differences: Callable[..., Any], scale: float
) -> None:
    """H(q, p) + λ log(1 − ⟨t, p⟩), t a constant that was renewed before."""
    one, batch = strategy(crowd), next(crowd.batches())
    memory = torch.rand(20, 4, generator=torch.Generator().manual_seed(1)).softmax(1)
    one.memory.average[batch.index] = memory
    z = scale * torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    z.requires_grad_()
    loss = one.loss(z, batch, 0.5)
    (found,) = torch.autograd.grad(loss, z)
    at = z.detach().double().numpy()
    p = clamped(at)
    t = 0.7 * memory.double().numpy() + 0.3 * p / p.sum(1, keepdims=True)

    def value(logits: Any) -> float:
        unclamped = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        label = -np.log(unclamped[np.arange(20), batch.y]).mean()
        return float(label + 3 * np.log(1 - (t * clamped(logits)).sum(1)).mean())

    assert loss.item() == pytest.approx(value(at), rel=1e-5)
    np.testing.assert_allclose(found, finite_differences(value, at), atol=2e-6)
    # ∂/∂z = p − q − λ p∘(t − ⟨t, p⟩)/(1 − ⟨t, p⟩), where nothing is clamped.
    inner = (t * p).sum(1, keepdims=True)
    q = F.one_hot(batch.y, 4).numpy()
    expected = (p - q - 3 * p * (t - inner) / (1 - inner)) / 20
    inside = ((p > 1e-4) & (p < 1 - 1e-4)).all(1)
    assert inside.sum() > 10
    np.testing.assert_allclose(found[inside], expected[inside], atol=1e-6)


def test_a_network_that_agrees_with_itself_has_a_negative_loss(crowd: Any) -> None:
    one, batch = strategy(crowd, momentum=0.1), next(crowd.batches())
    for _ in range(5):
        sure = 30.0 * F.one_hot(batch.y, 4)
        loss = one.loss(sure, batch, 0.5)
        one.after_step(sure, batch)
    assert float(loss) == pytest.approx(3 * math.log(1 - 0.9999**2), rel=0.2)
    assert float(loss) < -20
    assert math.isfinite(float(one.loss(1e4 * F.one_hot(batch.y, 4).float(), batch, 0.5)))


def test_without_weight_it_is_cross_entropy(crowd: Any) -> None:
    one, batch = strategy(crowd, weight=0.0), next(crowd.batches())
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    assert_close(one.loss(z, batch, 0.5), F.cross_entropy(z, batch.y))


def test_half_precision_is_remembered_in_full(crowd: Any) -> None:
    one, batch = strategy(crowd), next(crowd.batches())
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert one.loss(z, batch, 0.5).dtype == one.memory.average.dtype == torch.float32
    one.after_step(z, batch)
    p = clamped(z.double().numpy())
    np.testing.assert_allclose(
        one.memory.average[batch.index], 0.3 * p / p.sum(1, keepdims=True), atol=1e-6
    )


def test_it_remembers_the_truth_where_labels_are_wrong(crowd: Any) -> None:
    one = strategy(crowd, 20)
    for _ in train_steps(crowd.training(one, 20), crowd, crowd.snapshot):
        pass
    wrong = crowd.y != crowd.clean
    assert (one.memory.average.argmax(1) == crowd.clean)[wrong].float().mean() > 0.7
    assert one.remembers


def test_a_memory_that_is_too_large_is_refused_with_its_size(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 12 * 50_000 * 100 < memory_budget.LIMIT < 6 * 1_281_167 * 1000
    needed = 3 * (2 * 4 + 4) * crowd.n  # float16 and a count, which top classes would exceed
    monkeypatch.setattr(memory_budget, "LIMIT", needed - 1)
    with pytest.raises(InputError) as caught:
        strategy(crowd)
    assert str(caught.value) == (
        "the method keeps a mean prediction of 120 examples of 4 classes as float16, which with "
        "the copies for a checkpoint needs 4.3e-06 GB of memory, and the limit is 4.3e-06 GB: use "
        "fewer examples or classes, or another method=, or raise the limit with "
        "PROSELFLC_MEMORY_GB=1"
    )
    monkeypatch.setattr(memory_budget, "LIMIT", needed)
    (note,) = strategy(crowd).notes()
    assert note == (
        "the method keeps a mean prediction of every example as float16, in 1.4e-06 GB instead of "
        "2.4e-06 GB of memory: PROSELFLC_MEMORY_GB=1 keeps all in float32"
    )
    monkeypatch.setattr(memory_budget, "LIMIT", 3 * (4 * 4 + 4) * crowd.n)
    assert strategy(crowd).notes() == []


def test_a_memory_beyond_what_is_free_is_refused_with_the_remedy(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "available", lambda: 100)
    with pytest.raises(
        InputError, match=r"1e-07 GB are free: use fewer.* lower PROSELFLC_MEMORY_GB, so that less"
    ):
        strategy(crowd)
