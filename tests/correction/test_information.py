"""Entropy, cross entropy and KL divergence against scipy."""

import numpy as np
import pytest
import scipy.stats
import torch
from torch.testing import assert_close

from proselflc.correction.evidence import cross_entropy, entropy, kl_divergence

P = np.random.default_rng(0).dirichlet(np.ones(6), size=5)
Q = np.random.default_rng(1).dirichlet(np.ones(6), size=5)
LOG_P, LOG_Q = torch.tensor(P).log(), torch.tensor(Q).log()


def test_entropy() -> None:
    assert_close(entropy(LOG_P), torch.tensor(scipy.stats.entropy(P, axis=1)))


def test_kl_divergence() -> None:
    assert_close(kl_divergence(LOG_Q, LOG_P), torch.tensor(scipy.stats.entropy(Q, P, axis=1)))


def test_cross_entropy_is_kl_plus_entropy() -> None:
    expected = scipy.stats.entropy(Q, P, axis=1) + scipy.stats.entropy(Q, axis=1)
    assert_close(cross_entropy(torch.tensor(Q), LOG_P), torch.tensor(expected))


def test_zero_times_log_zero_is_zero_with_a_zero_gradient() -> None:
    z = torch.tensor([1.0, 2.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    kept = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    for measure in (entropy, lambda log_p: kl_divergence(log_p, log_p.detach().roll(0))):
        masked, plain = measure(z.log_softmax(-1)), measure(kept.log_softmax(-1))
        assert_close(masked, plain)
        gradient = torch.autograd.grad(masked, z)[0]
        assert_close(gradient[:2], torch.autograd.grad(plain, kept)[0])
        assert gradient[2] == 0


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_limits(classes: int) -> None:
    uniform = torch.full((classes,), -np.log(classes))
    one_hot = torch.full((classes,), -torch.inf)
    one_hot[0] = 0
    assert_close(entropy(uniform), torch.tensor(np.log(classes)), check_dtype=False)
    assert entropy(one_hot) == 0
    assert kl_divergence(uniform, one_hot) == torch.inf
    assert_close(kl_divergence(one_hot, uniform), torch.tensor(np.log(classes)), check_dtype=False)
