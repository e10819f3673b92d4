"""The methods of the family, one line each: a target is a reference and a trust."""

from proselflc.correction import parameter
from proselflc.correction.reference import (
    HardPrediction,
    Prediction,
    SharpenedPrediction,
    Teacher,
    Uniform,
)
from proselflc.correction.target import Target
from proselflc.correction.trust import Fixed, Ramp, Sharpened, Trust, named


def cce() -> Target:
    return Target()


def label_smoothing(epsilon: float) -> Target:
    return Target(Uniform(), Fixed(epsilon))


def confidence_penalty(epsilon: float) -> Target:
    return Target(Prediction(), Fixed(epsilon), sign=-1)


def boot_soft(epsilon: float) -> Target:
    return Target(Prediction(), Fixed(epsilon))


def boot_hard(epsilon: float) -> Target:
    return Target(HardPrediction(), Fixed(epsilon))


def distillation(epsilon: float, temperature: float = 1.0) -> Target:
    return Target(
        Teacher(parameter.softmax_temperature(temperature, "temperature")), Fixed(epsilon)
    )


def pseudo_label_ramped(epsilon: float = 0.75, begin: float = 0.1, end: float = 0.6) -> Target:
    return Target(HardPrediction(), Ramp(epsilon, begin, end))


def proselflc(
    sharpness: float = 10.0, midpoint: float = 0.5, trust: str | Trust = "global*local"
) -> Target:
    return Target(Prediction(), named(trust, sharpness, midpoint))


def low_temperature_proselflc(
    sharpness: float = 12.0,
    midpoint: float = 0.5,
    temperature: float = 0.5,
    trust: str | Trust = "global*max_p",
) -> Target:
    temperature = parameter.softmax_temperature(temperature, "temperature")
    return Target(
        SharpenedPrediction(temperature),
        Sharpened(named(trust, sharpness, midpoint), temperature),
    )
