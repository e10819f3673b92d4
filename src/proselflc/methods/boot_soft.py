"""Boot-soft (Reed et al. 2015): a fixed trust in the prediction."""

from dataclasses import dataclass

from proselflc.correction.parameter import share_of_target
from proselflc.training import method
from proselflc.training.method import Method, checked


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of Boot-soft.

    Attributes:
        epsilon: ε, how much the prediction is trusted, always the same.
    """

    epsilon: float = checked(0.25, share_of_target)


METHOD = Method(
    title="Boot-soft",
    loss="(1 − ε) H(q, p) + ε H(p)",
    where="Eq. 5",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="Use it to see what a fixed trust does. ProSelfLC, which lets trust grow, learns "
    "fewer wrong labels on photos under asymmetric noise; under symmetric noise Boot- "
    "soft was as accurate or better.",
    parameters=Parameters,
    grid={"epsilon": (0.125, 0.25, 0.5)},  # of Table 5
    criterion="BootSoft",
)
