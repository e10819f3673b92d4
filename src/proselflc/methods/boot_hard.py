"""Boot-hard (Reed et al. 2015): a fixed trust in the predicted class."""

from dataclasses import dataclass

from proselflc.correction.parameter import share_of_target
from proselflc.training import method
from proselflc.training.method import Method, checked


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of Boot-hard.

    Attributes:
        epsilon: ε, how much the predicted class is trusted; the publication has β = 1 − ε = 0.8.
    """

    epsilon: float = checked(0.2, share_of_target)


METHOD = Method(
    title="Boot-hard",
    loss="(1 − ε) H(q, p) − ε log max p",
    where="Section 1",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="Use it to see what a fixed trust in the predicted class does. On photos under "
    "asymmetric noise it was no different from cross entropy.",
    parameters=Parameters,
    grid={"epsilon": (0.125, 0.25, 0.5)},  # Boot-soft's of Table 5
    criterion="BootHard",
)
