"""Truncated generalised cross entropy (Zhang & Sabuncu 2018): unlikely labels are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from proselflc.correction.criterion import Criterion
from proselflc.correction.parameter import number, share_of_training
from proselflc.correction.robust import Generalized
from proselflc.data.batches import Batch
from proselflc.training.strategy import Scene, Situation, Strategy, all_probabilities

EVERY = 1 / 15  # of training between two choices: 10 epochs of 150


class TruncatedGCE(Strategy):
    """The generalised cross entropy L_q of the examples whose label the network finds likely.

        v L_q(p_y) + (1 − v) L_q(k)        L_q(p) = (1 − p^q)/q

    v is 1 for every example until a share of training is over, and from then on, chosen anew every
    fifteenth of it, where p_y ≥ k. What is left out has a constant loss and teaches nothing. The
    publication asks the network of the best validation accuracy so far; here it is the one at hand,
    or the average of its weights, for a run need not have trusted examples. Where no label at all
    would be kept, all stay.

    Args:
        situation: of the run.
        q: of L_q.
        truncation: k.
        begin: the share of training that is over when labels are first left out.
    """

    processes = 1
    kept: Tensor

    def __init__(self, situation: Situation, *, q: float, truncation: float, begin: float) -> None:
        method = Generalized(q)
        super().__init__(Criterion(method, reduction="none"))
        self.truncation = number(
            truncation,
            "k",
            "between 0 and 1",
            "labels of lower probability are left out",
            fits=lambda x: 0 <= x <= 1,
        )
        self.constant = (1 - self.truncation**method.q) / method.q  # L_q(k)
        self.begin = max(1, round(share_of_training(begin, "begin") * situation.epochs))
        self.every = max(1, round(EVERY * situation.epochs))
        self.register_buffer("kept", torch.ones(situation.num_examples, dtype=torch.bool))  # v

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        losses = super().loss(logits, batch, progress)
        return torch.where(self.kept[batch.index], losses, self.constant).mean()

    def after_epoch(self, stage: int, epoch: int, scene: Scene) -> None:
        over = epoch + 1 - self.begin
        if over < 0 or over % self.every:
            return
        given = torch.from_numpy(scene.given)
        p = all_probabilities(scene).gather(1, given[:, None])[:, 0]
        kept = p >= self.truncation
        if not kept.any():
            scene.note(
                f"after epoch {epoch + 1} no label has a probability of {self.truncation:g}: all "
                "are kept"
            )
            kept = torch.ones_like(kept)
        self.kept.copy_(kept)

    def facts(self) -> dict[str, object]:
        return {"labels_left_out": int((~self.kept).sum())}


def make(p: Mapping[str, Any], situation: Situation) -> Strategy:
    return TruncatedGCE(situation, q=p["q"], truncation=p["k"], begin=p["begin"])
