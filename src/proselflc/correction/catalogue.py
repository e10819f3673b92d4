"""The methods of the family, one line each, and what there is to say about every method."""

import math
from dataclasses import dataclass

from proselflc.correction.parameter import number
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
    return Target(Teacher(_checked(temperature)), Fixed(epsilon))


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
    temperature = _checked(temperature)
    return Target(
        SharpenedPrediction(temperature),
        Sharpened(named(trust, sharpness, midpoint), temperature),
    )


def _checked(temperature: float) -> float:
    what = "logits are divided by it"
    return number(
        temperature, "temperature", "above 0 and finite", what, fits=lambda x: 0 < x < math.inf
    )


@dataclass(frozen=True)
class Method:
    """One line about a method.

    Attributes:
        title: its name in the literature.
        criterion: the class in `proselflc`.
        where: where the paper has it.
        target: the target it teaches; None for a loss outside the algebra.
        loss: the loss, in the paper's letters.
        entropy: what it does to low-entropy predictions beside cross entropy.
        semantic_class: where the class of its target can come from.
        needs: what the user has to give beside the data, in a few words.
    """

    title: str
    criterion: str
    where: str
    target: Target | None
    loss: str
    entropy: str
    semantic_class: str
    needs: str = "–"


METHODS: dict[str, Method] = {
    "cce": Method(
        "Cross entropy", "CrossEntropy", "Eq. 2", cce(), "H(q, p)", "–", "annotated",
    ),
    "label_smoothing": Method(
        "Label smoothing", "LabelSmoothing", "Eq. 3", label_smoothing(0.25),
        "(1 − ε) H(q, p) + ε H(u, p)", "penalises", "annotated",
    ),
    "confidence_penalty": Method(
        "Confidence penalty", "ConfidencePenalty", "Eq. 4", confidence_penalty(0.25),
        "(1 − ε) H(q, p) − ε H(p)", "penalises", "annotated",
    ),
    "boot_soft": Method(
        "Boot-soft", "BootSoft", "Eq. 5", boot_soft(0.25),
        "(1 − ε) H(q, p) + ε H(p)", "rewards", "annotated and learned",
    ),
    "boot_hard": Method(
        "Boot-hard", "BootHard", "Section 1", boot_hard(0.25),
        "(1 − ε) H(q, p) − ε log max p", "rewards", "annotated and learned",
    ),
    "distillation": Method(
        "Knowledge distillation", "Distillation", "Eq. 6", distillation(0.25),
        "(1 − ε) H(q, p) + ε KL(p_t‖p)", "follows the teacher", "annotated and taught",
        needs="a finished run as the teacher",
    ),
    "tf_kd_self": Method(
        "Tf-KD_self", "Distillation", "Section 1", distillation(0.95, 20.0),
        "(1 − α) H(q, p) + α m τ² KL(p_t‖p)", "follows the teacher", "annotated and taught",
    ),
    "proselflc": Method(
        "ProSelfLC", "ProSelfLC", "Eq. 7", proselflc(),
        "(1 − ε) H(q, p) + ε H(p)", "rewards", "annotated and learned",
    ),
    "proselflc_lt": Method(
        "Low-temperature ProSelfLC", "LowTemperatureProSelfLC", "successor (2022)",
        low_temperature_proselflc(), "(1 − ε) H(q, p) + ε H(p_T, p)", "rewards",
        "annotated and learned",
    ),
    "gce": Method(
        "Generalised cross entropy", "GeneralizedCrossEntropy", "Table 4", None,
        "(1 − p_y^q)/q", "–", "annotated",
    ),
    "sl": Method(
        "Symmetric cross entropy", "SymmetricCrossEntropy", "Table 4", None,
        "α H(q, p) + β H(p, q), log 0 := A", "–", "annotated",
    ),
    "forward": Method(
        "Forward correction", "ForwardCorrection", "Table 4", None,
        "−log (Tᵀp)_y", "–", "annotated",
    ),
    "backward": Method(
        "Backward correction", "BackwardCorrection", "beside Forward", None,
        "Σ_j (T⁻¹)_yj (−log p_j)", "–", "annotated",
    ),
    "s_adaptation": Method(
        "S-adaptation", "CrossEntropy", "Table 6", None,
        "H(q, p), then −log (Tᵀp)_y with T learned", "–", "annotated",
    ),
    "masking": Method(
        "Masking", "CrossEntropy", "Table 6", None,
        "H(q, p), then −log (Sᵀp)_y with S generated", "–", "annotated",
        needs="a mask, or coarse classes",
    ),
    "joint_soft": Method(
        "Joint-soft", "CrossEntropy", "Section 1, Table 6", None,
        "H(ỹ, p) + α L_p + β H(p), then H(ỹ, p)", "rewards", "learned",
    ),
    "joint_hard": Method(
        "Joint-hard", "CrossEntropy", "Section 1", None,
        "H(ỹ, p) + α L_p + β H(p), then H(ỹ, p)", "rewards", "learned",
    ),
    "pseudo_label": Method(
        "Pseudo-Label", "Criterion", "Section 1", None,
        "H(q, p) if trusted, else −α(t) log max p", "rewards", "trusted or learned",
        needs="a trusted part",
    ),
    "pseudo_label_ramped": Method(
        "Pseudo-Label, ramped (our adaptation)", "Criterion", "beside Pseudo-Label",
        pseudo_label_ramped(), "(1 − ε(t)) H(q, p) − ε(t) log max p", "rewards",
        "annotated and learned",
    ),
    "gce_truncated": Method(
        "Truncated generalised cross entropy", "GeneralizedCrossEntropy", "beside GCE", None,
        "(1 − p_y^q)/q where p_y ≥ k", "–", "annotated",
    ),
    "d2l": Method(
        "D2L", "Criterion", "Table 4", boot_hard(0.25),
        "α H(q, p) − (1 − α) log max p", "rewards", "annotated and learned",
    ),
    "m_dyr_s": Method(
        "M-DYR-S", "CrossEntropy", "beside MD-DYR-SH", None,
        "(1 − B) H(q, p) + B H(p', p) + η R, mixed", "rewards", "annotated and learned",
    ),
    "m_dyr_h": Method(
        "M-DYR-H", "CrossEntropy", "beside MD-DYR-SH", None,
        "(1 − B) H(q, p) − B log p_max' + η R, mixed", "rewards", "annotated and learned",
    ),
    "md_dyr_sh": Method(
        "MD-DYR-SH", "CrossEntropy", "Table 6", None,
        "(1 − B) H(q, p) + B H(p'_T, p) + η R, mixed by B", "rewards", "annotated and learned",
    ),
    "elr": Method(
        "ELR", "CrossEntropy", "later (2020)", None,
        "H(q, p) + λ log(1 − ⟨t, p⟩)", "rewards", "annotated and remembered",
    ),
    "sat": Method(
        "Self-adaptive training", "CrossEntropy", "later (2020)", None,
        "Σ w H(t, p)/Σ w", "rewards", "annotated and remembered",
    ),
}  # fmt: skip
