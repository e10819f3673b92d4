"""Learning rates against torch's own schedulers, stepped after every optimiser step."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    PolynomialLR,
)

from proselflc.training.recipe import SCHEDULES, Schedule, factor

ORACLES: dict[Schedule, Callable[[torch.optim.Optimizer, int], LRScheduler]] = {
    "multistep": lambda o, total: MultiStepLR(
        o, [math.ceil(total / 2), math.ceil(22 * total / 30)], gamma=0.1
    ),
    "poly": lambda o, total: PolynomialLR(o, total_iters=total, power=2),
    "cosine": lambda o, total: CosineAnnealingLR(o, T_max=total),
}


def rates(oracle: Callable[[torch.optim.Optimizer], LRScheduler], total: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = oracle(optimizer)
    result = []
    for _ in range(total):
        result.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return result


@pytest.mark.parametrize("total", [1, 7, 30, 60, 391, 1000])
@pytest.mark.parametrize("name", ORACLES)
def test_a_schedule_is_torchs(name: Schedule, total: int) -> None:
    expected = rates(lambda optimizer: ORACLES[name](optimizer, total), total)
    ours = [factor(name, step, total) for step in range(total)]
    assert ours == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_multistep_falls_exactly_at_the_papers_epochs() -> None:
    # 22/30 of Γ must not be missed by rounding, whatever Γ.
    for total in (*range(30, 3001, 30), 300_000):
        assert factor("multistep", total // 2 - 1, total) == 1
        assert factor("multistep", total // 2, total) == 0.1
        assert factor("multistep", total * 22 // 30 - 1, total) == 0.1
        assert factor("multistep", total * 22 // 30, total) == 0.01


@pytest.mark.parametrize("warmup", [2, 5, 20])
def test_warmup_rises_like_torchs_linear_one(warmup: int) -> None:
    expected = rates(
        lambda optimizer: LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1), 20
    )
    ours = [factor("constant", step, 20, warmup) for step in range(20)]
    assert ours == pytest.approx(expected, rel=1e-9)
    assert ours[warmup - 1] == 1


@given(
    name=st.sampled_from(list(SCHEDULES)),
    total=st.integers(1, 500),
    warmup=st.integers(0, 50),
    data=st.data(),
)
def test_a_factor_is_positive_never_above_one_and_warm_up_only_lowers_it(
    name: Schedule, total: int, warmup: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, total - 1))
    plain, warmed = factor(name, step, total), factor(name, step, total, warmup)
    assert 0 < warmed <= plain <= 1
    assert warmed == plain if step >= warmup else warmed == plain * (step + 1) / warmup


@given(name=st.sampled_from(list(SCHEDULES)), total=st.integers(2, 300))
def test_without_warm_up_a_rate_never_rises(name: Schedule, total: int) -> None:
    ours = [factor(name, step, total) for step in range(total)]
    assert ours == sorted(ours, reverse=True)
    assert ours[0] == 1
