"""ProSelfLC (Wang et al. 2021), and its low-temperature successor (2022)."""

from dataclasses import dataclass

from proselflc.correction import parameter
from proselflc.correction.parameter import halfway, softmax_temperature, steepness
from proselflc.training import method
from proselflc.training.method import Method, checked


def trust_name(value: str, name: str) -> str:
    """Return the name of a trust; refuse any other."""
    from proselflc.correction.trust import named

    named(value, 0.0, 0.0)
    return value


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of ProSelfLC.

    Attributes:
        sharpness: B of the global trust, how abruptly it rises.
        midpoint: the share of training after which the global trust is 1/2.
        trust: `global*local`, `global`, `local` or `global*max_p`.
    """

    sharpness: float = checked(parameter.SHARPNESS, steepness)
    midpoint: float = checked(parameter.MIDPOINT, halfway)
    trust: str = checked(parameter.TRUST, trust_name)


@dataclass(frozen=True)
class LowTemperatureParameters(method.Parameters):
    """The parameters of low-temperature ProSelfLC.

    Attributes:
        sharpness: B of the global trust, how abruptly it rises.
        midpoint: the share of training after which the global trust is 1/2.
        temperature: T, which the logits of the prediction in the target are divided by.
        trust: `global*max_p`, `global*local`, `global` or `local`.
    """

    sharpness: float = checked(parameter.LOW_TEMPERATURE_SHARPNESS, steepness)
    midpoint: float = checked(parameter.MIDPOINT, halfway)
    temperature: float = checked(parameter.LOW_TEMPERATURE, softmax_temperature)
    trust: str = checked(parameter.LOW_TEMPERATURE_TRUST, trust_name)


SHARPNESS = (8.0, 10.0, 12.0, 14.0, 16.0)  # of Table 5

METHOD = Method(
    title="ProSelfLC",
    loss="(1 − ε) H(q, p) + ε H(p)",
    where="Eq. 7",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="Use it as the first choice: it needs only the labels, costs no time, and was the "
    "most accurate of such methods on photos under the heaviest asymmetric noise.",
    parameters=Parameters,
    grid={"sharpness": SHARPNESS},
    criterion="ProSelfLC",
)
LOW_TEMPERATURE = Method(
    title="Low-temperature ProSelfLC",
    loss="(1 − ε) H(q, p) + ε H(p_T, p)",
    where="successor (2022)",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="Use it as an alternative to ProSelfLC if predictions should become confident "
    "sooner; three seeds show no difference between the two on photos.",
    parameters=LowTemperatureParameters,
    grid={"sharpness": SHARPNESS},
    criterion="LowTemperatureProSelfLC",
)
