"""On the digits of the demo, ProSelfLC with p detached is cross entropy, and ProSelfLC is not."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from proselflc import CrossEntropy, LowTemperatureProSelfLC, ProSelfLC

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import own_loop

STEPS = own_loop.EPOCHS * -(-1297 // own_loop.BATCH)


def detached() -> LowTemperatureProSelfLC:
    return LowTemperatureProSelfLC(STEPS, sharpness=10.0, temperature=1.0, trust="global*local")


def test_why_detached_is_a_scaled_down_cross_entropy() -> None:
    x, given, *_ = own_loop.noisy_digits(0)
    z = torch.randn(len(x), 10, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (cross_entropy,) = torch.autograd.grad(CrossEntropy(reduction="sum")(z, given), z)

    def gradient(criterion: ProSelfLC | LowTemperatureProSelfLC) -> torch.Tensor:
        criterion.reduction = "sum"
        return torch.autograd.grad(criterion(z, given, progress=0.9), z)[0]

    trust = detached().correct(z, given, progress=0.9).trust
    assert_close(gradient(detached()), (1 - trust[:, None]) * cross_entropy)
    rest = gradient(ProSelfLC(STEPS)) - gradient(detached())
    p, log_p = z.softmax(-1), z.log_softmax(-1)
    entropy = -(p * log_p).sum(-1, keepdim=True)
    assert_close(rest, -trust[:, None] * p * (log_p + entropy), rtol=1e-4, atol=1e-6)
    assert rest.abs().max() > 0.01


@pytest.mark.parametrize("seed", [0, 1])
def test_what_it_does_to_the_demo(seed: int) -> None:
    by_cross_entropy, learned = own_loop.train(CrossEntropy(), seed)
    by_proselflc, learned_less = own_loop.train(ProSelfLC(STEPS), seed)
    by_detached, learned_as_much = own_loop.train(detached(), seed)
    assert by_proselflc > by_cross_entropy + 0.08
    assert by_proselflc > by_detached + 0.08
    assert learned_less < learned - 0.15
    assert learned_less < learned_as_much - 0.15
    assert abs(by_detached - by_cross_entropy) < 0.06
