"""The training loop. It knows no method by name: a strategy computes the loss.

`Training` holds everything that changes from step to step and can save and restore its state.
`train_steps` runs it over a loader from its current step, and tells observers what each step
computed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from proselflc.correction.criterion import Criterion
from proselflc.correction.memory import OtherExamplesError, OtherStorageError
from proselflc.correction.memory_storage import KINDS
from proselflc.data import memory_budget
from proselflc.data.batches import Batch, Batches, generator_for
from proselflc.errors import InputError
from proselflc.training import checkpoint, memories, processes
from proselflc.training.group import Group
from proselflc.training.recipe import Recipe, factor
from proselflc.training.strategy import (
    CorrectedBatch,
    Snapshot,
    Strategy,
    spans,
    trainable,
)
from proselflc.wording import option


class DivergenceError(Exception):
    """The loss or the model's output is not finite. The message says what to try."""


@dataclass(frozen=True)
class StepResult:
    """The result of one optimiser step."""

    step: int  # its number, from 1 to Γ
    epoch: int  # the number of its epoch, from 0
    ends_epoch: bool  # whether it is the last step of its epoch or of training
    batch: Batch  # the examples that this process learned from
    corrected: CorrectedBatch  # p, H(p), q̃ and ε of the batch, from the logits before the step
    loss: float  # of the whole batch of all processes
    size: int  # number of examples in the whole batch
    lr: float
    stop: bool  # whether a process had asked for a stop before the step, or the only one during it
    save: bool  # whether the main process had asked for a checkpoint before the step

    @property
    def logits(self) -> Tensor:
        """Return the logits [N, C] before the step, detached."""
        return self.corrected.logits


class Observer:
    """Follows a training run; a subclass defines the hooks that it needs."""

    # Why training should stop. The loop reads it after every step and stops all processes after the
    # next one, with the state saved.
    stop_reason: str | None = None

    def observe(self, result: StepResult) -> None:
        """Read what a step computed, while the strategy is still as it was in that step."""

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        """Take a line of the history, measured after the step that was observed last."""

    def after_step(self, result: StepResult) -> None:
        """Act between two steps, once the strategy has ended the epoch if the step was its last."""


