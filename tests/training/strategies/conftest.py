"""What the tests of strategies share: clouds of points, and a training that stops and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proselflc.data.batches import Batch
from proselflc.training.checkpoint import State
from proselflc.training.fit import Training, lessons
from proselflc.training.strategy import Scene


class Clouds:
    """A cloud of points per class, whose labels are drawn from a transition matrix.

    Args:
        n: how many points.
        size: of a batch.
        T: [C, C], row = true class.
        apart: how far the centres are from the origin, in deviations.
        note: is told what a strategy notes.
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

    def scene(self, model: nn.Module, notes: list[str] | None = None) -> Scene:
        def answers(rows: Any = None) -> Iterator[tuple[Tensor, Tensor]]:
            was = model.training
            with torch.no_grad():
                logits = model.eval()(self.x)
            model.train(was)
            for index in torch.arange(len(self.y)).split(50):  # type: ignore[no-untyped-call]
                yield index, logits[index]

        told = self.note if notes is None else notes.append
        return Scene(model, self.y.numpy(), self.num_classes, answers, told)


@pytest.fixture
def clouds() -> type[Clouds]:
    """Makes them."""
    return Clouds


def goes_on_alike(new: Callable[[], Training], data: Any, at: int) -> dict[str, Tensor]:
    """Stop after a step, go on in a new training, and compare with one that did not stop.

    Args:
        new: makes a training, always the same.
        data: its batches, with a `scene`.
        at: the step.

    Returns:
        All that the training holds at its end, which is the same bit for bit.
    """
    whole, first, second = new(), new(), new()
    losses = [lesson.loss for lesson in lessons(whole, data, data.scene)]
    for lesson in lessons(first, data, data.scene):
        if lesson.step == at:
            break
    tensors = {name: tensor.clone() for name, tensor in first.tensors().items()}
    second.restore(State(at, tensors, json.loads(json.dumps(first.facts()))))
    torch.manual_seed(at)  # nothing is drawn from the stream that everybody shares
    assert [lesson.loss for lesson in lessons(second, data, data.scene)] == losses[at:]
    ours, theirs = second.tensors(), whole.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    return ours


@pytest.fixture
def assert_goes_on() -> Callable[[Callable[[], Training], Any, int], dict[str, Tensor]]:
    return goes_on_alike
