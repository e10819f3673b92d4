"""What a method does around the loop: stages, other targets, a teacher, a memory of labels.

Most methods are a criterion and nothing else; `Strategy` itself serves these. A method that does
more is a final subclass in `methods/`, which overrides the few hooks it needs. The loop calls
them and knows no method by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from proselflc.correction import boundary
from proselflc.correction.criterion import Criterion
from proselflc.correction.evidence import Evidence
from proselflc.correction.target import Target
from proselflc.correction.trust import global_part
from proselflc.data import memory_budget
from proselflc.data.batches import Batch
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.preprocessing import Preprocessing
from proselflc.errors import InputError
from proselflc.training.recipe import Precision
from proselflc.training.schedule import Schedule


@dataclass(frozen=True)
class Stage:
    """A part of training.

    Attributes:
        name: what happens in it, in a few words.
        share: of all epochs.
        fresh: whether the model begins anew, with the weights it began training with.
        schedule: of the learning rate; None for the recipe's.
    """

    name: str
    share: float = 1.0
    fresh: bool = False
    schedule: Schedule | None = None


@dataclass(frozen=True)
class Span:
    """A stage in optimiser steps.

    Attributes:
        stage: that it is.
        first: steps that are completed when it begins.
        steps: how many it takes.
    """

    stage: Stage
    first: int
    steps: int


def described(spans: tuple[Span, ...], batches: int) -> list[dict[str, object]]:
    """The stages of a run as its directory has them; first epochs and steps are counted from 0.

    Args:
        spans: of the run.
        batches: steps per epoch.
    """
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
    """When the stages of Γ steps begin; each is whole epochs but the last.

    Args:
        stages: one or more; their shares sum to 1.
        total_steps: Γ.
        batches: steps per epoch.

    Raises:
        InputError: there are fewer epochs than stages.
    """
    epochs = -(-total_steps // batches)
    if epochs < len(stages):
        raise InputError(
            f"the method has {len(stages)} stages ({', '.join(s.name for s in stages)}) and needs "
            f"an epoch for each, got {epochs}: raise --epochs"
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
    """What a strategy is made for.

    Attributes:
        total_steps: Γ.
        batches: steps per epoch.
        given: [n] the labels.
        names: C class names.
        preprocessing: of the inputs, fitted on the training part.
        model: the name of the model, which the user has chosen and whose code is believed.
        coarse: [C] the coarse class of every class, or None.
        trusted: [n] whose labels are known to be right, or None where the user has named none.
        sample_weight: [n] how much each example counts in the loss, or None for all alike.
        seed: of the run.
        precision: that the model learns in.
    """

    total_steps: int
    batches: int
    given: Ints
    names: tuple[str, ...]
    preprocessing: Preprocessing
    model: str = ""
    coarse: Ints | None = None
    trusted: Bools | None = None
    sample_weight: Floats | None = None
    seed: int = 0
    precision: Precision = "no"

    @property
    def epochs(self) -> int:
        """How many there are, the last of which may not be whole."""
        return -(-self.total_steps // self.batches)

    @property
    def num_examples(self) -> int:
        """n."""
        return len(self.given)

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.names)


class Predict(Protocol):
    """Applies a model to training examples."""

    def __call__(self, rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield index [N] and logits [N, C] of every batch, of all examples or of some rows."""


@dataclass(frozen=True)
class Snapshot:
    """The state of training that a strategy may read when a stage begins or an epoch ends.

    It holds no true labels, so no method can peek.

    Attributes:
        model: the bare model, as trained so far.
        given: [n] the labels.
        num_classes: C.
        predict: applies the model to training examples, with test-time transforms.
        note: reports a sentence to the user, such as an estimate that failed.
    """

    model: nn.Module
    given: Ints
    num_classes: int
    predict: Predict
    note: Callable[[str], None]


