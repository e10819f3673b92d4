"""Methods by name: the strategy that `--method NAME` and `--method.PARAMETER` stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from proselflc.errors import InputError, unknown

if TYPE_CHECKING:
    from proselflc.correction.criterion import Criterion
    from proselflc.training.strategy import Situation, Strategy


@dataclass(frozen=True)
class Parameters:
    """A method's own parameters; what is left out is the method's default.

    Attributes:
        epsilon: ε, how much the reference is trusted, for label_smoothing, confidence_penalty,
            boot_soft and boot_hard.
        sharpness: B of the global trust, for proselflc and proselflc_lt.
        midpoint: when the global trust is 1/2, for proselflc and proselflc_lt.
        trust: "global*local", "global", "local" or "global*max_p", for proselflc and proselflc_lt.
        temperature: T, for proselflc_lt.
        q: for gce.
        alpha: for sl; the weight of the class prior for joint_soft and joint_hard.
        beta: for sl; the weight of the entropy for joint_soft and joint_hard.
        A: log 0, for sl: -4 in the paper, -9.21 in its code.
        transition: a .npy, .npz or .csv file, row = true class, for forward and backward.
    """

    epsilon: float | None = None
    sharpness: float | None = None
    midpoint: float | None = None
    trust: str | None = None
    temperature: float | None = None
    q: float | None = None
    alpha: float | None = None
    beta: float | None = None
    A: Annotated[float | None, Parameter(name=["A", "a"])] = None
    transition: Path | None = None

    def given(self) -> dict[str, Any]:
        """Those that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Trainable:
    """How a name becomes a strategy.

    Attributes:
        defaults: of the parameters it takes; None for one that must be given, and `OPTIONAL` for
            one that need not be.
        make: the strategy from all its parameters that are set.
    """

    defaults: Mapping[str, Any]
    make: Callable[[Mapping[str, Any], Situation], Strategy]


OPTIONAL = object()


def resolved(name: str, parameters: Parameters) -> Parameters:
    """The parameters with the method's defaults filled in.

    Raises:
        InputError: the method is unknown, or does not take or lacks a parameter.
    """
    known = TRAINABLE
    if not isinstance(name, str):
        raise InputError(f"method must be a name such as proselflc, got {type(name).__name__}")
    if name not in known:
        raise InputError(_why_unknown(name))
    defaults = known[name].defaults
    for extra in parameters.given().keys() - defaults.keys():
        takes = ", ".join(f"--method.{key}" for key in defaults) or "no parameters"
        raise InputError(f"method {name} has no --method.{extra}: it takes {takes}")
    filled = {**defaults, **parameters.given()}
    for key, value in filled.items():
        if value is None:
            raise InputError(f"method {name} needs --method.{key}: there is no default for it")
    known_values = {key: value for key, value in filled.items() if value is not OPTIONAL}
    return replace(Parameters(), **known_values)


def strategy(name: str, parameters: Parameters, situation: Situation) -> Strategy:
    """The strategy of a method whose parameters are resolved.

    Raises:
        InputError: a parameter has a value that the method cannot use, or something that it needs
            is not there.
    """
    try:
        return TRAINABLE[name].make(parameters.given(), situation)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"method {name}: {error}") from None


def _why_unknown(name: str) -> str:
    from proselflc.correction.catalogue import METHODS

    if name in METHODS:
        return (
            f"method {name} needs a teacher's logits, which train has not: use "
            f"proselflc.{METHODS[name].criterion} in a loop of your own"
        )
    return unknown("method", name, TRAINABLE)


def _criterion(
    make: Callable[[Mapping[str, Any], Situation], Criterion],
) -> Callable[[Mapping[str, Any], Situation], Strategy]:
    """A method that is a criterion and nothing else."""

    def made(p: Mapping[str, Any], situation: Situation) -> Strategy:
        from proselflc.training.strategy import Strategy

        return Strategy(make(p, situation))

    return made


