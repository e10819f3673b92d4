"""Train many networks at once with the methods of the library: one network per method and seed.

A network with one hidden layer is so small that a step of it costs little more than its calls. So
the networks of all methods and seeds are stacked along a first axis K, and a step is a forward and
a backward pass of the stack. The losses, memories and rules are the library's own `Strategy` of
every method and seed, called as the training loop calls them. Images are learned by the library's
small convolutional network, one after another.

Networks of the same seed begin with the same weights and see the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from proselflc import methods
from proselflc.data.batches import Batch
from proselflc.data.inputs import Ints
from proselflc.data.preprocessing import Preprocessing
from proselflc.models import networks
from proselflc.training.recipe import factor
from proselflc.training.strategy import RunContext, Snapshot, Strategy

UNUSED = cast(Preprocessing, None)  # no method of this benchmark asks for it
MOMENTUM = 0.9
# Methods that learn an example by its own label and predictions alone: one strategy serves the
# examples of all seeds, whose loss is the mean of theirs.
PER_EXAMPLE = ("cce", "proselflc", "elr")


@dataclass(frozen=True)
class Training:
    """How networks are trained.

    Attributes:
        epochs, batch_size, lr, weight_decay: as `fit` takes them; SGD with momentum 0.9 and the
            schedule of the paper.
    """

    epochs: int
    lr: float
    batch_size: int = 64
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Learner:
    """A method, its parameters and a seed."""

    method: str
    parameters: tuple[tuple[str, Any], ...]
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What a network learned.

    Attributes:
        test: share of the test examples that are predicted right, by epoch.
        correct_fitting, wrong_fitting: shares of the right and of the wrong labels that are
            predicted, by epoch; None without wrong labels.
        facts: what the method says of itself.
    """

    test: list[float]
    correct_fitting: list[float]
    wrong_fitting: list[float] | None
    facts: dict[str, Any]


class StackedPerceptron(nn.Module):
    """K networks with one hidden layer, each with the initial weights of its seed."""

    w1: nn.Parameter
    b1: nn.Parameter
    w2: nn.Parameter
    b2: nn.Parameter

    def __init__(self, inputs: int, num_classes: int, seeds: Sequence[int]) -> None:
        super().__init__()
        made = [self._one(inputs, num_classes, seed) for seed in seeds]
        for name in ("w1", "b1", "w2", "b2"):
            every = torch.stack([one[name] for one in made])
            self.register_parameter(name, nn.Parameter(every))

    @staticmethod
    def _one(inputs: int, num_classes: int, seed: int) -> dict[str, Tensor]:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            one = networks.mlp(inputs, num_classes)
        w1, b1, w2, b2 = (parameter.detach() for parameter in one.parameters())
        return {"w1": w1.T, "b1": b1[None], "w2": w2.T, "b2": b2[None]}

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [K, N, C] of inputs [K, N, D] or [N, D]."""
        x = x.expand(len(self.w1), *x.shape[-2:])
        hidden = torch.baddbmm(self.b1, x, self.w1).relu_()
        return torch.baddbmm(self.b2, hidden, self.w2)


class Convnets(nn.Module):
    """K small convolutional networks, one after another."""

    def __init__(self, shape: tuple[int, ...], num_classes: int, seeds: Sequence[int]) -> None:
        super().__init__()
        made = []
        for seed in seeds:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                channels, height, width = shape
                made.append(networks.convnet(channels, height, width, num_classes))
        self.each = nn.ModuleList(made).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [K, N, C] of images [K, N, …] or [N, …]."""
        x = x.expand(len(self.each), *x.shape[-4:])
        return torch.stack([net(one) for net, one in zip(self.each, x, strict=True)])