class Training:
    """A model in training, with its strategy and optimiser.

    The model maps a batch's x to logits [N, C]; the recipe must have an optimiser, a learning rate
    and a weight decay.
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        recipe: Recipe,
        total_steps: int,
        batches: int,
        *,
        accelerator: Accelerator,
    ) -> None:
        strategy.group = Group(accelerator)
        memories.check_shards(strategy)
        self.spans = spans(strategy.stages, total_steps, batches)
        self.batches = batches
        self.recipe = recipe
        self.total_steps = total_steps
        self.accelerator = accelerator
        self.step = 0  # t, the number of completed steps
        self._entered = -1  # number of the last stage that was begun
        self.wants_stop = False  # True ends the loop after the next step
        self.is_interrupted = False  # True if a signal wants it to end
        self.wants_checkpoint = False  # True saves the state after the next step
        self.strategy = strategy.to(accelerator.device)
        self.module = model.to(accelerator.device)  # bare, without wrappers of the loop
        # A factory may give every process other weights. What a stage begins with again, an average
        # and a strategy are copies of these.
        strategy.group.share_state(self.module)
        self._initial = None
        if any(span.stage.fresh for span in self.spans):
            self._initial = {name: t.clone() for name, t in self.module.state_dict().items()}
        if recipe.channels_last:
            self.module = self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._arrange(0)  # before the optimiser: a strategy may add parameters that fit the model
        strategy.group.share_state(self.strategy)
        self.average = None  # or the exponential moving average of its weights
        if recipe.ema is not None:
            self.average = AveragedModel(
                self.module, multi_avg_fn=_moving_average(recipe.ema), use_buffers=True
            )
        if recipe.compile:
            self.module.compile()
        self.bare_optimizer = recipe.make_optimizer(trainable(self.module), trainable(strategy))
        self.model, prepared = accelerator.prepare(self.module, self.bare_optimizer)
        # Accelerate's optimiser looks for a missing package at every step, which takes longer than
        # the step of a small network. All that it adds here is the gradient scaler of float16.
        self.optimizer = self.bare_optimizer if accelerator.scaler is None else prepared
        if accelerator.num_processes == 1 and not recipe.compile:
            for weight in trainable(self.module):
                weight.register_post_accumulate_grad_hook(_heed_signals)  # type: ignore[no-untyped-call]
        self.model.train()

    @property
    def progress(self) -> float:
        """Return t/Γ of the current stage, which is 1 at its last step."""
        return (self.step - self.span.first) / self.span.steps

    @property
    def criterion(self) -> Criterion:
        """Return the criterion of the current stage."""
        return self.strategy.criterion

    def begins_stage(self) -> int | None:
        """Return the number of the stage whose first step is next, or None."""
        firsts = [span.first for span in self.spans]
        stage = firsts.index(self.step) if self.step in firsts else -1
        return stage if stage > self._entered else None

    def enter(self, stage: int, snapshot: Callable[[nn.Module], Snapshot] | None) -> None:
        """Begin a stage, for which the strategy may read a snapshot of the stage before."""
        self.share_buffers()  # a strategy may copy the model, which must be equal in all processes
        before = None if snapshot is None else snapshot(self.evaluated)
        self._arrange(stage)
        if before is not None:
            self.strategy.enter(stage, before)
            self.strategy.to(self.accelerator.device)
        if stage > 0:
            self.bare_optimizer.state.clear()
        if self.span.stage.fresh and stage > 0:
            assert self._initial is not None
            self.module.load_state_dict(self._initial)
            if self.average is not None:
                self.average.module.load_state_dict(self._initial)
                self.average.n_averaged.zero_()
        self._entered = stage

    def _arrange(self, stage: int) -> None:
        self.stage, self.span = stage, self.spans[stage]
        self.strategy.arrange(stage, self.module)
        self.strategy.to(self.accelerator.device)

    @property
    def evaluated(self) -> nn.Module:
        """Return the model to evaluate and save: the average of the weights if there is one."""
        return self.module if self.average is None else self.average.module

    def learn(self, batch: Batch) -> StepResult:
        """Take one optimiser step on a batch."""
        recipe, accelerator = self.recipe, self.accelerator
        # Random numbers (dropout) are a function of seed, step and process: no state to save.
        _seed(accelerator.device, "step", recipe.seed, self.step, accelerator.process_index)
        assert recipe.lr is not None
        span = self.span
        lr = recipe.lr * factor(
            span.stage.schedule or recipe.schedule,
            self.step - span.first,
            span.steps,
            recipe.warmup,
        )
        for group in self.bare_optimizer.param_groups:
            group["lr"] = lr
        here = Batch(*(t.to(accelerator.device) for t in batch))
        size, mass, stop, save = self._totals(here)
        progress = (self.step + 1 - span.first) / span.steps
        if not self.model.training:
            self.model.train()
        total, logits = torch.zeros((), device=accelerator.device), []
        pieces = _pieces(here, recipe.accumulate, size // accelerator.num_processes)
        for k, piece in enumerate(pieces):
            is_last = k == len(pieces) - 1
            with contextlib.nullcontext() if is_last else accelerator.no_sync(self.model):
                loss, z = self.strategy.learn(self.model, piece, progress)
                if k == 0:
                    # Not after the step: the C library would then return the memory to the system,
                    # and the next forward pass would have to fetch it again.
                    self.optimizer.zero_grad()
                # Gradients of processes are averaged: the average must be the whole batch's mean.
                share = self.strategy.mass(piece) / mass
                scale = share * accelerator.num_processes
                accelerator.backward(loss if scale == 1 else loss * scale)
            if len(piece.y):  # the mean over no examples is not a number, and its gradient is 0
                total += loss.detach() * share
            logits.append(z)
        self._share_gradients(is_empty=len(here.y) == 0)
        loss_value = self._checked(total, lr)
        if recipe.clip is not None:
            # The strategy's parameters belong to the same step.
            learning = [*self.model.parameters(), *trainable(self.strategy)]
            accelerator.clip_grad_norm_(learning, recipe.clip)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.module)
        self.step += 1
        z = logits[0] if len(logits) == 1 else torch.cat(logits)
        self.strategy.after_step(z, batch)
        return StepResult(
            step=self.step,
            epoch=(self.step - 1) // self.batches,
            ends_epoch=self.step % self.batches == 0 or self.step == self.total_steps,
            batch=batch,
            corrected=CorrectedBatch(self.strategy, z, batch, progress),
            loss=loss_value,
            size=size,
            lr=lr,
            stop=stop or (accelerator.num_processes == 1 and self.wants_stop),
            save=save,
        )

    def _totals(self, batch: Batch) -> tuple[int, float, bool, bool]:
        """Return the size and mass of the whole batch, and whether to stop and to save."""
        size, mass = len(batch.y), self.strategy.mass(batch)
        stop, save, self.wants_checkpoint = self.wants_stop, self.wants_checkpoint, False
        if self.accelerator.num_processes > 1:
            numbers = torch.tensor([size, mass, stop, save], dtype=torch.float64)
            summed = processes.summed(self.accelerator, numbers).tolist()
            size, mass, stop, save = int(summed[0]), summed[1], summed[2] > 0, summed[3] > 0
        return size, mass or 1.0, stop, save  # a mass of 0 would divide 0 by 0

    def _share_gradients(self, *, is_empty: bool) -> None:
        """Average the gradients of the strategy's parameters, as those of the model were."""
        parameters = trainable(self.strategy)
        for parameter in parameters:
            if is_empty and parameter.grad is not None:
                parameter.grad.zero_()
        self.strategy.group.average_gradients(parameters)

    def _checked(self, loss: Tensor, lr: float) -> float:
        """Return the loss of the whole batch, and refuse one that is not finite."""
        value = float(processes.summed(self.accelerator, loss.reshape(1)))
        if not math.isfinite(value):
            raise DivergenceError(
                f"the loss of step {self.step + 1} is {value} at learning rate {lr:g}: try a lower "
                f"{option('lr')}, a {option('warmup')} of some hundred steps, or "
                f"{option('clip', 1)}, with {option('overwrite', True)} or another "
                f"{option('out')}; if that does not help, look for extreme values in the data"
            )
        return value

    def share_buffers(self) -> None:
        """Copy the main process's running statistics to all processes, as the next step would."""
        if self.accelerator.num_processes > 1:
            for module in (self.module, self.average):
                for buffer in () if module is None else module.buffers():
                    buffer.copy_(broadcast(buffer.clone(), from_process=0))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the state by name, without copying: the next step changes them.

        They are those of one process whatever the number of processes, of which all must call this;
        the main one alone gets what is per example whole.
        """
        return memories.with_all_examples(self._own_tensors(), self.strategy)

    def _own_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the state, with this process's share of what is per example."""
        state: dict[str, Tensor] = {}
        for name, module in self._modules.items():
            state |= checkpoint.named(name, module.state_dict())
        if any(span.stage.fresh for span in self.spans[self._entered + 1 :]):
            # A model that the user passes to a resumed run may have other initial weights.
            assert self._initial is not None
            state |= checkpoint.named("initial", self._initial)
        of_optimizer = checkpoint.optimizer_tensors(self.bare_optimizer)
        return state | checkpoint.named("optimizer", of_optimizer)

    @property
    def _modules(self) -> dict[str, nn.Module]:
        """Return the modules whose state a checkpoint keeps, by the prefix of their tensors."""
        modules = {"model": self.module, "strategy": self.strategy}
        return modules if self.average is None else {**modules, "average": self.average}

    def facts(self) -> dict[str, object]:
        """Return what the state holds beside tensors."""
        scaler = self.accelerator.scaler
        return {"scaler": None if scaler is None else scaler.state_dict(), "stage": self._entered}

    def restore(self, state: checkpoint.State) -> None:
        """Restore a state that `tensors` and `facts` returned; refuse that of another run."""
        self._entered = self._stage_of(state)
        self._arrange(max(self._entered, 0))
        mine = self._own_tensors()
        self._check_fit(state, mine)
        try:
            for name, module in self._modules.items():
                module.load_state_dict(checkpoint.part(state.tensors, name))
        except OtherStorageError as error:
            raise self._other_storage(error) from None
        except OtherExamplesError as error:
            raise InputError(f"the checkpoint does not fit this data: {error}") from None
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"the checkpoint does not fit this model: {reason}") from None
        for name, tensor in checkpoint.part(state.tensors, "initial").items():
            mine[f"initial.{name}"].copy_(tensor)
        of_optimizer = checkpoint.part(state.tensors, "optimizer")
        checkpoint.restore_optimizer(self.bare_optimizer, of_optimizer)
        if self.accelerator.scaler is not None and state.facts.get("scaler"):
            self.accelerator.scaler.load_state_dict(state.facts["scaler"])
        self.step = state.step

    def _other_storage(self, error: OtherStorageError) -> InputError:
        """Return the refusal of a state whose memory is stored differently, with the remedy."""
        fix = f"set {memory_budget.VARIABLE} to what it was when the run began"
        if KINDS.index(error.saved) < max(
            KINDS.index(one.storage) for one in memories.memories(self.strategy).values()
        ):
            # An earlier version kept more with the same limit.
            needed = memories.gigabytes_for(self.strategy, error.saved)
            fix = f"set {memory_budget.VARIABLE}={needed:g}"
        reason = str(error).partition(";")[0]
        return InputError(f"the checkpoint does not fit this run: {reason}", fix=fix)

    def _check_fit(self, state: checkpoint.State, mine: dict[str, Tensor]) -> None:
        """Refuse a state whose step, types or initial weights cannot be those of this training."""
        if state.step > self.total_steps:
            raise InputError(
                f"the checkpoint is after step {state.step}, but the run has "
                f"{self.total_steps} steps"
            )
        for name, value in state.tensors.items():
            if name in mine and mine[name].dtype != value.dtype:
                raise InputError(
                    f"the checkpoint does not fit this model: {name} holds {value.dtype}, expected "
                    f"{mine[name].dtype}"
                )
        theirs, ours = (
            {name: t.shape for name, t in checkpoint.part(tensors, "initial").items()}
            for tensors in (state.tensors, mine)
        )
        if theirs != ours:
            raise InputError(
                "the checkpoint does not fit this model: its initial weights differ in shape"
            )

    def _stage_of(self, state: checkpoint.State) -> int:
        """Return the last stage that was begun, which must be possible at the step, or -1."""
        stage = state.facts.get("stage")
        firsts = [span.first for span in self.spans]
        possible = {sum(first < state.step for first in firsts) - 1}
        possible |= {k for k, first in enumerate(firsts) if first == state.step}
        if isinstance(stage, bool) or not isinstance(stage, int) or stage not in possible:
            raise InputError(
                f"the checkpoint does not fit the stages of this method: it names stage {stage!r}"
            )
        return stage


