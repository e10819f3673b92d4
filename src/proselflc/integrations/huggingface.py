"""Criteria in the Trainer of Hugging Face: a callback sets their clock and records examples.

criterion = ProSelfLC(total_steps=1)  # the callback sets the actual number
trainer = Trainer(
    …,
    compute_loss_func=compute_loss_func(criterion),
    callbacks=[ClockCallback(criterion)],
)
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from proselflc.correction.criterion import Criterion
from proselflc.errors import InputError
from proselflc.recording.recording import Recording

_OLDEST = (4, 48)
IGNORED = -100  # the label that the Trainer does not count

try:
    import transformers
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError:
    raise ImportError(
        'the integration with Hugging Face needs transformers: pip install "proselflc[hf]"'
    ) from None
if tuple(int(part) for part in transformers.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(
        f"transformers {transformers.__version__} is too old; its Trainer scales losses "
        'differently: pip install -U "proselflc[hf]"'
    )


@dataclass
class _Partial:
    """The sums over the micro-batches of the current step."""

    weight: Tensor | None = None  # of classes, over all processes
    loss: Tensor | None = None  # of the returned losses


@dataclass(frozen=True)
class _TrainerClock:
    """The progress of a Trainer."""

    step: int  # completed optimiser steps
    total: int  # Γ
    batches: int  # micro-batches that are accumulated per step
    model: nn.Module | None = None  # in training
    across: bool = False  # whether the Trainer counts labels across processes
    partial: _Partial = field(default_factory=_Partial)


# By criterion whose clock a callback sets.
_CLOCKS: WeakKeyDictionary[Criterion, _TrainerClock] = WeakKeyDictionary()


def compute_loss_func(
    criterion: Criterion,
    recording: Recording | None = None,
    model: nn.Module | None = None,
    *,
    column: str = "index",
) -> Callable[..., Tensor]:
    """Return the argument of `Trainer(compute_loss_func=…)` for a criterion.

    The loss is the sum over the micro-batch divided by the number of labels in the whole step, as
    the Trainer expects, so that accumulation changes nothing: `CrossEntropy` trains like the
    Trainer's own loss. Labels may be one per example or one per token; −100 is ignored.

    With class weights the sum is divided by the weights of these labels, Σ w[y], as
    `F.cross_entropy` does it. The Trainer does not pass the labels of a step's other micro-batches,
    so with a `ClockCallback` the accumulated gradient is rescaled by each micro-batch, and becomes
    that of one large batch. Without one, a step is the mean of the weighted means of its
    micro-batches, each weighted by its number of labels.

    Args:
        criterion: any criterion of proselflc. Without a `ClockCallback` its clock counts calls.
        recording: the result of `proselflc.record`, to record how every example is learned.
        model: the model that the Trainer trains; needed for a recording. Its forward is changed to
            accept the column of positions, which the Trainer would otherwise drop.
        column: the column of the training set with the position of each example in it.

    Raises:
        InputError: a recording without a model.
    """
    positions = None
    if recording is not None:
        if model is None:
            raise InputError(
                "recording needs the model, to know which examples are in a batch",
                field="model",
                fix="pass compute_loss_func(criterion, recording, model)",
            )
        positions = _PositionColumn.of(model, column)

    def loss(
        outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        if labels is None:
            raise InputError(
                "the Trainer found no labels", fix='name the column of the data set "labels"'
            )
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        C = logits.size(-1)
        z, y = logits.reshape(-1, C), labels.reshape(-1).to(logits.device)
        learning = criterion.training and torch.is_grad_enabled()
        clock = _CLOCKS.get(criterion) if learning else None
        # Not the clock itself, which would advance with every micro-batch.
        progress = None if clock is None else min((clock.step + 1) / clock.total, 1.0)
        if num_items_in_batch is None:
            value: Tensor = criterion(z, y, progress=progress)
            value = value if clock is None else value / clock.batches
        else:
            items = torch.as_tensor(num_items_in_batch).to(z.device)
            value = _summed(criterion, z, y, progress)
            if _counts_alike(criterion):
                value = value / items
            else:
                value = _weighted_mean(value, criterion, y, items, clock)
        if positions is not None and recording is not None and learning:
            if logits.dim() != 2:
                raise InputError(
                    f"logits are {list(logits.shape)}, but recording needs one label per example",
                    field="recording",
                    fix="leave the recording out",
                )
            # After the criterion, whose clock has counted the step by then.
            recording(positions.index(), z, y, progress=progress)
        return value

    return loss


class ClockCallback(TrainerCallback):
    """Sets a criterion's clock: t is the number of optimiser steps, Γ their total number.

    Accumulated batches count as one step, evaluation does not advance the clock, and a resumed run
    continues where it stopped. It also ends the epochs of a recording.

    Args:
        criterion: the criterion given to `compute_loss_func`.
        recording: the recording given to `compute_loss_func`, or None.
    """

    def __init__(self, criterion: Criterion, recording: Recording | None = None) -> None:
        self.criterion = criterion
        self.recording = recording
        self._model: nn.Module | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        if args.label_smoothing_factor:
            raise InputError(
                f"label_smoothing_factor={args.label_smoothing_factor} would have no effect with "
                "compute_loss_func",
                field="label_smoothing_factor",
                fix="leave it out, or use the criterion LabelSmoothing("
                f"{args.label_smoothing_factor})",
            )
        if type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
            raise InputError(
                "this model predicts the next token, whose labels are shifted, but criteria are "
                "for classification",
                field="model",
                fix="use a model for sequence or token classification",
            )
        if self.recording is not None:
            if args.n_gpu > 1:
                raise InputError(
                    f"recording does not support {args.n_gpu} copies of a model in one process",
                    field="recording",
                    fix="start one process per device, with torchrun",
                )
            self.recording.expect_end_epoch()
        batches = args.gradient_accumulation_steps
        if batches > 1 and (args.deepspeed or args.fsdp) and not _counts_alike(self.criterion):
            raise InputError(
                f"class weights, or an ignore_index other than {IGNORED}, with "
                f"gradient_accumulation_steps={batches} need access to the gradients, which "
                "DeepSpeed and FSDP do not give",
                field="gradient_accumulation_steps",
                fix="use gradient_accumulation_steps=1, or a criterion without them",
            )
        self.criterion.to(args.device)
        self._model = model
        self._set(args, state)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._set(args, state)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.recording is not None:
            self.recording.end_epoch()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        _CLOCKS.pop(self.criterion, None)
        self._model = None

    def _set(self, args: TrainingArguments, state: TrainerState) -> None:
        total = max(state.max_steps, 1)
        self.criterion.set_progress(state.global_step, total)
        _CLOCKS[self.criterion] = _TrainerClock(
            state.global_step,
            total,
            args.gradient_accumulation_steps,
            self._model,
            args.world_size > 1 and args.average_tokens_across_devices,
        )


def _summed(criterion: Criterion, z: Tensor, y: Tensor, progress: float | None) -> Tensor:
    """Return the sum over a micro-batch, whatever the reduction of the criterion is."""
    own = criterion.reduction
    try:
        criterion.reduction = "sum"
        loss: Tensor = criterion(z, y, progress=progress)
    finally:
        criterion.reduction = own
    return loss


def _counts_alike(criterion: Criterion) -> bool:
    """Return whether a criterion's mean divides by the number of labels that the Trainer counts."""
    return criterion.weight is None and criterion.ignore_index == IGNORED


