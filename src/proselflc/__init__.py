"""Learn from wrongly labelled data: ProSelfLC and every method it is compared with.

Public names are loaded on first use, so that `import proselflc` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from proselflc import functional
    from proselflc.auditing.audit import Audit
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
    from proselflc.correction.objective import Correction, Objective
    from proselflc.correction.reference import (
        HardPrediction,
        Prediction,
        Reference,
        RememberedPrediction,
        SharpenedPrediction,
        Teacher,
        Uniform,
    )
    from proselflc.correction.target import Target
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
    from proselflc.data.dataset import Dataset, Part, Skipped
    from proselflc.data.images.image_scaling import ImageScaling
    from proselflc.data.inputs import Features, ImageFiles, Images, Inputs, Preview, Texts
    from proselflc.data.labels.label_values import LabelValues
    from proselflc.data.preprocessing import Preprocessing, Standardization, TextHashing
    from proselflc.errors import InputError
    from proselflc.exporting.labels import corrected_labels, find_label_issues
    from proselflc.integrations.sklearn import ProSelfLCClassifier
    from proselflc.recording.recording import Recording, record
    from proselflc.reporting.command import report
    from proselflc.run.audit import audit
    from proselflc.run.fit import fit, predict
    from proselflc.run.reader import Predictions, Run, load_run
    from proselflc.terminal import Display
    from proselflc.training.loop import DivergenceError

_HOME = {
    "Audit": "auditing.audit",
    "BackwardCorrection": "correction.criteria",
    "BootHard": "correction.criteria",
    "BootSoft": "correction.criteria",
    "Confidence": "correction.trust",
    "ConfidencePenalty": "correction.criteria",
    "Correction": "correction.objective",
    "Criterion": "correction.criterion",
    "CrossEntropy": "correction.criteria",
    "Dataset": "data.dataset",
    "Display": "terminal",
    "Distillation": "correction.criteria",
    "DivergenceError": "training.loop",
    "Evidence": "correction.evidence",
    "Features": "data.inputs",
    "Fixed": "correction.trust",
    "ForwardCorrection": "correction.criteria",
    "GeneralizedCrossEntropy": "correction.criteria",
    "Growth": "correction.trust",
    "HardPrediction": "correction.reference",
    "ImageFiles": "data.inputs",
    "ImageScaling": "data.images.image_scaling",
    "Images": "data.inputs",
    "InputError": "errors",
    "Inputs": "data.inputs",
    "LabelSmoothing": "correction.criteria",
    "LabelValues": "data.labels.label_values",
    "LowTemperatureProSelfLC": "correction.criteria",
    "MaxProbability": "correction.trust",
    "Memory": "correction.memory",
    "Objective": "correction.objective",
    "Part": "data.dataset",
    "Prediction": "correction.reference",
    "Predictions": "run.reader",
    "Preprocessing": "data.preprocessing",
    "Preview": "data.inputs",
    "ProSelfLC": "correction.criteria",
    "ProSelfLCClassifier": "integrations.sklearn",
    "Product": "correction.trust",
    "Ramp": "correction.trust",
    "Recording": "recording.recording",
    "Reference": "correction.reference",
    "RememberedPrediction": "correction.reference",
    "Run": "run.reader",
    "Sharpened": "correction.trust",
    "SharpenedPrediction": "correction.reference",
    "Skipped": "data.dataset",
    "Standardization": "data.preprocessing",
    "SymmetricCrossEntropy": "correction.criteria",
    "Target": "correction.target",
    "Teacher": "correction.reference",
    "TextHashing": "data.preprocessing",
    "Texts": "data.inputs",
    "Trust": "correction.trust",
    "Uniform": "correction.reference",
    "audit": "run.audit",
    "corrected_labels": "exporting.labels",
    "find_label_issues": "exporting.labels",
    "fit": "run.fit",
    "load_run": "run.reader",
    "predict": "run.fit",
    "record": "recording.recording",
    "report": "reporting.command",
}

_RENAMED = {"Method": "Objective"}  # former names, which still work

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
    "Inputs",
    "LabelSmoothing",
    "LabelValues",
    "LowTemperatureProSelfLC",
    "MaxProbability",
    "Memory",
    "Objective",
    "Part",
    "Prediction",
    "Predictions",
    "Preprocessing",
    "Preview",
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
    name = _RENAMED.get(name, name)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"proselflc.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
