"""What the tests of methods share: clouds of points, and a training that stops and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proselflc.data.batches import Batch
from proselflc.data.inputs import Features, Ints
from proselflc.data.serving import fit
from proselflc.training import processes
from proselflc.training.checkpoint import State
from proselflc.training.loop import Training, train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext, Snapshot, Strategy

RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-4, schedule="constant")


class Crowd:
    """Four clouds of points, three tenths of whose labels are wrong.

    Attributes:
        notes: the notes of strategies.
    """

    n, C, size = 120, 4, 20
    total = n // size  # batches

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.clean = torch.arange(self.n) % self.C
        self.x = 4.0 * F.one_hot(self.clean, self.C) + torch.randn(
            self.n, self.C, generator=generator
        )
        is_wrong = torch.rand(self.n, generator=generator) < 0.3
        other = self.clean + torch.randint(1, self.C, (self.n,), generator=generator)
        self.y = torch.where(is_wrong, other % self.C, self.clean)
        self.notes: list[str] = []

    def __len__(self) -> int:
        return self.total

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(epoch))
        for index in list(order.split(self.size))[start:]:  # type: ignore[no-untyped-call]
            yield self.batch(index)

    def batch(self, index: Tensor) -> Batch:
        return Batch(self.x[index], self.y[index], index)

    def snapshot(self, model: nn.Module) -> Snapshot:
        def predict(rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
            was = model.training
            model.eval()
            wanted = torch.arange(self.n) if rows is None else torch.from_numpy(rows)
            for index in wanted.split(50):  # type: ignore[no-untyped-call]
                with torch.inference_mode():
                    logits = model(self.x[index])
                yield index, logits
            model.train(was)

        return Snapshot(model, self.y.numpy(), self.C, predict, self.notes.append)

    def context(self, epochs: int, n: int | None = None) -> RunContext:
        """Of all examples, or of the first n."""
        return RunContext(
            total_steps=epochs * self.total,
            batches=self.total,
            given=self.y[:n].numpy(),
            names=("ant", "bee", "cat", "dog"),
            preprocessing=fit(Features(np.eye(self.C, dtype=np.float32))),
        )

    def network(self) -> nn.Sequential:
        """Always the same; with statistics, and with dropout."""
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(self.C, 24, bias=False),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(24, self.C),
        )

    def training(self, strategy: Strategy, epochs: int, recipe: Recipe = RECIPE) -> Training:
        return Training(
            self.network(),
            strategy,
            recipe,
            epochs * self.total,
            self.total,
            accelerator=processes.accelerator(recipe.precision),
        )


@pytest.fixture
def crowd() -> Crowd:
    """Few examples, a small network that learns them, what a strategy may see and what it says."""
    return Crowd()


def slope(value: Callable[[Any], float], at: Any, step: float = 1e-5) -> Any:
    """The gradient of a function of a float64 array, by finite differences."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        found[place] = (value(up) - value(down)) / (2 * step)
    return found


@pytest.fixture
def finite_differences() -> Callable[[Callable[[Any], float], Any], Any]:
    """The gradient of a function of a float64 array."""
    return slope


class Clouds:
    """A cloud of points per class, whose labels are drawn from a transition matrix.

    Args:
        n: how many points.
        size: of a batch.
        T: [C, C], row = true class.
        apart: how far the centres are from the origin, in deviations.
        note: receives the notes of a strategy.
    """

    def __init__(
        self, n: int, size: int, T: Tensor, *, apart: float, note: Callable[[str], Any]
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        self.size, self.note, C = size, note, len(T)
        self.clean = torch.arange(n) % C
        centres = apart * nn.functional.one_hot(self.clean, C)
        self.x = centres + torch.randn(n, C, generator=generator)
        self.y = torch.multinomial(T[self.clean], 1, generator=generator)[:, 0]
        self.num_classes = C

    def __len__(self) -> int:
        return len(self.y) // self.size

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(epoch))
        for k in range(start, len(self)):
            index = order[k * self.size : (k + 1) * self.size]
            yield Batch(self.x[index], self.y[index], index)

    def snapshot(self, model: nn.Module, notes: list[str] | None = None) -> Snapshot:
        def predict(rows: Any = None) -> Iterator[tuple[Tensor, Tensor]]:
            was = model.training
            with torch.no_grad():
                logits = model.eval()(self.x)
            model.train(was)
            for index in torch.arange(len(self.y)).split(50):  # type: ignore[no-untyped-call]
                yield index, logits[index]

        note = self.note if notes is None else notes.append
        return Snapshot(model, self.y.numpy(), self.num_classes, predict, note)


@pytest.fixture
def clouds() -> type[Clouds]:
    """Makes them."""
    return Clouds


def goes_on_alike(new: Callable[[], Training], data: Any, at: int) -> dict[str, Tensor]:
    """Stop after a step, go on in a new training, and compare with one that did not stop.

    Args:
        new: makes a training, always the same.
        data: its batches, with a `snapshot`.
        at: the step.

    Returns:
        All that the training holds at its end, which is the same bit for bit.
    """
    whole, first, second = new(), new(), new()
    losses = [result.loss for result in train_steps(whole, data, data.snapshot)]
    for result in train_steps(first, data, data.snapshot):
        if result.step == at:
            break
    tensors = {name: tensor.clone() for name, tensor in first.tensors().items()}
    second.restore(State(at, tensors, json.loads(json.dumps(first.facts()))))
    torch.manual_seed(at)  # nothing is drawn from the stream that everybody shares
    assert [result.loss for result in train_steps(second, data, data.snapshot)] == losses[at:]
    ours, theirs = second.tensors(), whole.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    return ours


@pytest.fixture
def assert_goes_on() -> Callable[[Callable[[], Training], Any, int], dict[str, Tensor]]:
    return goes_on_alike