def _cce(p: Mapping[str, Any], situation: Situation) -> Criterion:
    from proselflc.correction import criteria

    return criteria.CrossEntropy()


def _with_epsilon(name: str) -> Callable[[Mapping[str, Any], Situation], Criterion]:
    def make(p: Mapping[str, Any], situation: Situation) -> Criterion:
        from proselflc.correction import criteria

        made: Criterion = getattr(criteria, name)(p["epsilon"])
        return made

    return make


def _proselflc(p: Mapping[str, Any], situation: Situation) -> Criterion:
    from proselflc.correction import criteria

    return criteria.ProSelfLC(situation.total_steps, p["sharpness"], p["midpoint"], p["trust"])


def _proselflc_lt(p: Mapping[str, Any], situation: Situation) -> Criterion:
    from proselflc.correction import criteria

    return criteria.LowTemperatureProSelfLC(
        situation.total_steps, p["sharpness"], p["midpoint"], p["temperature"], p["trust"]
    )


def _gce(p: Mapping[str, Any], situation: Situation) -> Criterion:
    from proselflc.correction import criteria

    return criteria.GeneralizedCrossEntropy(p["q"])


def _sl(p: Mapping[str, Any], situation: Situation) -> Criterion:
    from proselflc.correction import criteria

    return criteria.SymmetricCrossEntropy(p["alpha"], p["beta"], p["A"])


def _with_transition(name: str) -> Callable[[Mapping[str, Any], Situation], Criterion]:
    def make(p: Mapping[str, Any], situation: Situation) -> Criterion:
        import torch

        from proselflc.correction import criteria
        from proselflc.data.noise import checked_transition
        from proselflc.data.opening import read_transition

        matrix = checked_transition(read_transition(p["transition"]), situation.num_classes)
        made: Criterion = getattr(criteria, name)(torch.from_numpy(matrix).float())
        return made

    return make


def _joint(hard: bool) -> Callable[[Mapping[str, Any], Situation], Strategy]:
    def make(p: Mapping[str, Any], situation: Situation) -> Strategy:
        from proselflc.training.strategies.joint import Joint

        return Joint(situation, hard=hard, prior_weight=p["alpha"], entropy_weight=p["beta"])

    return make


TRAINABLE: dict[str, Trainable] = {
    "cce": Trainable({}, _criterion(_cce)),
    "label_smoothing": Trainable({"epsilon": 0.25}, _criterion(_with_epsilon("LabelSmoothing"))),
    "confidence_penalty": Trainable(
        {"epsilon": 0.25}, _criterion(_with_epsilon("ConfidencePenalty"))
    ),
    "boot_soft": Trainable({"epsilon": 0.25}, _criterion(_with_epsilon("BootSoft"))),
    "boot_hard": Trainable({"epsilon": 0.2}, _criterion(_with_epsilon("BootHard"))),
    "proselflc": Trainable(
        {"sharpness": 10.0, "midpoint": 0.5, "trust": "global*local"}, _criterion(_proselflc)
    ),
    "proselflc_lt": Trainable(
        {"sharpness": 12.0, "midpoint": 0.5, "temperature": 0.5, "trust": "global*max_p"},
        _criterion(_proselflc_lt),
    ),
    "gce": Trainable({"q": 0.7}, _criterion(_gce)),
    "sl": Trainable({"alpha": 6.0, "beta": 0.1, "A": -4.0}, _criterion(_sl)),
    "forward": Trainable({"transition": None}, _criterion(_with_transition("ForwardCorrection"))),
    "backward": Trainable({"transition": None}, _criterion(_with_transition("BackwardCorrection"))),
    "joint_soft": Trainable({"alpha": 1.0, "beta": 0.5}, _joint(hard=False)),
    "joint_hard": Trainable({"alpha": 1.0, "beta": 0.5}, _joint(hard=True)),
}
