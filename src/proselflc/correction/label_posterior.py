"""How likely each class is the true one, from a remembered prediction and the given label.

The labels of the surest predictions show the noise: where the network is surest of class j, almost
all examples are of class j, so their labels are drawn from row j of the transition matrix T. Then

    w_j ∝ m_j^a π_j^(−(a − 1)/2) T_jy exp(−b [j = y])

is the probability that j is the true class, with m the remembered prediction, y the given class and
π_j the share of the labels j. The power a sharpens the prediction, and with it how common the
classes are, by π_j^(a − 1) too much. Half of that is taken back, so that rare classes are not
overruled. A class without labels has w_j = 0, because nothing tells it from the others.

Where classes are easily told apart, m is less sure than it might be, because it is learned from
wrong labels and early; where they overlap, it is as sure as it should be. So a is the power with
which m predicts held-out labels best, of those that `label_likelihoods` compares.

While labels are memorised, m leans towards them. So b ≥ 0 is the least number with which as large
a share of all labels is wrong, in expectation, as of the labels of the surest predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

SUREST = 0.1  # share of the examples with the same predicted class
FEWEST = 10  # examples of a predicted class that are among the surest, if there are as many
PRIOR = 10.0  # examples of uniform noise that every row of T is estimated with beside its own
POWERS = (1.0, 1.5, 2.0)  # of the remembered prediction
TAKEN_BACK = 0.5  # of what the power adds to how common a class is
TINY = 1e-8  # in place of a transition of 0
UNSEEN = 1e-6  # in place of a remembered prediction of 0
LARGEST_BIAS = 10.0


@dataclass(frozen=True)
class SurestLabels:
    """What the labels of the surest predictions show.

    Attributes:
        transition: [C, C] T; row = true class, column = given class.
        number: number of the surest predictions.
        contradicted: how many of them are not of the given class.
    """

    transition: Tensor
    number: int
    contradicted: int

    @property
    def rate(self) -> float:
        """Return the share of wrong labels among them, an estimate of the noise rate."""
        return self.contradicted / max(self.number, 1)


def surest_labels(
    confidence: Tensor, predicted: Tensor, given: Tensor, num_classes: int
) -> SurestLabels:
    """Return what the labels of the surest predictions show.

    The surest tenth of the examples of every predicted class is counted, at least ten if there are.

    Args:
        confidence: [n] the largest number of every remembered prediction.
        predicted: [n] its class.
        given: [n] the given classes.
    """
    C = num_classes
    by_confidence = torch.argsort(confidence, descending=True, stable=True)
    order = by_confidence[torch.argsort(predicted[by_confidence], stable=True)]
    sizes = torch.bincount(predicted, minlength=C)  # [C]
    first = sizes.cumsum(0) - sizes
    counted = (SUREST * sizes.double()).floor().long().clamp(min=FEWEST).minimum(sizes)
    rank = torch.arange(len(order), device=order.device) - first[predicted[order]]
    surest = order[rank < counted[predicted[order]]]
    number = len(surest)
    contradicted = int((predicted[surest] != given[surest]).sum())
    rate = contradicted / max(number, 1)
    of_other = PRIOR * rate / max(C - 1, 1)
    # In place, because [C, C] may be large.
    pairs = torch.bincount(predicted[surest] * C + given[surest], minlength=C * C)
    rows = pairs.reshape(C, C).double()
    del pairs
    rows += of_other
    rows.diagonal().add_(PRIOR * (1 - rate) - of_other)
    rows /= rows.sum(1, keepdim=True)
    return SurestLabels(rows.float(), number, contradicted)


def sharpened(m: Tensor, shares: Tensor, power: float | Tensor) -> Tensor:
    """Return [N, C] log(m_j^a π_j^(−(a − 1)/2)), up to a constant of every row; −∞ if π_j = 0.

    Args:
        m: [N, C] remembered predictions.
        shares: [C] π.
        power: a.
    """
    of_class = TAKEN_BACK * (power - 1) * shares.clamp(min=TINY).log()
    return (power * m.clamp(min=UNSEEN).log() - of_class).masked_fill(shares == 0, -torch.inf)


def log_weights(
    m: Tensor, given: Tensor, transition: Tensor, shares: Tensor, power: float | Tensor
) -> Tensor:
    """Return [N, C] log(m_j^a π_j^(−(a − 1)/2) T_jy), up to a constant of every row.

    Args:
        m: [N, C] remembered predictions.
        given: [N] given classes.
        transition: [C, C] T.
        shares: [C] π.
        power: a.
    """
    return sharpened(m, shares, power) + transition.T[given].clamp(min=TINY).log()


def label_likelihoods(m: Tensor, given: Tensor, transition: Tensor, shares: Tensor) -> list[Tensor]:
    """Return [N] log Σ_j s_j T_jy for every power, with s ∝ m_j^a π_j^(−(a − 1)/2).

    It is the log probability that noise gives the label y to an example of the classes s.
    """
    found = []
    for power in POWERS:
        s = torch.log_softmax(sharpened(m, shares, power), 1)
        found.append((s + transition.T[given].clamp(min=TINY).log()).logsumexp(1))
    return found


def log_odds(weights: Tensor, given: Tensor) -> Tensor:
    """Return [N] the log odds that the label is wrong, without b, from log weights [N, C]."""
    of_given = weights.gather(1, given[:, None])[:, 0]
    return weights.scatter(1, given[:, None], -torch.inf).logsumexp(1) - of_given


def bias_for(odds: Tensor, rate: float) -> float:
    """Return the least b ≥ 0 with mean σ(log odds + b) ≥ the rate, or the largest b there is."""
    low, high = 0.0, LARGEST_BIAS
    if float(torch.sigmoid(odds).mean()) >= rate:
        return 0.0
    for _ in range(30):
        middle = (low + high) / 2
        if float(torch.sigmoid(odds + middle).mean()) < rate:
            low = middle
        else:
            high = middle
    return high


def label_posterior(
    m: Tensor,
    given: Tensor,
    transition: Tensor,
    shares: Tensor,
    power: float | Tensor,
    bias: float | Tensor,
) -> Tensor:
    """Return w [N, C], the probability of every class to be the true one."""
    of_given = bias * F.one_hot(given, m.size(1)).to(m.dtype)
    return torch.softmax(log_weights(m, given, transition, shares, power) - of_given, 1)
