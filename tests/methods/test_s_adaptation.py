"""S-adaptation: a noise layer that begins at the base model's confusion and learns."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc.correction.criteria import CrossEntropy
from proselflc.data import memory_budget
from proselflc.data.inputs import Features
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.methods import s_adaptation
from proselflc.methods.s_adaptation import FIRST, LAYERS, NoiseLayer
from proselflc.training import processes
from proselflc.training.loop import Training, train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext, Snapshot, Strategy

n, C, BATCH = 600, 4, 30
BATCHES = n // BATCH
RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=0.0, schedule="cosine")
T = 0.65 * torch.eye(C) + 0.35 * torch.eye(C).roll(1, 1)


@pytest.fixture
def data(clouds: Any) -> Any:
    """Four clouds of points whose labels are drawn from T."""
    return clouds(n, BATCH, T, apart=3.0, note=pytest.fail)


def layer(kind: str, epochs: int = 8) -> NoiseLayer:
    context = RunContext(
        total_steps=epochs * BATCHES,
        batches=BATCHES,
        given=np.zeros(n, np.int64),
        names=("ant", "bee", "cat", "dog"),
        preprocessing=fit(Features(np.eye(4, dtype=np.float32))),
    )
    return NoiseLayer(context, layer=kind)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(C, 8), nn.ReLU(), nn.Linear(8, C))


def training(strategy: Strategy, recipe: Recipe = RECIPE, epochs: int = 8) -> Training:
    accelerator = processes.accelerator(recipe.precision)
    steps = epochs * BATCHES
    return Training(network(), strategy, recipe, steps, BATCHES, accelerator=accelerator)


def distance(one: Tensor, other: Tensor) -> float:
    """Total variation, the mean over rows."""
    return float(0.5 * (one - other).abs().sum(1).mean())


def used(ours: Training) -> Tensor:
    found = ours.strategy.transition()
    assert found is not None
    return found.clone()


@pytest.mark.parametrize("kind", LAYERS)
def test_it_begins_at_the_confusion_and_moves_towards_the_truth(data: Any, kind: str) -> None:
    epochs = 40
    ours = training(layer(kind, epochs), epochs=epochs)
    boundary = round(FIRST * epochs) * BATCHES
    first = torch.zeros(C, C)
    entered: list[Tensor] = []

    def snapshot(model: nn.Module) -> Snapshot:
        if ours.step == boundary:
            with torch.no_grad():
                p = model(data.x).softmax(1)
            counts = torch.zeros(C, C)
            for k in range(n):
                counts[:, data.y[k]] += p[k]
            entered.append(counts / counts.sum(1, keepdim=True))
        found: Snapshot = data.snapshot(model)
        return found

    for result in train_steps(ours, data, snapshot):
        if result.step == boundary + 1:
            first = used(ours)
    assert_close(first, entered[0], rtol=0, atol=0.02)  # after the first step
    assert distance(used(ours), T) < distance(entered[0], T) / 2
    assert distance(used(ours), T) < 0.12
    assert ours.strategy.facts() == {"transition": f"learned by a {kind} noise layer"}
    if kind == "simple":  # a complex one can say by itself what the model should
        ours.module.eval()
        assert (ours.module(data.x).argmax(1) == data.clean).float().mean() > 0.9


def test_the_layer_is_clipped_together_with_the_model(data: Any) -> None:
    """A step of plain gradient descent is as long as the learning rate times the clip."""
    recipe = replace(RECIPE, momentum=0.0, schedule="constant", clip=0.02)
    ours = training(layer("simple"), recipe)
    before: dict[str, Tensor] = {}
    for result in train_steps(ours, data, data.snapshot):
        now = {**dict(ours.module.named_parameters()), "b": ours.strategy.get_parameter("b")}
        if before and result.step > 2 * BATCHES + 1:
            moved = torch.cat([(now[name].detach() - before[name]).flatten() for name in now])
            assert float(moved.norm()) == pytest.approx(0.1 * 0.02, rel=1e-3)
            assert not torch.equal(now["b"], before["b"])
        before = {name: weight.detach().clone() for name, weight in now.items()}


def test_the_first_layer_is_the_logarithm_of_the_confusion(data: Any) -> None:
    strategy = layer("simple")
    model = network()
    strategy.arrange(1, model)
    strategy.enter(1, data.snapshot(model))
    with torch.no_grad():
        p = model(data.x).softmax(1).double()
    counts = p.T @ F.one_hot(data.y, C).double()
    expected = (counts / counts.sum(1, keepdim=True) + 1e-8).log()
    assert_close(strategy.b.detach().double(), expected, rtol=1e-6, atol=1e-6)


def test_a_class_that_is_never_predicted_keeps_its_label_and_that_is_said(data: Any) -> None:
    strategy, notes = layer("simple"), list[str]()
    z = torch.zeros(n, C)
    z[:, 2] = -50
    snapshot = replace(
        data.snapshot(nn.Identity()),
        predict=lambda rows=None: iter([(torch.arange(n), z)]),
        note=notes.append,
    )
    strategy.arrange(1, nn.Identity())
    strategy.enter(1, snapshot)
    found = strategy.transition()
    assert found is not None
    assert_close(found[2], torch.tensor([0.0, 0.0, 1.0, 0.0]), rtol=0, atol=1e-6)
    (note,) = notes
    assert note.startswith("class cat is never predicted")


def test_the_loss_is_that_of_the_mixed_distribution(data: Any) -> None:
    strategy = layer("simple")
    strategy.arrange(1, nn.Identity())
    with torch.no_grad():
        strategy.b.copy_(torch.randn(C, C, generator=torch.Generator().manual_seed(0)))
    batch = next(data.batches())
    z = torch.randn(BATCH, C, generator=torch.Generator().manual_seed(1))
    mixed = z.softmax(1) @ strategy.b.detach().softmax(1)
    expected = -mixed.gather(1, batch.y[:, None]).log().mean()
    assert_close(strategy.loss(z, batch, 0.5).detach(), expected)


def test_the_complex_layer_without_weights_is_the_simple_one(data: Any) -> None:
    b = torch.randn(C, C, generator=torch.Generator().manual_seed(0))
    batch = next(data.batches())
    found = {}
    for kind in LAYERS:
        strategy, model = layer(kind), network()
        strategy.arrange(0, model)
        strategy.arrange(1, model)
        with torch.no_grad():
            strategy.b.copy_(b)
        loss = strategy.loss(model(batch.x), batch, 0.5)
        parameters = [strategy.b, *model.parameters()]
        found[kind] = (loss, *torch.autograd.grad(loss, parameters))
    for simple, complicated in zip(found["simple"], found["complex"], strict=True):
        assert_close(simple, complicated)


def test_the_complex_layer_looks_at_what_the_last_layer_sees(data: Any) -> None:
    strategy, model = layer("complex"), network()
    strategy.arrange(0, model)
    strategy.arrange(1, model)
    assert strategy.w is not None
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        strategy.b.copy_(torch.randn(C, C, generator=generator))
        strategy.w.copy_(torch.randn(C, C, 8, generator=generator))
    batch = next(data.batches())
    h, p = model[:2](batch.x), model(batch.x).softmax(1)
    total = torch.zeros(())
    for k in range(BATCH):
        rows = torch.stack([(strategy.w[i] @ h[k] + strategy.b[i]).softmax(0) for i in range(C)])
        total = total - (p[k] @ rows)[batch.y[k]].log()
    assert_close(strategy.loss(model(batch.x), batch, 0.5), total / BATCH)
    found = strategy.transition()
    assert found is not None
    assert_close(found.sum(1), torch.ones(C))


def test_the_first_stage_is_cross_entropy_and_leaves_the_layer_alone(data: Any) -> None:
    recipe = replace(RECIPE, schedule="constant", weight_decay=0.1)
    ours, plain = training(layer("complex"), recipe), training(Strategy(CrossEntropy()), recipe)
    boundary = round(FIRST * 8) * BATCHES
    pairs = zip(train_steps(ours, data, data.snapshot), train_steps(plain, data), strict=True)
    for result, alike in pairs:
        assert result.loss == alike.loss
        assert isinstance(ours.strategy, NoiseLayer)
        assert ours.strategy.w is not None
        assert not ours.strategy.b.any()
        assert not ours.strategy.w.any()
        if result.step == boundary:
            break


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weight_decay_spares_the_layer(optimizer: str) -> None:
    recipe = replace(RECIPE, optimizer=optimizer, weight_decay=0.1)  # type: ignore[arg-type]
    groups = training(layer("complex"), recipe).bare_optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert [len(group["params"]) for group in groups] == [4, 2]


def test_a_model_that_was_trained_so_can_be_copied_and_pickled(data: Any) -> None:
    ours = training(layer("complex"))
    for _ in train_steps(ours, data, data.snapshot):
        pass
    x = data.x[:5]
    for other in (copy.deepcopy(ours.module), pickle.loads(pickle.dumps(ours.module))):
        assert torch.equal(other(x), ours.module(x))


class Unused(nn.Module):
    """The layer that is made last is not the one that answers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(C, C), nn.Linear(3, C)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.first(x)
        return y


