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
    POWERS,
    bias_for,
    label_likelihoods,
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
MOST_HELD_OUT = 10_000
MOST_LOSSES = 1 << 22  # of all epochs up to half of the training: very long ones hold out fewer
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
    (see `onset`). If it has not by half of training, there is no onset: all labels are learned, by
    ProSelfLC alone. The memory is the mean over the last three epochs before the onset, and over
    all since then. The power a is chosen at the onset; T and b are computed after every epoch.
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
    power: Tensor
    bias: Tensor

    def __init__(self, context: RunContext, *, sharpness: float) -> None:
        super().__init__(ProSelfLC(context.total_steps, sharpness))
        n, C = context.num_examples, context.num_classes
        _check_room(C)
        self.memory = make_memory(context, RunningMean(RECENT), storage_for(context, KEPT))
        self.of_given = Memory(n, 1, rule=LastValue(), shard=context.shard, storage="dense")  # p_y
        half = context.epochs // 2
        self.last = half if half >= onset.EARLIEST else 0  # epochs before the latest onset
        drawn = torch.randperm(n, generator=generator_for("held-out labels", context.seed))
        most = min(MOST_HELD_OUT, MOST_LOSSES // max(1, self.last))
        number = max(1, min(round(HELD_OUT * n), most))
        held_out = torch.zeros(n, dtype=torch.bool)
        held_out[drawn[:number]] = self.last > 0
        self.register_buffer("held_out", held_out, persistent=False)  # [n]
        self.register_buffer("given", torch.from_numpy(context.given), persistent=False)
        shares = torch.bincount(self.given, minlength=C) / max(n, 1)
        self.register_buffer("shares", shares, persistent=False)  # [C] of the labels
        losses = torch.zeros(self.last, int(held_out.sum()))
        self.register_buffer("losses", losses)  # [epochs, H] on the held-out labels
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))  # completed
        self.register_buffer("begun", torch.zeros((), dtype=torch.int64))  # the onset; 0 before
        self.register_buffer("transition_matrix", torch.eye(C))  # T
        self.register_buffer("surest", torch.zeros(2, dtype=torch.int64))  # number, contradicted
        self.register_buffer("power", torch.ones(()))  # a
        self.register_buffer("bias", torch.zeros(()))  # b

    def notes(self) -> list[str]:
        return storage_notes(self.memory, KEPT)

    @property
    def onset(self) -> int | None:
        """Return the number of epochs after which the network is trusted, or None before."""
        return int(self.begun) or None

    @property
    def is_holding_out(self) -> bool:
        """Return whether the held-out labels are not learned yet."""
        return not self.onset and int(self.epochs) < self.last

    def mass(self, batch: Batch) -> float:
        return float(self._learned(batch).sum())

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        e = self.criterion.evidence(logits.float(), batch.y, None, progress)
        losses = cross_entropy(self.taught(e, batch)[0], e.log_p)
        if not self.is_holding_out:
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
        w = label_posterior(m, y, self.transition_matrix, self.shares, self.power, self.bias)
        wrong = 1 - w.gather(1, y[:, None])[:, 0]
        more = wrong >= trust
        return torch.where(more[:, None], w, target), torch.where(more, wrong, trust)

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if not (self.onset or self.is_holding_out):
            return
        p = torch.softmax(logits.float(), 1)
        self.memory.rule = RunningMean(None if self.onset else RECENT)
        self.memory.keep(batch.index, self.memory.renewed(batch.index, p, plain=True))
        if not self.onset:
            p_y = p.gather(1, batch.y[:, None])
            self.of_given.keep(batch.index, self.of_given.renewed(batch.index, p_y, plain=True))

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        if self.is_holding_out:
            self.losses[int(self.epochs)] = self._held_out_losses()
            self.epochs += 1
            if not self._has_settled(int(self.epochs)):
                return
            self.begun.copy_(self.epochs)
            self._read_transition()
            self._choose_power()
            self._read_bias()
            self.memory.updates.clamp_(max=RECENT - 1)  # what it is a mean of counts as one more
            return
        self.epochs += 1
        if self.onset:
            self._read_transition()
            self._read_bias()

    def _learned(self, batch: Batch) -> Tensor:
        """Return [N] whether each label is learned."""
        if not self.is_holding_out:
            return torch.ones_like(batch.y, dtype=torch.bool)
        return ~self.held_out[batch.index.to(self.held_out.device)]

    def _has_settled(self, epochs: int) -> bool:
        losses = self.losses[:epochs].double()
        return onset.has_settled(
            losses.mean(1).tolist(), self.memory.num_classes, onset.recent_error(list(losses))
        )

    def _held_out_losses(self) -> Tensor:
        """Return [H] the loss on each held-out label when its example was last in a batch.

        It is that of a guess, log C, if it has not been in one yet.
        """
        own = self.of_given.indices
        own = own[self.held_out[own]]
        p_y, updates = self.of_given.at(own)
        losses = -p_y[:, 0].double().clamp(min=1e-6).log()
        losses[updates == 0] = math.log(self.memory.num_classes)
        index, losses = self.group.rows(own, losses)
        return losses[index.argsort()]

    def _read_transition(self) -> None:
        """Compute T from what is remembered of all examples."""
        largest = [self.memory.at(rows).average.max(1) for rows in self._pieces()]
        confidence, predicted = self._of_all(
            torch.cat([one.values for one in largest]), torch.cat([one.indices for one in largest])
        )
        found = surest_labels(
            confidence.cpu(), predicted.cpu(), self.given.cpu(), self.memory.num_classes
        )
        self.transition_matrix.copy_(found.transition)
        self.surest.copy_(torch.tensor([found.number, found.contradicted]))

    def _choose_power(self) -> None:
        """Choose the power with which the memory predicts the held-out labels best."""
        total = torch.zeros(len(POWERS), dtype=torch.float64, device=self.given.device)
        for rows in self._pieces():
            some = rows[self.held_out[rows]]
            m, T, shares = self.memory.at(some).average, self.transition_matrix, self.shares
            likelihoods = label_likelihoods(m, self.given[some], T, shares)
            total += torch.stack([one.double().sum() for one in likelihoods])
        best = int(self.group.total(total).argmax())
        self.power.fill_(POWERS[best])

    def _read_bias(self) -> None:
        """Compute b from what is remembered of all examples."""
        odds = []
        for rows in self._pieces():
            m, T = self.memory.at(rows).average, self.transition_matrix
            weights = log_weights(m, self.given[rows], T, self.shares, self.power)
            odds.append(log_odds(weights, self.given[rows]))
        (every,) = self._of_all(torch.cat(odds))
        number, contradicted = self.surest.tolist()
        self.bias.fill_(bias_for(every.cpu().double(), contradicted / max(number, 1)))

    def _pieces(self) -> tuple[Tensor, ...]:
        """Return the indices of this process's examples, in parts that fit into memory."""
        return torch.split(self.memory.indices, max(1, NUMBERS // self.memory.num_classes))

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
        loss = float(self._held_out_losses().mean()) if self.is_holding_out else None
        return {"held_out_loss": loss}

    def facts(self) -> dict[str, object]:
        C = self.memory.num_classes
        epochs = self.onset or min(int(self.epochs), self.last)
        every = self.losses[:epochs].double()
        losses = every.mean(1).tolist()
        whole, recent = onset.fall(losses, C)
        error = onset.recent_error(list(every)) if epochs else math.inf
        number, contradicted = self.surest.tolist()
        return {
            "onset": {
                "epoch": self.onset,
                "latest": self.last,
                "guess_loss": math.log(C),
                "fall": whole,
                "recent_fall": recent,
                "recent_error": error if math.isfinite(error) else None,
                "held_out_losses": losses,
                "power": float(self.power),
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
    when="Use it for long training on data whose classes are easily told apart: it finds out when "
    "to trust predictions, and how much. Where classes overlap, it may lose a few points.",
    parameters=Parameters,
    grid={"sharpness": (8.0, 10.0, 12.0, 14.0, 16.0)},
    strategy=AutomaticProSelfLC,
    criterion="ProSelfLC",
)
