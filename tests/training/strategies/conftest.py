"""What the tests of strategies share: a training that stops, and another that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from proselflc.training.checkpoint import State
from proselflc.training.fit import Training, lessons


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
