"""The contract of every method: a new file in `methods/` is tested here without a line more.

A method resumes bit for bit in every stage, teaches targets and trusts that can be recorded,
refuses bad parameters in a sentence, and learns separable data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

import proselflc
from proselflc import methods
from proselflc.errors import InputError
from proselflc.methods import masking
from proselflc.training.checkpoint import State
from proselflc.training.loop import train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext, Strategy, spans
from proselflc.wording import option

NAMES = methods.names()
EPOCHS = 8
# With these, everything that a method does happens within few epochs.
EAGER: dict[str, dict[str, Any]] = {
    "d2l": {"begin": 0.0, "window": 2},
    "gce_truncated": {"begin": 0.3, "k": 0.3},
    "m_dyr_h": {"begin": 0.3},
    "m_dyr_s": {"begin": 0.3},
    "md_dyr_sh": {"begin": 0.3},
    "sat": {"begin": 0.25},
    "tf_kd_self": {"first": "proselflc", "sharpness": 8.0},
}
# Methods whose state depends on a parameter.
MORE = {"s_adaptation, complex": ("s_adaptation", {"layer": "complex"})}
CASES = {name: (name, EAGER.get(name, {})) for name in NAMES} | MORE
# The state of a method that must change in training and survive a stop.
STATE = {
    **{
        "d2l": "dimensions",
        "elr": "memory.rows.average",
        "proselflc_auto": "memory.rows.average",
        "sat": "memory.rows.average",
        "gce_truncated": "kept",
    },
    **{"m_dyr_h": "table", "m_dyr_s": "table", "md_dyr_sh": "table", "masking": "turn"},
    **{
        "joint_soft": "labels.rows.average16",
        "joint_hard": "labels.rows.average16",
        "forward": "T",
        "backward": "T",
    },
    **{"s_adaptation": "b", "s_adaptation, complex": "w"},
}
PLAIN = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-4, schedule="multistep")
RECIPES = {
    "plain": PLAIN,
    "in parts, averaged": replace(PLAIN, optimizer="adamw", lr=0.01, accumulate=3, ema=0.9),
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> proselflc.Run:
    generator = np.random.default_rng(0)
    y = np.arange(40) % 4
    x = (4 * np.eye(4)[y] + generator.normal(size=(40, 4))).astype(np.float32)
    out = tmp_path_factory.mktemp("teacher") / "run"
    names = ("ant", "bee", "cat", "dog")
    return proselflc.fit(x, y, names=names, method="cce", epochs=3, out=out, notes=False)


@pytest.fixture
def context(crowd: Any, teacher: proselflc.Run) -> RunContext:
    """Return a context with everything that any method needs."""
    few: RunContext = crowd.context(EPOCHS)
    return replace(
        few,
        preprocessing=teacher.preprocessing,
        coarse=np.array([0, 0, 1, 1]),
        trusted=np.arange(crowd.n) % 3 == 0,
    )


def paths(name: str, teacher: proselflc.Run) -> dict[str, Any]:
    """Return the parameters that a method requires."""
    return {"teacher": teacher.path} if "teacher" in methods.find(name).takes else {}


def made(name: str, context: RunContext, teacher: proselflc.Run) -> Strategy:
    given = {**EAGER.get(name, {}), **paths(name, teacher)}
    return methods.strategy(name, methods.resolved(name, given), context)


@pytest.fixture
def short_pretraining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "PRETRAINING", 20)  # of 2,000 steps


@pytest.mark.usefixtures("short_pretraining")
@pytest.mark.parametrize("how", RECIPES)
@pytest.mark.parametrize("case", CASES)
def test_it_resumes_bit_for_bit_in_every_stage(
    crowd: Any, context: RunContext, teacher: proselflc.Run, case: str, how: str
) -> None:
    name, parameters = CASES[case]

    def new() -> Any:
        given = {**parameters, **paths(name, teacher)}
        strategy = methods.strategy(name, methods.resolved(name, given), context)
        return crowd.training(strategy, EPOCHS, RECIPES[how])

    whole = new()
    steps, epoch = EPOCHS * len(crowd), len(crowd)
    stages = spans(whole.strategy.stages, steps, epoch)
    stops = {2 * epoch + 1, steps - 4}
    if not methods.find(name).weighs:  # begins of epochs, at which such a method may change
        stops |= {1, 2 * epoch - 1, 2 * epoch, 4 * epoch + 1}
        stops |= {one.first + k for one in stages[1:] for k in (-1, 0, 1)}
    states, losses = {}, []
    for result in train_steps(whole, crowd, crowd.snapshot):
        losses.append(result.loss)
        if result.step in stops:
            tensors = {key: tensor.clone() for key, tensor in whole.tensors().items()}
            states[result.step] = State(result.step, tensors, json.loads(json.dumps(whole.facts())))
    assert states.keys() == stops
    assert len(losses) == steps
    assert len(set(losses)) > steps // 2
    expected = whole.tensors()
    if case in STATE:
        key = f"strategy.{STATE[case]}"
        assert not torch.equal(expected[key], states[1].tensors[key])
    for at, state in states.items():
        resumed = new()
        resumed.restore(state)
        torch.manual_seed(at)  # nothing is drawn from the global stream
        assert [one.loss for one in train_steps(resumed, crowd, crowd.snapshot)] == losses[at:]
        found = resumed.tensors()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found)


@pytest.mark.usefixtures("short_pretraining")
@pytest.mark.parametrize("name", NAMES)
def test_what_it_teaches_can_be_recorded_in_every_step(
    crowd: Any, context: RunContext, teacher: proselflc.Run, name: str
) -> None:
    """q̃ [N, C] are finite and sum to 1, but for the confidence penalty, and ε is a share."""
    training = crowd.training(made(name, context, teacher), EPOCHS, PLAIN)
    strategy, trusts = training.strategy, []
    for result in train_steps(training, crowd, crowd.snapshot):
        with torch.no_grad():
            e = strategy.evidence(result.logits, result.batch, training.progress)
        target, trust = strategy.taught(e, result.batch)
        assert target.shape == result.logits.shape
        assert trust.shape == result.batch.y.shape
        assert ((trust >= 0) & (trust <= 1)).all()
        sums = 1 - 2 * trust if name == "confidence_penalty" else torch.ones_like(trust)
        torch.testing.assert_close(target.sum(1), sums, atol=2e-3, rtol=0)
        trusts.append(float(trust.mean()))
    learns = {"learned", "annotated and learned", "trusted or learned", "annotated and taught"}
    method = methods.find(name)
    if method.default_target() is not None and method.semantic_class in learns and name != "d2l":
        assert max(trusts) > 0.05


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_separable_data(
    crowd: Any, context: RunContext, teacher: proselflc.Run, name: str
) -> None:
    """Four clouds that do not touch, with right labels."""
    crowd.y = crowd.clean
    crowd.x += 4.0 * torch.nn.functional.one_hot(crowd.clean, crowd.C)
    context = replace(context, given=crowd.clean.numpy())
    training = crowd.training(made(name, context, teacher), EPOCHS, PLAIN)
    for result in train_steps(training, crowd, crowd.snapshot):
        assert math.isfinite(result.loss)
    model = training.module.eval()
    with torch.no_grad():
        predicted = model(crowd.x).argmax(1)
    assert (predicted == crowd.clean).double().mean() > 0.95


def numbers() -> Iterator[tuple[str, str]]:
    """Yield every parameter that is a number, with its method."""
    for name, method in methods.every().items():
        hints = get_type_hints(method.parameters)
        for one in fields(method.parameters):
            if hints[one.name] in (int, float):
                yield name, one.name


@pytest.mark.parametrize("value", [math.nan, "much", [0.5], True])
@pytest.mark.parametrize(("name", "parameter"), list(numbers()))
def test_what_is_no_number_is_refused(
    teacher: proselflc.Run, name: str, parameter: str, value: object
) -> None:
    with pytest.raises(InputError) as caught:
        methods.resolved(name, {**paths(name, teacher), parameter: value})
    message = str(caught.value)
    assert caught.value.field == f"method.{parameter}"
    assert message.startswith(f"method {name}: {parameter} must be a")
    assert f"got {value!r}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("backward", {"estimate": "guess"}, 'unknown estimate "guess"; known: anchor, '),
        ("boot_hard", {"epsilon": 1.1}, "epsilon must be a number between 0 and 1, got 1.1"),
        ("d2l", {"begin": 1.5}, "begin must be a number between 0 and 1, got 1.5"),
        ("d2l", {"window": 1}, "window must be a whole number ≥ 2, got 1"),
        ("d2l", {"window": 2.5}, "window must be a whole number ≥ 2, got 2.5"),
        ("distillation", {"temperature": 0}, "temperature must be a number above 0 and finite, g"),
        ("elr", {"momentum": 1.0}, "momentum must be a number at least 0 and below 1, got 1.0"),
        ("elr", {"weight": math.inf}, "weight must be a number ≥ 0 and finite, got inf"),
        ("gce", {"q": 0.0}, "q must be a number above 0 and at most 1, got 0.0"),
        ("gce_truncated", {"k": 1.5}, "k must be a number between 0 and 1, got 1.5"),
        ("gce_truncated", {"begin": -1}, "begin must be a number between 0 and 1, got -1"),
        ("joint_soft", {"alpha": -1.0}, "alpha must be a number ≥ 0 and finite, got -1.0"),
        ("joint_hard", {"beta": math.inf}, "beta must be a number ≥ 0 and finite, got inf"),
        ("m_dyr_s", {"alpha": 0.0}, "alpha must be a number above 0 and finite, got 0.0"),
        ("m_dyr_h", {"weight": -1.0}, "weight must be a number ≥ 0 and finite, got -1.0"),
        ("md_dyr_sh", {"begin": 1.1}, "begin must be a number between 0 and 1, got 1.1"),
        ("proselflc", {"sharpness": -1}, "sharpness must be a number ≥ 0 and finite, got -1"),
        ("proselflc", {"trust": "lokal"}, 'unknown trust "lokal"; did you mean "local"?'),
        ("proselflc", {"trust": 3}, "trust must be a name or a Trust, got int"),
        ("proselflc_lt", {"midpoint": 2}, "midpoint must be a number between 0 and 1, got 2"),
        ("pseudo_label", {"alpha": -1.0}, "alpha must be a number ≥ 0 and finite, got -1.0"),
        ("pseudo_label", {"end": 1.1}, "end must be a number between 0 and 1, got 1.1"),
        ("pseudo_label", {"begin": 0.7}, "begin must not be after end, got 0.7 and 0.6"),
        ("pseudo_label_ramped", {"begin": 0.7}, "begin must not be after end, got 0.7 and 0.6"),
        ("s_adaptation", {"layer": "deep"}, 'unknown layer "deep"; known: complex, sim'),
        ("sat", {"momentum": 1.0}, "momentum must be a number at least 0 and below 1, got 1.0"),
        ("sat", {"begin": 2.0}, "begin must be a number between 0 and 1, got 2.0"),
        ("sl", {"A": 0.5}, "A must be a number below 0 and finite, got 0.5"),
        ("tf_kd_self", {"multiplier": 0.0}, "multiplier must be a number above 0 and finite, got"),
    ],
)
def test_what_a_parameter_cannot_be_is_refused(
    teacher: proselflc.Run, name: str, parameters: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        methods.resolved(name, {**paths(name, teacher), **parameters})
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_what_it_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        methods.resolved(name, {"brightness": 1.0})
    takes = [option(f"method.{one}") for one in methods.find(name).takes] or ["no parameters"]
    assert caught.value.field == "method.brightness"
    assert str(caught.value).endswith(" takes " + ", ".join(takes))


def test_every_file_has_a_test_of_what_defines_it() -> None:
    here = Path(__file__).parent
    tested = "".join(path.read_text(encoding="utf-8") for path in here.parent.rglob("test_*.py"))
    for path in Path(methods.__file__).parent.glob("*.py"):
        if path.stem != "__init__" and f"methods.{path.stem} " not in tested:
            for name in methods.FAMILIES.get(path.stem, [path.stem]):
                assert f'"{name}"' in tested
