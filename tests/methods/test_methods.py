"""A name and its parameters become the strategy that they stand for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import proselflc
from proselflc.correction.catalogue import METHODS
from proselflc.data.dataset import Features
from proselflc.data.preprocessing import fit
from proselflc.errors import InputError
from proselflc.training import methods
from proselflc.training.methods import OPTIONAL, TRAINABLE, Parameters
from proselflc.training.strategy import Situation, Strategy

NAMES = sorted(name for name, one in TRAINABLE.items() if None not in one.defaults.values())
X = Features(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32))
SITUATION = Situation(
    total_steps=10,
    batches=5,
    given=np.arange(40) % 4,
    names=("a", "b", "c", "d"),
    preprocessing=fit(X),
    coarse=np.array([0, 0, 1, 1]),
    trusted=np.arange(40) < 8,
)


def strategy(name: str, parameters: Parameters | None = None) -> Strategy:
    return methods.strategy(name, methods.resolved(name, parameters or Parameters()), SITUATION)


def made(name: str, parameters: Parameters | None = None) -> Any:
    return strategy(name, parameters).criterion


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_class_that_the_catalogue_says(name: str) -> None:
    one = strategy(name)
    if type(one) is Strategy:
        assert type(one.criterion).__name__ == METHODS[name].criterion
    assert hasattr(proselflc, METHODS[name].criterion)
    assert sum(stage.share for stage in one.stages) == pytest.approx(1)


def test_every_method_of_the_catalogue_can_be_trained() -> None:
    assert METHODS.keys() == TRAINABLE.keys()


def test_what_learns_from_trusted_examples_says_that_it_needs_them() -> None:
    learning = {name for name, one in TRAINABLE.items() if one.learns_trusted}
    assert learning == {name for name, one in METHODS.items() if one.needs == "a trusted part"}


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("boot_soft", Parameters(epsilon=0.3), proselflc.BootSoft(0.3)),
        ("label_smoothing", Parameters(epsilon=0.1), proselflc.LabelSmoothing(0.1)),
        ("proselflc", Parameters(sharpness=4.0), proselflc.ProSelfLC(10, sharpness=4.0)),
        ("proselflc", Parameters(trust="global"), proselflc.ProSelfLC(10, trust="global")),
        (
            "proselflc_lt",
            Parameters(temperature=0.25, midpoint=0.4),
            proselflc.LowTemperatureProSelfLC(10, midpoint=0.4, temperature=0.25),
        ),
        ("gce", Parameters(q=0.3), proselflc.GeneralizedCrossEntropy(0.3)),
        (
            "sl",
            Parameters(alpha=2.0, beta=3.0, A=-9.0),
            proselflc.SymmetricCrossEntropy(2.0, 3.0, -9.0),
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_parameters_reach_the_criterion(name: str, parameters: Parameters, expected: Any) -> None:
    logits = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(8) % 4
    found = made(name, parameters)(logits, y, progress=0.7)
    assert_close(found, expected(logits, y, progress=0.7))
    assert not torch.isclose(found, made(name)(logits, y, progress=0.7))


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_filled_in_and_nothing_else(name: str) -> None:
    resolved = methods.resolved(name, Parameters())
    defaults = TRAINABLE[name].defaults
    assert resolved.given() == {k: v for k, v in defaults.items() if v is not OPTIONAL}
    assert methods.resolved(name, resolved) == resolved


def test_a_path_is_one() -> None:
    assert Parameters(teacher="runs/t").teacher == Path("runs/t")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="teacher must be a path, got int"):
        Parameters(teacher=3)  # type: ignore[arg-type]


def test_a_transition_is_read_from_a_file(tmp_path: Path) -> None:
    matrix = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    np.save(tmp_path / "transition.npy", matrix)
    logits, y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
    expected = proselflc.ForwardCorrection(torch.from_numpy(matrix).float())
    found = made("forward", Parameters(transition=tmp_path / "transition.npy"))
    assert_close(found(logits, y), expected(logits, y))


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("proselfc", Parameters(), 'unknown method "proselfc"; did you mean "proselflc"?'),
        ("cce", Parameters(epsilon=0.1), "has no --method.epsilon: it takes no parameters"),
        ("gce", Parameters(epsilon=0.1), "has no --method.epsilon: it takes --method.q"),
        ("distillation", Parameters(), "method distillation needs --method.teacher"),
        ("boot_soft", Parameters(epsilon=2.0), "epsilon must be a number between 0 and 1, got 2"),
        ("proselflc", Parameters(trust="lokal"), 'did you mean "local"?'),
        ("forward", Parameters(transition=Path("nowhere.npy")), "nowhere.npy"),
    ],
)
def test_what_a_method_cannot_use(name: str, parameters: Parameters, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        made(name, parameters)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_a_criterion_and_no_more_can_weigh(name: str) -> None:
    weight = np.arange(40, dtype=np.float32)
    situation = replace(SITUATION, sample_weight=weight)
    parameters = methods.resolved(name, Parameters())
    if methods.weighs(name):
        made = methods.strategy(name, parameters, situation)
        assert made.sample_weight is not None
        assert_close(made.sample_weight, torch.from_numpy(weight))
    else:
        with pytest.raises(InputError, match=rf"{name} cannot weigh examples: .*boot_soft, cce"):
            methods.strategy(name, parameters, situation)
    assert methods.weighs(name) == (type(strategy(name)) is Strategy)
