"""M-DYR and MD-DYR-SH: what is mixed when, what labels it gives, and what is recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc.data.batches import Batch
from proselflc.data.inputs import Texts
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.methods.dynamic_bootstrapping import (
    DynamicBootstrapping,
    Kind,
    imbalance,
    loss_model,
    mix,
)
from proselflc.training.group import Group
from proselflc.training.loop import DivergenceError, train_steps
from proselflc.training.observations import observe
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import CorrectedBatch

KINDS: tuple[Kind, ...] = ("soft", "hard", "dynamic")
N, C = 20, 4


def strategy(
    crowd: Any, kind: Kind, epochs: int = 60, weight: float = 1.0, begin: float = 0.35
) -> DynamicBootstrapping:
    return DynamicBootstrapping(crowd.context(epochs), kind, alpha=32.0, weight=weight, begin=begin)


log_mean = Group().log_mean


def believing(one: DynamicBootstrapping) -> DynamicBootstrapping:
    """With a table by which B is the square of a loss's place from 0.2 to 3."""
    one.table.copy_(torch.linspace(0, 1, 100) ** 2)
    one.bounds.copy_(torch.tensor([0.2, 3.0]))
    return one


def chance_of(loss: float) -> float:
    """B by that table."""
    place = min(max((loss - 0.2) / (2.8 + 1e-6), 1e-3), 1 - 1e-3)
    return min(max((round(99 * place) / 99) ** 2, 1e-4), 1 - 1e-4)


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def temperature_of(kind: Kind, epoch: int) -> float:
    """T, of 60 epochs: 22 are over when labels are first replaced, and 18 are three tenths."""
    if kind != "dynamic":
        return 1.0 if kind == "soft" else 0.0
    return max(0.001, 1 - 0.999 * max(0, epoch - 22) / 18)


