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


def distillation(epsilon: float, temperature: float = parameter.TEMPERATURE) -> Target:
    return Target(
        Teacher(parameter.softmax_temperature(temperature, "temperature")), Fixed(epsilon)
    )


def pseudo_label_ramped(epsilon: float, begin: float, end: float) -> Target:
    return Target(HardPrediction(), Ramp(epsilon, begin, end))


def proselflc(
    sharpness: float = parameter.SHARPNESS,
    midpoint: float = parameter.MIDPOINT,
    trust: str | Trust = parameter.TRUST,
) -> Target:
    return Target(Prediction(), named(trust, sharpness, midpoint))


def low_temperature_proselflc(
    sharpness: float = parameter.LOW_TEMPERATURE_SHARPNESS,
    midpoint: float = parameter.MIDPOINT,
    temperature: float = parameter.LOW_TEMPERATURE,
    trust: str | Trust = parameter.LOW_TEMPERATURE_TRUST,
) -> Target:
    temperature = parameter.softmax_temperature(temperature, "temperature")
    return Target(
        SharpenedPrediction(temperature),
        Sharpened(named(trust, sharpness, midpoint), temperature),
    )
