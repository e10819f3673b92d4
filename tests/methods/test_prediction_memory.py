"""Methods that remember learn the same with less memory, and resume whatever is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from proselflc import methods
from proselflc.correction.memory import Memory
from proselflc.errors import InputError
from proselflc.training import prediction_memory
from proselflc.training.checkpoint import State
from proselflc.training.loop import train_steps
from proselflc.training.recipe import Recipe

EPOCHS = 8
RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-4, schedule="constant")
GIVEN = {"elr": {}, "sat": {"begin": 0.25}, "joint_soft": {}, "joint_hard": {}}


def trained(crowd: Any, name: str, stop: int | None = None) -> tuple[Any, list[float], Any]:
    """Return a training, its losses, and its state after a step."""
    parameters = methods.resolved(name, GIVEN[name])
    training = crowd.training(
        methods.strategy(name, parameters, crowd.context(EPOCHS)), EPOCHS, RECIPE
    )
    losses, state = [], None
    for result in train_steps(training, crowd, crowd.snapshot):
        losses.append(result.loss)
        if result.step == stop:
            tensors = {key: tensor.clone() for key, tensor in training.tensors().items()}
            state = State(stop, tensors, json.loads(json.dumps(training.facts())))
    return training, losses, state


@pytest.fixture(params=["half", "top"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(prediction_memory, "chosen", lambda *_: request.param)
    return str(request.param)


@pytest.mark.parametrize("name", GIVEN)
def test_it_learns_about_the_same(
    crowd: Any, monkeypatch: pytest.MonkeyPatch, name: str, storage: str
) -> None:
    _, found, _ = trained(crowd, name)
    best = "half" if "joint" in name else "dense"
    monkeypatch.setattr(prediction_memory, "chosen", lambda *_: best)
    _, expected, _ = trained(crowd, name)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=0.02, atol=0.02)
    # Joint needs float16, and the largest classes of four are all of them.
    assert (found == expected) == (best == "half")


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("stop", [13, 28])
def test_it_resumes_bit_for_bit(crowd: Any, name: str, stop: int, storage: str) -> None:
    whole, losses, state = trained(crowd, name, stop)
    memories = [one for one in whole.strategy.modules() if isinstance(one, Memory)]
    assert {one.storage for one in memories} == {storage}
    parameters = methods.resolved(name, GIVEN[name])
    resumed = crowd.training(
        methods.strategy(name, parameters, crowd.context(EPOCHS)), EPOCHS, RECIPE
    )
    resumed.restore(state)
    assert [one.loss for one in train_steps(resumed, crowd, crowd.snapshot)] == losses[stop:]
    expected = whole.tensors()
    for key, tensor in resumed.tensors().items():
        assert torch.equal(tensor, expected[key])


@pytest.mark.parametrize(
    ("saved", "now", "says", "remedy"),
    [
        (
            *("top", "half"),
            "the 5 largest classes, the given class and the sum of the others of every example, "
            "and this memory float16",
            "set PROSELFLC_MEMORY_GB to what it was when the run began",
        ),
        # 3 copies of 120 rows of 4 numbers, 4 bytes each, and a count, rounded up to megabytes.
        (
            *("dense", "half"),
            "float32 of every example, and this memory float16",
            "set PROSELFLC_MEMORY_GB=0.001",
        ),
    ],
)
def test_a_state_with_another_storage_is_refused_with_the_remedy(
    crowd: Any, monkeypatch: pytest.MonkeyPatch, saved: str, now: str, says: str, remedy: str
) -> None:
    monkeypatch.setattr(prediction_memory, "chosen", lambda *_: saved)
    _, _, state = trained(crowd, "elr", 7)
    monkeypatch.setattr(prediction_memory, "chosen", lambda *_: now)
    other = trained(crowd, "elr")[0]
    with pytest.raises(InputError) as caught:
        other.restore(state)
    assert str(caught.value) == (
        f"the checkpoint does not fit this run: the state remembers {says}: {remedy}"
    )


def test_a_state_of_other_examples_is_refused(crowd: Any) -> None:
    _, _, state = trained(crowd, "elr", 7)
    short = {
        name: tensor[:50] if ".memory." in name else tensor
        for name, tensor in state.tensors.items()
    }
    other = trained(crowd, "elr")[0]
    with pytest.raises(InputError) as caught:
        other.restore(State(state.step, short, state.facts))
    assert str(caught.value) == (
        "the checkpoint does not fit this data: the state remembers 50 examples, and this memory "
        "120"
    )