class Strategy(nn.Module):
    """A method that is a criterion, in one stage.

    Buffers and parameters are the method's state: checkpoints keep them, and parameters that need
    gradients learn with the model's. A subclass overrides the hooks it needs and no more.

    Args:
        criterion: what to minimise.
        sample_weight: [n] how much each example counts, or None for all alike. The loss of a batch
            is then Σ_i w_i L_i / Σ_i w_i, as `F.cross_entropy` does it with class weights.

    Attributes:
        stages: one or more, in order.
        processes: how many processes it can work in, at most; None for any number.
        criterion: of the stage that is under way.
    """

    stages: tuple[Stage, ...] = (Stage("training"),)
    processes: int | None = None
    sample_weight: Tensor | None

    def __init__(self, criterion: Criterion, sample_weight: Floats | None = None) -> None:
        super().__init__()
        self.criterion = criterion
        weight = None if sample_weight is None else torch.from_numpy(sample_weight)
        self.register_buffer("sample_weight", weight, persistent=False)  # it comes with the data
        if weight is not None:
            criterion.reduction = "none"

    def arrange(self, stage: int, model: nn.Module) -> None:
        """Be what a stage needs, without computing anything: also called when a run resumes."""

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        """Compute what a stage begins with; a run that resumes in it has it from its checkpoint."""

    def targets(self, batch: Batch) -> Tensor:
        """What is taught of a batch: [N] class ids, or probabilities [N, C]."""
        return batch.y

    def teacher_logits(self, batch: Batch) -> Tensor | None:
        """[N, C] of a teacher, or None."""
        return None

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """What is minimised beside the criterion, a number; or None."""
        return None

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        """Look at what the model said in a step, [N, C] detached, before the step."""

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        """An epoch of a stage, counted from 0 in it, is over."""

    def transition(self) -> Tensor | None:
        """[C, C] the transition matrix that the method works with, row = true class; or None."""
        return None

    def facts(self) -> dict[str, object]:
        """What the summary says of the method beside the usual, such as an estimate."""
        return {}

    def mass(self, batch: Batch) -> float:
        """How much a batch counts beside others of its step: N, or Σ_i w_i."""
        if self.sample_weight is None:
            return float(len(batch.y))
        return float(self.sample_weight[batch.index].double().sum())

    def learn(self, model: nn.Module, batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and [N, C] detached what the model says of its examples.

        For a method that shows the model something else than the examples.

        Args:
            model: as the loop calls it.
            batch: on the model's device.
            progress: of the stage.
        """
        logits = model(batch.x)
        return self.loss(logits, batch, progress), logits.detach()

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        """What is minimised, a number.

        Args:
            logits: [N, C].
            batch: that they are the answer to, on the same device.
            progress: of the stage.
        """
        loss: Tensor = self.criterion(
            logits,
            self.targets(batch),
            index=batch.index,
            progress=progress,
            teacher_logits=self.teacher_logits(batch),
        )
        if self.sample_weight is not None:
            weight = self.sample_weight[batch.index]
            # A batch of examples that do not count teaches nothing, and is no 0/0.
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
        """Return the evidence that `taught` computes q̃ and ε from.

        `criterion.correct` returns those too, but computes losses and hides log p, p and H(p).

        Args:
            logits: [N, C] of the batch, detached.
            batch: the examples, on any device.
            progress: t/Γ of the stage.
        """
        criterion, device = self.criterion, logits.device
        batch = Batch(*(tensor.to(device) for tensor in batch))
        e = boundary.observe(
            logits,
            self.targets(batch),
            progress=progress,
            weight=criterion.weight,
            ignore_index=criterion.ignore_index,
            teacher_logits=self.teacher_logits(batch),
            log_offset=criterion.log_offset,
        )
        if criterion.memory is not None:
            index = criterion.memory.check(batch.index, logits.shape)
            e.recall(*criterion.memory.at(index))
        return e


class CorrectedBatch:
    """What a strategy makes of a batch: p, H(p), q̃ and ε, each computed on first use and kept.

    The step's loss cannot hand these over: the fused criteria never build q̃ and overwrite p by the
    gradient. They are computed from the same logits without another forward pass, once for all
    who read them. Read them before the strategy changes at the end of an epoch.

    Args:
        strategy: the method.
        logits: [N, C], detached.
        batch: the examples that the logits belong to.
        progress: t/Γ of the stage.
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


def check_memory(needed: int, kept: str) -> None:
    """Refuse to keep more than there is memory for, before it is taken.

    Two copies more are made of it while a checkpoint is written.

    Args:
        needed: bytes.
        kept: what is, in words.

    Raises:
        InputError: it is too much.
    """
    memory_budget.require(
        3 * needed,
        f"the method keeps {kept}, which with the copies for a checkpoint",
        "take fewer examples or classes, or another --method",
    )


def check_probabilities(num_examples: int, num_classes: int, per_pair: int) -> None:
    """Refuse a method that asks about every example at once, before anything is computed.

    Args:
        num_examples: n.
        num_classes: C.
        per_pair: bytes that it needs for each pair of classes.

    Raises:
        InputError: there is not enough memory for [n, C] predictions and its matrices.
    """
    memory_budget.require(
        4 * num_examples * num_classes + per_pair * num_classes**2,
        f"the method looks at predictions for {num_examples:,} examples of {num_classes:,} classes "
        "and at matrices of these classes, which",
        "take fewer examples or classes, or another --method",
    )


def one_hot(given: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    """Return [n, C] of the dtype, without the eight bytes per number that `F.one_hot` takes."""
    q = torch.zeros(len(given), num_classes, dtype=dtype)
    return q.scatter_(1, given[:, None], 1.0)


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that learn."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


@torch.no_grad()
def all_probabilities(snapshot: Snapshot) -> Tensor:
    """[n, C] float32 what the model says of every training example, in their order, on the CPU."""
    p = torch.zeros(len(snapshot.given), snapshot.num_classes)
    for index, logits in snapshot.predict():
        p[index.cpu()] = torch.softmax(logits.float(), 1).cpu()
    return p
