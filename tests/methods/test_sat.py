"""Self-adaptive training: cross entropy at first, then labels that move and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc.correction.criteria import CrossEntropy
from proselflc.data import memory_budget
from proselflc.errors import InputError
from proselflc.methods.sat import SelfAdaptiveTraining
from proselflc.training.loop import train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import Strategy


def strategy(
    crowd: Any, epochs: int = 8, momentum: float = 0.9, begin: float = 0.5
) -> SelfAdaptiveTraining:
    return SelfAdaptiveTraining(crowd.context(epochs), momentum=momentum, begin=begin)


def test_it_is_cross_entropy_bit_for_bit_until_labels_move(crowd: Any) -> None:
    one = strategy(crowd)
    given = F.one_hot(crowd.y, 4).float()
    plain = crowd.training(Strategy(CrossEntropy()), 8)
    ours = crowd.training(one, 8)
    moved = 4 * crowd.total
    pairs = zip(train_steps(ours, crowd, crowd.snapshot), train_steps(plain, crowd), strict=True)
    for found, expected in pairs:
        same = all(
            torch.equal(ours.module.state_dict()[name], tensor)
            for name, tensor in plain.module.state_dict().items()
        )
        assert (found.loss == expected.loss) == (found.step <= moved)
        assert same == (found.step <= moved)
        assert torch.equal(one.memory.average, given) == (found.step <= moved)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_labels_follow_predictions_by_the_recurrence(crowd: Any, momentum: float) -> None:
    one = strategy(crowd, momentum=momentum, begin=0.25)  # from epoch 2 on
    expected = F.one_hot(crowd.y, 4).double().numpy()
    generator = torch.Generator().manual_seed(0)
    for epoch in range(5):
        for batch in crowd.batches(epoch):
            z = 3 * torch.randn(20, 4, generator=generator)
            before = one.memory.average.clone()
            one.loss(z, batch, 0.5)
            assert torch.equal(
                one.memory.average, before
            )  # a step that is not taken leaves no trace
            one.after_step(z, batch)
            p = torch.softmax(z.double(), 1).numpy()
            if epoch >= 2:
                rows = batch.index.numpy()
                expected[rows] = momentum * expected[rows] + (1 - momentum) * p
            taught, trust = one.taught(one.evidence(z, batch, 0.5), batch)
            np.testing.assert_allclose(taught, expected[batch.index], atol=1e-5)
            assert trust.tolist() == [0] * 20
        one.after_epoch(0, epoch, crowd.snapshot(torch.nn.Identity()))
        np.testing.assert_allclose(one.memory.average, expected, atol=1e-6)
    assert_close(one.memory.average.sum(1), torch.ones(crowd.n))


def test_loss_and_gradient_are_the_formula(
    crowd: Any, finite_differences: Callable[..., Any]
) -> None:
    """Σ w H(t, p)/Σ w, with t renewed before and w = max t, both constants."""
    one, batch = strategy(crowd, begin=0.0), next(crowd.batches())
    memory = (3 * torch.rand(20, 4, generator=torch.Generator().manual_seed(1))).softmax(1)
    one.memory.average[batch.index] = memory
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = one.loss(z, batch, 0.5)
    (found,) = torch.autograd.grad(loss, z)
    at = z.detach().double().numpy()
    t = 0.9 * memory.double().numpy() + 0.1 * np.exp(at) / np.exp(at).sum(1, keepdims=True)
    w = t.max(1)
    assert w.max() > 1.3 * w.min()

    def value(logits: Any) -> float:
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return float((w * -(t * log_p).sum(1)).sum() / w.sum())

    assert loss.item() == pytest.approx(value(at), rel=1e-5)
    np.testing.assert_allclose(found, finite_differences(value, at), atol=1e-6)
    p = np.exp(at) / np.exp(at).sum(1, keepdims=True)
    np.testing.assert_allclose(found, w[:, None] * (p - t) / w.sum(), atol=1e-6)


def test_extreme_and_rough_predictions_are_finite(crowd: Any) -> None:
    one, batch = strategy(crowd, begin=0.0), next(crowd.batches())
    for scale in (1e4, 1e30):
        z = (scale * F.one_hot(batch.y.roll(1), 4).float()).requires_grad_()
        loss = one.loss(z, batch, 0.5)
        (gradient,) = torch.autograd.grad(loss, z)
        assert loss.isfinite()
        assert gradient.isfinite().all()
    rough = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert one.loss(rough, batch, 0.5).dtype == one.memory.average.dtype == torch.float32


def test_wrong_labels_become_right(crowd: Any) -> None:
    one = strategy(crowd, 30, momentum=0.8, begin=0.1)
    slowly = Recipe(optimizer="sgd", lr=0.03, weight_decay=0.0)
    for _ in train_steps(crowd.training(one, 30, slowly), crowd, crowd.snapshot):
        pass
    before = (crowd.y == crowd.clean).float().mean()
    after = (one.memory.average.argmax(1) == crowd.clean).float().mean()
    assert after > before + 0.1
    assert one.remembers


def test_a_memory_that_is_too_large_is_refused_with_its_size(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "LIMIT", 3 * (2 * 4 + 4) * crowd.n - 1)
    with pytest.raises(
        InputError, match="keeps a label of 120 examples of 4 classes as float16, which with the co"
    ):
        strategy(crowd)
