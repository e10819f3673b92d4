"""Cross entropy, which all other methods are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proselflc.training.method import Method, Parameters

if TYPE_CHECKING:
    from proselflc.correction.criterion import Criterion


def criterion(p: Parameters, total_steps: int) -> Criterion:
    from proselflc.correction.criteria import CrossEntropy

    return CrossEntropy()


METHOD = Method(
    title="Cross entropy",
    loss="H(q, p)",
    where="Eq. 2",
    when="As the baseline, to choose the model and the length of training by, and for an audit, "
    "where it does nearly as well as any other.",
    parameters=Parameters,
    criterion=criterion,
)