def written_out(
    kind: Kind, epoch: int, W: Any, x: Any, y: Any, z: Any, other: Any, lam: float
) -> float:
    """The loss of a linear model, pair by pair; z, of the unmixed examples, are constants."""
    boots = epoch >= (22 if kind == "dynamic" else 21)
    by_chance = kind == "dynamic" and epoch >= 21
    T = temperature_of(kind, epoch)
    p_own = softmax(z)
    B = [chance_of(-math.log(p_own[i, y[i]])) for i in range(N)]
    total, mean_p = 0.0, np.zeros(C)
    for a, b in enumerate(other):
        share = (1 - B[a]) / ((1 - B[a]) + (1 - B[b])) if by_chance else lam
        p = softmax((share * x[a] + (1 - share) * x[b]) @ W.T)
        mean_p += p / N
        weights = (0.5, 0.5) if by_chance and boots else (lam, 1 - lam)
        for s, weight in zip((a, b), weights, strict=True):
            label = -math.log(p[y[s]])
            if not boots:
                total += weight * label
                continue
            said = np.eye(C)[z[s].argmax()] if T == 0 else softmax(z[s] / T)
            total += weight * ((1 - B[s]) * label + B[s] * -(said * np.log(p)).sum())
    R = sum((1 / C) * math.log((1 / C) / mean_p[c]) for c in range(C))
    return total / N + (2.5 * R if boots else 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch", [0, 20, 21, 22, 31, 55])
def test_loss_and_gradient_are_those_written_out_pair_by_pair(
    crowd: Any, kind: Kind, epoch: int, finite_differences: Callable[..., Any]
) -> None:
    one = believing(strategy(crowd, kind, weight=2.5))
    one.epochs.fill_(epoch)
    model = nn.Linear(C, C, bias=False)
    with torch.no_grad():
        model.weight.copy_(0.5 * torch.randn(C, C, generator=torch.Generator().manual_seed(1)))
    batch = next(crowd.batches())
    torch.manual_seed(11)
    loss, z = one.learn(model, batch, 0.5)
    (found,) = torch.autograd.grad(loss, model.weight)
    torch.manual_seed(11)
    other = torch.randperm(N).tolist()
    lam = float(torch.distributions.Beta(32.0, 32.0).sample())
    W, x = model.weight.detach().double().numpy(), batch.x.double().numpy()
    said = x @ W.T
    np.testing.assert_allclose(z, said, atol=1e-5)

    def value(weights: Any) -> float:
        return written_out(kind, epoch, weights, x, batch.y.tolist(), said, other, lam)

    assert loss.item() == pytest.approx(value(W), rel=1e-4)
    np.testing.assert_allclose(found, finite_differences(value, W), rtol=1e-3, atol=1e-5)


def test_every_pair_is_of_the_batch_and_is_drawn_anew(crowd: Any) -> None:
    """λ ~ Beta(32, 32) has mean ½ and standard deviation 1/√(4·65)."""
    one, seen = strategy(crowd, "soft"), list[Tensor]()
    batch = Batch(torch.eye(N), torch.zeros(N, dtype=torch.int64), torch.arange(N))

    class Mirror(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                seen.append(x.clone())
            return x[:, :C]

    torch.manual_seed(0)
    for _ in range(200):
        one.learn(Mirror(), batch, 0.5)
    shares = []
    for x in seen:
        assert_close(x.sum(0), torch.ones(N))  # every example is once a and once b
        assert_close(x.sum(1), torch.ones(N))
        own = x.diag()[x.diag() < 1]  # an example can be mixed with itself
        assert own.numel() == 0 or own.max() - own.min() < 1e-6  # one λ for all
        shares += own[:1].tolist()
    assert np.mean(shares) == pytest.approx(0.5, abs=0.02)
    assert np.std(shares) == pytest.approx(1 / math.sqrt(4 * 65), rel=0.15)
    assert len({tuple((x > 0).flatten().tolist()) for x in seen}) == 200


def test_what_is_mixed() -> None:
    a, b = torch.rand(5, 2, 3), torch.rand(5, 2, 3)
    share = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    found = mix(a, b, share)
    for i in range(5):
        assert_close(found[i], share[i] * a[i] + (1 - share[i]) * b[i])
    assert_close(mix(a, b, 0.3), 0.3 * a + 0.7 * b)
    assert mix(a.bfloat16(), b.bfloat16(), share).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
def test_phases_are_those_of_the_publication(crowd: Any, kind: Kind) -> None:
    """Of 300 epochs, 105 are over when mixup becomes dynamic, 110 when labels are replaced."""
    one = strategy(crowd, kind, 300)
    assert one.mixes_from == 105
    assert one.boots_from == (110 if kind == "dynamic" else 105)
    expected = {"soft": [1.0] * 6, "hard": [0.0] * 6}.get(kind)
    temperatures = []
    for epoch in (0, 110, 111, 198, 199, 299):
        one.epochs.fill_(epoch)
        temperatures.append(one.temperature)
    if expected is None:
        expected = [1.0, 1.0, 1 - 0.999 / 89, 1 - 0.999 * 88 / 89, 0.001, 0.001]
    assert temperatures == pytest.approx(expected, rel=1e-9)


def test_the_temperature_is_of_the_largest_class_in_the_end(crowd: Any) -> None:
    z = torch.tensor([[1.0, 1.1, -2.0, 0.0], [3.0, 2.9, 2.8, 2.0]])
    hard, dynamic = strategy(crowd, "hard"), strategy(crowd, "dynamic")
    assert hard.sharpened(z).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    dynamic.epochs.fill_(60)
    assert_close(dynamic.sharpened(z), hard.sharpened(z))
    assert_close(strategy(crowd, "soft").sharpened(z), torch.softmax(z, 1))


def test_chances_are_looked_up_without_falling_and_never_quite_sure(crowd: Any) -> None:
    one = believing(strategy(crowd, "soft"))
    losses = torch.linspace(0.001, 9, 500)
    logits = torch.stack((-losses, torch.log(-torch.expm1(-losses))), 1)  # −log p_0 is the loss
    found = one.wrong(logits, torch.zeros(500, dtype=torch.int64))
    assert_close(found, torch.tensor([chance_of(float(one)) for one in losses]), atol=0.025, rtol=0)
    assert (found.diff() >= 0).all()
    assert found.min() == pytest.approx(1e-4)
    assert found.max() == pytest.approx(1 - 1e-4)
    strange = torch.tensor([[math.nan, 0.0], [-1e30, 1e30], [1e30, -1e30], [-math.inf, 0.0]])
    chances = one.wrong(strange, torch.zeros(4, dtype=torch.int64))
    assert chances.isfinite().all()
    assert chances[1] == chances[3] == found.max()
    assert chances[2] == found.min()


@pytest.mark.parametrize("kind", KINDS)
def test_before_a_model_of_losses_every_label_is_believed(crowd: Any, kind: Kind) -> None:
    one = strategy(crowd, kind)
    z = 50 * torch.randn(N, C, generator=torch.Generator().manual_seed(0))
    assert_close(one.wrong(z, torch.zeros(N, dtype=torch.int64)), torch.full((N,), 1e-4))


def test_the_balance_of_classes(finite_differences: Callable[..., Any]) -> None:
    """R is 0 where the mean is uniform, and Σ_c (1/C) log((1/C)/p̄_c) elsewhere."""
    corners = 200.0 * torch.eye(C) - 100
    assert float(imbalance(log_mean(torch.log_softmax(corners, 1)))) == pytest.approx(0, abs=1e-6)
    assert float(imbalance(log_mean(torch.zeros(3, C).log_softmax(1)))) == pytest.approx(
        0, abs=1e-6
    )

    def value(z: Any) -> float:
        mean = softmax(z).mean(0)
        return float(np.sum(np.log((1 / C) / mean) / C))

    z = torch.randn(6, C, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z.requires_grad_()
    R = imbalance(log_mean(torch.log_softmax(z, 1)))
    assert R.item() == pytest.approx(value(z.detach().numpy()))
    assert R.item() > 0
    (found,) = torch.autograd.grad(R, z)
    np.testing.assert_allclose(found, finite_differences(value, z.detach().numpy()), atol=1e-8)
    one_class = torch.tensor([[1e4, 0.0, 0.0, 0.0]]).log_softmax(1)
    assert imbalance(log_mean(one_class)).isfinite()


@pytest.mark.parametrize("epoch", [0, 25])
def test_records_are_of_the_example_unmixed_in_evaluation_mode(crowd: Any, epoch: int) -> None:
    one = believing(strategy(crowd, "dynamic"))
    one.epochs.fill_(epoch)
    model = crowd.network()
    for batch in crowd.batches():  # statistics that are not those of a batch
        model(batch.x)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batch = next(crowd.batches(3))
    model.eval()
    expected = model(batch.x).detach()
    model.train()
    _, z = one.learn(model, batch, 0.5)
    assert torch.equal(z, expected)
    assert not z.requires_grad
    assert model.training
    # One pass has moved the statistics: the one over mixed examples.
    tracked = model[1].num_batches_tracked - before["1.num_batches_tracked"]
    assert tracked == 1
    assert not torch.equal(model[1].running_mean, before["1.running_mean"])
    p = torch.softmax(expected, 1)
    seen = observe(CorrectedBatch(one, z, batch, 0.5), means=True)
    assert_close(seen.means[0], p)
    q = F.one_hot(batch.y, C).float()
    if epoch == 0:
        assert_close(seen.means[1], q)
        assert seen.facts[:, 5].tolist() == [0] * N
        return
    B = one.wrong(z, batch.y)
    said = torch.softmax(z / temperature_of("dynamic", epoch), 1)
    assert_close(seen.means[1], (1 - B[:, None]) * q + B[:, None] * said)
    assert_close(seen.facts[:, 5], B)
    assert 0 < B.min() < B.max()


def test_an_evaluation_pass_alone_leaves_the_statistics(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With statistics that stay where they are in the pass over mixed examples, nothing moves."""
    one, model = strategy(crowd, "soft"), crowd.network()
    model[1].momentum = 0.0
    before = model[1].running_mean.clone(), model[1].running_var.clone()
    one.learn(model, next(crowd.batches()), 0.5)
    assert torch.equal(model[1].running_mean, before[0])
    assert torch.equal(model[1].running_var, before[1])


def scene_of(crowd: Any, losses: Tensor) -> Any:
    """A model that has given losses, in parts and in another order."""
    p = torch.exp(-losses)[:, None]
    q = F.one_hot(crowd.y, C)
    logits = torch.log(q * p + (1 - q) * (1 - p) / (C - 1))

    def predict(rows: Any = None) -> Iterator[tuple[Tensor, Tensor]]:
        assert rows is None
        order = torch.randperm(crowd.n, generator=torch.Generator().manual_seed(0))
        return ((index, logits[index]) for index in order.split(50))  # type: ignore[no-untyped-call]

    return replace(crowd.snapshot(nn.Identity()), predict=predict)


def test_the_model_of_losses_is_fitted_after_every_epoch_that_needs_it(crowd: Any) -> None:
    one = strategy(crowd, "dynamic", 10)  # dynamic when four epochs are over
    assert one.mixes_from == 4
    for epoch in range(6):
        generator = np.random.default_rng(epoch)
        wrong = (crowd.y != crowd.clean).numpy()
        losses = np.where(
            wrong, generator.gamma(20, 0.15, crowd.n), generator.gamma(2, 0.1, crowd.n)
        )
        one.after_epoch(0, epoch, scene_of(crowd, torch.from_numpy(losses).float()))
        if epoch + 1 < 4:
            assert one.table.abs().max() == 0
            continue
        expected = loss_model(losses.astype(np.float32).astype(float))
        assert expected is not None
        assert one.bounds.tolist() == pytest.approx([expected.low, expected.high], rel=1e-4)
        np.testing.assert_allclose(one.table, expected.table, atol=1e-3)
        logits = scene_of(crowd, torch.from_numpy(losses).float()).predict()
        for index, z in logits:
            chance = one.wrong(z, crowd.y[index])
            assert ((chance > 0.5).numpy() == wrong[index]).mean() > 0.9
    assert crowd.notes == []
    assert one.facts() == {"epochs_without_two_kinds_of_losses": 0}


def test_losses_of_one_kind_are_noted_once_and_every_label_is_believed(crowd: Any) -> None:
    one = believing(strategy(crowd, "soft", 10))
    same = scene_of(crowd, torch.full((crowd.n,), 1.3))
    for epoch in range(3, 8):
        one.epochs.fill_(epoch)
        one.after_epoch(0, epoch, same)
        assert one.table.abs().max() == 0
    (note,) = crowd.notes
    assert "after epoch 4 the losses do not form two components" in note
    assert one.facts() == {"epochs_without_two_kinds_of_losses": 5}
    losses = torch.where(crowd.y == crowd.clean, 0.1, 3.0) * torch.linspace(0.7, 1.4, crowd.n)
    one.after_epoch(0, 8, scene_of(crowd, losses))
    assert one.table.max() > 0.9
    assert len(crowd.notes) == 1


def test_a_batch_in_parts_is_mixed_within_them(crowd: Any) -> None:
    """The first part is recorded as the model was before the step; all rows are there."""
    recipe = Recipe(optimizer="sgd", lr=0.02, weight_decay=0.0, accumulate=3)
    ours = crowd.training(strategy(crowd, "dynamic", 2), 2, recipe)
    model = crowd.network().eval()
    result = next(train_steps(ours, crowd, crowd.snapshot))
    assert result.logits.shape == (N, C)
    assert torch.equal(result.logits[:7], model(result.batch.x[:7]).detach())
    assert math.isfinite(result.loss)


def test_wrong_labels_are_found(crowd: Any) -> None:
    one = strategy(crowd, "dynamic", 30)
    recipe = Recipe(optimizer="sgd", lr=0.02, weight_decay=0.0)
    ours = crowd.training(one, 30, recipe)
    for _ in train_steps(ours, crowd, crowd.snapshot):
        pass
    ours.module.eval()
    with torch.no_grad():
        chance = one.wrong(ours.module(crowd.x), crowd.y)
    wrong = crowd.y != crowd.clean
    assert chance[wrong].mean() > chance[~wrong].mean() + 0.5


def test_weights_that_are_no_numbers_are_said_to_be_so(crowd: Any) -> None:
    ours = crowd.training(strategy(crowd, "dynamic", 4), 4)
    with torch.no_grad():
        ours.module[0].weight.fill_(math.nan)
    with pytest.raises(DivergenceError, match="the loss of step 1 is nan"):
        next(train_steps(ours, crowd, crowd.snapshot))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_refused(crowd: Any, kind: Kind) -> None:
    texts = fit(Texts(("a text", "another text")))
    context = replace(crowd.context(5), preprocessing=texts)
    with pytest.raises(InputError) as caught:
        DynamicBootstrapping(context, kind, alpha=32.0, weight=1.0, begin=0.35)
    assert caught.value.field == "method"
    assert "texts cannot be mixed" in caught.value.reason
