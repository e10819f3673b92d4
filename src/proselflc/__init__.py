"""Learn from wrongly labelled data: ProSelfLC and every method it is compared with.

Public names are loaded on first use, so that `import proselflc` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from proselflc import functional
    from proselflc.analysis.export import corrected_labels, find_label_issues
    from proselflc.analysis.run import load_run
    from proselflc.app.auditing import audit
    from proselflc.app.fit import fit, predict
    from proselflc.app.recording import record
    from proselflc.app.reporting import report
    from proselflc.correction.criteria import (
        BackwardCorrection,
        BootHard,
        BootSoft,
        ConfidencePenalty,
        CrossEntropy,
        Distillation,
        ForwardCorrection,
        GeneralizedCrossEntropy,
        LabelSmoothing,
        LowTemperatureProSelfLC,
        ProSelfLC,
        SymmetricCrossEntropy,
    )
    from proselflc.correction.criterion import Criterion
    from proselflc.correction.memory import Memory
    from proselflc.correction.target import Correction, Target
    from proselflc.correction.trust import Confidence, Fixed, Growth, MaxProbability
    from proselflc.integrations.sklearn import ProSelfLCClassifier

_HOME = {
    "BackwardCorrection": "correction.criteria",
    "BootHard": "correction.criteria",
    "BootSoft": "correction.criteria",
    "Confidence": "correction.trust",
    "ConfidencePenalty": "correction.criteria",
    "Correction": "correction.target",
    "Criterion": "correction.criterion",
    "CrossEntropy": "correction.criteria",
    "Distillation": "correction.criteria",
    "Fixed": "correction.trust",
    "ForwardCorrection": "correction.criteria",
    "GeneralizedCrossEntropy": "correction.criteria",
    "Growth": "correction.trust",
    "LabelSmoothing": "correction.criteria",
    "LowTemperatureProSelfLC": "correction.criteria",
    "MaxProbability": "correction.trust",
    "Memory": "correction.memory",
    "ProSelfLC": "correction.criteria",
    "ProSelfLCClassifier": "integrations.sklearn",
    "SymmetricCrossEntropy": "correction.criteria",
    "Target": "correction.target",
    "audit": "app.auditing",
    "corrected_labels": "analysis.export",
    "find_label_issues": "analysis.export",
    "fit": "app.fit",
    "load_run": "analysis.run",
    "predict": "app.fit",
    "record": "app.recording",
    "report": "app.reporting",
}

__all__ = [
    "BackwardCorrection",
    "BootHard",
    "BootSoft",
    "Confidence",
    "ConfidencePenalty",
    "Correction",
    "Criterion",
    "CrossEntropy",
    "Distillation",
    "Fixed",
    "ForwardCorrection",
    "GeneralizedCrossEntropy",
    "Growth",
    "LabelSmoothing",
    "LowTemperatureProSelfLC",
    "MaxProbability",
    "Memory",
    "ProSelfLC",
    "ProSelfLCClassifier",
    "SymmetricCrossEntropy",
    "Target",
    "audit",
    "corrected_labels",
    "find_label_issues",
    "fit",
    "functional",
    "load_run",
    "predict",
    "record",
    "report",
]


def __getattr__(name: str) -> object:
    if name == "functional":
        return import_module("proselflc.functional")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"proselflc.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
