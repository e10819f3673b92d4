"""A name and its parameters become the strategy that they stand for."""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import proselflc
from proselflc import functional, methods
from proselflc.cli import options
from proselflc.data.inputs import Features
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.training.strategy import RunContext, Strategy
from proselflc.wording import option

NAMES = [name for name in methods.names() if name != "distillation"]  # which needs a teacher
X = Features(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32))
SITUATION = RunContext(
    total_steps=10,
    batches=5,
    given=np.arange(40) % 4,
    names=("a", "b", "c", "d"),
    preprocessing=fit(X),
    coarse=np.array([0, 0, 1, 1]),
    trusted=np.arange(40) < 8,
)


def strategy(name: str, parameters: dict[str, Any] | None = None) -> Strategy:
    return methods.strategy(name, methods.resolved(name, parameters or {}), SITUATION)


def made(name: str, parameters: dict[str, Any] | None = None) -> Any:
    return strategy(name, parameters).criterion


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_class_that_the_method_says(name: str) -> None:
    one = strategy(name)
    if type(one) is Strategy:
        assert type(one.criterion).__name__ == methods.find(name).criterion
    assert hasattr(proselflc, methods.find(name).criterion)
    assert sum(stage.share for stage in one.stages) == pytest.approx(1)


def test_a_file_is_the_method_of_its_name_or_a_family() -> None:
    files = {path.stem for path in Path(methods.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(methods.FAMILIES) < files
    members = [name for family in methods.FAMILIES.values() for name in family]
    assert methods.names() == sorted([*members, *(files - set(methods.FAMILIES))])
    assert len(methods.names()) == 27
    assert len({one.title for one in methods.every().values()}) == 27


def test_methods_come_in_the_order_of_the_paper() -> None:
    names = list(methods.every())
    assert names[:4] == ["cce", "label_smoothing", "confidence_penalty", "boot_soft"]
    assert names.index("proselflc") < names.index("joint_soft") < names.index("gce")
    assert names[-4:] == ["elr", "sat", "proselflc_auto", "proselflc_lt"]


def test_nothing_is_imported_to_list_names_or_to_show_parameters_of_a_criterion() -> None:
    program = """
import sys
from proselflc import methods
assert "boot_hard" in methods.names()
loaded = {name for name in sys.modules if name.startswith("proselflc.methods.")}
assert not loaded, loaded
for name in ("cce", "label_smoothing", "confidence_penalty", "boot_soft", "boot_hard", "sl"):
    methods.find(name).resolved({})
assert methods.find("proselflc").takes == ("sharpness", "midpoint", "trust")
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_default_stands_once() -> None:
    """The public criteria and the functions without state have the defaults of the methods."""
    alike: dict[str, tuple[Callable[..., Any], ...]] = {
        "proselflc": (proselflc.ProSelfLC, functional.proselflc),
        "proselflc_lt": (proselflc.LowTemperatureProSelfLC, functional.low_temperature_proselflc),
        "gce": (proselflc.GeneralizedCrossEntropy, functional.generalized_cross_entropy),
        "sl": (proselflc.SymmetricCrossEntropy, functional.symmetric_cross_entropy),
    }
    for name, others in alike.items():
        for one in fields(methods.find(name).parameters):
            for other in others:
                assert inspect.signature(other).parameters[one.name].default == one.default


def test_costs_are_those_that_the_benchmark_measured() -> None:
    costs = methods.costs()
    assert set(costs) == set(methods.names())
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "method_cost.json"
    assert costs["cce"] == json.loads(path.read_text())["found"]["cce"]["times_cross_entropy"]


def test_what_learns_from_trusted_examples_says_that_it_needs_them() -> None:
    learning = {name for name, one in methods.every().items() if one.learns_trusted}
    needing = {name for name, one in methods.every().items() if one.needs == "a trusted part"}
    assert learning == needing == {"pseudo_label"}


def test_every_parameter_has_a_meaning_of_its_own() -> None:
    for name, one in methods.every().items():
        means = options.meanings(one)
        assert means.keys() == set(one.takes), name
        for said in means.values():
            assert said.endswith("."), (name, said)
            assert " for " not in said or name == "sl", (name, said)


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("boot_soft", dict(epsilon=0.3), proselflc.BootSoft(0.3)),
        ("label_smoothing", dict(epsilon=0.1), proselflc.LabelSmoothing(0.1)),
        ("proselflc", dict(sharpness=4.0), proselflc.ProSelfLC(10, sharpness=4.0)),
        ("proselflc", dict(trust="global"), proselflc.ProSelfLC(10, trust="global")),
        (
            "proselflc_lt",
            dict(temperature=0.25, midpoint=0.4),
            proselflc.LowTemperatureProSelfLC(10, midpoint=0.4, temperature=0.25),
        ),
        ("gce", dict(q=0.3), proselflc.GeneralizedCrossEntropy(0.3)),
        (
            "sl",
            dict(alpha=2.0, beta=3.0, A=-9.0),
            proselflc.SymmetricCrossEntropy(2.0, 3.0, -9.0),
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_parameters_reach_the_criterion(
    name: str, parameters: dict[str, Any], expected: Any
) -> None:
    logits = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(8) % 4
    found = made(name, parameters)(logits, y, progress=0.7)
    assert_close(found, expected(logits, y, progress=0.7))
    assert not torch.isclose(found, made(name)(logits, y, progress=0.7))


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_filled_in_and_nothing_else(name: str) -> None:
    resolved = methods.resolved(name, {})
    assert resolved == methods.find(name).parameters()
    assert methods.resolved(name, resolved.given()) == resolved
    assert methods.resolved(name, dict.fromkeys(resolved.given())) == resolved


def test_a_path_is_one() -> None:
    found = methods.resolved("distillation", {"teacher": "runs/t"}).given()["teacher"]
    assert found == Path("runs/t").absolute()
    with pytest.raises(InputError, match="method distillation: teacher must be a path, got int"):
        methods.resolved("distillation", {"teacher": 3})


def test_numbers_of_numpy_and_torch_are_plain_ones() -> None:
    given = {"sharpness": np.float32(8), "midpoint": torch.tensor(0.25)}
    found = methods.resolved("proselflc", given).given()
    assert found == {"sharpness": 8.0, "midpoint": 0.25, "trust": "global*local"}
    assert {type(value) for value in found.values()} == {float, str}
    assert type(methods.resolved("d2l", {"window": np.int64(7)}).given()["window"]) is int


def test_a_transition_is_read_from_a_file(tmp_path: Path) -> None:
    matrix = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    np.save(tmp_path / "transition.npy", matrix)
    logits, y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
    expected = proselflc.ForwardCorrection(torch.from_numpy(matrix).float())
    found = made("forward", dict(transition=tmp_path / "transition.npy"))
    assert_close(found(logits, y), expected(logits, y))


@pytest.mark.parametrize(
    ("name", "parameters", "field", "reason"),
    [
        ("proselfc", {}, "method", 'unknown method "proselfc"; did you mean "proselflc"?'),
        ("cce", dict(epsilon=0.1), "method.epsilon", "it takes no parameters"),
        ("gce", dict(epsilon=0.1), "method.epsilon", f"it takes {option('method.q')}"),
        ("distillation", {}, "method.teacher", "a finished run"),
        (
            "boot_soft",
            dict(epsilo=0.1),
            "method.epsilo",
            f"did you mean {option('method.epsilon')}?",
        ),
        ("boot_soft", dict(epsilon=2.0), "method.epsilon", "between 0 and 1, got 2"),
        ("proselflc", dict(trust="lokal"), "method.trust", 'did you mean "local"?'),
    ],
)
def test_what_a_method_cannot_use(
    name: str, parameters: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        made(name, parameters)
    assert caught.value.field == field
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match=r"nowhere\.npy"):
        made("forward", dict(transition=Path("nowhere.npy")))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_a_criterion_and_no_more_can_weigh(name: str) -> None:
    weight = np.arange(40, dtype=np.float32)
    context = replace(SITUATION, sample_weight=weight)
    parameters = methods.resolved(name, {})
    if methods.weighs(name):
        made = methods.strategy(name, parameters, context)
        assert made.sample_weight is not None
        assert_close(made.sample_weight, torch.from_numpy(weight))
    else:
        with pytest.raises(InputError, match=rf"{name} cannot weigh examples: .*boot_soft, cce"):
            methods.strategy(name, parameters, context)
    assert methods.weighs(name) == (type(strategy(name)) is Strategy)
