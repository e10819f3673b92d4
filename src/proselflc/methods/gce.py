"""Generalised cross entropy (Zhang & Sabuncu 2018), and truncated: unlikely labels left out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction import parameter
from proselflc.correction.criterion import Criterion
from proselflc.correction.parameter import power, probability, share_of_training
from proselflc.correction.robust import Generalized
from proselflc.data.batches import Batch
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import RunContext, Snapshot, Strategy

EVERY = 1 / 15  # of training between two selections: 10 epochs of 150


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of generalised cross entropy.

    Attributes:
        q: near 0 the loss is cross entropy, at 1 the mean absolute error.
    """

    q: float = checked(parameter.POWER, power)


@dataclass(frozen=True)
class TruncatedParameters(method.Parameters):
    """The parameters of truncated generalised cross entropy.

    Attributes:
        q: near 0 the loss is cross entropy, at 1 the mean absolute error.
        k: the probability below which a label is left out.
        begin: the share of training that is over when labels are first left out.
    """

    q: float = checked(Parameters.q, power)
    k: float = checked(0.5, probability("labels of lower probability are left out"))
    begin: float = checked(0.5, share_of_training)


class TruncatedGCE(Strategy):
    """The generalised cross entropy L_q of the examples whose label the network finds likely.

        v L_q(p_y) + (1 − v) L_q(k)        L_q(p) = (1 − p^q)/q

    v is 1 for every example until a share of training is over; from then on, re-selected every
    fifteenth of it, v is 1 where p_y ≥ k. An example that is left out has a constant loss and no
    gradient. The publication uses the network of the best validation accuracy so far; here it is
    the current one, or the average of its weights, as a run need not have trusted examples. If no
    label would be kept, all are.
    """

    kept: Tensor

    def __init__(self, context: RunContext, *, q: float, k: float, begin: float) -> None:
        method = Generalized(q)
        super().__init__(Criterion(method, reduction="none"))
        self.k = k
        self.constant = (1 - k**method.q) / method.q  # L_q(k)
        self.begin = max(1, round(begin * context.epochs))
        self.every = max(1, round(EVERY * context.epochs))
        self.register_buffer("kept", torch.ones(context.num_examples, dtype=torch.bool))  # v

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        losses = super().loss(logits, batch, progress)
        return torch.where(self.kept[batch.index], losses, self.constant).mean()

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        over = epoch + 1 - self.begin
        if over < 0 or over % self.every:
            return
        given = torch.from_numpy(snapshot.given)
        p = torch.zeros(len(given))
        with torch.no_grad():
            for index, logits in snapshot.predict():
                rows = index.cpu()
                found = torch.softmax(logits.float(), 1).cpu()
                p[rows] = found.gather(1, given[rows, None])[:, 0]
        kept = p >= self.k
        if not kept.any():
            snapshot.note(
                f"after epoch {epoch + 1} no label has a probability of {self.k:g} or "
                "more: all are kept"
            )
            kept = torch.ones_like(kept)
        self.kept.copy_(kept)

    def facts(self) -> dict[str, object]:
        return {"labels_left_out": int((~self.kept).sum())}


METHOD = Method(
    title="Generalised cross entropy",
    loss="(1 − p_y^q)/q",
    where="Table 4",
    when="Use it under symmetric noise of two fifths or more, where it was ahead of cross "
    "entropy on photos; elsewhere it gained nothing.",
    parameters=Parameters,
    grid={"q": (0.5, 0.7, 0.9)},
    criterion="GeneralizedCrossEntropy",
)
TRUNCATED = Method(
    title="Truncated generalised cross entropy",
    loss="(1 − p_y^q)/q where p_y ≥ k",
    where="beside GCE",
    when="Use it if generalised cross entropy works and the worst labels should not count at all.",
    parameters=TruncatedParameters,
    grid={"q": (0.5, 0.7, 0.9), "begin": (0.3, 0.5)},
    strategy=TruncatedGCE,
    criterion="GeneralizedCrossEntropy",
)
