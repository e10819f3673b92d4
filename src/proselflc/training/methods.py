"""Methods by name: the strategy that `--method NAME` and `--method.PARAMETER` stand for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from proselflc.errors import InputError, unknown
from proselflc.options import make_plain

if TYPE_CHECKING:
    from proselflc.correction.criterion import Criterion
    from proselflc.methods.dynamic_bootstrapping import Kind
    from proselflc.training.strategy import Situation, Strategy

PATHS = ("transition", "mask", "teacher")  # of what a method is given


@dataclass(frozen=True)
class Parameters:
    """A method's own parameters; what is left out is the method's default.

    Attributes:
        epsilon: ε, how much the reference is trusted, for label_smoothing, confidence_penalty,
            boot_soft, boot_hard and distillation; at the end, for pseudo_label_ramped; α for
            tf_kd_self.
        sharpness: B of the global trust, for proselflc and proselflc_lt.
        midpoint: when the global trust is 1/2, for proselflc and proselflc_lt.
        trust: `global*local`, `global`, `local` or `global*max_p`, for proselflc and proselflc_lt.
        temperature: T, for proselflc_lt; τ, for distillation and tf_kd_self.
        q: for gce and gce_truncated.
        k: the probability below which a label is left out, for gce_truncated.
        alpha: for sl; the weight of the class prior for joint_soft and joint_hard, and of examples
            that are not trusted at the end for pseudo_label; of the mixing weights, for m_dyr_s,
            m_dyr_h and md_dyr_sh.
        beta: for sl; the weight of the entropy for joint_soft and joint_hard.
        A: log 0, for sl: -4 in the paper, -9.21 in its code.
        transition: a .npy, .npz or .csv file, row = true class, for forward and backward; left
            out, it is estimated.
        estimate: of the transition: "percentile", "anchor" or "confident", for forward and
            backward where none is given.
        layer: of noise: "simple", or "complex" which looks at features, for s_adaptation.
        mask: a .npy, .npz or .csv file of 0 and 1, row = true class, which transitions are
            possible, for masking; left out, those within a coarse class.
        teacher: the directory of a finished run, for distillation.
        first: the method of the first stage, for tf_kd_self, which takes that one's parameters too.
        multiplier: m of the teacher's part, for tf_kd_self: a published one divided by the number
            of classes.
        momentum: share of what is remembered of an example that an update keeps, β for elr and α
            for sat.
        weight: λ of the regulariser, for elr; η of the balance of classes, for m_dyr_s, m_dyr_h
            and md_dyr_sh.
        window: how many epochs a dimension is compared with, for d2l.
        begin: share of training at which predictions begin to count, for pseudo_label,
            pseudo_label_ramped, gce_truncated, d2l, m_dyr_s, m_dyr_h, md_dyr_sh and sat.
        end: share of training from which they count fully, for pseudo_label and
            pseudo_label_ramped.
    """

    epsilon: float | None = None
    sharpness: float | None = None
    midpoint: float | None = None
    trust: str | None = None
    temperature: float | None = None
    q: float | None = None
    k: float | None = None
    alpha: float | None = None
    beta: float | None = None
    A: Annotated[float | None, Parameter(name=["A", "a"])] = None
    transition: Path | None = None
    estimate: str | None = None
    layer: str | None = None
    mask: Path | None = None
    teacher: Path | None = None
    first: str | None = None
    multiplier: float | None = None
    momentum: float | None = None
    weight: float | None = None
    window: int | None = None
    begin: float | None = None
    end: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        for name in PATHS:  # from Python, a path is often a string
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | Path):
                raise InputError(f"{name} must be a path, got {type(value).__name__}")
            object.__setattr__(self, name, None if value is None else Path(value))

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
        learns_trusted: whether trusted examples are for learning and not for validation.
    """

    defaults: Mapping[str, Any]
    make: Callable[[Mapping[str, Any], Situation], Strategy]
    learns_trusted: bool = False


OPTIONAL = object()
_DYR = {"alpha": 32.0, "weight": 1.0, "begin": 0.35}


