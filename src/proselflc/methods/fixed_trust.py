"""Methods of a fixed ε: Label smoothing, Confidence penalty, Boot-soft and Boot-hard."""

from dataclasses import dataclass

from proselflc.correction.parameter import share_of_target
from proselflc.training import method
from proselflc.training.method import Method, checked

GRID = {"epsilon": (0.125, 0.25, 0.5)}  # of Table 5, which does not have Boot-hard


@dataclass(frozen=True)
class SmoothingParameters(method.Parameters):
    """The parameters of Label smoothing.

    Attributes:
        epsilon: ε, the share of the target that is spread over all classes alike.
    """

    epsilon: float = checked(0.25, share_of_target)


@dataclass(frozen=True)
class PenaltyParameters(method.Parameters):
    """The parameters of Confidence penalty.

    Attributes:
        epsilon: ε, how strongly confident predictions are penalised.
    """

    epsilon: float = checked(0.25, share_of_target)


@dataclass(frozen=True)
class SoftParameters(method.Parameters):
    """The parameters of Boot-soft.

    Attributes:
        epsilon: ε, how much the prediction is trusted, always the same.
    """

    epsilon: float = checked(0.25, share_of_target)


@dataclass(frozen=True)
class HardParameters(method.Parameters):
    """The parameters of Boot-hard.

    Attributes:
        epsilon: ε, how much the predicted class is trusted; the publication has β = 1 − ε = 0.8.
    """

    epsilon: float = checked(0.2, share_of_target)


SMOOTHING = Method(  # Szegedy et al. 2016
    title="Label smoothing",
    loss="(1 − ε) H(q, p) + ε H(u, p)",
    where="Eq. 3",
    entropy="penalises",
    semantic_class="annotated",
    when="For predictions that are less sure, and under symmetric noise, where it gained on "
    "digits and photos; under asymmetric noise it gained nothing on photos.",
    parameters=SmoothingParameters,
    grid=GRID,
    criterion="LabelSmoothing",
)
PENALTY = Method(  # Pereyra et al. 2017
    title="Confidence penalty",
    loss="(1 − ε) H(q, p) − ε H(p)",
    where="Eq. 4",
    entropy="penalises",
    semantic_class="annotated",
    when="For predictions that are less sure; it resists wrong labels on digits less than label "
    "smoothing does, and on photos it could not be told from cross entropy.",
    parameters=PenaltyParameters,
    grid=GRID,
    criterion="ConfidencePenalty",
)
SOFT = Method(  # Reed et al. 2015
    title="Boot-soft",
    loss="(1 − ε) H(q, p) + ε H(p)",
    where="Eq. 5",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="To see what a fixed trust does; ProSelfLC, which lets trust grow, learns fewer wrong "
    "labels on photos under asymmetric noise; under symmetric noise Boot-soft was as "
    "accurate or better.",
    parameters=SoftParameters,
    grid=GRID,
    criterion="BootSoft",
)
HARD = Method(  # Reed et al. 2015
    title="Boot-hard",
    loss="(1 − ε) H(q, p) − ε log max p",
    where="Section 1",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="To see what a fixed trust in the predicted class does; on photos under asymmetric "
    "noise it could not be told from cross entropy.",
    parameters=HardParameters,
    grid=GRID,
    criterion="BootHard",
)
