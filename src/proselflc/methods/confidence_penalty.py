"""The confidence penalty (Pereyra et al. 2017)."""

from dataclasses import dataclass

from proselflc.correction.parameter import share_of_target
from proselflc.training import method
from proselflc.training.method import Method, checked


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of Confidence penalty.

    Attributes:
        epsilon: ε, how strongly confident predictions are penalised.
    """

    epsilon: float = checked(0.25, share_of_target)


METHOD = Method(
    title="Confidence penalty",
    loss="(1 − ε) H(q, p) − ε H(p)",
    where="Eq. 4",
    entropy="penalises",
    semantic_class="annotated",
    when="Use it for less confident predictions; on digits it resists wrong labels less than "
    "label smoothing does, and on photos it was no different from cross entropy.",
    parameters=Parameters,
    grid={"epsilon": (0.125, 0.25, 0.5)},  # of Table 5
    criterion="ConfidencePenalty",
)
