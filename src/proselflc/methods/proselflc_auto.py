"""ProSelfLC that finds out when to begin to trust the network, and how much: our own proposal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction import onset, parameter
from proselflc.correction.criteria import ProSelfLC
from proselflc.correction.evidence import Evidence, cross_entropy
from proselflc.correction.label_posterior import (
    bias_for,
    label_posterior,
    log_odds,
    log_weights,
    surest_labels,
)
from proselflc.correction.memory import Memory
from proselflc.correction.memory_rule import LastValue, RunningMean
from proselflc.correction.parameter import steepness
from proselflc.data import memory_budget
from proselflc.data.batches import Batch, generator_for
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.prediction_memory import make_memory, storage_for, storage_notes
from proselflc.training.strategy import RunContext, Snapshot, Strategy
from proselflc.wording import option

HELD_OUT = 0.1  # share of the examples whose labels are not learned before the onset
RECENT = 3  # epochs that the memory is a mean of, before the onset
NUMBERS = 1 << 22  # of the memory that are read at once
BYTES = 32  # per pair of classes: T, its copies, and what it is computed from
KEPT = "a mean prediction"


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of automatic ProSelfLC.

    Attributes:
        sharpness: B of the global trust of ProSelfLC, which is what is trusted at least.
    """

    sharpness: float = checked(parameter.SHARPNESS, steepness)


