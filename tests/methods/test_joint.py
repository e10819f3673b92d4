"""Joint optimisation: its labels, its regularisers, its two stages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc.data import memory_budget
from proselflc.data.batches import Batch
from proselflc.data.inputs import Features, Ints
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.methods.joint import BEGIN, FIRST, RING, Joint
from proselflc.training import processes
from proselflc.training.loop import Training, train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext, Snapshot

n, C, BATCH = 90, 3, 15
BATCHES = n // BATCH
RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-4)


def context(given: Ints, epochs: int = 16, classes: int = C) -> RunContext:
    return RunContext(
        total_steps=epochs * BATCHES,
        batches=BATCHES,
        given=given,
        names=tuple(map(str, range(classes))),
        preprocessing=fit(Features(np.eye(4, dtype=np.float32))),
    )


def strategy(given: Ints | None = None, *, hard: bool = False, **more: Any) -> Joint:
    labels = np.arange(n) % C if given is None else given
    return Joint(context(labels, **more), hard=hard, alpha=1.2, beta=0.8)


class Clusters:
    """Three clouds of points that a line tells apart, 30 % of whose labels are wrong."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.truth = np.arange(n) % C
        wrong = generator.permutation(n)[: int(0.3 * n)]
        self.given = self.truth.copy()
        self.given[wrong] = (self.truth[wrong] + generator.integers(1, C, len(wrong))) % C
        centres = np.array([[0.0, 4.0], [4.0, -2.0], [-4.0, -2.0]])
        x = centres[self.truth] + generator.normal(size=(n, 2))
        self.x = torch.from_numpy(x).float()

    def __len__(self) -> int:
        return BATCHES

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
        for index in list(order.split(BATCH))[start:]:  # type: ignore[no-untyped-call]
            yield Batch(self.x[index], torch.from_numpy(self.given)[index], index)


def training(data: Clusters, *, hard: bool, epochs: int) -> Training:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, C))
    return Training(
        model,
        strategy(data.given, hard=hard, epochs=epochs),
        RECIPE,
        epochs * BATCHES,
        BATCHES,
        accelerator=processes.accelerator("no"),
    )


def snapshot(model: nn.Module) -> Snapshot:
    return Snapshot(model, np.zeros(n, np.int64), C, lambda rows=None: iter(()), pytest.fail)


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_labels_become_the_truth_on_separable_data(hard: bool) -> None:
    data = Clusters()
    assert (data.given == data.truth).mean() == pytest.approx(0.7)
    one = training(data, hard=hard, epochs=32)
    for _ in train_steps(one, data, snapshot):
        pass
    labels = one.strategy.get_buffer("labels.rows.average16")
    assert (labels.argmax(1).numpy() == data.truth).mean() >= 0.98
    assert_close(labels.float().sum(1), torch.ones(n), rtol=0, atol=1e-3)
    values = set(labels.flatten().tolist())
    assert values == {0, 1} if hard else len(values) > n
    predicted = one.module(data.x).argmax(1).numpy()
    assert (predicted == data.truth).mean() >= 0.98


def test_labels_are_the_given_ones_until_they_are_replaced_and_then_means_of_ten_epochs() -> None:
    one = strategy(epochs=40)  # 25 epochs of the first stage
    assert one.begin == int(BEGIN * 25) == 8
    generator = torch.Generator().manual_seed(0)
    given = F.one_hot(torch.arange(n) % C, C).float()
    batch_y = torch.arange(n) % C
    every: list[Tensor] = []
    for epoch in range(25):
        logits = 3 * torch.randn(n, C, generator=generator)
        for index in torch.randperm(n, generator=generator).split(BATCH):  # type: ignore[no-untyped-call]
            one.after_step(logits[index], Batch(torch.zeros(BATCH), batch_y[index], index))
        every.append(logits.softmax(1))
        one.after_epoch(0, epoch, snapshot(nn.Identity()))
        expected = given if epoch < 8 else torch.stack(every[-RING:]).mean(0)
        assert_close(one.labels.average.float(), expected, rtol=0, atol=1e-3)
        batch = Batch(torch.zeros(3), batch_y[:3], torch.tensor([5, 1, 40]))
        assert_close(one.targets(batch), expected[batch.index], rtol=0, atol=1e-3)
        assert_close(one.targets(batch).sum(1), torch.ones(3))


def test_hard_labels_are_the_largest_class_of_the_mean() -> None:
    one = strategy(np.zeros(n, np.int64), hard=True, epochs=3)
    index = torch.arange(n)
    p = torch.rand(n, C, generator=torch.Generator().manual_seed(0)).softmax(1)
    one.after_step(p.log(), Batch(p, index, index))
    one.after_epoch(0, 0, snapshot(nn.Identity()))
    assert_close(
        one.labels.average.float(), F.one_hot(p.half().argmax(1), C).float(), rtol=0, atol=0
    )