def _weighted_mean(
    total: Tensor, criterion: Criterion, y: Tensor, items: Tensor, clock: _TrainerClock | None
) -> Tensor:
    """Return the sum of losses of a micro-batch divided by the class weights of its labels y [N].

    `items` is the number of labels that the Trainer counted in the step.
    """
    counts = y != criterion.ignore_index
    weights = torch.ones((), device=y.device).expand(y.shape)
    if criterion.weight is not None:
        weights = criterion.weight.to(y.device, torch.float32)[y.masked_fill(~counts, 0)]
    here = weights.where(counts, 0.0).sum()
    tiny = torch.finfo(here.dtype).tiny  # avoids 0/0 where nothing counts
    if clock is None or clock.model is None or (clock.batches == 1 and not clock.across):
        return total / here.clamp(min=tiny) * ((y != IGNORED).sum() / items)
    if clock.across:
        torch.distributed.all_reduce(here)
    partial = clock.partial
    if partial.weight is None or partial.loss is None:
        value = total / here.clamp(min=tiny)
        partial.weight, partial.loss = here, value.detach()
        return value
    # Gradients were divided by the weights of earlier micro-batches; now this one's are included.
    weight = partial.weight + here
    share = partial.weight / weight.clamp(min=tiny)
    for parameter in clock.model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(share)
    # The Trainer adds up the returned values, whose sum must be the loss of the step.
    value = total / weight.clamp(min=tiny) + partial.loss * (share - 1)
    partial.weight, partial.loss = weight, partial.loss + value.detach()
    return value


class _PositionColumn:
    """The column of positions of a batch's examples, which the model's forward intercepts.

    The Trainer passes a model only the columns that its forward accepts, and passes a loss only the
    labels. So the forward gets one more parameter, whose value is kept here.
    """

    @classmethod
    def of(cls, model: nn.Module, column: str) -> _PositionColumn:
        """Return the column of a model, which an earlier Trainer may have added."""
        function: Any = model.forward
        while function is not None:
            found = getattr(function, "positions", None)
            if isinstance(found, cls) and found._column == column:
                return found
            function = getattr(function, "__wrapped__", None)
        return cls(model, column)

    def __init__(self, model: nn.Module, column: str) -> None:
        self._column = column
        self._last: Tensor | None = None
        # Bound to the model, so that a copy of the model uses its own weights.
        plain: Any = model.forward
        is_method = getattr(plain, "__self__", None) is model
        plain = plain.__func__ if is_method else plain
        signature = inspect.signature(plain)
        if column in signature.parameters:
            raise InputError(
                f'the model already has a parameter "{column}"',
                field="column",
                fix="choose another column for the positions",
            )
        # A parameter **kwargs must stay the last.
        named = inspect.Parameter(column, inspect.Parameter.KEYWORD_ONLY, default=None)
        parameters = sorted((*signature.parameters.values(), named), key=lambda p: p.kind)

        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._last = kwargs.pop(column, None)
            return plain(*args, **kwargs)

        forward.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        forward.positions = self  # type: ignore[attr-defined]
        model.forward = types.MethodType(forward, model) if is_method else forward

    def index(self) -> Tensor:
        """Return the positions [N] of the batch that the model has just had."""
        found, self._last = self._last, None
        if found is None:
            raise InputError(
                f'the training set has no column "{self._column}"',
                field="column",
                fix=f'add it: data.add_column("{self._column}", list(range(len(data))))',
            )
        return found
