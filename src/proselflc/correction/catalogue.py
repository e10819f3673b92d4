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
        temperature,
        "temperature",
        "above 0 and finite",
        what,
        fits=lambda x: x > 0 and x * x < math.inf,  # its square is used too
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
        when: to use it, in a sentence that agrees with docs/results.md and docs/methods.md.
    """

    title: str
    criterion: str
    where: str
    target: Target | None
    loss: str
    entropy: str
    semantic_class: str
    needs: str = "–"
    when: str = ""


METHODS: dict[str, Method] = {
    "cce": Method(
        "Cross entropy", "CrossEntropy", "Eq. 2", cce(), "H(q, p)", "–", "annotated",
        when="As the baseline, to choose model and length of training by, and for an audit, where it does nearly as well as any other.",
    ),
    "label_smoothing": Method(
        "Label smoothing", "LabelSmoothing", "Eq. 3", label_smoothing(0.25),
        "(1 − ε) H(q, p) + ε H(u, p)", "penalises", "annotated",
        when="For predictions that are less sure, and under symmetric noise, where it gained on digits and photos; under asymmetric noise it gained nothing on photos.",
    ),
    "confidence_penalty": Method(
        "Confidence penalty", "ConfidencePenalty", "Eq. 4", confidence_penalty(0.25),
        "(1 − ε) H(q, p) − ε H(p)", "penalises", "annotated",
        when="For predictions that are less sure; it resists wrong labels on digits less than label smoothing does, and on photos nobody can tell it from cross entropy.",
    ),
    "boot_soft": Method(
        "Boot-soft", "BootSoft", "Eq. 5", boot_soft(0.25),
        "(1 − ε) H(q, p) + ε H(p)", "rewards", "annotated and learned",
        when="To see what a fixed trust does; ProSelfLC, which lets trust grow, learns fewer wrong labels on photos under asymmetric noise; under symmetric noise Boot-soft was as accurate or better.",
    ),
    "boot_hard": Method(
        "Boot-hard", "BootHard", "Section 1", boot_hard(0.25),
        "(1 − ε) H(q, p) − ε log max p", "rewards", "annotated and learned",
        when="To see what a fixed trust in the predicted class does; nobody can tell it from cross entropy on photos under asymmetric noise.",
    ),
    "distillation": Method(
        "Knowledge distillation", "Distillation", "Eq. 6", distillation(0.25),
        "(1 − ε) H(q, p) + ε KL(p_t‖p)", "follows the teacher", "annotated and taught",
        needs="a finished run as the teacher",
        when="When you have a better model already and can pay for a second training; taught by ProSelfLC's run it is as good as that.",
    ),
    "tf_kd_self": Method(
        "Tf-KD_self", "Distillation", "Section 1", distillation(0.95, 20.0),
        "(1 − α) H(q, p) + α m τ² KL(p_t‖p)", "follows the teacher", "annotated and taught",
        when="To compare with the paper's Section 1; with two networks in the epochs of one it was behind cross entropy on photos.",
    ),
    "proselflc": Method(
        "ProSelfLC", "ProSelfLC", "Eq. 7", proselflc(),
        "(1 − ε) H(q, p) + ε H(p)", "rewards", "annotated and learned",
        when="First: it needs nothing but the labels, costs no time, and was the most accurate of such methods on photos under the heaviest asymmetric noise.",
    ),
    "proselflc_lt": Method(
        "Low-temperature ProSelfLC", "LowTemperatureProSelfLC", "successor (2022)",
        low_temperature_proselflc(), "(1 − ε) H(q, p) + ε H(p_T, p)", "rewards",
        "annotated and learned",
        when="Beside ProSelfLC, when predictions should become surer sooner; three seeds cannot tell the two apart on photos.",
    ),
    "gce": Method(
        "Generalised cross entropy", "GeneralizedCrossEntropy", "Table 4", None,
        "(1 − p_y^q)/q", "–", "annotated",
        when="When two fifths of the labels or more are wrong, and wrong in any way alike: there it was ahead of cross entropy on photos; elsewhere it gained nothing.",
    ),
    "sl": Method(
        "Symmetric cross entropy", "SymmetricCrossEntropy", "Table 4", None,
        "α H(q, p) + β H(p, q), log 0 := A", "–", "annotated",
        when="To compare with the paper's Table 4; its defaults gained nothing on photos and, under symmetric noise, lost on digits.",
    ),
    "forward": Method(
        "Forward correction", "ForwardCorrection", "Table 4", None,
        "−log (Tᵀp)_y", "–", "annotated",
        when="When you know which class is taken for which, and give the matrix; an estimated one helped on digits and harmed on photos.",
    ),
    "backward": Method(
        "Backward correction", "BackwardCorrection", "beside Forward", None,
        "Σ_j (T⁻¹)_yj (−log p_j)", "–", "annotated",
        when="To compare with forward correction, and for nothing else: its loss has no lower bound, and it was the worst here.",
    ),
    "s_adaptation": Method(
        "S-adaptation", "CrossEntropy", "Table 6", None,
        "H(q, p), then −log (Tᵀp)_y with T learned", "–", "annotated",
        when="To compare with the paper's Table 6; it begins from a network that has learned wrong labels already.",
    ),
    "masking": Method(
        "Masking", "CrossEntropy", "Table 6", None,
        "H(q, p), then −log (Sᵀp)_y with S generated", "–", "annotated",
        needs="a mask, or coarse classes",
        when="When you know which classes can be confused at all; on digits that was worth much, on photos nothing.",
    ),
    "joint_soft": Method(
        "Joint-soft", "CrossEntropy", "Section 1, Table 6", None,
        "H(ỹ, p) + α L_p + β H(p), then H(ỹ, p)", "rewards", "learned",
        when="When a network would learn every wrong label by heart and there are epochs enough for two trainings; 60 were not, on photos.",
    ),
    "joint_hard": Method(
        "Joint-hard", "CrossEntropy", "Section 1", None,
        "H(ỹ, p) + α L_p + β H(p), then H(ỹ, p)", "rewards", "learned",
        when="Like Joint-soft, with hard labels: strong on digits, too short of epochs on photos.",
    ),
    "pseudo_label": Method(
        "Pseudo-Label", "Criterion", "Section 1", None,
        "H(q, p) if trusted, else −α(t) log max p", "rewards", "trusted or learned",
        needs="a trusted part",
        when="When a part of the labels is known to be right and the rest is worth little.",
    ),
    "pseudo_label_ramped": Method(
        "Pseudo-Label, ramped (our adaptation)", "Criterion", "beside Pseudo-Label",
        pseudo_label_ramped(), "(1 − ε(t)) H(q, p) − ε(t) log max p", "rewards",
        "annotated and learned",
        when="When Boot-hard is wanted whose trust rises; close behind ProSelfLC on photos.",
    ),
    "gce_truncated": Method(
        "Truncated generalised cross entropy", "GeneralizedCrossEntropy", "beside GCE", None,
        "(1 − p_y^q)/q where p_y ≥ k", "–", "annotated",
        when="Where generalised cross entropy works and the worst labels should not count at all.",
    ),
    "d2l": Method(
        "D2L", "Criterion", "Table 4", boot_hard(0.25),
        "α H(q, p) − (1 − α) log max p", "rewards", "annotated and learned",
        when="To compare with the paper's Table 4; it acts only where the dimension of the features rises.",
    ),
    "m_dyr_s": Method(
        "M-DYR-S", "CrossEntropy", "beside MD-DYR-SH", None,
        "(1 − B) H(q, p) + B H(p', p) + η R, mixed", "rewards", "annotated and learned",
        when="When noise is heavy, examples can be mixed and right and wrong labels have clearly different losses, as on digits; else it is mixup.",
    ),
    "m_dyr_h": Method(
        "M-DYR-H", "CrossEntropy", "beside MD-DYR-SH", None,
        "(1 − B) H(q, p) − B log p_max' + η R, mixed", "rewards", "annotated and learned",
        when="Like M-DYR-S, with hard predictions: the best on digits with pair noise, behind cross entropy on photos.",
    ),
    "md_dyr_sh": Method(
        "MD-DYR-SH", "CrossEntropy", "Table 6", None,
        "(1 − B) H(q, p) + B H(p'_T, p) + η R, mixed by B", "rewards", "annotated and learned",
        when="Like M-DYR-S, for heavier noise, mixing more of what is believed; behind cross entropy on photos.",
    ),
    "elr": Method(
        "ELR", "CrossEntropy", "later (2020)", None,
        "H(q, p) + λ log(1 − ⟨t, p⟩)", "rewards", "annotated and remembered",
        when="When a network would learn every wrong label by heart: the best on digits under symmetric noise; on photos, with the published λ, it was behind cross entropy.",
    ),
    "sat": Method(
        "Self-adaptive training", "CrossEntropy", "later (2020)", None,
        "Σ w H(t, p)/Σ w", "rewards", "annotated and remembered",
        when="When long training can afford labels that move; here it gained something on digits and nothing on photos.",
    ),
}  # fmt: skip
