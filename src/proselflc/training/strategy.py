"""What a method adds to the loop: stages, other targets, a teacher, a memory of labels.

Most methods are a criterion and nothing else, for which `Strategy` itself is enough. A method that
does more is a final subclass in `methods/` that overrides the hooks it needs. The loop calls them
and knows no method by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from proselflc.correction.criterion import Criterion
from proselflc.correction.evidence import Evidence
from proselflc.correction.target import Target
from proselflc.correction.trust import global_part
from proselflc.data import memory_budget
from proselflc.data.batches import Batch
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.preprocessing import Preprocessing
from proselflc.errors import InputError
from proselflc.training.group import Group
from proselflc.training.recipe import Precision, Schedule
from proselflc.wording import option


@dataclass(frozen=True)
class Stage:
    """A stage of training."""

    name: str  # what happens in it, in a few words
    share: float = 1.0  # of all epochs
    fresh: bool = False  # whether the model starts again from its initial weights
    schedule: Schedule | None = None  # of the learning rate; None for the recipe's


@dataclass(frozen=True)
class Span:
    """A stage in optimiser steps."""

    stage: Stage
    first: int  # number of steps before it
    steps: int  # number of its steps


def described(spans: tuple[Span, ...], batches: int) -> list[dict[str, object]]:
    """Return the stages as `stages.json` holds them; first epochs and steps count from 0."""
    return [
        {
            "name": span.stage.name,
            "first_epoch": span.first // batches,
            "epochs": -(-span.steps // batches),
            "first_step": span.first,
            "steps": span.steps,
        }
        for span in spans
    ]


def spans(stages: tuple[Stage, ...], total_steps: int, batches: int) -> tuple[Span, ...]:
    """Return when the stages of Γ steps begin; all but the last have whole epochs."""
    epochs = -(-total_steps // batches)
    if epochs < len(stages):
        raise InputError(
            f"the method has {len(stages)} stages ({', '.join(s.name for s in stages)}) and needs "
            f"an epoch for each, got {epochs}",
            field="epochs",
            fix=f"raise {option('epochs')}",
        )
    ends: list[int] = []
    done = 0.0
    for k, stage in enumerate(stages):
        done += stage.share
        left = len(stages) - k - 1
        at_least = ends[-1] + 1 if ends else 1
        ends.append(min(max(round(done * epochs), at_least), epochs - left))
    steps = [0, *(min(end * batches, total_steps) for end in ends)]
    steps[-1] = total_steps
    return tuple(
        Span(stage, first, last - first)
        for stage, (first, last) in zip(stages, pairwise(steps), strict=True)
    )


@dataclass(frozen=True)
class RunContext:
    """What a strategy may know about the run when it is made."""

    total_steps: int  # Γ
    batches: int  # steps per epoch
    given: Ints  # [n] the labels
    names: tuple[str, ...]  # of the C classes
    preprocessing: Preprocessing  # of the inputs, fitted on the training part
    model: str = ""  # its name, whose code the user trusts
    coarse: Ints | None = None  # [C] the coarse class of every class
    trusted: Bools | None = None  # [n] whether a label is known to be right, if the user named such
    sample_weight: Floats | None = None  # [n] weight of each example in the loss; None if equal
    seed: int = 0
    precision: Precision = "no"  # of the model's training
    shard: tuple[int, int] = (0, 1)  # rank and world: this process has the i ≡ rank (mod world)

    @property
    def epochs(self) -> int:
        """Return the number of epochs, the last of which may be incomplete."""
        return -(-self.total_steps // self.batches)

    @property
    def num_examples(self) -> int:
        """Return the number of examples."""
        return len(self.given)

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""
        return len(self.names)


class Predict(Protocol):
    """Applies a model to training examples; all processes share the work and must call it."""

    def __call__(self, rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield index [N] and logits [N, C] of every batch, of all examples or of some rows.

        Several processes yield the same batches, with the same bits.
        """


@dataclass(frozen=True)
class Snapshot:
    """The state of training that a strategy may read when a stage begins or an epoch ends.

    It holds no true labels, so no method can peek.
    """

    model: nn.Module  # the bare model, as trained so far
    given: Ints  # [n] the labels
    num_classes: int
    predict: Predict  # applies the model to training examples, with test-time transforms
    note: Callable[[str], None]  # reports a sentence to the user, such as an estimate that failed


