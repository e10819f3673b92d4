"""Learn from wrongly labelled data: ProSelfLC and every method it is compared with.

Public names are loaded on first use, so that `import proselflc` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from proselflc import functional
    from proselflc.analysis.audit import Audit
    from proselflc.analysis.export import corrected_labels, find_label_issues
    from proselflc.analysis.run import Predictions, Run, load_run
    from proselflc.app.auditing import audit
    from proselflc.app.display import Display
    from proselflc.app.fit import fit, predict
    from proselflc.app.recording import Recording, record
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
    from proselflc.correction.evidence import Evidence
    from proselflc.correction.memory import Memory
    from proselflc.correction.method import Method
    from proselflc.correction.reference import (
        HardPrediction,
        Prediction,
        Reference,
        RememberedPrediction,
        SharpenedPrediction,
        Teacher,
        Uniform,
    )
    from proselflc.correction.target import Correction, Target
    from proselflc.correction.trust import (
        Confidence,
        Fixed,
        Growth,
        MaxProbability,
        Product,
        Ramp,
        Sharpened,
        Trust,
    )
    from proselflc.data.dataset import Dataset, Features, ImageFiles, Images, Part, Skipped, Texts
    from proselflc.data.image_scaling import ImageScaling
    from proselflc.data.label_values import LabelValues
    from proselflc.data.standardization import Standardization
    from proselflc.data.text_hashing import TextHashing
    from proselflc.errors import InputError
    from proselflc.integrations.sklearn import ProSelfLCClassifier
    from proselflc.training.fit import DivergenceError

_HOME = {
    "Audit": "analysis.audit",
    "BackwardCorrection": "correction.criteria",
    "BootHard": "correction.criteria",
    "BootSoft": "correction.criteria",
    "Confidence": "correction.trust",
    "ConfidencePenalty": "correction.criteria",
    "Correction": "correction.target",
    "Criterion": "correction.criterion",
    "CrossEntropy": "correction.criteria",
    "Dataset": "data.dataset",
    "Display": "app.display",
    "Distillation": "correction.criteria",
    "DivergenceError": "training.fit",
    "Evidence": "correction.evidence",
    "Features": "data.dataset",
    "Fixed": "correction.trust",
    "ForwardCorrection": "correction.criteria",
    "GeneralizedCrossEntropy": "correction.criteria",
    "Growth": "correction.trust",
    "HardPrediction": "correction.reference",
    "ImageFiles": "data.dataset",
    "ImageScaling": "data.image_scaling",
    "Images": "data.dataset",
    "InputError": "errors",
    "LabelSmoothing": "correction.criteria",
    "LabelValues": "data.label_values",
    "LowTemperatureProSelfLC": "correction.criteria",
    "MaxProbability": "correction.trust",
    "Memory": "correction.memory",
    "Method": "correction.method",
    "Part": "data.dataset",
    "Prediction": "correction.reference",
    "Predictions": "analysis.run",
    "ProSelfLC": "correction.criteria",
    "ProSelfLCClassifier": "integrations.sklearn",
    "Product": "correction.trust",
    "Ramp": "correction.trust",
    "Recording": "app.recording",
    "Reference": "correction.reference",
    "RememberedPrediction": "correction.reference",
    "Run": "analysis.run",
    "Sharpened": "correction.trust",
    "SharpenedPrediction": "correction.reference",
    "Skipped": "data.dataset",
    "Standardization": "data.standardization",
    "SymmetricCrossEntropy": "correction.criteria",
    "Target": "correction.target",
    "Teacher": "correction.reference",
    "TextHashing": "data.text_hashing",
    "Texts": "data.dataset",
    "Trust": "correction.trust",
    "Uniform": "correction.reference",
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
    "Audit",
    "BackwardCorrection",
    "BootHard",
    "BootSoft",
    "Confidence",
    "ConfidencePenalty",
    "Correction",
    "Criterion",
    "CrossEntropy",
    "Dataset",
    "Display",
    "Distillation",
    "DivergenceError",
    "Evidence",
    "Features",
    "Fixed",
    "ForwardCorrection",
    "GeneralizedCrossEntropy",
    "Growth",
    "HardPrediction",
    "ImageFiles",
    "ImageScaling",
    "Images",
    "InputError",
    "LabelSmoothing",
    "LabelValues",
    "LowTemperatureProSelfLC",
    "MaxProbability",
    "Memory",
    "Method",
    "Part",
    "Prediction",
    "Predictions",
    "ProSelfLC",
    "ProSelfLCClassifier",
    "Product",
    "Ramp",
    "Recording",
    "Reference",
    "RememberedPrediction",
    "Run",
    "Sharpened",
    "SharpenedPrediction",
    "Skipped",
    "Standardization",
    "SymmetricCrossEntropy",
    "Target",
    "Teacher",
    "TextHashing",
    "Texts",
    "Trust",
    "Uniform",
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
