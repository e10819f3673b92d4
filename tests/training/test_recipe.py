"""A recipe that cannot be meant is refused when it is made."""

import math
from typing import Any

import pytest

from proselflc.errors import InputError
from proselflc.training.recipe import Recipe


@pytest.mark.parametrize(
    ("recipe", "batches", "steps"),
    [
        ({}, 11, 330),
        ({"epochs": 3}, 11, 33),
        ({"steps": 7}, 11, 7),
        ({"epochs": 1}, 1, 1),
    ],
)
def test_total_steps(recipe: dict[str, Any], batches: int, steps: int) -> None:
    assert Recipe(**recipe).total_steps(batches) == steps


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({"epochs": 0}, "must be at least 1, got 0"),
        ({"steps": -1}, "must be at least 1, got -1"),
        ({"batch_size": 0}, "must be at least 1, got 0"),
        ({"warmup": -1}, "must be at least 0, got -1"),
        ({"accumulate": 0}, "must be at least 1, got 0"),
        ({"seed": -1}, "must be at least 0, got -1"),
        ({"lr": math.nan}, "must be a positive number, got nan"),
        ({"lr": -0.1}, "must be a positive number, got -0.1"),
        ({"lr": math.inf}, "must be a positive number, got inf"),
        ({"lr": 0.0}, "must be a positive number, got 0.0"),
        ({"clip": 0.0}, "must be a positive number, got 0.0"),
        ({"weight_decay": math.nan}, "must be 0 or a positive number, got nan"),
        ({"momentum": 1.0}, "must be at least 0 and below 1, got 1.0"),
        ({"ema": math.nan}, "must be at least 0 and below 1, got nan"),
        ({"optimizer": "adam"}, "must be one of sgd, adamw, got 'adam'"),
        (
            {"schedule": "step"},
            "must be one of multistep, poly, cosine, constant, got 'step'",
        ),
    ],
)
def test_what_cannot_be_meant(recipe: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        Recipe(**recipe)
    (field,) = recipe
    assert caught.value.field == field
    assert caught.value.reason == f"{field}= {expected}"


def test_epochs_and_steps_contradict_each_other() -> None:
    with pytest.raises(InputError, match="give one of epochs= and steps="):
        Recipe(epochs=1, steps=1)


def test_a_batch_has_as_many_parts_as_examples_at_most() -> None:
    assert Recipe(batch_size=4, accumulate=4).accumulate == 4
    with pytest.raises(InputError, match="a batch of 4 cannot be split into 5 parts"):
        Recipe(batch_size=4, accumulate=5)


def test_zero_is_a_weight_decay_and_a_momentum() -> None:
    assert Recipe(weight_decay=0.0, momentum=0.0).weight_decay == 0
