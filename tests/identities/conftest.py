"""Random batches, and what several files of this folder compute apart from the library."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor
from torch.distributions import Categorical
from torch.nn import functional as F


def _batch(N: int, C: int, scale: float, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(N, C, generator=generator, dtype=torch.float64)
    return z, torch.randint(C, (N,), generator=generator)


def _annotated(batch: tuple[Tensor, Tensor], kind: str) -> tuple[Tensor, Tensor, Tensor]:
    z, y = batch
    q = F.one_hot(y, z.shape[1]).to(z.dtype)
    if kind == "soft":
        q = 0.7 * q + 0.3 * z.flip(0).flip(1).softmax(-1)
    return z, y if kind == "class ids" else q, q


def _entropy(z: Tensor) -> Tensor:
    H: Tensor = Categorical(logits=z).entropy()  # type: ignore[no-untyped-call]
    return H


BATCHES = st.builds(
    _batch,
    N=st.integers(1, 6),
    C=st.integers(2, 12),
    scale=st.sampled_from([0.3, 1.0, 5.0]),
    seed=st.integers(0, 2**31),
)


@pytest.fixture(scope="session")
def batches() -> SearchStrategy[tuple[Tensor, Tensor]]:
    """Logits [N, C] in float64 and class ids [N]; from nearly uniform to very confident."""
    return BATCHES


@pytest.fixture(scope="session")
def annotated_batches() -> SearchStrategy[tuple[Tensor, Tensor, Tensor]]:
    """Logits [N, C], a target as a user gives it (class ids, one-hot or soft), and its q [N, C]."""
    return st.builds(_annotated, BATCHES, st.sampled_from(["class ids", "one-hot", "soft"]))


@pytest.fixture(scope="session")
def gradient() -> Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]:
    """The gradient of a function at a point, by autograd; several values are summed."""

    def at(function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
        point = point.detach().clone().requires_grad_()
        return torch.autograd.grad(function(point).sum(), point)[0]

    return at


@pytest.fixture(scope="session")
def entropy() -> Callable[[Tensor], Tensor]:
    """H(softmax(z)) [N] of logits [N, C], by torch.distributions."""
    return _entropy


@pytest.fixture(scope="session")
def proselflc_trust() -> Callable[[Tensor, float, float], Tensor]:
    """ε = h(η, B) · (1 − H(p)/H(u)) [N] of logits [N, C], η = t/Γ − ½ and B."""

    def trust(z: Tensor, eta: float, B: float) -> Tensor:
        g = 1 / (1 + math.exp(-eta * B))
        return g * (1 - _entropy(z) / _entropy(torch.zeros_like(z)))

    return trust
