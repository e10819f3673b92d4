"""The onset of trust: where the loss on held-out labels has stopped falling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from proselflc.correction.onset import EARLIEST, SETTLED, fall, has_settled, recent_error


def falls(losses: list[float], C: int) -> tuple[float, float]:
    """How far losses fell in all and in the last third, written with a loop over epochs."""
    n = len(losses)
    before = math.log(C)
    lowest = before
    for loss in losses:
        if loss < lowest:
            lowest = loss
    third = n // 3
    start = before if third == n else losses[n - third - 1] if third else losses[-1]
    return before - lowest, start - losses[-1]


@pytest.mark.parametrize("C", [2, 10, 1000])
@pytest.mark.parametrize("n", range(1, 13))
def test_the_fall_is_from_a_guess_to_the_lowest_and_within_the_last_third(n: int, C: int) -> None:
    losses = [math.log(C) * (0.9**k + 0.05 * math.sin(3 * k)) for k in range(1, n + 1)]
    assert fall(losses, C) == pytest.approx(falls(losses, C))


def test_the_last_third_is_negative_where_the_loss_rose() -> None:
    whole, recent = fall([1.0, 0.5, 0.4, 0.6, 0.8, 1.0], 4)
    assert whole == pytest.approx(math.log(4) - 0.4)
    assert recent == pytest.approx(0.6 - 1.0)


@pytest.mark.parametrize("half_life", [1.0, 3.0, 10.0, 30.0])
def test_it_settles_where_the_last_third_has_less_than_a_fiftieth_of_the_fall(
    half_life: float,
) -> None:
    """A loss that falls by 2^(−t/h) towards an end; the slower, the later."""
    losses, settled = [], None
    for epoch in range(1, 400):
        losses.append(0.7 + (math.log(10) - 0.7) * 0.5 ** (epoch / half_life))
        whole, recent = falls(losses, 10)
        expected = epoch >= EARLIEST and recent < SETTLED * whole
        assert has_settled(losses, 10, 0.0) == expected
        error = max(SETTLED * whole - recent, 0.0)  # with which it is settled no more
        assert not has_settled(losses, 10, 1.001 * error + 1e-9)
        if expected and settled is None:
            settled = epoch
    assert settled is not None
    assert 4 * half_life < settled < 10 * half_life  # 2^(−2t/3h) ≈ 1/50 at t = 8.5 h


def test_a_loss_that_rises_again_has_settled() -> None:
    fallen = [2.0, 1.5, 1.0]
    assert not has_settled(fallen, 10, 0.0)
    assert has_settled([*fallen, 1.2, 1.4, 1.6], 10, 0.1)


@pytest.mark.parametrize(
    "losses",
    [
        [],
        [0.5],
        [0.5, 0.5],  # too few
        [2.4, 2.5, 2.6],  # never better than a guess among ten
        [math.log(10)] * 9,
        [2.3 - 0.1 * k for k in range(20)],  # falls as fast as ever
        [math.nan] * 5,
    ],
)
def test_it_has_not_settled_before_it_learned_something(losses: list[float]) -> None:
    assert not has_settled(losses, 10, 0.0)


def test_the_error_is_that_of_the_mean_fall_of_every_label() -> None:
    generator = torch.Generator().manual_seed(0)
    losses = [torch.rand(30, generator=generator, dtype=torch.float64) for _ in range(7)]
    fell = (losses[4] - losses[6]).numpy()  # the last third of seven epochs is two
    assert recent_error(losses) == pytest.approx(np.std(fell, ddof=1) / math.sqrt(30))
    assert recent_error([one[:1] for one in losses]) == math.inf
