"""The curves of the paper, one example at a time."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proselflc.auditing.fitting import Fitting, FittingPoint


def some(n: int, C: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log_p [n, C], given, clean and trust [n]; about half of the labels are wrong."""
    generator = torch.Generator().manual_seed(seed)
    log_p = torch.log_softmax(2 * torch.randn(n, C, generator=generator), -1)
    clean = torch.randint(C, (n,), generator=generator)
    other = torch.randint(C, (n,), generator=generator)
    given = torch.where(torch.rand(n, generator=generator) < 0.5, clean, other)
    return log_p, given, clean, torch.rand(n, generator=generator)


def mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def naive(log_p: Tensor, given: Tensor, clean: Tensor | None, trust: Tensor) -> FittingPoint:
    p = log_p.double().exp().tolist()
    y, ε = given.tolist(), trust.double().tolist()
    true = [None] * len(y) if clean is None else clean.tolist()
    predicted = [row.index(max(row)) for row in p]
    entropy = [-math.fsum(a * math.log(a) for a in row if a > 0) for row in p]
    every = list(range(len(y)))
    right = [i for i in every if true[i] == y[i]]
    wrong = [i for i in every if true[i] is not None and true[i] != y[i]]
    return FittingPoint(
        train_accuracy=mean([float(predicted[i] == y[i]) for i in every]),
        entropy=mean(entropy),
        epsilon=mean(ε),
        correct_fitting=mean([float(predicted[i] == y[i]) for i in right]),
        wrong_fitting=mean([float(predicted[i] == y[i]) for i in wrong]),
        semantic_correction=mean([float(predicted[i] == true[i]) for i in wrong]),
        entropy_clean=mean([entropy[i] for i in right]),
        entropy_noisy=mean([entropy[i] for i in wrong]),
        epsilon_clean=mean([ε[i] for i in right]),
        epsilon_noisy=mean([ε[i] for i in wrong]),
    )


def assert_alike(a: FittingPoint, b: FittingPoint, tolerance: float = 1e-6) -> None:
    for field in fields(FittingPoint):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if right is None:
            assert left is None, field.name
        else:
            assert left == pytest.approx(right, abs=tolerance), field.name


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 40),
    C=st.integers(2, 7),
    batch=st.integers(1, 40),
    known=st.booleans(),
)
def test_batches_add_up_to_the_naive_measures(
    seed: int, n: int, C: int, batch: int, known: bool
) -> None:
    log_p, y, true, trust = some(n, C, seed)
    clean = true if known else None
    fitting = Fitting(C, known)
    for i in range(0, n, batch):
        rows = slice(i, i + batch)
        fitting.add(log_p[rows], y[rows], None if clean is None else clean[rows], trust[rows])
    assert_alike(fitting.result(), naive(log_p, y, clean, trust))


def test_by_hand() -> None:
    """Classes 0, 1, 2; the given label is right for the first two examples."""
    p = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    fitting = Fitting(3, True)
    fitting.add(
        p.double().log(),
        given=torch.tensor([0, 0, 2, 2]),
        clean=torch.tensor([0, 0, 1, 0]),
        trust=torch.tensor([0.0, 0.2, 0.4, 0.8]),
    )
    entropy = -0.8 * math.log(0.8) - 0.2 * math.log(0.1)
    expected = FittingPoint(
        train_accuracy=0.5,
        entropy=entropy,
        epsilon=0.35,
        correct_fitting=0.5,
        wrong_fitting=0.5,
        semantic_correction=0.5,
        entropy_clean=entropy,
        entropy_noisy=entropy,
        epsilon_clean=0.1,
        epsilon_noisy=0.6,
    )
    assert_alike(fitting.result(), expected)


def test_what_cannot_be_known_is_none() -> None:
    log_p, y, _, trust = some(10, 3, 0)
    unknown = Fitting(3, False)
    unknown.add(log_p, y, None, trust)
    found = unknown.result()
    assert None not in (found.train_accuracy, found.entropy, found.epsilon)
    assert (found.correct_fitting, found.wrong_fitting, found.semantic_correction) == (None,) * 3
    assert (found.entropy_clean, found.entropy_noisy) == (None, None)
    assert (found.epsilon_clean, found.epsilon_noisy) == (None, None)
    spotless = Fitting(3, True)
    spotless.add(log_p, y, y, trust)
    found = spotless.result()
    assert found.correct_fitting == found.train_accuracy
    assert (found.wrong_fitting, found.semantic_correction, found.entropy_noisy) == (None,) * 3
    assert set(vars(Fitting(3, True).result()).values()) == {None}


def test_sums_of_several_processes_add_up() -> None:
    log_p, y, clean, trust = some(30, 4, 1)
    whole, first, second = (Fitting(4, True) for _ in range(3))
    whole.add(log_p, y, clean, trust)
    first.add(log_p[:11], y[:11], clean[:11], trust[:11])
    second.add(log_p[11:], y[11:], clean[11:], trust[11:])
    total = first.sums() + second.sums()
    assert total.dtype == torch.float64
    assert total.ndim == 1
    joined = Fitting.from_sums(total, num_classes=4, clean_known=True)
    assert_alike(joined.result(), whole.result(), 1e-12)
    joined.add(log_p, y, clean, trust)
    torch.testing.assert_close(joined.sums(), 2 * whole.sums())
    # What was handed out is a copy.
    before = whole.result()
    whole.sums().zero_()
    assert whole.result() == before


def test_sums_are_exact_where_single_precision_is_not() -> None:
    """2^24 is where a float32 count stops: the last example must still count."""
    fitting = Fitting.from_sums(
        torch.full((15,), 2.0**24, dtype=torch.float64), num_classes=2, clean_known=True
    )
    log_p = torch.tensor([[0.5, 0.5]]).log()
    fitting.add(log_p, torch.tensor([0]), torch.tensor([0]), torch.tensor([1.0]))
    assert fitting.sums()[0].item() == 2**24 + 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_summed_in_more(dtype: torch.dtype) -> None:
    log_p, y, clean, trust = some(200, 5, 2)
    low = log_p.to(dtype)
    fitting = Fitting(5, True)
    fitting.add(low, y, clean, trust)
    assert_alike(fitting.result(), naive(low.float(), y, clean, trust))


def test_a_class_that_is_ruled_out_is_harmless() -> None:
    log_p = torch.log_softmax(torch.tensor([[0.0, 0.0, -math.inf]]), -1)
    fitting = Fitting(3, False)
    fitting.add(log_p, torch.tensor([0]), None, torch.tensor([0.5]))
    assert fitting.result().entropy == pytest.approx(math.log(2))