def train_steps(
    training: Training,
    loader: Batches,
    snapshot: Callable[[nn.Module], Snapshot] | None = None,
    *,
    observers: Sequence[Observer] = (),
    evaluate: Callable[[StepResult], Mapping[str, Any] | None] | None = None,
) -> Iterator[StepResult]:
    """Train from the current step to Γ or to a stop, and yield the result of every step.

    `snapshot` returns what the strategy may read when a stage begins or an epoch ends. `evaluate`
    measures the model after a step and returns a line of the history, or None if none is due.
    """
    assert snapshot is not None or type(training.strategy) is Strategy
    batches = training.batches
    while training.step < training.total_steps:
        epoch, start = divmod(training.step, batches)
        stage = training.begins_stage()
        if stage is not None:
            training.enter(stage, snapshot)
        for batch in loader.batches(epoch, start):
            result = training.learn(batch)
            for observer in observers:
                observer.observe(result)
            line = None if evaluate is None else evaluate(result)
            if line is not None:
                for observer in observers:
                    observer.after_evaluation(line)
            if result.ends_epoch and snapshot is not None:
                of_stage = epoch - training.span.first // batches
                after = snapshot(training.evaluated)
                training.strategy.after_epoch(training.stage, of_stage, after)
            for observer in observers:
                observer.after_step(result)
                if observer.stop_reason is not None:
                    training.wants_stop = True
            yield result
            if result.stop or training.step == training.total_steps:
                return
            del result  # before the next forward pass, which needs the memory


def _heed_signals(weight: Tensor) -> None:
    """Let Python handle signals while gradients are computed: that is one call, and may be long."""


def _pieces(batch: Batch, number: int, share: int) -> list[Batch]:
    """Split a batch into parts of at least two examples, which batch normalisation needs.

    `share` is its size, or the mean over processes, which all have the same number of parts.
    """
    number = min(number, max(1, share // 2))
    if number == 1:
        return [batch]
    parts = (tensor.tensor_split(number) for tensor in batch)
    return [Batch(*part) for part in zip(*parts, strict=True)]


def _seed(device: torch.device, *key: int | str) -> None:
    """Seed the generators of the CPU and a device by a key."""
    seed = generator_for(*key).initial_seed()
    torch.default_generator.manual_seed(seed)  # torch.manual_seed is a hundred times as slow
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def _moving_average(decay: float) -> Callable[..., Any]:
    return cast("Callable[..., Any]", get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
