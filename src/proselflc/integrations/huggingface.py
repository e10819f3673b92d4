"""Any criterion in the Trainer of Hugging Face, with its clock kept and its examples recorded.

criterion = ProSelfLC(total_steps=1)  # the callback puts in how many there are
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
IGNORED = -100  # labels that the Trainer does not count

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
        f"transformers {transformers.__version__} is too old, its Trainer scales losses otherwise: "
        'pip install -U "proselflc[hf]"'
    )


@dataclass
class _SoFar:
    """What the batches of the step under way have come to.

    Attributes:
        weight: the sum of their examples' class weights, of all processes.
        loss: what the loss function has returned for them, in sum.
    """

    weight: Tensor | None = None
    loss: Tensor | None = None


@dataclass(frozen=True)
class _Time:
    """Where a Trainer is.

    Attributes:
        step: optimiser steps that are completed.
        total: Γ.
        batches: that are accumulated in a step.
        model: that is trained.
        across: whether the Trainer counts labels across processes.
        so_far: what the step under way has seen.
    """

    step: int
    total: int
    batches: int
    model: nn.Module | None = None
    across: bool = False
    so_far: _SoFar = field(default_factory=_SoFar)


# Of the criteria whose clock a callback keeps.
_KEPT: WeakKeyDictionary[Criterion, _Time] = WeakKeyDictionary()


def compute_loss_func(
    criterion: Criterion,
    recording: Recording | None = None,
    model: nn.Module | None = None,
    *,
    column: str = "index",
) -> Callable[..., Tensor]:
    """What `Trainer(compute_loss_func=…)` takes, for a criterion.

    The loss is the sum over the micro-batch divided by the number of labels in the whole step, as
    the Trainer wants it, so that accumulation changes nothing: with `CrossEntropy` training goes as
    with the Trainer's own loss. Labels may be one per example or one per token; −100 is left out.

    With class weights the sum is divided by the weights of these labels, Σ w[y], as
    `F.cross_entropy` does it. The Trainer does not tell the labels of a step's other micro-batches,
    so with a `ClockCallback` the gradient that is there is rescaled when the next one comes, and
    accumulation gives that of one large batch. Without one, every micro-batch is a weighted mean
    that counts by its number of labels.

    Args:
        criterion: any of ours. Without a `ClockCallback` its own clock counts calls.
        recording: of `proselflc.record`, to see what is learned of every example.
        model: that the Trainer trains; needed for a recording. Its forward is made to take the
            column of positions, which the Trainer would otherwise drop.
        column: of the training set with the position of each example in it.

    Raises:
        InputError: a recording without a model.
    """
    carried = None
    if recording is not None:
        if model is None:
            raise InputError(
                "recording needs to know which examples a batch has: pass the model too, "
                "compute_loss_func(criterion, recording, model)"
            )
        carried = _Carried.by(model, column)

    def loss(
        outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        if labels is None:
            raise InputError(
                "the Trainer found no labels to learn from: call the column of the data set labels"
            )
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        C = logits.size(-1)
        z, y = logits.reshape(-1, C), labels.reshape(-1).to(logits.device)
        learning = criterion.training and torch.is_grad_enabled()
        kept = _KEPT.get(criterion) if learning else None
        # Not the clock itself, which would advance with every micro-batch.
        progress = None if kept is None else min((kept.step + 1) / kept.total, 1.0)
        if num_items_in_batch is None:
            value: Tensor = criterion(z, y, progress=progress)
            value = value if kept is None else value / kept.batches
        else:
            items = torch.as_tensor(num_items_in_batch).to(z.device)
            value = _summed(criterion, z, y, progress)
            if _counts_alike(criterion):
                value = value / items
            else:
                value = _weighted_mean(value, criterion, y, items, kept)
        if carried is not None and recording is not None and learning:
            if logits.dim() != 2:
                raise InputError(
                    f"logits are {list(logits.shape)}, but recording is for one label per example: "
                    "leave the recording out"
                )
            # After the criterion, whose own clock has then counted the step.
            recording(carried.index(), z, y, progress=progress)
        return value

    return loss


class ClockCallback(TrainerCallback):
    """Keeps a criterion's clock: t is the number of optimiser steps, Γ how many there will be.

    Accumulated batches are of one step, evaluation does not move it, and a run that is resumed goes
    on where it was. Of a recording it ends the epochs.

    Args:
        criterion: the same as of `compute_loss_func`.
        recording: the same, or None.
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
                f"label_smoothing_factor={args.label_smoothing_factor} would have no effect beside "
                "compute_loss_func: leave it out, or learn with the criterion LabelSmoothing("
                f"{args.label_smoothing_factor})"
            )
        if type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
            raise InputError(
                "this model predicts the next token, whose labels are shifted, and criteria are "
                "for classification: take a model for sequence or token classification"
            )
        if self.recording is not None:
            if args.n_gpu > 1:
                raise InputError(
                    f"recording cannot look into {args.n_gpu} copies of a model in one process: "
                    "start one process per device, with torchrun"
                )
            self.recording.expect_end_epoch()
        batches = args.gradient_accumulation_steps
        if batches > 1 and (args.deepspeed or args.fsdp) and not _counts_alike(self.criterion):
            raise InputError(
                f"class weights with gradient_accumulation_steps={batches} need the gradients, "
                "which DeepSpeed and FSDP keep elsewhere, and so does another ignore_index than "
                f"{IGNORED}: use gradient_accumulation_steps=1, or a criterion without them"
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
        _KEPT.pop(self.criterion, None)
        self._model = None

    def _set(self, args: TrainingArguments, state: TrainerState) -> None:
        total = max(state.max_steps, 1)
        self.criterion.set_progress(state.global_step, total)
        _KEPT[self.criterion] = _Time(
            state.global_step,
            total,
            args.gradient_accumulation_steps,
            self._model,
            args.world_size > 1 and args.average_tokens_across_devices,
        )


def _summed(criterion: Criterion, z: Tensor, y: Tensor, progress: float | None) -> Tensor:
    """The sum over a micro-batch, whatever the criterion reduces by."""
    own = criterion.reduction
    try:
        criterion.reduction = "sum"
        loss: Tensor = criterion(z, y, progress=progress)
    finally:
        criterion.reduction = own
    return loss


def _counts_alike(criterion: Criterion) -> bool:
    """Return whether the mean of a criterion divides by the number of labels, as counted here."""
    return criterion.weight is None and criterion.ignore_index == IGNORED


def _weighted_mean(
    total: Tensor, criterion: Criterion, y: Tensor, items: Tensor, kept: _Time | None
) -> Tensor:
    """Divide the sum over a micro-batch by the class weights of the labels that count.

    Args:
        total: the sum of the losses.
        criterion: whose class weights count.
        y: [N] the labels of the micro-batch.
        items: how many labels the Trainer has counted in the step.
        kept: where the Trainer is, if a callback says so and this is training.
    """
    counts = y != criterion.ignore_index
    weights = torch.ones((), device=y.device).expand(y.shape)
    if criterion.weight is not None:
        weights = criterion.weight.to(y.device, torch.float32)[y.masked_fill(~counts, 0)]
    here = weights.where(counts, 0.0).sum()
    tiny = torch.finfo(here.dtype).tiny  # nothing that counts is no 0/0
    if kept is None or kept.model is None or (kept.batches == 1 and not kept.across):
        return total / here.clamp(min=tiny) * ((y != IGNORED).sum() / items)
    if kept.across:
        torch.distributed.all_reduce(here)
    so_far = kept.so_far
    if so_far.weight is None or so_far.loss is None:
        value = total / here.clamp(min=tiny)
        so_far.weight, so_far.loss = here, value.detach()
        return value
    # What was divided by the weights up to the last micro-batch must be by those up to this one.
    weight = so_far.weight + here
    share = so_far.weight / weight.clamp(min=tiny)
    for parameter in kept.model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(share)
    # The Trainer adds up what is returned, so that the sum is the loss of the step.
    value = total / weight.clamp(min=tiny) + so_far.loss * (share - 1)
    so_far.weight, so_far.loss = weight, so_far.loss + value.detach()
    return value


class _Carried:
    """The positions of a batch's examples, on their way past the model.

    The Trainer gives a model what its forward has names for and drops the rest, and of the batch a
    loss gets the labels alone. So the forward is given one name more, and keeps what comes by it.

    Args:
        model: whose forward is changed.
        column: the name.
    """

    @classmethod
    def by(cls, model: nn.Module, column: str) -> _Carried:
        """By a model, which may have been changed for an earlier Trainer."""
        function: Any = model.forward
        while function is not None:
            found = getattr(function, "carried", None)
            if isinstance(found, cls) and found._column == column:
                return found
            function = getattr(function, "__wrapped__", None)
        return cls(model, column)

    def __init__(self, model: nn.Module, column: str) -> None:
        self._column = column
        self._last: Tensor | None = None
        # Bound to the model again, so that a copy of it asks its own weights and not the model's.
        plain: Any = model.forward
        is_method = getattr(plain, "__self__", None) is model
        plain = plain.__func__ if is_method else plain
        signature = inspect.signature(plain)
        if column in signature.parameters:
            raise InputError(
                f'the model takes "{column}" itself: choose another column for the positions'
            )
        # Names that take anything must stay the last.
        given = list(signature.parameters.values())
        rest = [one for one in given if one.kind is inspect.Parameter.VAR_KEYWORD]
        named = inspect.Parameter(column, inspect.Parameter.KEYWORD_ONLY, default=None)

        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._last = kwargs.pop(column, None)
            return plain(*args, **kwargs)

        parameters = [one for one in given if one not in rest] + [named, *rest]
        forward.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        forward.carried = self  # type: ignore[attr-defined]
        model.forward = types.MethodType(forward, model) if is_method else forward

    def index(self) -> Tensor:
        """[N] of the batch that the model has just seen."""
        found, self._last = self._last, None
        if found is None:
            raise InputError(
                f'no column "{self._column}" came with the examples: add one to the training set, '
                f'data.add_column("{self._column}", list(range(len(data))))'
            )
        return found
