"""log(p + 1e-6) and the transit ratio of the authors' code are named options, off by default."""

import math

import pytest
import torch
from torch.testing import assert_close

from proselflc import BootSoft, ConfidencePenalty, CrossEntropy, LabelSmoothing, ProSelfLC


def test_log_offset_is_a_different_loss() -> None:
    """At p_y = 1.5e-8 an offset of 1e-6 leaves 1.5 % of the gradient."""
    z = torch.tensor([[18.0, 0.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1])
    (exact,) = torch.autograd.grad(CrossEntropy()(z, y), z)
    (offset,) = torch.autograd.grad(CrossEntropy(log_offset=1e-6)(z, y), z)
    p_y = z.detach().softmax(-1)[0, 1].item()
    assert p_y == pytest.approx(1.5e-8, rel=0.02)
    assert (offset / exact)[0, 1].item() == pytest.approx(p_y / (p_y + 1e-6))


@pytest.mark.parametrize("sign", [1, -1])
def test_every_logarithm_has_the_offset(sign: int) -> None:
    delta = 1e-3
    z = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randint(4, (6,))
    p, q = z.softmax(-1), torch.eye(4, dtype=torch.float64)[y]
    expected = -((0.7 * q + sign * 0.3 * p) * torch.log(p + delta)).sum(-1).mean()
    criterion = BootSoft if sign > 0 else ConfidencePenalty
    ours = criterion(0.3, log_offset=delta)(z, y)
    assert_close(ours, expected)
    assert_close(torch.autograd.grad(ours, z), torch.autograd.grad(expected, z))


def test_label_smoothing_with_the_offset() -> None:
    z, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,))
    q = 0.7 * torch.eye(4, dtype=torch.float64)[y] + 0.3 / 4
    expected = -(q * torch.log(z.softmax(-1) + 1e-3)).sum(-1).mean()
    assert_close(LabelSmoothing(0.3, log_offset=1e-3)(z, y), expected)


def test_trust_with_the_offset_and_the_transit_ratio() -> None:
    delta, ratio, progress = 1e-3, 0.3, 0.6
    z, y = 5 * torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,))
    p = z.softmax(-1)
    entropy = -(p * torch.log(p + delta)).sum(-1)
    local = (1 - entropy / math.log(4)).clamp(0, 1)
    g = 1 / (1 + math.exp(-8 * (progress - ratio)))
    criterion = ProSelfLC(10, sharpness=8, midpoint=ratio, log_offset=delta)
    assert_close(criterion.correct(z, y, progress=progress).trust, g * local)


def test_off_by_default() -> None:
    z, y = 5 * torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,))
    assert_close(ProSelfLC(10, log_offset=0.0)(z, y), ProSelfLC(10)(z, y))
    assert not torch.allclose(ProSelfLC(10, log_offset=1e-2)(z, y), ProSelfLC(10)(z, y))
