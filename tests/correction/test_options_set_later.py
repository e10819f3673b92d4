"""An option of a criterion that is set later works, or is refused at once."""

import copy
import inspect
import pickle
import typing
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import proselflc
from proselflc import Criterion

C = 4
T = torch.full((C, C), 0.05) + 0.8 * torch.eye(C)
Z = torch.tensor([[2.0, 0.0, -1.0, 0.5], [0.0, 3.0, 0.0, 1.0], [1.0, 0.0, 2.0, 0.0]])
Y = torch.tensor([0, 2, 1])
W = torch.tensor([0.5, 2.0, 1.0, 3.0])

EVERY: dict[str, Callable[..., Criterion]] = {
    "CrossEntropy": proselflc.CrossEntropy,
    "LabelSmoothing": lambda **k: proselflc.LabelSmoothing(0.2, **k),
    "ConfidencePenalty": lambda **k: proselflc.ConfidencePenalty(0.2, **k),
    "BootSoft": lambda **k: proselflc.BootSoft(0.3, **k),
    "BootHard": lambda **k: proselflc.BootHard(0.3, **k),
    "Distillation": lambda **k: proselflc.Distillation(0.3, 2.0, **k),
    "ProSelfLC": lambda **k: proselflc.ProSelfLC(10, **k),
    "LowTemperatureProSelfLC": lambda **k: proselflc.LowTemperatureProSelfLC(10, **k),
    "GeneralizedCrossEntropy": proselflc.GeneralizedCrossEntropy,
    "SymmetricCrossEntropy": proselflc.SymmetricCrossEntropy,
    "ForwardCorrection": lambda **k: proselflc.ForwardCorrection(T, **k),
    "BackwardCorrection": lambda **k: proselflc.BackwardCorrection(T, **k),
}


def loss(criterion: Criterion, name: str) -> Tensor:
    teacher = {"teacher_logits": Z.flip(0)} if name == "Distillation" else {}
    value: Tensor = criterion(Z, Y, progress=0.7, **teacher)
    return value


@pytest.mark.parametrize("name", EVERY)
def test_label_smoothing_is_refused_where_it_would_be_ignored(name: str) -> None:
    criterion = EVERY[name]()
    with pytest.raises(ValueError, match=r"label_smoothing=0\.1 would have no effect"):
        criterion.label_smoothing = 0.1
    assert criterion.label_smoothing == 0
    criterion.label_smoothing = 0.0
    with pytest.raises(TypeError, match="label_smoothing"):
        EVERY[name](label_smoothing=0.1)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("option", "value"),
    [("weight", W), ("reduction", "sum"), ("reduction", "none"), ("ignore_index", 2)],
)
def test_an_option_that_is_set_later_counts_as_if_it_was_given(
    name: str, option: str, value: Any
) -> None:
    criterion = EVERY[name]()
    plain = loss(criterion, name)
    setattr(criterion, option, value)
    expected = loss(EVERY[name](**{option: value}), name)
    assert_close(loss(criterion, name), expected)
    assert expected.shape != plain.shape or not torch.allclose(expected, plain)


def test_a_neutral_criterion_stays_f_cross_entropy_with_options_set_later() -> None:
    criterion = proselflc.BootSoft(0.0)
    criterion.weight, criterion.ignore_index = W, 2
    assert_close(criterion(Z, Y), F.cross_entropy(Z, Y, weight=W, ignore_index=2))
    criterion.weight = None
    assert_close(criterion(Z, Y), F.cross_entropy(Z, Y, ignore_index=2))


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("reduction", "avg", "avg"),
        ("weight", [1.0] * C, "weight must be a 1-d tensor"),
        ("weight", torch.ones(C, C), "weight must be a 1-d tensor"),
        ("ignore_index", None, "ignore_index must be a whole number"),
        ("ignore_index", 1.5, "ignore_index must be a whole number"),
        ("total_steps", 0, "total_steps must be a whole number"),
        ("log_offset", 1.0, "log_offset must be a number"),
        ("method", "proselflc", "method must be a Target"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(option: str, value: Any, reason: str) -> None:
    criterion = proselflc.ProSelfLC(10)
    before = loss(criterion, "ProSelfLC")
    with pytest.raises((ValueError, TypeError), match=reason):
        setattr(criterion, option, value)
    assert_close(loss(criterion, "ProSelfLC"), before)


def test_the_total_is_in_the_state_and_an_equal_one_loads_without_a_word() -> None:
    first, second = proselflc.ProSelfLC(10), proselflc.ProSelfLC(10)
    first(Z, Y)
    assert first.state_dict()["total_steps"] == 10
    assert "total_steps" not in proselflc.CrossEntropy().state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(second.load_state_dict(first.state_dict())) == "<All keys matched successfully>"
    assert second.progress == 0.1


def test_a_state_without_a_total_loads_as_before() -> None:
    criterion = proselflc.ProSelfLC(10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion.load_state_dict({"t": torch.tensor(4)})
    assert (criterion.progress, criterion.total_steps) == (0.4, 10)


def test_another_total_keeps_the_own_one_and_warns_with_both() -> None:
    saved = proselflc.ProSelfLC(10)
    saved.set_progress(5)
    model = torch.nn.ModuleDict({"criterion": proselflc.ProSelfLC(20)})
    state = {f"criterion.{name}": value for name, value in saved.state_dict().items()}
    with pytest.warns(UserWarning, match=r"total_steps=10 .*total_steps=20.*set_progress\(5, 10\)"):
        model.load_state_dict(state)
    criterion = model["criterion"]
    assert isinstance(criterion, Criterion)
    assert (criterion.total_steps, criterion.progress) == (20, 0.25)
    criterion.set_progress(5, 10)
    assert criterion.progress == 0.5


@pytest.mark.parametrize("own", [1, None])
def test_a_total_that_was_not_known_yet_is_taken_from_the_state(own: int | None) -> None:
    saved = proselflc.ProSelfLC(10)
    saved.set_progress(5)
    criterion = Criterion(saved.method, total_steps=own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion.load_state_dict(saved.state_dict())
    assert (criterion.total_steps, criterion.progress) == (10, 0.5)


@pytest.mark.parametrize("total", [torch.tensor(0), torch.tensor(2.5), torch.ones(3), "ten"])
def test_a_damaged_total_is_refused(total: Any) -> None:
    state = {**proselflc.ProSelfLC(10).state_dict(), "total_steps": total}
    with pytest.raises(RuntimeError, match="total_steps must be a whole number"):
        proselflc.ProSelfLC(10).load_state_dict(state)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda criterion: pickle.loads(pickle.dumps(criterion))]
)
def test_a_copy_keeps_options_total_and_time(copied: Callable[[Criterion], Criterion]) -> None:
    criterion = proselflc.ProSelfLC(10)
    criterion.weight, criterion.reduction = W, "sum"
    criterion.set_progress(3)
    other = copied(criterion)
    assert_close(loss(other, "ProSelfLC"), loss(criterion, "ProSelfLC"))
    assert (other.total_steps, other.progress) == (10, 0.3)


@pytest.mark.parametrize("function", [proselflc.ProSelfLC.__init__, proselflc.functional.boot_soft])
def test_hints_of_forwarded_options_can_be_resolved(function: Any) -> None:
    hints = typing.get_type_hints(function)
    assert set(inspect.signature(function).parameters) - {"self"} == set(hints) - {"return"}
