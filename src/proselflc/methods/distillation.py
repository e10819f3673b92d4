"""Knowledge distillation (Hinton et al. 2015): the model of a finished run teaches another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from proselflc.correction import catalogue, defaults
from proselflc.correction.criteria import Distillation
from proselflc.correction.parameter import share_of_target, softmax_temperature
from proselflc.data.batches import Batch
from proselflc.errors import InputError
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.recipe import Precision
from proselflc.training.saved_model import SavedModel, finished_run
from proselflc.training.strategy import RunContext, Strategy


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of knowledge distillation.

    Attributes:
        teacher: the directory of a finished run.
        epsilon: ε, how much the teacher is trusted.
        temperature: τ, of both softmaxes in the KL.
    """

    teacher: Path
    epsilon: float = checked(0.5, share_of_target)
    temperature: float = checked(defaults.TEMPERATURE, softmax_temperature)


class FrozenTeacher(nn.Module):
    """A model that answers and never learns; a batch is asked about once.

    Args:
        model: maps a batch's x to logits [N, C]; it is frozen.
        columns: [C] where each of the student's classes stands in its answers; None if they stand
            in the same order.
        precision: that it answers in; its weights and its logits stay as they are.
    """

    columns: Tensor | None

    def __init__(
        self, model: nn.Module, columns: Tensor | None = None, precision: Precision = "no"
    ) -> None:
        super().__init__()
        self.precision = precision
        self.model = model.requires_grad_(False).eval()
        self.register_buffer("columns", columns)
        self._parts: list[tuple[Tensor, Tensor]] = []  # of the step under way: index, logits
        self._last: tuple[Tensor, Tensor] | None = None  # of the step before

    def train(self, mode: bool = True) -> FrozenTeacher:
        """Stay as it is: a teacher is in evaluation mode whoever calls."""
        return self

    def forward(self, batch: Batch) -> Tensor:
        """[N, C] its logits, in the order of the student's classes, a constant."""
        # A step learns with gradients and is looked at again without, for the records. Comparing
        # waits for the device, which has just been waited for then.
        if self._last is not None and not torch.is_grad_enabled():
            index, logits = self._last
            if torch.equal(index, batch.index):
                return logits
        with torch.no_grad():
            logits = self._answer(batch.x)
        if self.columns is not None:
            logits = logits[:, self.columns]
        if torch.is_grad_enabled():
            self._parts.append((batch.index, logits))
        return logits

    def _answer(self, x: Tensor) -> Tensor:
        if self.precision == "no":
            return cast("Tensor", self.model(x))
        half = torch.bfloat16 if self.precision == "bf16" else torch.float16
        with torch.autocast(x.device.type, half):
            return cast("Tensor", self.model(x)).float()

    def end_step(self) -> None:
        """Keep what was said in a step, and nothing that was said before."""
        index, logits = zip(*self._parts, strict=True)
        self._last = torch.cat(index), torch.cat(logits)
        self._parts = []


class KnowledgeDistillation(Strategy):
    """(1 − ε) H(q, p) + ε τ² KL(p_t ‖ p), with the model of a finished run as the teacher.

    The teacher is frozen, in evaluation mode, and sees what the student sees, in the same
    precision, so both must have the same classes and the same preprocessing. `Distillation` has the
    formula.

    Args:
        context: of the run.
        teacher: the directory of the finished run.
        epsilon: ε, the share of the teacher.
        temperature: τ, of both softmaxes in the KL.

    Raises:
        InputError: there is no such run, it is not finished, or its model cannot teach this one.
    """

    def __init__(
        self, context: RunContext, teacher: Path, *, epsilon: float, temperature: float
    ) -> None:
        super().__init__(Distillation(epsilon, temperature))
        self.teacher = _teacher(teacher, context)

    def teacher_logits(self, batch: Batch) -> Tensor | None:
        logits: Tensor = self.teacher(batch)
        return logits

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        self.teacher.end_step()


def _teacher(path: Path, context: RunContext) -> FrozenTeacher:
    """The teacher in a run, if it suits."""
    try:
        saved = SavedModel(finished_run(path))
    except InputError as error:
        raise InputError(f"--method.teacher must be a finished run: {error}") from None
    theirs, ours = saved.names, context.names
    if set(theirs) != set(ours):
        raise InputError(_why_other_classes(path, theirs, ours))
    if saved.preprocessing.to_json() != context.preprocessing.to_json():
        raise InputError(
            f"the teacher {path} sees its inputs prepared in another way (scaled by other means, "
            "or in another size): train it on the same examples, with the same --image-size, "
            "--trusted and --seed as this run"
        )
    if not saved.is_ours:
        # The user has named the code of this run's own model, and so believes it.
        if ":" not in context.model or saved.claimed_name != context.model:
            raise InputError(
                f"the model of the teacher {path} is not one of ours ({saved.claimed_name}): such "
                "a run can teach only where --model names the same package.module:factory"
            )
        saved = replace(saved, made_by=context.model)
    columns = None if theirs == ours else torch.tensor([theirs.index(name) for name in ours])
    model = saved.read()
    if not all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values()):
        raise InputError(f"the weights of the teacher {path} are not finite numbers: train it anew")
    return FrozenTeacher(model, columns, context.precision)


def _why_other_classes(path: Path, theirs: tuple[str, ...], ours: tuple[str, ...]) -> str:
    unknown = [name for name in ours if name not in theirs]
    extra = [name for name in theirs if name not in ours]
    difference = (
        f"it does not know {unknown[0]}" if unknown else f"it knows {extra[0]}, which is none here"
    )
    return (
        f"the teacher {path} has {len(theirs)} classes and the data {len(ours)}, and they are not "
        f"the same ({difference}): give a run on the same classes as --method.teacher"
    )


METHOD = Method(
    title="Knowledge distillation",
    loss="(1 − ε) H(q, p) + ε KL(p_t‖p)",
    where="Eq. 6",
    entropy="follows the teacher",
    semantic_class="annotated and taught",
    needs="a finished run as the teacher",
    when="When you have a better model already and can pay for a second training; taught by "
    "ProSelfLC's run it is as good as that.",
    parameters=Parameters,
    grid={"epsilon": (0.125, 0.25, 0.5)},
    strategy=lambda p, context: KnowledgeDistillation(
        context, p.teacher, epsilon=p.epsilon, temperature=p.temperature
    ),
    based_on="Distillation",
    target=lambda: catalogue.distillation(Parameters.epsilon, Parameters.temperature),
)