class AutomaticProSelfLC(Strategy):
    """ProSelfLC whose trust is the probability that the label is wrong, once that can be known.

        q̃ = (1 − ε) q + ε r,  ε = 1 − w_y,  r_j = w_j/ε for j ≠ y

    with w the probability of every class to be the true one, from the remembered prediction of the
    example and the given label: see `label_posterior`. Where ProSelfLC's own ε = g(t) l(p) is
    larger, its target is taken, with r = p.

    w is used from the onset on. Until then a tenth of the labels, drawn at random, is held out of
    the loss; the onset is the end of the epoch after which the loss on them has stopped falling
    (see `onset`), or half of the training. The memory is the mean over the last three epochs until
    then, and over all since then. T and b are computed again after every epoch.
    """

    remembers = True
    held_out: Tensor
    given: Tensor
    shares: Tensor
    losses: Tensor
    epochs: Tensor
    begun: Tensor
    transition_matrix: Tensor
    surest: Tensor
    bias: Tensor

    def __init__(self, context: RunContext, *, sharpness: float) -> None:
        super().__init__(ProSelfLC(context.total_steps, sharpness))
        n, C = context.num_examples, context.num_classes
        _check_room(C)
        self.num_epochs = context.epochs
        self.memory = make_memory(context, RunningMean(RECENT), storage_for(context, KEPT))
        self.of_given = Memory(n, 1, rule=LastValue(), shard=context.shard, storage="dense")  # p_y
        drawn = torch.randperm(n, generator=generator_for("held-out labels", context.seed))
        held_out = torch.zeros(n, dtype=torch.bool)
        held_out[drawn[: max(1, round(HELD_OUT * n))]] = True
        self.register_buffer("held_out", held_out, persistent=False)  # [n]
        self.register_buffer("given", torch.from_numpy(context.given), persistent=False)
        shares = torch.bincount(self.given, minlength=C) / max(n, 1)
        self.register_buffer("shares", shares, persistent=False)  # [C] of the labels
        self.register_buffer("losses", torch.zeros(context.epochs, dtype=torch.float64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))  # completed
        self.register_buffer("begun", torch.zeros((), dtype=torch.int64))  # the onset; 0 before
        self.register_buffer("transition_matrix", torch.eye(C))  # T
        self.register_buffer("surest", torch.zeros(2, dtype=torch.int64))  # number, contradicted
        self.register_buffer("bias", torch.zeros(()))  # b

    def notes(self) -> list[str]:
        return storage_notes(self.memory, KEPT)

    @property
    def onset(self) -> int | None:
        """Return the number of epochs after which the network is trusted, or None before."""
        return int(self.begun) or None

    def mass(self, batch: Batch) -> float:
        return float(len(batch.y) if self.onset else self._learned(batch).sum())

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        e = self.criterion.evidence(logits.float(), batch.y, None, progress)
        losses = cross_entropy(self.taught(e, batch)[0], e.log_p)
        if self.onset:
            return losses.mean()
        learned = self._learned(batch).to(losses.dtype)
        total: Tensor = (learned * losses).sum() / learned.sum().clamp(min=1)
        return total

    def taught(self, e: Evidence, batch: Batch) -> tuple[Tensor, Tensor]:
        target, trust = super().taught(e, batch)
        if not self.onset:
            return target, trust
        y = batch.y.to(e.logits.device)
        m = self.memory.at(batch.index).average.to(e.logits.device, e.logits.dtype)
        w = label_posterior(m, y, self.transition_matrix, self.shares, self.bias)
        wrong = 1 - w.gather(1, y[:, None])[:, 0]
        more = wrong >= trust
        return torch.where(more[:, None], w, target), torch.where(more, wrong, trust)

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        p = torch.softmax(logits.float(), 1)
        self.memory.rule = RunningMean(None if self.onset else RECENT)
        self.memory.keep(batch.index, self.memory.renewed(batch.index, p, plain=True))
        if not self.onset:
            p_y = p.gather(1, batch.y[:, None])
            self.of_given.keep(batch.index, self.of_given.renewed(batch.index, p_y, plain=True))

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        C = snapshot.num_classes
        self.epochs += 1
        if not self.onset:
            done = int(self.epochs)
            self.losses[done - 1] = self._held_out_loss()
            losses = self.losses[:done].tolist()
            if not (onset.has_settled(losses, C) or self._is_late(losses, C)):
                return
            self.begun.copy_(self.epochs)
            self.memory.updates.clamp_(max=RECENT - 1)  # what it is a mean of counts as one more
        self._read_labels(C)

    def _learned(self, batch: Batch) -> Tensor:
        """Return [N] whether each label is learned before the onset."""
        return ~self.held_out[batch.index.to(self.held_out.device)]

    def _is_late(self, losses: list[float], num_classes: int) -> bool:
        """Return whether half of the training is over, and the network knows more than nothing."""
        return (
            len(losses) >= max(onset.EARLIEST, self.num_epochs // 2)
            and onset.fall(losses, num_classes)[0] > 0
        )

    def _held_out_loss(self) -> float:
        """Return the mean loss on the held-out labels when their examples were last learned.

        It is that of a guess, log C, if no such example has been in a batch yet.
        """
        own = self.of_given.indices
        known = self.held_out[own] & self.of_given.seen
        p_y = self.of_given.average[known, 0].double()
        loss = -p_y.clamp(min=1e-6).log().sum()
        total, number = self.group.total(torch.stack((loss, known.sum().double()))).tolist()
        return total / number if number else math.log(self.memory.num_classes)

    def _read_labels(self, num_classes: int) -> None:
        """Compute T and b from what is remembered of all examples."""
        pieces = torch.split(self.memory.indices, max(1, NUMBERS // num_classes))
        largest = [self.memory.at(rows).average.max(1) for rows in pieces]
        confidence, predicted = self._of_all(
            torch.cat([one.values for one in largest]), torch.cat([one.indices for one in largest])
        )
        found = surest_labels(confidence.cpu(), predicted.cpu(), self.given.cpu(), num_classes)
        self.transition_matrix.copy_(found.transition)
        self.surest.copy_(torch.tensor([found.number, found.contradicted]))
        odds = [
            log_odds(
                log_weights(
                    self.memory.at(rows).average,
                    self.given[rows],
                    self.transition_matrix,
                    self.shares,
                ),
                self.given[rows],
            )
            for rows in pieces
        ]
        (every,) = self._of_all(torch.cat(odds))
        self.bias.fill_(bias_for(every.cpu().double(), found.rate))

    def _of_all(self, *own: Tensor) -> tuple[Tensor, ...]:
        """Return [n] in the order of the examples from the parts [own] of all processes.

        The order decides which of equally sure predictions count, and how sums are rounded.
        """
        index, *every = self.group.rows(self.memory.indices, *own)
        order = index.argsort()
        return tuple(one[order] for one in every)

    def transition(self) -> Tensor | None:
        return self.transition_matrix if self.onset else None

    def measures(self) -> dict[str, float | None]:
        return {"held_out_loss": None if self.onset else self._held_out_loss()}

    def facts(self) -> dict[str, object]:
        C = self.memory.num_classes
        losses = self.losses[: self.onset or int(self.epochs)].tolist()
        whole, recent = onset.fall(losses, C)
        number, contradicted = self.surest.tolist()
        return {
            "onset": {
                "epoch": self.onset,
                "has_settled": onset.has_settled(losses, C),
                "guess_loss": math.log(C),
                "fall": whole,
                "recent_fall": recent,
                "held_out_losses": losses,
                "surest": number,
                "contradicted": contradicted,
            }
        }


def _check_room(num_classes: int) -> None:
    """Refuse more classes than there is memory for their transition matrix."""
    memory_budget.require(
        BYTES * num_classes**2,
        f"the method keeps a transition matrix of {num_classes:,} classes, which with the counts "
        "that it is made from and the copies for a checkpoint",
        f"merge classes, or use another {option('method')}",
    )


METHOD = Method(
    title="Automatic ProSelfLC",
    loss="(1 − ε) H(q, p) + ε H(r, p)",
    where="ours (2026)",
    entropy="rewards",
    semantic_class="annotated and remembered",
    when="Use it if you do not know how long to train, or wrong labels may be memorised before "
    "half of training: it finds out when to trust predictions, and how much. With few epochs or "
    "a low learning rate, ELR was better on digits.",
    parameters=Parameters,
    grid={"sharpness": (8.0, 10.0, 12.0, 14.0, 16.0)},
    strategy=AutomaticProSelfLC,
    criterion="ProSelfLC",
)
