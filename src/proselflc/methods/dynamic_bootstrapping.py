"""Mixup and bootstrapping by a model of the losses (Arazo et al. 2019): M-DYR and MD-DYR-SH."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.evidence import Evidence, expected_surprise
from proselflc.correction.parameter import loss_weight, positive, share_of_training
from proselflc.data.batches import Batch
from proselflc.data.preprocessing import TextHashing
from proselflc.errors import InputError
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import RunContext, Snapshot, Strategy
from proselflc.wording import option

Kind: TypeAlias = Literal["soft", "hard", "dynamic"]
Values: TypeAlias = npt.NDArray[np.float64]
AnyValues = TypeVar("AnyValues", Values, Tensor)

ALONE = 5 / 300  # of training, with dynamic mixup but without bootstrapping
COOLING = 89 / 300  # of training, during which T falls
COLDEST = 0.001  # the lowest T
MARGIN = 1e-4  # B stays that far from 0 and 1

# Of the model of the losses.
ITERATIONS = 10
EDGE = 1e-4  # values are clipped to [EDGE, 1 − EDGE]
LEAST = 1e-12  # the smallest responsibility
BINS = 100
NARROWEST = 1 / BINS  # the smallest standard deviation: less would fall between two bins
PERCENTILES = (5, 95)
APART = 0.05  # components whose means are closer count as one
FEWEST = 0.01  # the smallest share of the values that a component must have
OVERLAP = 0.2  # the largest share of misassigned values; a single bell has 0.23
PARAMETERS = 5  # of a mixture; fewer values cannot determine them


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of M-DYR-S, M-DYR-H and MD-DYR-SH.

    Attributes:
        alpha: α, of the Beta distribution that mixing weights are drawn from.
        weight: η, the weight of the balance of classes.
        begin: the share of training before labels are replaced by predictions.
    """

    alpha: float = checked(32.0, positive("mixing weights are drawn from Beta(alpha, alpha)"))
    weight: float = checked(1.0, loss_weight("the balance of classes"))
    begin: float = checked(0.35, share_of_training)


