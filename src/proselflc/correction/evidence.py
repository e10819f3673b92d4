"""What a method may look at when it decides what to teach: one flat batch, and the progress.

There is no field for clean labels, so no method can use them. Entropy, cross entropy and KL
divergence reduce [..., C] to [...], in natural logarithms, and take 0·log 0 as 0, so that a class
masked with a logit of −∞ is harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F


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


@dataclass(slots=True, eq=False, repr=False)
class Evidence:
    """One flat batch of N predictions over C classes, with its annotations.

    `log_p`, `p` and `entropy` are computed on first use and kept, so that a method pays for what it
    reads and nothing is computed twice. They are attached to `logits`.

    Attributes:
        logits: [N, C], float32 or float64; `num_classes` is C.
        target: [N] int64 class ids, or [N, C] probabilities of the dtype of `logits`;
            `has_class_ids` tells which.
        progress: t/Γ in [0, 1], a float or a 0-d tensor; None if unknown.
        weight: [C] class weights of the dtype of `logits`, or None.
        ignore_index: the class id that marks an example to leave out.
        teacher_logits: [N, C], constant, or None.
        remembered: [N, C] remembered average of p, constant, or None.
        log_offset: δ in log(p + δ). 0 is the paper; 1e-6 is what its published code computes.
        is_complete: whether it is known that every example counts fully, ω = 1: class ids, no class
            weights, nothing ignored. False if not known, which is only slower.
        is_presumed: whether `is_complete` is presumed and the class ids are not checked yet.
    """

    logits: Tensor
    target: Tensor
    _: KW_ONLY
    progress: float | Tensor | None = None
    weight: Tensor | None = None
    ignore_index: int = -100
    teacher_logits: Tensor | None = None
    remembered: Tensor | None = None
    log_offset: float = 0.0
    is_complete: bool = False
    is_presumed: bool = False
    num_classes: int = field(init=False)
    has_class_ids: bool = field(init=False)
    _log_p: Tensor | None = field(init=False, default=None)
    _p: Tensor | None = field(init=False, default=None)
    _entropy: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.num_classes = self.logits.size(-1)
        self.has_class_ids = not self.target.is_floating_point()

    def with_logits(self, logits: Tensor) -> Evidence:
        """Return the same annotations with other logits [N, C]."""
        return Evidence(
            logits,
            self.target,
            progress=self.progress,
            weight=self.weight,
            ignore_index=self.ignore_index,
            teacher_logits=self.teacher_logits,
            remembered=self.remembered,
            log_offset=self.log_offset,
            is_complete=self.is_complete,
        )

    def remember(self, p: Tensor, entropy: Tensor) -> None:
        """Keep p and its entropy, which the caller has computed already."""
        self._p, self._entropy = p, entropy

    def recall(self, average: Tensor, seen: Tensor) -> None:
        """Keep the remembered averages [N, C], or p itself for examples that were not seen [N]."""
        p = self.p.detach()
        self.remembered = torch.where(seen[:, None], average.to(p.dtype), p)

    @property
    def log_p(self) -> Tensor:
        """Return log p [N, C], or log(p + δ) where a log offset δ is set."""
        if self._log_p is None:
            if self.log_offset:
                self._log_p = torch.log(self.p + self.log_offset)
            else:
                self._log_p = torch.log_softmax(self.logits, -1)
        return self._log_p

    @property
    def p(self) -> Tensor:
        """Return the prediction [N, C], attached."""
        if self._p is None:
            self._p = torch.softmax(self.logits, -1) if self.log_offset else self.log_p.exp()
        return self._p

    @property
    def entropy(self) -> Tensor:
        """Return H(p) [N], attached."""
        if self._entropy is None:
            self._entropy = expected_surprise(self.p, self.log_p)
        return self._entropy

    @property
    def valid(self) -> Tensor:
        """Return [N] bool, False for the examples that `ignore_index` leaves out."""
        if self.has_class_ids:
            return self.target != self.ignore_index
        return torch.ones_like(self.target[:, 0], dtype=torch.bool)

    @property
    def y(self) -> Tensor:
        """Return the class ids [N], with 0 in place of ignored ones so that they can index."""
        return self.target if self.is_complete else self.target * self.valid

    @property
    def q(self) -> Tensor:
        """Return the annotation as a distribution [N, C]; rows of zeros where it is ignored."""
        if not self.has_class_ids:
            return self.target
        one_hot = F.one_hot(self.y, self.num_classes).to(self.logits.dtype)
        return one_hot if self.is_complete else one_hot * self.valid[:, None]

    @property
    def weighted_q(self) -> Tensor:
        """Return w∘q [N, C]."""
        return self.q if self.weight is None else self.q * self.weight

    @property
    def omega(self) -> Tensor:
        """Return [N] ω = Σ_j w_j q_j: w[y], 1 without weights, 0 where ignored."""
        if self.is_complete:
            return self.logits.new_ones(len(self.logits))
        if self.has_class_ids:
            valid = self.valid.to(self.logits.dtype)
            return valid if self.weight is None else self.weight[self.y] * valid
        return self.weighted_q.sum(-1)

    def expect(self, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Return [N] E_q f(log p) = Σ_j w_j q_j f(log p_j), 0 where ignored.

        f is elementwise. For class ids this looks at one class per example and makes no one-hot.
        """
        if self.has_class_ids:
            log_p_y = -F.nll_loss(
                self.log_p, self.target, ignore_index=self.ignore_index, reduction="none"
            )
            return f(log_p_y) if self.is_complete else f(log_p_y) * self.omega
        return (self.weighted_q * f(self.log_p)).sum(-1)