class Rows(nn.Module):
    """The last layer sees several rows of an example."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(torch.stack((x, -x), 1)).mean(1)
        return y


def test_what_cannot_be_used_is_refused_in_a_sentence(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in (
        nn.Conv1d(1, C, 1),
        nn.Sequential(nn.Linear(4, C), nn.Linear(C, 7)),
    ):
        with pytest.raises(InputError, match=r"does not end in one: use .*simple"):
            training_of(model)
    for other, words in ((Unused(), "no batch"), (Rows(), r"\[30, 2, 4\]")):
        ours = training_of(other)
        with pytest.raises(InputError, match=rf"for 30 examples that layer receives {words}: use"):
            next(train_steps(ours, data, data.snapshot))
    monkeypatch.setattr(s_adaptation, "LARGEST", 100)
    with pytest.raises(InputError, match="would have 128 weights, at most 100"):
        training_of(network())


def training_of(model: nn.Module) -> Training:
    accelerator = processes.accelerator("no")
    return Training(model, layer("complex"), RECIPE, 160, BATCHES, accelerator=accelerator)


def test_the_first_confusion_is_the_same_batch_by_batch(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = data.snapshot(network())
    whole = s_adaptation._soft_counts(snapshot)
    monkeypatch.setattr(memory_budget, "DENSE_NUMBERS", n * C - 1)
    assert_close(s_adaptation._soft_counts(snapshot), whole, rtol=1e-12, atol=0)
    assert_close(whole.sum(0), torch.bincount(data.y, minlength=C).double(), rtol=1e-6, atol=0)
