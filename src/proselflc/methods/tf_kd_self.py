"""Teacher-free distillation by self-training (Yuan et al. 2020): Tf-KD_self."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from proselflc import methods
from proselflc.correction.criteria import Distillation
from proselflc.correction.criterion import Criterion
from proselflc.correction.parameter import positive, share_of_target, softmax_temperature
from proselflc.correction.target import distillation
from proselflc.data.batches import Batch
from proselflc.errors import InputError, invalid_option, unknown
from proselflc.methods.distillation import FrozenTeacher
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import RunContext, Snapshot, Stage, Strategy
from proselflc.wording import option

FIRST = "method.first"
MULTIPLIER = (
    "the teacher's part is multiplied by it; divide a published one by the number of classes"
)


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of Tf-KD_self, and of the method of its first stage.

    Attributes:
        first: the method of the first stage, one that is a criterion and nothing else.
        epsilon: α, the share of the teacher in the second stage.
        temperature: τ, of both softmaxes in the KL.
        multiplier: m of the teacher's part: a published one divided by the number of classes.
        sharpness: the parameter of the first method, if it has one.
        midpoint: the parameter of the first method, if it has one.
        trust: the parameter of the first method, if it has one.
        q: the parameter of the first method, if it has one.
        alpha: the parameter of the first method, if it has one.
        beta: the parameter of the first method, if it has one.
        A: the parameter of the first method, if it has one.
        begin: the parameter of the first method, if it has one.
        end: the parameter of the first method, if it has one.
    """

    first: str = "cce"
    epsilon: float = checked(0.95, share_of_target)
    temperature: float = checked(20.0, softmax_temperature)
    multiplier: float = checked(1.0, positive(MULTIPLIER))
    sharpness: float | None = None
    midpoint: float | None = None
    trust: str | None = None
    q: float | None = None
    alpha: float | None = None
    beta: float | None = None
    A: float | None = None
    begin: float | None = None
    end: float | None = None


class TeacherFreeDistillation(Strategy):
    """A network learns by any criterion, then teaches a fresh one like itself.

    The second stage minimises

        (1 − α) H(q, p) + α m τ² KL(softmax(z_t/τ) ‖ softmax(z/τ))

    with the network of the first stage, as it was at its end, frozen as the teacher. The KL is
    summed over classes and averaged over the batch. The published code also averages it over the C
    classes, so its multiplier is C times this m: 1, 50 and 100 for CIFAR-100 are m = 0.01, 0.5 and
    1 here. The loss is s = 1 − α + α m times that of `Distillation` with ε = α m/s, and this ε is
    the trust that is recorded.

    Each stage is half of the epochs, so that the whole costs about as much as one network trained
    by cross entropy. The published code keeps the network of the best validation accuracy; here the
    teacher is the last network, or the average of its weights if the recipe keeps one.
    """

    stages = (Stage("teacher", 0.5), Stage("student", 0.5, fresh=True))

    def __init__(
        self, first: Criterion, *, alpha: float, temperature: float, multiplier: float
    ) -> None:
        super().__init__(first)
        self.scale = 1 - alpha + alpha * multiplier
        self._criteria = first, Distillation(alpha * multiplier / self.scale, temperature)
        self.teacher: FrozenTeacher | None = None

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.criterion = self._criteria[stage]
        if stage > 0:
            self.teacher = FrozenTeacher(deepcopy(model))

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        if self.teacher is not None:
            self.teacher.model.load_state_dict(snapshot.model.state_dict())

    def teacher_logits(self, batch: Batch) -> Tensor | None:
        return None if self.teacher is None else self.teacher(batch)

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self.teacher is not None:
            self.teacher.end_step()

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        loss = super().loss(logits, batch, progress)
        return loss if self.teacher is None else self.scale * loss


def _strategy(
    context: RunContext,
    *,
    first: str,
    epsilon: float,
    temperature: float,
    multiplier: float,
    **of_first: Any,
) -> Strategy:
    possible = list(filter(methods.weighs, methods.names()))
    if first not in methods.names():
        reason = f"{option(FIRST)}: {unknown('method', str(first), possible)}"
        raise InputError(reason, field=FIRST)
    if first not in possible:
        raise invalid_option(
            FIRST,
            f"cannot be {first}, which is more than a criterion",
            fix=f"give one of {', '.join(possible)}",
        )
    of_teacher = methods.find(first)
    return TeacherFreeDistillation(
        of_teacher.make(of_teacher.resolved(of_first), context).criterion,
        alpha=epsilon,
        temperature=temperature,
        multiplier=multiplier,
    )


METHOD = Method(
    title="Tf-KD_self",
    loss="(1 − α) H(q, p) + α m τ² KL(p_t‖p)",
    where="Section 1",
    entropy="follows the teacher",
    semantic_class="annotated and taught",
    when="Use it to compare with the paper's Section 1. With two networks in the epochs of "
    "one it was behind cross entropy on photos.",
    parameters=Parameters,
    grid={"epsilon": (0.5, 0.9, 0.95)},
    strategy=_strategy,
    criterion="Distillation",
    target=lambda p: distillation(p.epsilon, p.temperature),
)