class DynamicBootstrapping(Strategy):
    """Pairs of examples are mixed, and labels of high loss are replaced by predictions.

    After every epoch, from the one before it is first used, a mixture of two betas is fitted to the
    losses of all examples; B is the probability that an example's loss is from the high component.
    Examples a and b of a batch are mixed, λ ~ Beta(α, α):

        x = λ x_a + (1 − λ) x_b,  weights λ and 1 − λ                            soft, hard
        x = δ x_a + (1 − δ) x_b,  δ = (1 − B_a)/((1 − B_a) + (1 − B_b))          dynamic

    The loss is at first Σ_s weight_s H(q_s, p(x)), and from a share of training on

        Σ_s weight_s [(1 − B_s) H(q_s, p(x)) + B_s H(softmax(z(x_s)/T), p(x))] + η R
        R = Σ_c (1/C) log((1/C)/p̄_c)

    with z(x_s) of the unmixed example, a constant; p̄ the mean of p(x) over the batch, from which
    pairs are drawn too (over a micro-batch with gradient accumulation); and T = 1 for soft, T → 0
    for hard. Dynamic has plain mixup until that share is over, dynamic mixup with λ for
    another sixtieth, then weights ½ and a T that falls from 1 to 0.001 in three tenths of training.
    While the losses do not form two components, every label is trusted.

    With averaged weights, the mixture is fitted to the losses of the average.

    The prediction recorded for an example is that for the unmixed input in evaluation mode; B and
    z(x_s) come from the same pass.
    """

    table: Tensor
    bounds: Tensor
    epochs: Tensor
    failed: Tensor

    def __init__(
        self, context: RunContext, kind: Kind, *, alpha: float, weight: float, begin: float
    ) -> None:
        super().__init__(CrossEntropy(reduction="none"))
        if isinstance(context.preprocessing, TextHashing):
            raise InputError(
                "the method mixes pairs of examples, and texts cannot be mixed",
                field="method",
                fix=f"choose another {option('method')}, or give embeddings of the texts as "
                f"{option('features')}",
            )
        self.kind: Kind = kind
        self.alpha, self.weight = alpha, weight
        epochs = context.epochs
        self.mixes_from = max(1, round(begin * epochs))
        alone = max(1, round(ALONE * epochs)) if kind == "dynamic" else 0
        self.boots_from = self.mixes_from + alone
        self.cooling = max(1, round(COOLING * epochs))
        self.register_buffer("table", torch.zeros(BINS))  # B by loss
        self.register_buffer("bounds", torch.tensor([0.0, 1.0]))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))  # completed
        self.register_buffer("failed", torch.zeros((), dtype=torch.int64))  # fits of the mixture

    @property
    def temperature(self) -> float:
        """Return T of the epoch; 0 for the largest class."""
        if self.kind != "dynamic":
            return 1.0 if self.kind == "soft" else 0.0
        cooled = (int(self.epochs) - self.boots_from) / self.cooling
        return max(COLDEST, 1 - (1 - COLDEST) * max(0.0, cooled))

    def wrong(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return [N] B, the probability that labels are wrong, from their losses."""
        losses = F.cross_entropy(logits.float(), y, reduction="none")
        # NaN cannot be an index; the loss of the step will reveal it.
        x = normalised(losses, *self.bounds.tolist()).nan_to_num()
        return self.table[(x * (BINS - 1)).round().long()].clamp(MARGIN, 1 - MARGIN)

    def sharpened(self, logits: Tensor) -> Tensor:
        """Return [N, C] softmax(z/T)."""
        if self.temperature == 0:
            return F.one_hot(logits.argmax(1), logits.size(1)).float()
        return torch.softmax(logits.float() / self.temperature, 1)

    def bootstrapped(self, q: Tensor, logits: Tensor, B: Tensor) -> Tensor:
        """Return q̃ [N, C], which training and records share."""
        return (1 - B)[:, None] * q + B[:, None] * self.sharpened(logits)

    def learn(self, model: nn.Module, batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
        model.eval()
        with torch.no_grad():
            z = model(batch.x).float()
        model.train()
        # Pairs are of the batch of all processes, of which this one learns its own rows.
        own, number = self.group.place(len(batch.y))
        all_x, all_y, all_z = self.group.rows(batch.x, batch.y, z)
        other = self.group.of_first(torch.randperm(number).to(batch.y.device))[own]
        alpha = min(max(self.alpha, 1e-30), 1e30)  # in range of float32, with the same weights
        drawn = torch.distributions.Beta(alpha, alpha).sample().to(z.device)
        lam = float(self.group.of_first(drawn))
        B = self.wrong(all_z, all_y)
        is_dynamic = self.kind == "dynamic" and int(self.epochs) >= self.mixes_from
        boots = int(self.epochs) >= self.boots_from
        share: Tensor | float = lam
        if is_dynamic:
            share = (1 - B[own]) / ((1 - B[own]) + (1 - B[other]))
        mixed = model(mix(batch.x, all_x[other], share))
        log_p = torch.log_softmax(mixed.float(), 1)
        target = F.one_hot(all_y, z.size(1)).float()
        if boots:
            target = self.bootstrapped(target, all_z, B)
        weight = 0.5 if is_dynamic and boots else lam
        # H is linear in its target, so the weighted sum over the pair is of one target.
        loss = expected_surprise(mix(target[own], target[other], weight), log_p).mean()
        if boots:
            loss = loss + self.weight * imbalance(self.group.log_mean(log_p))
        return loss, z

    def taught(self, e: Evidence, batch: Batch) -> tuple[Tensor, Tensor]:
        if int(self.epochs) < self.boots_from:
            return super().taught(e, batch)
        B = self.wrong(e.logits, batch.y.to(e.logits.device))
        return self.bootstrapped(e.q, e.logits, B), B

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        self.epochs += 1
        if int(self.epochs) < self.mixes_from:
            return
        given = torch.from_numpy(snapshot.given)
        losses = torch.zeros(len(given), dtype=torch.float64)
        for index, logits in snapshot.predict():
            rows = index.cpu()
            found = F.cross_entropy(logits.float(), given[rows].to(logits.device), reduction="none")
            losses[rows] = found.cpu().double()
        model = loss_model(losses.numpy())
        if model is None:
            if int(self.failed) == 0:
                snapshot.note(
                    f"after epoch {epoch + 1} the losses do not form two components: every label "
                    "is trusted until they do"
                )
            self.failed += 1
            self.table.zero_()
            return
        self.bounds.copy_(torch.tensor([model.low, model.high]))
        self.table.copy_(torch.from_numpy(model.table))

    def facts(self) -> dict[str, object]:
        return {"epochs_without_two_kinds_of_losses": int(self.failed)}


def mix(a: Tensor, b: Tensor, share: Tensor | float) -> Tensor:
    """Return share · a + (1 − share) · b, with one share for all or [N] one per row."""
    if isinstance(share, Tensor):
        share = share.to(a.dtype).reshape(-1, *(1,) * (a.dim() - 1))
    return share * a + (1 - share) * b


def imbalance(log_mean: Tensor) -> Tensor:
    """Return R = Σ_c (1/C) log((1/C)/p̄_c) from log p̄ [C], 0 if p̄ is uniform."""
    return -log_mean.mean() - math.log(len(log_mean))


@dataclass(frozen=True)
class BetaMixture:
    """The density w_1 Beta(a_1, b_1) + w_2 Beta(a_2, b_2), ordered by mean."""

    a: Values  # [2]
    b: Values  # [2]
    weights: Values  # [2] w, whose sum is 1

    @property
    def means(self) -> Values:
        """Return the means [2] of the components, a/(a + b)."""
        return self.a / (self.a + self.b)

    def posterior(self, x: Values) -> Values:
        """Return the probability [N] that a value is from the second component.

        It is computed from log densities, because both densities can underflow.
        """
        from scipy.special import betaln, expit

        x = np.clip(x, EDGE, 1 - EDGE)
        a, b = self.a[:, None], self.b[:, None]
        logs = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - betaln(a, b)
        low, high = logs + np.log(self.weights)[:, None]
        chance: Values = expit(high - low)
        return chance

    def separates(self, x: Values) -> bool:
        """Return whether the values [N] that the mixture was fitted to form two components.

        They do if the means are apart, both components have values, and few values are misassigned.
        """
        low, high = self.means
        if high - low <= APART or self.weights.min() <= FEWEST:
            return False
        chance = self.posterior(x)
        return bool(np.minimum(chance, 1 - chance).mean() <= OVERLAP)


def fit(x: Values) -> BetaMixture:
    """Return the mixture of values [N] in [0, 1], by ten rounds of expectation maximisation.

    The shapes come from weighted moments: with mean m and variance s², at least (1/100)²,

        a = m (m (1 − m)/s² − 1)        b = a (1 − m)/m

    The first round splits the values at the threshold that is halfway between the means of both
    sides. The publication starts from Beta(1, 2) and Beta(2, 1), from which ten rounds do not
    converge: two narrow components at ¼ and ¾, for example, are not found at all.
    """
    x = np.clip(x, EDGE, 1 - EDGE)
    mixture = _moments(x, np.where(x > _threshold(x), 1.0, 0.0))
    for _ in range(ITERATIONS):
        mixture = _moments(x, mixture.posterior(x))
    order = np.argsort(mixture.means)
    return BetaMixture(mixture.a[order], mixture.b[order], mixture.weights[order])


def _threshold(x: Values) -> float:
    """Return a threshold halfway between the means of the values below and above it."""
    threshold, before = float(x.mean()), np.inf
    while abs(threshold - before) > EDGE:
        is_high = x > threshold
        if not is_high.any():
            break
        threshold, before = float(x[is_high].mean() + x[~is_high].mean()) / 2, threshold
    return threshold


def _moments(x: Values, chance: Values) -> BetaMixture:
    """Return the mixture with the moments of x [N], weighted by the second component's chance."""
    r = np.maximum((1 - chance, chance), LEAST)
    total = r.sum(1)
    m = (r @ x) / total
    variance = (r * (x - m[:, None]) ** 2).sum(1) / total
    largest = m * (1 - m)  # the upper bound of a variance
    a = m * (largest / np.maximum(variance, np.minimum(NARROWEST**2, largest / 2)) - 1)
    return BetaMixture(a, a * (1 - m) / m, total / total.sum())


@dataclass(frozen=True)
class LossModel:
    """The probability that a label is wrong, as a function of the loss."""

    low: float  # the loss that is mapped to 0
    high: float  # the loss that is mapped to 1
    table: Values  # [100] nondecreasing probabilities at evenly spaced losses between the two


def loss_model(losses: Values) -> LossModel | None:
    """Return the model of all losses, or None if they do not form two components.

    It is fitted to the finite losses from the 5th to the 95th percentile, mapped to [0, 1]. The
    posterior of the high component stays at its maximum for larger losses and at its minimum for
    smaller ones: far out in a tail, the wider component always wins.
    """
    losses = losses[np.isfinite(losses)]
    if len(losses) == 0:
        return None
    low, high = np.percentile(losses, PERCENTILES)
    inside = losses[(losses >= low) & (losses <= high)]
    if len(inside) < PARAMETERS:
        return None
    inside = normalised(inside, low, high)
    mixture = fit(inside)
    if not mixture.separates(inside):
        return None
    x = np.linspace(0, 1, BINS)
    posterior = mixture.posterior(x)
    beyond = int(np.searchsorted(x, mixture.means[0]))
    largest = beyond + int(posterior[beyond:].argmax())
    smallest = int(posterior[: largest + 1].argmin())
    posterior[:smallest] = posterior[smallest]
    posterior[largest:] = posterior[largest]
    return LossModel(float(low), float(high), np.maximum.accumulate(posterior))


def normalised(losses: AnyValues, low: float, high: float) -> AnyValues:
    """Return losses [N] mapped from [low, high] to the inside of (0, 1)."""
    return ((losses - low) / (high - low + 1e-6)).clip(1e-3, 1 - 1e-3)


SOFT = Method(
    title="M-DYR-S",
    loss="(1 − B) H(q, p) + B H(p', p) + η R, mixed",
    where="beside MD-DYR-SH",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="Use it if noise is heavy, examples can be mixed, and right and wrong labels have "
    "clearly different losses, as on digits; otherwise it is mixup.",
    parameters=Parameters,
    grid={"begin": (0.2, 0.35, 0.5)},
    strategy=partial(DynamicBootstrapping, kind="soft"),
    criterion="CrossEntropy",
)
HARD = replace(
    SOFT,
    title="M-DYR-H",
    loss="(1 − B) H(q, p) − B log p_max' + η R, mixed",
    when="Use it like M-DYR-S, from which it differs by its hard predictions. It was the "
    "best on digits with pair noise and behind cross entropy on photos.",
    strategy=partial(DynamicBootstrapping, kind="hard"),
)
DYNAMIC = replace(
    SOFT,
    title="MD-DYR-SH",
    loss="(1 − B) H(q, p) + B H(p'_T, p) + η R, mixed by B",
    where="Table 6",
    when="Use it like M-DYR-S, for heavier noise: it mixes more of the trusted examples. It "
    "was behind cross entropy on photos.",
    strategy=partial(DynamicBootstrapping, kind="dynamic"),
)
