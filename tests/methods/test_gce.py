"""Truncated GCE: which labels are kept when, and that the others teach nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from proselflc.methods.gce import TruncatedGCE
from proselflc.training.loop import train_steps
from proselflc.training.recipe import Recipe


def strategy(
    crowd: Any, epochs: int = 10, *, q: float = 0.7, k: float = 0.5, begin: float = 0.5
) -> TruncatedGCE:
    return TruncatedGCE(crowd.context(epochs), q=q, k=k, begin=begin)


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("k", [0.0, 0.3, 0.5, 1.0])
def test_loss_and_gradient_are_the_formula(
    crowd: Any, q: float, k: float, finite_differences: Callable[..., Any]
) -> None:
    """v L_q(p_y) + (1 − v) L_q(k); v p_y^q (p − onehot y)."""
    one, batch = strategy(crowd, q=q, k=k), next(crowd.batches())
    one.kept[batch.index[::3]] = False
    kept = one.kept[batch.index].numpy()
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def value(logits: Any) -> float:
        total = 0.0
        for i in range(20):
            p = np.exp(logits[i, batch.y[i]]) / np.exp(logits[i]).sum()
            total += (1 - (p if kept[i] else k) ** q) / q
        return total / 20

    loss = one.loss(z, batch, 0.5)
    (found,) = torch.autograd.grad(loss, z)
    at = z.detach().double().numpy()
    assert loss.item() == pytest.approx(value(at), rel=1e-5)
    np.testing.assert_allclose(found, finite_differences(value, at), atol=1e-6)
    p = torch.softmax(z.detach(), 1)
    p_y = p.gather(1, batch.y[:, None])
    expected = p_y**q * (p - torch.nn.functional.one_hot(batch.y, 4)) / 20
    assert_close(found[kept], expected[kept])
    assert found[~kept].abs().max() == 0
    assert found[kept].abs().sum(1).min() > 0


def test_labels_are_chosen_at_the_right_epochs_by_their_probability(crowd: Any) -> None:
    """Of 30 epochs, after the 15th and then after every second."""
    one = strategy(crowd, 30)
    assert (one.begin, one.every) == (15, 2)
    generator = torch.Generator().manual_seed(0)
    expected = torch.ones(crowd.n, dtype=torch.bool)
    for epoch in range(30):
        logits = 2 * torch.randn(crowd.n, 4, generator=generator)
        halves = torch.randperm(crowd.n, generator=generator).split(70)  # type: ignore[no-untyped-call]
        snapshot = replace(
            crowd.snapshot(torch.nn.Identity()),
            predict=lambda rows=None, z=logits, parts=halves: ((i, z[i]) for i in parts),
        )
        one.after_epoch(0, epoch, snapshot)
        if epoch + 1 in range(15, 31, 2):
            p = torch.softmax(logits, 1)
            expected = torch.tensor([bool(p[i, crowd.y[i]] >= 0.5) for i in range(crowd.n)])
            assert 0 < expected.sum() < crowd.n
        assert torch.equal(one.kept, expected), epoch
        assert one.facts() == {"labels_left_out": crowd.n - int(expected.sum())}
    assert crowd.notes == []


@pytest.mark.parametrize(
    ("epochs", "begin", "first", "every"), [(150, 80 / 150, 80, 10), (3, 0.0, 1, 1), (1, 1.0, 1, 1)]
)
def test_when_it_begins(crowd: Any, epochs: int, begin: float, first: int, every: int) -> None:
    one = strategy(crowd, epochs, begin=begin)
    assert (one.begin, one.every) == (first, every)


def test_a_probability_of_just_k_is_kept(crowd: Any) -> None:
    one = TruncatedGCE(crowd.context(10), q=0.7, k=0.25, begin=0.5)
    snapshot = replace(
        crowd.snapshot(torch.nn.Identity()),
        predict=lambda rows=None: iter([(torch.arange(crowd.n), torch.zeros(crowd.n, 4))]),
    )
    one.after_epoch(0, 4, snapshot)
    assert one.kept.all()
    assert crowd.notes == []


def test_where_nothing_would_be_kept_all_is_and_that_is_said(crowd: Any) -> None:
    one = strategy(crowd)
    one.kept[:50] = False
    snapshot = replace(
        crowd.snapshot(torch.nn.Identity()),
        predict=lambda rows=None: iter([(torch.arange(crowd.n), torch.zeros(crowd.n, 4))]),
    )
    one.after_epoch(0, 4, snapshot)
    assert one.kept.all()
    (note,) = crowd.notes
    assert note.startswith("after epoch 5 no label has a probability of 0.5")


def test_what_is_left_out_are_mostly_wrong_labels(crowd: Any) -> None:
    one = strategy(crowd, 20)
    slowly = Recipe(optimizer="sgd", lr=0.03, weight_decay=0.0)
    for _ in train_steps(crowd.training(one, 20, slowly), crowd, crowd.snapshot):
        pass
    wrong = crowd.y != crowd.clean
    assert (~one.kept)[wrong].float().mean() > 0.8
    assert (~one.kept)[~wrong].float().mean() < 0.2
