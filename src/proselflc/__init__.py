"""Learn from wrongly labelled data: ProSelfLC and every method it is compared with.

Public names are loaded on first use, so that `import proselflc` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from proselflc import functional
    from proselflc.auditing.audit import Audit
    from proselflc.auditing.caveats import AuditWarning
    from proselflc.auditing.judge import ConfusedPair, Judge
    from proselflc.auditing.measured import Measured, MeasuredPrecision
    from proselflc.auditing.predictions.outside import PredictionsAudit, audit_predictions
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
    from proselflc.correction.memory import Memory, Remembered
    from proselflc.correction.memory_rule import (
        AverageFromLabel,
        AverageFromZero,
        BiasCorrectedAverage,
        ExponentialAverage,
        LabelThenLast,
        LastValue,
        MemoryRule,
        RunningMean,
    )
    from proselflc.correction.target import (
        Correction,
        HardPrediction,
        Objective,
        Prediction,
        Reference,
        RememberedPrediction,
        SharpenedPrediction,
        Target,
        Teacher,
        Uniform,
    )
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
    from proselflc.data.dataset import Dataset, Part, Skipped, Unlabelled
    from proselflc.data.image_scaling import ImageScaling
    from proselflc.data.inputs import Features, ImageFiles, Images, Inputs, Preview, Texts
    from proselflc.data.labels import LabelValues
    from proselflc.data.preprocessing import Preprocessing, Standardization, TextHashing
    from proselflc.errors import InputError
    from proselflc.exporting.labels import corrected_labels, find_label_issues
    from proselflc.integrations.sklearn import ProSelfLCClassifier
    from proselflc.recording.recording import Recording, record
    from proselflc.reporting.command import report
    from proselflc.run.audit import audit
    from proselflc.run.fit import fit, predict
    from proselflc.run.learned.estimators import audit_estimator
    from proselflc.run.reader import Predictions, Run, load_run
    from proselflc.terminal import Display
    from proselflc.training.loop import DivergenceError

# The module of each public name.
_NAMES = {
    "auditing.audit": "Audit",
    "auditing.caveats": "AuditWarning",
    "auditing.judge": "ConfusedPair Judge",
    "auditing.measured": "Measured MeasuredPrecision",
    "auditing.predictions.outside": "PredictionsAudit audit_predictions",
    "correction.criteria": (
        "BackwardCorrection BootHard BootSoft ConfidencePenalty CrossEntropy Distillation "
        "ForwardCorrection GeneralizedCrossEntropy LabelSmoothing LowTemperatureProSelfLC "
        "ProSelfLC SymmetricCrossEntropy"
    ),
    "correction.criterion": "Criterion",
    "correction.evidence": "Evidence",
    "correction.memory": "Memory Remembered",
    "correction.memory_rule": (
        "AverageFromLabel AverageFromZero BiasCorrectedAverage ExponentialAverage LabelThenLast "
        "LastValue MemoryRule RunningMean"
    ),
    "correction.target": (
        "Correction HardPrediction Objective Prediction Reference RememberedPrediction "
        "SharpenedPrediction Target Teacher Uniform"
    ),
    "correction.trust": "Confidence Fixed Growth MaxProbability Product Ramp Sharpened Trust",
    "data.dataset": "Dataset Part Skipped Unlabelled",
    "data.image_scaling": "ImageScaling",
    "data.inputs": "Features ImageFiles Images Inputs Preview Texts",
    "data.labels": "LabelValues",
    "data.preprocessing": "Preprocessing Standardization TextHashing",
    "errors": "InputError",
    "exporting.labels": "corrected_labels find_label_issues",
    "integrations.sklearn": "ProSelfLCClassifier",
    "recording.recording": "Recording record",
    "reporting.command": "report",
    "run.audit": "audit",
    "run.learned.estimators": "audit_estimator",
    "run.fit": "fit predict",
    "run.reader": "Predictions Run load_run",
    "terminal": "Display",
    "training.loop": "DivergenceError",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

_RENAMED = {"Method": "Objective"}  # former names, which still work

__all__ = [
    "Audit",
    "AuditWarning",
    "AverageFromLabel",
    "AverageFromZero",
    "BackwardCorrection",
    "BiasCorrectedAverage",
    "BootHard",
    "BootSoft",
    "Confidence",
    "ConfidencePenalty",
    "ConfusedPair",
    "Correction",
    "Criterion",
    "CrossEntropy",
    "Dataset",
    "Display",
    "Distillation",
    "DivergenceError",
    "Evidence",
    "ExponentialAverage",
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
    "Judge",
    "LabelSmoothing",
    "LabelThenLast",
    "LabelValues",
    "LastValue",
    "LowTemperatureProSelfLC",
    "MaxProbability",
    "Measured",
    "MeasuredPrecision",
    "Memory",
    "MemoryRule",
    "Objective",
    "Part",
    "Prediction",
    "Predictions",
    "PredictionsAudit",
    "Preprocessing",
    "Preview",
    "ProSelfLC",
    "ProSelfLCClassifier",
    "Product",
    "Ramp",
    "Recording",
    "Reference",
    "Remembered",
    "RememberedPrediction",
    "Run",
    "RunningMean",
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
    "Unlabelled",
    "audit",
    "audit_estimator",
    "audit_predictions",
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