class Strategy(nn.Module):
    """A method that is a criterion, in one stage.

    Buffers and parameters are the method's state: checkpoints keep them, and parameters that need
    gradients are trained with the model's. A subclass overrides the hooks it needs and no more.
    With weights w [n] of the examples, the loss of a batch is Σ_i w_i L_i / Σ_i w_i, as in
    `F.cross_entropy` with class weights.

    Several processes each learn from a share of every batch, which has any number of examples if
    the strategy remembers, and else at least two. Their gradients are averaged, weighted by `mass`;
    a statistic of a batch that is not a mean over its examples comes from `group`. What is made of
    predictions of all examples must be the same in all processes, which follows if it depends on
    nothing else, and random numbers are drawn from a generator with a key.
    """

    stages: tuple[Stage, ...] = (Stage("training"),)  # in order; their shares sum to 1
    # Whether it learns something of every example in each step, which it keeps in a `Memory`: one
    # of several processes then gets the examples whose index is its rank modulo their number.
    remembers: bool = False
    group: Group = Group()  # the processes of the training, which sets it
    sample_weight: Tensor | None

    def __init__(self, criterion: Criterion, sample_weight: Floats | None = None) -> None:
        super().__init__()
        self.criterion = criterion
        weight = None if sample_weight is None else torch.from_numpy(sample_weight)
        self.register_buffer("sample_weight", weight, persistent=False)  # it is part of the data
        if weight is not None:
            criterion.reduction = "none"

    def arrange(self, stage: int, model: nn.Module) -> None:
        """Set up a stage without computing anything; also called when a run resumes."""

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        """Compute what a stage begins with; a run that resumes in it reads this from its state."""

    def targets(self, batch: Batch) -> Tensor:
        """Return the labels to learn: class ids [N], or probabilities [N, C]."""
        return batch.y

    def teacher_logits(self, batch: Batch) -> Tensor | None:
        """Return the logits [N, C] of a teacher, or None."""
        return None

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """Return a scalar to add to the loss, or None."""
        return None

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        """Read the logits [N, C] of a completed step, detached, from before the step."""

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        """Act after an epoch, which is counted from 0 in its stage."""

    def transition(self) -> Tensor | None:
        """Return the transition matrix [C, C] of the method, row = true class, or None."""
        return None

    def measures(self) -> dict[str, float | None]:
        """Return what the method adds to a line of the history; all processes call it."""
        return {}

    def notes(self) -> list[str]:
        """Return sentences about how the method was set up that the user may not expect."""
        return []

    def facts(self) -> dict[str, object]:
        """Return what the method adds to the summary, such as an estimate."""
        return {}

    def mass(self, batch: Batch) -> float:
        """Return the weight of a batch among the parts of its step: N, or Σ_i w_i."""
        if self.sample_weight is None:
            return float(len(batch.y))
        return float(self.sample_weight[batch.index].double().sum())

    def learn(self, model: nn.Module, batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch and the model's logits [N, C] of its examples, detached.

        Override it in a method that feeds the model something other than the examples. The model is
        as the loop wraps it, and the batch is on its device.
        """
        logits = self.group.logits(model, batch.x)
        return self.loss(logits, batch, progress), logits.detach()

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        """Return the scalar to minimise, from logits [N, C] and the batch on their device."""
        loss: Tensor = self.criterion(
            logits,
            self.targets(batch),
            index=batch.index,
            progress=progress,
            teacher_logits=self.teacher_logits(batch),
        )
        if self.sample_weight is not None:
            weight = self.sample_weight[batch.index]
            # A batch whose weights are all 0 has the loss 0, not 0/0.
            loss = (loss * weight).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        penalty = self.penalty(logits, batch)
        return loss if penalty is None else loss + penalty

    def taught(self, e: Evidence, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return q̃ [N, C] and ε [N] of a batch: the only source for records and history."""
        return self.criterion.method(e)

    def global_trust(self, progress: float) -> float | None:
        """Return g(t) of a method that has a global trust, else None."""
        method = self.criterion.method
        growth = global_part(method.trust) if isinstance(method, Target) else None
        return None if growth is None else growth.at(progress)

    def evidence(self, logits: Tensor, batch: Batch, progress: float) -> Evidence:
        """Return the evidence of logits [N, C], detached, from which `taught` computes q̃ and ε.

        `criterion.correct` returns those too, but computes losses and hides log p, p and H(p).
        """
        batch = Batch(*(tensor.to(logits.device) for tensor in batch))
        targets, of_teacher = self.targets(batch), self.teacher_logits(batch)
        return self.criterion.evidence(logits, targets, batch.index, progress, of_teacher)


class CorrectedBatch:
    """What a strategy makes of a batch: p, H(p), q̃ and ε, each computed on first use and kept.

    The step's loss cannot hand these over: the fused criteria never build q̃ and overwrite p by the
    gradient. Read them before the strategy changes at the end of an epoch.
    """

    def __init__(self, strategy: Strategy, logits: Tensor, batch: Batch, progress: float) -> None:
        self.logits = logits
        self.batch = batch
        self.progress = progress
        self._strategy = strategy

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence, which holds p, log p and H(p)."""
        with torch.no_grad():
            return self._strategy.evidence(self.logits, self.batch, self.progress)

    @cached_property
    def _taught(self) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return self._strategy.taught(self.evidence, self.batch)

    @property
    def target(self) -> Tensor:
        """The target q̃ [N, C], signed."""
        return self._taught[0]

    @property
    def trust(self) -> Tensor:
        """The trust ε [N]."""
        return self._taught[1]

    @property
    def entropy(self) -> Tensor:
        """The entropy H(p) [N]."""
        with torch.no_grad():
            return self.evidence.entropy


def check_probabilities(num_examples: int, num_classes: int, per_pair: int) -> None:
    """Refuse a method whose predictions of all examples do not fit into memory.

    It also needs `per_pair` bytes for each pair of classes.
    """
    memory_budget.require(
        4 * num_examples * num_classes + per_pair * num_classes**2,
        f"the method looks at predictions for {num_examples:,} examples of {num_classes:,} classes "
        "and at matrices of these classes, which",
        f"use fewer examples or classes, or another {option('method')}",
    )


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


@torch.no_grad()
def all_probabilities(snapshot: Snapshot) -> Tensor:
    """Return the predictions [n, C] of all training examples, float32 on the CPU."""
    p = torch.zeros(len(snapshot.given), snapshot.num_classes)
    for index, logits in snapshot.predict():
        p[index.cpu()] = torch.softmax(logits.float(), 1).cpu()
    return p
