"""Knowledge distillation (Hinton et al. 2015): the model of a finished run teaches another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from proselflc.correction import parameter
from proselflc.correction.criteria import Distillation
from proselflc.correction.parameter import share_of_target, softmax_temperature
from proselflc.correction.target import distillation
from proselflc.data.batches import Batch
from proselflc.errors import InputError
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.recipe import Precision
from proselflc.training.saved_model import SavedModel, finished_run
from proselflc.training.strategy import RunContext, Strategy
from proselflc.wording import option

TEACHER = "method.teacher"


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
    temperature: float = checked(parameter.TEMPERATURE, softmax_temperature)


class FrozenTeacher(nn.Module):
    """A model that predicts and never learns; it is called once per batch.

    The precision is that of its forward pass; its weights and logits keep theirs.
    """

    columns: Tensor | None  # [C] its column for each of the student's classes; None if in order

    def __init__(
        self, model: nn.Module, columns: Tensor | None = None, precision: Precision = "no"
    ) -> None:
        super().__init__()
        self.precision = precision
        self.model = model.requires_grad_(False).eval()
        self.register_buffer("columns", columns)
        self._parts: list[tuple[Tensor, Tensor]] = []  # index and logits of the current step
        self._last: tuple[Tensor, Tensor] | None = None  # of the step before

    def train(self, mode: bool = True) -> FrozenTeacher:
        """Stay in evaluation mode, whatever the caller asks for."""
        return self

    def forward(self, batch: Batch) -> Tensor:
        """Return its logits [N, C] in the order of the student's classes, a constant."""
        # A step is computed with gradients and observed again without, for the records. Comparing
        # waits for the device, but the step has just waited for it.
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
        """Keep the logits of the step that ends, and no earlier ones."""
        index, logits = zip(*self._parts, strict=True)
        self._last = torch.cat(index), torch.cat(logits)
        self._parts = []


class KnowledgeDistillation(Strategy):
    """(1 − ε) H(q, p) + ε τ² KL(p_t ‖ p), with the model of a finished run as the teacher.

    The teacher is frozen, in evaluation mode, and gets the student's inputs in the same precision,
    so both must have the same classes and the same preprocessing. `Distillation` computes the loss.
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
    """Return the model of a run as the teacher; refuse one that cannot teach this run."""
    try:
        saved = SavedModel(finished_run(path))
    except InputError as error:
        raise InputError(
            f"{option(TEACHER)} must be a finished run: {error.reason}",
            field=TEACHER,
            fix=error.fix,
        ) from None
    theirs, ours = saved.names, context.names
    if set(theirs) != set(ours):
        missing = [name for name in ours if name not in theirs]
        extra = [name for name in theirs if name not in ours]
        lacks = (
            f"it does not know {missing[0]}" if missing else f"the data does not have {extra[0]}"
        )
        raise InputError(
            f"the teacher {path} has {len(theirs)} classes and the data {len(ours)}, and they "
            f"differ ({lacks})",
            field=TEACHER,
            fix=f"give a run on the same classes as {option(TEACHER)}",
        )
    if saved.preprocessing.identity != context.preprocessing.identity:
        raise InputError(
            f"the teacher {path} preprocesses its inputs differently (other means for scaling, or "
            "another size)",
            field=TEACHER,
            fix=f"train it on the same examples, with the same {option('image_size')}, "
            f"{option('trusted')} and {option('seed')} as this run",
        )
    if not saved.is_ours:
        # The user named the code of this run's own model, and so trusts it.
        if ":" not in context.model or saved.claimed_name != context.model:
            raise InputError(
                f"the model of the teacher {path} is not one of this package "
                f"({saved.claimed_name}), and its code is trusted only if {option('model')} names "
                "the same package.module:factory",
                field=TEACHER,
                fix="use the same model for both runs",
            )
        saved = replace(saved, made_by=context.model)
    columns = None if theirs == ours else torch.tensor([theirs.index(name) for name in ours])
    model = saved.read()
    if not all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values()):
        raise InputError(
            f"the teacher {path} has weights that are not finite",
            field=TEACHER,
            fix="train it again",
        )
    return FrozenTeacher(model, columns, context.precision)


METHOD = Method(
    title="Knowledge distillation",
    loss="(1 − ε) H(q, p) + ε KL(p_t‖p)",
    where="Eq. 6",
    entropy="follows the teacher",
    semantic_class="annotated and taught",
    needs="a finished run as the teacher",
    when="Use it if you already have a better model and can afford a second training. With a "
    "ProSelfLC run as its teacher it is as good as that run.",
    parameters=Parameters,
    grid={"epsilon": (0.125, 0.25, 0.5)},
    strategy=KnowledgeDistillation,
    criterion="Distillation",
    target=lambda p: distillation(p.epsilon, p.temperature),
)