def resolved(name: str, parameters: Parameters) -> Parameters:
    """The parameters with the method's defaults filled in, and paths that hold from anywhere.

    Raises:
        InputError: the method is unknown, or does not take or lacks a parameter.
    """
    known = TRAINABLE
    if not isinstance(name, str):
        raise InputError(f"method must be a name such as proselflc, got {type(name).__name__}")
    if name not in known:
        raise InputError(unknown("method", name, known))
    defaults = known[name].defaults
    for extra in parameters.given().keys() - defaults.keys():
        takes = ", ".join(f"--method.{key}" for key in defaults) or "no parameters"
        raise InputError(f"method {name} has no --method.{extra}: it takes {takes}")
    filled = {**defaults, **parameters.given()}
    for key, value in filled.items():
        if value is None:
            raise InputError(f"method {name} needs --method.{key}{_what(name)}: give it")
    known_values = {key: value for key, value in filled.items() if value is not OPTIONAL}
    # A run is resumed, audited by folds or repeated from any folder.
    absolute = {key: os.path.abspath(known_values[key]) for key in PATHS if key in known_values}
    return replace(Parameters(), **{**known_values, **absolute})


def _what(name: str) -> str:
    """What a method needs, as the catalogue says it."""
    from proselflc.correction.catalogue import METHODS

    return f", {METHODS[name].needs}" if name in METHODS and METHODS[name].needs != "–" else ""


def weighs(name: str) -> bool:
    """Whether a method can take sample weights: those can that are a criterion and no more."""
    known = TRAINABLE.get(name) if isinstance(name, str) else None
    return known is not None and isinstance(known.make, _Plain)


def strategy(name: str, parameters: Parameters, situation: Situation) -> Strategy:
    """The strategy of a method whose parameters are resolved.

    Raises:
        InputError: a parameter has a value that the method cannot use, or something that it needs
            is not there.
    """
    if situation.sample_weight is not None and not weighs(name):
        raise InputError(
            f"method {name} cannot weigh examples: leave the sample weights out, or take one of "
            f"{', '.join(filter(weighs, sorted(TRAINABLE)))}"
        )
    try:
        return TRAINABLE[name].make(parameters.given(), situation)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"method {name}: {error}") from None


@dataclass(frozen=True)
class _Plain:
    """Makes the strategy of a method that is a criterion and nothing else."""

    make: Callable[[Mapping[str, Any], Situation], Criterion]

    def __call__(self, p: Mapping[str, Any], situation: Situation) -> Strategy:
        from proselflc.training.strategy import Strategy

        return Strategy(self.make(p, situation), situation.sample_weight)


def _criterion(make: Callable[[Mapping[str, Any], Situation], Criterion]) -> _Plain:
    """A method that is a criterion and nothing else."""
    return _Plain(make)


def _in(module: str) -> Callable[[Mapping[str, Any], Situation], Strategy]:
    """What `make` of a module in `strategies/` makes, imported when it is wanted."""

    def make(p: Mapping[str, Any], situation: Situation) -> Strategy:
        from importlib import import_module

        made: Strategy = import_module(f"proselflc.methods.{module}").make(p, situation)
        return made

    return make


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


def _loss_correction(backward: bool) -> Callable[[Mapping[str, Any], Situation], Strategy]:
    def make(p: Mapping[str, Any], situation: Situation) -> Strategy:
        import torch

        from proselflc.data.matrix_files import read_transition
        from proselflc.data.noise import checked_transition
        from proselflc.methods.loss_correction import LossCorrection

        T = None
        if "transition" in p:
            matrix = read_transition(p["transition"])
            try:
                T = torch.from_numpy(checked_transition(matrix, situation.num_classes))
            except InputError as error:
                raise InputError(f"{p['transition']}: {error}") from None
        return LossCorrection(situation, backward=backward, transition=T, estimate=p["estimate"])

    return make


def _s_adaptation(p: Mapping[str, Any], situation: Situation) -> Strategy:
    from proselflc.methods.s_adaptation import NoiseLayer

    return NoiseLayer(situation, layer=p["layer"])


def _masking(p: Mapping[str, Any], situation: Situation) -> Strategy:
    import torch

    from proselflc.data.matrix_files import read_mask
    from proselflc.methods.masking import Masking

    mask = None
    if "mask" in p:
        mask = torch.from_numpy(read_mask(p["mask"], situation.num_classes)).bool()
    return Masking(situation, mask=mask)


def _joint(hard: bool) -> Callable[[Mapping[str, Any], Situation], Strategy]:
    def make(p: Mapping[str, Any], situation: Situation) -> Strategy:
        from proselflc.methods.joint import Joint

        return Joint(situation, hard=hard, prior_weight=p["alpha"], entropy_weight=p["beta"])

    return make


