"""Teacher-free distillation by self-training (Yuan et al. 2020): Tf-KD_self."""

from __future__ import annotations

import math
from copy import deepcopy

from torch import Tensor, nn

from proselflc.correction.criteria import Distillation
from proselflc.correction.criterion import Criterion
from proselflc.correction.parameter import number
from proselflc.correction.trust import Fixed
from proselflc.data.batches import Batch
from proselflc.methods.distillation import FrozenTeacher
from proselflc.training.strategy import Scene, Stage, Strategy


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
    by cross entropy. The published code keeps the network of the best validation accuracy; here it
    is the last one, or the average of the weights where the recipe keeps one.

    Args:
        first: what the first stage minimises.
        alpha: α, the share of the teacher.
        temperature: τ, of both softmaxes in the KL.
        multiplier: m.
    """

    stages = (Stage("teacher", 0.5), Stage("student", 0.5, fresh=True))

    def __init__(
        self, first: Criterion, *, alpha: float, temperature: float, multiplier: float
    ) -> None:
        super().__init__(first)
        m = number(
            multiplier,
            "multiplier",
            "above 0 and finite",
            "the teacher's part is multiplied by it; a published one is to be divided by the "
            "number of classes",
            fits=lambda x: 0 < x < math.inf,
        )
        alpha = Fixed(alpha).epsilon
        self.scale = 1 - alpha + alpha * m
        self._criteria = first, Distillation(alpha * m / self.scale, temperature)
        self.teacher: FrozenTeacher | None = None

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.criterion = self._criteria[stage]
        if stage > 0:
            self.teacher = FrozenTeacher(deepcopy(model))

    def enter(self, stage: int, scene: Scene) -> None:
        if self.teacher is not None:
            self.teacher.model.load_state_dict(scene.model.state_dict())

    def teacher_logits(self, batch: Batch) -> Tensor | None:
        return None if self.teacher is None else self.teacher(batch)

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self.teacher is not None:
            self.teacher.end_step()

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        loss = super().loss(logits, batch, progress)
        return loss if self.teacher is None else self.scale * loss