def train(
    x: npt.NDArray[np.float32],
    given: dict[int, Ints],
    y: Ints,
    test_x: npt.NDArray[np.float32],
    test_y: Ints,
    learners: Sequence[Learner],
    how: Training,
) -> list[Outcome]:
    """Return what every learner's network learned, evaluated after every epoch.

    Args:
        x: [n, D] or [n, channels, height, width].
        given: the labels [n] of every seed.
        y: [n] the true labels, for the measures alone.
        test_x, test_y: the test examples.
        learners: one network each.
        how: the recipe.
    """
    n, C = len(x), int(y.max()) + 1
    batches = -(-n // how.batch_size)
    total = how.epochs * batches
    seeds = sorted({one.seed for one in learners})
    labels = {seed: torch.from_numpy(given[seed]) for seed in seeds}
    kinds = [one.seed for one in learners]
    is_flat = x.ndim == 2
    net: nn.Module = (
        StackedPerceptron(x.shape[1], C, kinds) if is_flat else Convnets(x.shape[1:], C, kinds)
    )
    inputs, test_inputs = torch.from_numpy(x), torch.from_numpy(test_x)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=how.lr, momentum=MOMENTUM, weight_decay=how.weight_decay
    )
    place = [seeds.index(one.seed) for one in learners]
    groups = _groups(learners, given, total, batches, C)
    curves = _Curves(learners, labels, torch.from_numpy(y), torch.from_numpy(test_y))
    step = 0
    for epoch in range(how.epochs):
        orders = [_order(n, seed, epoch) for seed in seeds]
        curves.begin()
        for start in range(0, n, how.batch_size):
            index = [order[start : start + how.batch_size] for order in orders]
            of_seed = torch.stack([inputs[rows] for rows in index])
            progress = (step + 1) / total
            for group in optimizer.param_groups:
                group["lr"] = how.lr * factor("multistep", step, total)
            logits = net(of_seed[place])
            items = [
                Batch(of_seed[k], labels[seeds[k]][index[k]], index[k]) for k in range(len(seeds))
            ]
            loss = torch.zeros(())
            parts = [logits[one.learners.start : one.learners.stop].flatten(0, 1) for one in groups]
            learned = [one.batch(items, place, n) for one in groups]
            for one, z, batch in zip(groups, parts, learned, strict=True):
                loss = loss + len(one.learners) * one.strategy.loss(z, batch, progress)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            for one, z, batch in zip(groups, parts, learned, strict=True):
                one.strategy.after_step(z.detach(), batch)
            curves.add(logits.detach(), index, place)
            step += 1
        for one in groups:
            labelled = given[learners[one.learners.start].seed]
            one.strategy.after_epoch(0, epoch, _snapshot(net, labelled, C))
        net.eval()
        with torch.no_grad():
            curves.end(_in_pieces(net, test_inputs))
        net.train()
    return curves.outcomes([one.strategy.facts() for one in groups for _ in one.learners])


@dataclass(frozen=True)
class _Group:
    """Learners that one strategy serves, of seeds that follow each other."""

    learners: range
    strategy: Strategy

    def batch(self, items: Sequence[Batch], place: Sequence[int], n: int) -> Batch:
        """Return the batch of its learners; those of seed k have the examples from k n on."""
        if len(self.learners) == 1:
            return items[place[self.learners.start]]
        parts = [Batch(one.x, one.y, one.index + k * n) for k, one in enumerate(items)]
        return Batch(*(torch.cat(every) for every in zip(*parts, strict=True)))


def _groups(
    learners: Sequence[Learner], given: dict[int, Ints], total: int, batches: int, classes: int
) -> list[_Group]:
    """Return the strategies of all learners, which are in the order of methods and then seeds."""
    seeds = sorted(given)
    found, k = [], 0
    while k < len(learners):
        one = learners[k]
        some = seeds if one.method in PER_EXAMPLE else [one.seed]
        assert [each.seed for each in learners[k : k + len(some)]] == some
        labels = np.concatenate([given[seed] for seed in some])
        names = tuple(map(str, range(classes)))
        context = RunContext(total, batches, labels, names, UNUSED, seed=one.seed)
        parameters = methods.resolved(one.method, dict(one.parameters))
        strategy = methods.strategy(one.method, parameters, context)
        found.append(_Group(range(k, k + len(some)), strategy))
        k += len(some)
    return found


def _snapshot(net: nn.Module, given: Ints, num_classes: int) -> Snapshot:
    def predict(rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        raise NotImplementedError("a method that predicts all examples is not measured here")

    return Snapshot(net, given, num_classes, predict, lambda sentence: None)


def _order(n: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch))


def _in_pieces(net: nn.Module, x: Tensor) -> Tensor:
    """Return the classes [K, n] that are predicted for x."""
    return torch.cat([net(piece).argmax(-1) for piece in torch.split(x, 1000)], 1)


class _Curves:
    """Collects the measures of every epoch; labels are fitted if they are predicted in a step."""

    def __init__(
        self, learners: Sequence[Learner], given: dict[int, Tensor], y: Tensor, test_y: Tensor
    ) -> None:
        self.given = torch.stack([given[one.seed] for one in learners])  # [K, n]
        self.is_wrong = self.given != y
        self.test_y = test_y
        self.test: list[Tensor] = []
        self.fitted: list[tuple[Tensor, Tensor]] = []

    def begin(self) -> None:
        self.predicted = torch.full_like(self.given, -1)

    def add(self, logits: Tensor, index: Sequence[Tensor], place: Sequence[int]) -> None:
        self.predicted.scatter_(1, torch.stack([index[k] for k in place]), logits.argmax(-1))

    def end(self, tested: Tensor) -> None:
        self.test.append((tested == self.test_y).double().mean(1))
        fits, wrong = (self.predicted == self.given).double(), self.is_wrong
        right = ~wrong
        self.fitted.append(
            ((fits * right).sum(1) / right.sum(1), (fits * wrong).sum(1) / wrong.sum(1))
        )

    def outcomes(self, facts: Sequence[dict[str, object]]) -> list[Outcome]:
        def curve(values: Sequence[Tensor], k: int) -> list[float]:
            return [round(float(one[k]), 4) for one in values]

        found = []
        for k, said in enumerate(facts):
            wrong = curve([b for _, b in self.fitted], k)
            found.append(
                Outcome(
                    curve(self.test, k),
                    curve([a for a, _ in self.fitted], k),
                    None if math.isnan(wrong[0]) else wrong,
                    said,
                )
            )
        return found
