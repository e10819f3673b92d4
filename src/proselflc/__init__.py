"""Learn from wrongly labelled data: ProSelfLC and every method it is compared with.

Public names are loaded on first use, so that `import proselflc` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from proselflc import functional
    from proselflc.correction.criterion import (
        BackwardCorrection,
        BootHard,
        BootSoft,
        ConfidencePenalty,
        Criterion,
        CrossEntropy,
        Distillation,
        ForwardCorrection,
        GeneralizedCrossEntropy,
        LabelSmoothing,
        LowTemperatureProSelfLC,
        ProSelfLC,
        SymmetricCrossEntropy,
    )
    from proselflc.correction.memory import Memory
    from proselflc.correction.target import Correction, Target

_HOME = {
    "BackwardCorrection": "correction.criterion",
    "BootHard": "correction.criterion",
    "BootSoft": "correction.criterion",
    "ConfidencePenalty": "correction.criterion",
    "Correction": "correction.target",
    "Criterion": "correction.criterion",
    "CrossEntropy": "correction.criterion",
    "Distillation": "correction.criterion",
    "ForwardCorrection": "correction.criterion",
    "GeneralizedCrossEntropy": "correction.criterion",
    "LabelSmoothing": "correction.criterion",
    "LowTemperatureProSelfLC": "correction.criterion",
    "Memory": "correction.memory",
    "ProSelfLC": "correction.criterion",
    "SymmetricCrossEntropy": "correction.criterion",
    "Target": "correction.target",
}

__all__ = [
    "BackwardCorrection",
    "BootHard",
    "BootSoft",
    "ConfidencePenalty",
    "Correction",
    "Criterion",
    "CrossEntropy",
    "Distillation",
    "ForwardCorrection",
    "GeneralizedCrossEntropy",
    "LabelSmoothing",
    "LowTemperatureProSelfLC",
    "Memory",
    "ProSelfLC",
    "SymmetricCrossEntropy",
    "Target",
    "functional",
]


def __getattr__(name: str) -> object:
    if name == "functional":
        return import_module("proselflc.functional")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"proselflc.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