def test_an_example_that_no_epoch_had_keeps_its_label() -> None:
    one = strategy(epochs=3)
    index = torch.arange(n - 1)
    one.after_step(torch.zeros(n - 1, C), Batch(index, index, index))
    one.after_epoch(0, 0, snapshot(nn.Identity()))
    assert_close(
        one.labels.average[: n - 1].float(), torch.full((n - 1, C), 1 / C), rtol=1e-3, atol=0
    )
    assert one.labels.average[n - 1].tolist() == [0, 0, 1]


@pytest.mark.parametrize("scale", [0.1, 1.0, 200.0])
def test_regularisers_are_what_the_formula_says(scale: float) -> None:
    """L_p = −Σ_j π_j log s̄_j and L_e = mean H(p), number by number."""
    given = np.array([0] * 50 + [1] * 30 + [2] * 10)
    one = strategy(given)
    z = scale * torch.randn(7, C, generator=torch.Generator().manual_seed(1))
    batch = Batch(z, torch.zeros(7, dtype=torch.int64), torch.arange(7))
    p = np.exp(z.double().numpy() - z.double().numpy().max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    shares = [50 / 90, 30 / 90, 10 / 90]
    L_p = -sum(shares[j] * math.log(p[:, j].mean()) for j in range(C))
    L_e = np.mean([-sum(v * math.log(v) for v in row if v > 0) for row in p])
    found = one.penalty(z, batch)
    assert found is not None
    assert float(found) == pytest.approx(1.2 * L_p + 0.8 * L_e, rel=1e-4)
    loss = one.loss(z, batch, 0.5)
    L_c = -np.mean(np.log(np.maximum(p[:, 0], 1e-300)))
    assert float(loss) == pytest.approx(L_c + 1.2 * L_p + 0.8 * L_e, rel=1e-4)


def test_gradients_of_the_regularisers_are_those_of_finite_differences() -> None:
    one = strategy(np.array([0] * 50 + [1] * 30 + [2] * 10))
    z = torch.randn(5, C, generator=torch.Generator().manual_seed(2), requires_grad=True)
    batch = Batch(z, torch.zeros(5, dtype=torch.int64), torch.arange(5))
    penalty = one.penalty(z, batch)
    assert penalty is not None
    (found,) = torch.autograd.grad(penalty, z)

    def value(logits: np.ndarray[Any, Any]) -> float:
        p = np.exp(logits)
        p /= p.sum(1, keepdims=True)
        prior = np.array([50, 30, 10]) / 90
        balance = -(prior * np.log(p.mean(0))).sum()
        return float(1.2 * balance - 0.8 * (p * np.log(p)).sum(1).mean())

    base, step = z.detach().double().numpy(), 1e-5
    for i in range(5):
        for j in range(C):
            up, down = base.copy(), base.copy()
            up[i, j] += step
            down[i, j] -= step
            slope = (value(up) - value(down)) / (2 * step)
            assert float(found[i, j]) == pytest.approx(slope, abs=1e-5)


def test_a_class_that_nobody_was_given_does_not_count() -> None:
    one = strategy(np.arange(n) % 2)
    z = torch.tensor([[0.0, 0.0, -1e4]])
    penalty = one.penalty(z, Batch(z, torch.zeros(1, dtype=torch.int64), torch.arange(1)))
    assert penalty is not None
    assert float(penalty) == pytest.approx(1.2 * math.log(2) + 0.8 * math.log(2))


def test_the_second_stage_is_soft_cross_entropy_from_the_initial_weights() -> None:
    data = Clusters()
    epochs = 8
    one = training(data, hard=False, epochs=epochs)
    initial = {name: t.clone() for name, t in one.module.state_dict().items()}
    first = round(FIRST * epochs)
    assert [span.steps // BATCHES for span in one.spans] == [first, epochs - first]
    labels = torch.zeros(n, C)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, C))
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=1e-4)
    for result in train_steps(one, data, snapshot):
        if result.epoch < first:
            assert result.lr == 0.1
            labels = one.strategy.get_buffer("labels.rows.average16").float()
            model.load_state_dict(initial)
            continue
        for group in optimizer.param_groups:
            group["lr"] = result.lr
        loss = F.cross_entropy(model(result.batch.x), labels[result.batch.index])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        assert result.loss == pytest.approx(loss.item(), rel=1e-3)
    for name, tensor in model.state_dict().items():
        assert_close(tensor, one.module.state_dict()[name], rtol=1e-2, atol=1e-3)
    assert not any(name.startswith("ring") for name in one.strategy.state_dict())


def test_what_is_too_large_to_keep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 * 11 * 50_000 * 100 < memory_budget.LIMIT < 2 * 11 * 1_281_167 * 1000
    monkeypatch.setattr(memory_budget, "LIMIT", 33 * (2 * C + 4) * n - 1)
    with pytest.raises(InputError) as caught:
        strategy()
    assert "keeps 10 predictions and a label of 90 examples of 3 classes" in str(caught.value)
    assert "\n" not in str(caught.value)
