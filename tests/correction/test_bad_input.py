"""Wrong input is refused with what came, what was expected and what to do."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import proselflc as p
from proselflc import functional

Z, Y = torch.zeros(3, 4), torch.tensor([0, 1, 2])
Q = torch.full((3, 4), 0.25)
INF, NAN = float("inf"), float("nan")
untyped: Any = p


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda c: c([[0.0]], Y), TypeError, "torch tensors, got list"),
        (lambda c: c(Z, [0, 1, 2]), TypeError, "Tensor and list"),
        (lambda c: c(Y, Y), TypeError, "floating point, got torch.int64"),
        (lambda c: c(torch.tensor(1.0), Y), ValueError, r"\[N, C\].*got \[\]"),
        (lambda c: c(torch.zeros(3, 0), Y), ValueError, "C ≥ 1"),
        (lambda c: c(Z, torch.tensor([0, 1])), ValueError, r"must be shaped \[3\], got \[2\]"),
        (lambda c: c(Z, Y[:, None]), ValueError, r"shaped \[3\], got \[3, 1\]"),
        (lambda c: c(Z, Y.int()), TypeError, r"int32.*target.long\(\)"),
        (lambda c: c(Z, Y.short()), TypeError, r"int16.*target.long\(\)"),
        (lambda c: c(Z, Y > 0), TypeError, "bool"),
        (lambda c: c(Z, torch.tensor([0, 1, 4])), ValueError, "class id 4 at position 2.*0 … 3"),
        (lambda c: c(Z, torch.tensor([0, -1, 2])), ValueError, "class id -1 at position 1"),
        (lambda c: c(Z, torch.zeros(3)), ValueError, r"shaped like logits, \[3, 4\], got \[3\]"),
        (lambda c: c(Z, Q * 2), ValueError, "example 0 sum to 2 .*softmax"),
        (lambda c: c(Z, Q - torch.eye(4)[:3] / 2 + 0.125), ValueError, "smallest one of -0.125"),
        (lambda c: c(Z, Q * torch.nan), ValueError, "sum to nan"),
        (lambda c: c(Z, Y, progress=1.5), ValueError, "between 0 and 1; got 1.5"),
        (lambda c: c(Z, Y, progress=float("nan")), ValueError, "got nan"),
        (lambda c: c(Z, Y, progress=torch.tensor(-0.5)), ValueError, "got -0.5"),
        (lambda c: c(Z, Y, progress=torch.zeros(2)), ValueError, r"0-d tensor.*\[2\]"),
        (lambda c: c(Z, Y, progress="late"), TypeError, "'late'"),
        (lambda c: c.set_progress(-1), ValueError, "≥ 0, got -1"),
        (lambda c: c.set_progress(1.5), ValueError, "got 1.5"),
        (lambda c: c.set_progress(1, total=0), ValueError, "total_steps.*got 0"),
        (lambda c: c.correct(Z, torch.tensor([0, 1, 9])), ValueError, "class id 9"),
    ],
)
@pytest.mark.parametrize("fused", [True, False])
def test_a_wrong_call(
    call: Callable[[Any], object], error: type[Exception], says: str, fused: bool
) -> None:
    criterion = p.ProSelfLC(10, fused=fused)
    with pytest.raises(error, match=says):
        call(criterion)
    assert criterion.t == 0


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda: p.LabelSmoothing(1.5),
            ValueError,
            "epsilon must be a number between 0.*got 1.5",
        ),
        (lambda: p.BootSoft(-0.1), ValueError, "got -0.1"),
        (lambda: p.BootHard(float("nan")), ValueError, "got nan"),
        (lambda: p.ConfidencePenalty(2), ValueError, "got 2"),
        (lambda: p.ProSelfLC(0), ValueError, "total_steps must be a whole number ≥ 1, got 0"),
        (lambda: untyped.ProSelfLC(None), ValueError, "got None"),
        (lambda: untyped.ProSelfLC(10.5), ValueError, "got 10.5"),
        (lambda: p.ProSelfLC(10, sharpness=-1), ValueError, "sharpness.*≥ 0 .*, got -1"),
        (lambda: p.ProSelfLC(10, midpoint=1.5), ValueError, "midpoint.*got 1.5"),
        (lambda: p.ProSelfLC(10, trust="globl"), ValueError, 'did you mean "global"'),
        (lambda: untyped.ProSelfLC(10, trust=0.5), TypeError, "name or a Trust, got float"),
        (lambda: p.ProSelfLC(10, log_offset=-1e-6), ValueError, "log_offset"),
        (lambda: p.Distillation(0.5, temperature=0), ValueError, "temperature.*got 0"),
        (lambda: p.LowTemperatureProSelfLC(9, temperature=-1), ValueError, "temperature.*got -1"),
        (lambda: p.GeneralizedCrossEntropy(0), ValueError, "q must be a number above 0.*got 0"),
        (lambda: p.GeneralizedCrossEntropy(1.1), ValueError, "got 1.1"),
        (lambda: p.SymmetricCrossEntropy(A=4), ValueError, "A must be .* below 0 .*, got 4"),
        (lambda: p.SymmetricCrossEntropy(A=0.5), ValueError, "got 0.5: it stands for log 0"),
        (lambda: p.SymmetricCrossEntropy(A=-INF), ValueError, "A must be.*finite, got -inf"),
        (lambda: p.SymmetricCrossEntropy(alpha=NAN), ValueError, "alpha.*≥ 0 and finite, got nan"),
        (lambda: p.SymmetricCrossEntropy(beta=INF), ValueError, "beta.*finite, got inf"),
        (lambda: untyped.SymmetricCrossEntropy(alpha="x"), TypeError, "alpha.*got 'x'"),
        (lambda: untyped.BootSoft("a"), TypeError, "epsilon must be a number.*got 'a': it is"),
        (lambda: untyped.BootSoft(None), TypeError, "epsilon must be a number.*got None"),
        (lambda: untyped.BootSoft(True), TypeError, "epsilon must be a number.*got True"),
        (lambda: untyped.ProSelfLC(9, sharpness="a"), TypeError, "sharpness must.*got 'a'"),
        (
            lambda: p.ProSelfLC(9, sharpness=NAN),
            ValueError,
            "sharpness must.*finite, got nan",
        ),
        (
            lambda: p.ProSelfLC(9, sharpness=INF),
            ValueError,
            "sharpness must.*finite, got inf",
        ),
        (lambda: untyped.ProSelfLC(9, midpoint="x"), TypeError, "midpoint must.*got 'x'"),
        (lambda: p.ProSelfLC(9, midpoint=NAN), ValueError, "midpoint must.*got nan"),
        (lambda: untyped.ProSelfLC(9, log_offset="x"), TypeError, "log_offset.*got 'x'"),
        (lambda: untyped.GeneralizedCrossEntropy("x"), TypeError, "q must be a number.*got 'x'"),
        (lambda: untyped.Distillation(0.2, "x"), TypeError, "temperature must be.*got 'x'"),
        (lambda: p.Distillation(0.2, NAN), ValueError, "temperature must be.*got nan"),
        (lambda: untyped.LowTemperatureProSelfLC(9, temperature=[1]), TypeError, r"got \[1\]"),
        (lambda: untyped.Criterion("proselflc"), TypeError, "'proselflc'.*proselflc.ProSelfLC"),
        (lambda: untyped.Criterion(None), TypeError, "Target.*got None.*proselflc.ProSelfLC"),
        (lambda: untyped.Criterion(p.Target), TypeError, "got <class.*Target"),
        (lambda: untyped.Criterion(p.ProSelfLC(9)), TypeError, "got ProSelfLC"),
        (lambda: p.CrossEntropy(reduction="avg"), ValueError, 'unknown reduction "avg"'),
        (lambda: p.CrossEntropy(weight=torch.ones(2, 2)), ValueError, "1-d tensor"),
        (lambda: p.ForwardCorrection(torch.ones(2, 3)), ValueError, r"square.*\[2, 3\]"),
        (lambda: untyped.ForwardCorrection([[1.0]]), TypeError, "got list"),
        (
            lambda: p.ForwardCorrection(torch.tensor([[0.9, 0.4], [0.1, 0.6]])),
            ValueError,
            "Row 0 sums to 1.3.*transpose",
        ),
        (lambda: p.BackwardCorrection(torch.full((2, 2), 0.5)), ValueError, "singular"),
        (lambda: p.Memory(0, 3), ValueError, "num_examples must be a whole number ≥ 1, got 0"),
        (lambda: untyped.Memory("a", 3), ValueError, "num_examples must be.*got 'a'"),
        (lambda: untyped.Memory(3, 2.5), ValueError, "num_classes must be.*got 2.5"),
        (lambda: p.Memory(3, 3, momentum=1.0), ValueError, "below 1, got 1.0"),
        (lambda: untyped.Memory(3, 3, momentum="x"), TypeError, "momentum must be.*got 'x'"),
    ],
)
def test_a_wrong_setting(make: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_a_setting_may_be_any_kind_of_number() -> None:
    for epsilon in (Fraction(1, 4), np.float32(0.25), np.float64(0.25), torch.tensor(0.25)):
        same = untyped.BootSoft(epsilon)(torch.eye(4)[:3], Y)
        assert_close(same, p.BootSoft(0.25)(torch.eye(4)[:3], Y))


def test_ignore_index_is_not_for_probabilities() -> None:
    with pytest.raises(ValueError, match="ignore_index=2 is for class ids"):
        p.BootSoft(0.2, ignore_index=2)(Z, Q)


def test_a_missing_teacher_is_named() -> None:
    with pytest.raises(ValueError, match="teacher_logits="):
        p.Distillation(0.5)(Z, Y)
    with pytest.raises(ValueError, match=r"shaped like logits, \[3, 4\], got \[3, 5\]"):
        p.Distillation(0.5)(Z, Y, teacher_logits=torch.zeros(3, 5))
    with pytest.raises(TypeError, match=r"floating-point tensor.*got list"):
        p.Distillation(0.5)(Z, Y, teacher_logits=[[0.0]])
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        p.Distillation(0.5)(Z, Y, teacher_logits=Z.long())
    with pytest.raises(TypeError, match=r"weight must be a tensor.*got list"):
        untyped.functional.boot_soft(Z, Y, epsilon=0.1, weight=[1.0, 1.0, 1.0, 1.0])


def test_weights_for_another_number_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[4\] for these\s+logits, got \[5\]"):
        p.BootSoft(0.5, weight=torch.ones(5))(Z, Y)


def test_a_transition_for_another_number_of_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="3 classes, but the logits have 4"):
        p.ForwardCorrection(torch.eye(3))(Z, Y)


def test_a_trust_that_needs_time_says_so() -> None:
    growing = p.Criterion(p.ProSelfLC(10).method)
    with pytest.raises(ValueError, match=r"total_steps.*progress="):
        growing(Z, Y)
    assert growing(Z, Y, progress=0.5).isfinite()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_probabilities_of_half_precision_are_close_enough(dtype: torch.dtype) -> None:
    q = torch.randn(20, 100).softmax(-1).to(dtype)
    assert functional.boot_soft(torch.zeros(20, 100), q, epsilon=0.1).isfinite()