def _distillation(p: Mapping[str, Any], situation: Situation) -> Strategy:
    from proselflc.methods.distillation import KnowledgeDistillation

    return KnowledgeDistillation(
        situation, p["teacher"], epsilon=p["epsilon"], temperature=p["temperature"]
    )


def _tf_kd_self(p: Mapping[str, Any], situation: Situation) -> Strategy:
    from proselflc.methods.tf_kd_self import TeacherFreeDistillation

    first = p["first"]
    plain = [name for name, one in TRAINABLE.items() if isinstance(one.make, _Plain)]
    if first not in TRAINABLE:
        raise InputError(f"--method.first: {unknown('method', str(first), plain)}")
    if first not in plain:
        raise InputError(
            f"--method.first cannot be {first}, which is more than a criterion: give one of "
            f"{', '.join(sorted(plain))}"
        )
    own = {"first", "epsilon", "temperature", "multiplier"}
    others = Parameters(**{key: value for key, value in p.items() if key not in own})
    return TeacherFreeDistillation(
        strategy(first, resolved(first, others), situation).criterion,
        alpha=p["epsilon"],
        temperature=p["temperature"],
        multiplier=p["multiplier"],
    )


def _dynamic_bootstrapping(kind: Kind) -> Callable[[Mapping[str, Any], Situation], Strategy]:
    def make(p: Mapping[str, Any], situation: Situation) -> Strategy:
        from proselflc.methods.dynamic_bootstrapping import DynamicBootstrapping

        return DynamicBootstrapping(
            situation, kind, alpha=p["alpha"], weight=p["weight"], begin=p["begin"]
        )

    return make


def _pseudo_label(p: Mapping[str, Any], situation: Situation) -> Strategy:
    from proselflc.methods.pseudo_label import PseudoLabel

    return PseudoLabel(situation, weight=p["alpha"], begin=p["begin"], end=p["end"])


def _pseudo_label_ramped(p: Mapping[str, Any], situation: Situation) -> Criterion:
    from proselflc.correction import catalogue
    from proselflc.correction.criterion import Criterion

    target = catalogue.pseudo_label_ramped(p["epsilon"], p["begin"], p["end"])
    return Criterion(target, total_steps=situation.total_steps)


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
    "forward": Trainable(
        {"transition": OPTIONAL, "estimate": "percentile"}, _loss_correction(backward=False)
    ),
    "backward": Trainable(
        {"transition": OPTIONAL, "estimate": "percentile"}, _loss_correction(backward=True)
    ),
    "s_adaptation": Trainable({"layer": "simple"}, _s_adaptation),
    "masking": Trainable({"mask": OPTIONAL}, _masking),
    "distillation": Trainable({"teacher": None, "epsilon": 0.5, "temperature": 1.0}, _distillation),
    "tf_kd_self": Trainable(
        {
            **{"first": "cce", "epsilon": 0.95, "temperature": 20.0, "multiplier": 1.0},
            **dict.fromkeys(
                ("sharpness", "midpoint", "trust", "q", "alpha", "beta", "A", "begin", "end"),
                OPTIONAL,
            ),
        },
        _tf_kd_self,
    ),
    "joint_soft": Trainable({"alpha": 1.0, "beta": 0.5}, _joint(hard=False)),
    "joint_hard": Trainable({"alpha": 1.0, "beta": 0.5}, _joint(hard=True)),
    "pseudo_label": Trainable(
        {"alpha": 3.0, "begin": 0.1, "end": 0.6}, _pseudo_label, learns_trusted=True
    ),
    "pseudo_label_ramped": Trainable(
        {"epsilon": 0.75, "begin": 0.1, "end": 0.6}, _criterion(_pseudo_label_ramped)
    ),
    "gce_truncated": Trainable({"q": 0.7, "k": 0.5, "begin": 0.5}, _in("gce")),
    "d2l": Trainable({"begin": 0.3, "window": 5}, _in("d2l")),
    "m_dyr_s": Trainable(_DYR, _dynamic_bootstrapping("soft")),
    "m_dyr_h": Trainable(_DYR, _dynamic_bootstrapping("hard")),
    "md_dyr_sh": Trainable(_DYR, _dynamic_bootstrapping("dynamic")),
    "elr": Trainable({"momentum": 0.7, "weight": 3.0}, _in("elr")),
    "sat": Trainable({"momentum": 0.9, "begin": 0.3}, _in("sat")),
}
