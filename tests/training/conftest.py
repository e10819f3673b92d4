"""What the tests of training share: few examples, a small network that learns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proselflc.data.batches import Batch
from proselflc.data.dataset import Features, Ints
from proselflc.data.preprocessing import fit
from proselflc.training import processes
from proselflc.training.fit import Training
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import Scene, Situation, Strategy

RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-4, schedule="constant")


class Crowd:
    """Four clouds of points, three tenths of whose labels are wrong.

    Attributes:
        told: what strategies have noted.
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
        self.told: list[str] = []

    def __len__(self) -> int:
        return self.total

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(epoch))
        for index in list(order.split(self.size))[start:]:  # type: ignore[no-untyped-call]
            yield self.batch(index)

    def batch(self, index: Tensor) -> Batch:
        return Batch(self.x[index], self.y[index], index)

    def scene(self, model: nn.Module) -> Scene:
        def answers(rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
            was = model.training
            model.eval()
            wanted = torch.arange(self.n) if rows is None else torch.from_numpy(rows)
            for index in wanted.split(50):  # type: ignore[no-untyped-call]
                with torch.inference_mode():
                    logits = model(self.x[index])
                yield index, logits
            model.train(was)

        return Scene(model, self.y.numpy(), self.C, answers, self.told.append)

    def situation(self, epochs: int, n: int | None = None) -> Situation:
        """Of all examples, or of the first n."""
        return Situation(
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
