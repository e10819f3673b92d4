"""Entropy, cross entropy and KL divergence of label distributions, from log-probabilities.

All three reduce [..., C] to [...], in natural logarithms, and take 0·log 0 as 0, so that a class
masked with a logit of −∞ is harmless.
"""

import torch
from torch import Tensor


def cross_entropy(q: Tensor, log_p: Tensor) -> Tensor:
    """Return H(q, p) = −Σ_j q_j log p_j, attached to both; q may be signed (confidence penalty)."""
    # Filling before multiplying, not masking after: 0·(−∞) would leave a NaN in the gradient.
    return -(q * log_p.masked_fill((q == 0) & log_p.isneginf(), 0.0)).sum(-1)


def entropy(log_p: Tensor) -> Tensor:
    """Return H(p) = −Σ_j p_j log p_j, from 0 (one-hot) to log C (uniform)."""
    return expected_surprise(log_p.exp(), log_p)


def expected_surprise(p: Tensor, log_p: Tensor) -> Tensor:
    """Return −Σ_j p_j log p_j for a p that is 0 wherever log_p is −∞."""
    return -(p * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1)


def kl_divergence(log_q: Tensor, log_p: Tensor) -> Tensor:
    """Return KL(q‖p) = Σ_j q_j (log q_j − log p_j) = H(q, p) − H(q), summed over classes.

    It is never negative, and +∞ where q has a class that p excludes.
    """
    impossible = log_q.isneginf()
    difference = log_q.masked_fill(impossible, 0.0) - log_p.masked_fill(impossible, 0.0)
    return (torch.exp(log_q) * difference).sum(-1)
