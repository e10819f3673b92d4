"""Any classifier of scikit-learn as a learner: it is fitted once, on dense rows."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import nn

from proselflc.data.inputs import Floats, Ints
from proselflc.errors import InputError
from proselflc.learners.learner import Doubles, LabelledTable, all_classes

PREFIX = "sklearn:"


@dataclass(frozen=True)
class Estimator:
    """A classifier that has not been fitted; a copy of it is fitted each time."""

    estimator: Any
    rounds: ClassVar[int] = 1
    takes_codes: ClassVar[bool] = False

    def fit(self, table: LabelledTable) -> FittedEstimator:
        """Fit a copy of the classifier.

        Raises:
            InputError: the classifier refuses the rows.
        """
        from sklearn.base import clone

        copy, weights = clone(self.estimator), {}
        if table.weight is not None:
            if "sample_weight" not in inspect.signature(copy.fit).parameters:
                raise InputError(
                    f"{type(copy).__name__} cannot weigh examples",
                    field="sample_weight",
                    fix="leave the weights out",
                )
            weights = {"sample_weight": table.weight}
        try:
            copy.fit(table.x, table.y, **weights)
        except Exception as error:  # it may be anyone's code
            words = " ".join(str(error).split())[:300]
            raise InputError(
                f"{type(copy).__name__} cannot be fitted to {len(table.y):,} rows of "
                f"{table.x.shape[1]} columns: {type(error).__name__}: {words}",
                field="model",
            ) from None
        return FittedEstimator(copy, np.asarray(copy.classes_, np.int64), table.num_classes)


@dataclass(frozen=True)
class FittedEstimator:
    """A fitted classifier, which knows the K of C classes that occurred in training."""

    estimator: Any
    classes: Ints  # [K]
    num_classes: int

    def staged(self, x: Floats) -> Iterator[Doubles]:
        """Yield the probabilities [N, C] of N rows, once."""
        p = np.asarray(self.estimator.predict_proba(x), np.float64)
        yield all_classes(p, self.classes, self.num_classes)

    def module(self) -> nn.Module | None:
        """Return None: an estimator can only be saved by pickling it."""
        return None


def checked(estimator: object) -> Estimator:
    """Return a classifier as a learner, unless it lacks a method that is needed."""
    if isinstance(estimator, type):
        raise InputError(
            f"{estimator.__name__} is a class, expected a classifier",
            field="estimator",
            fix=f"pass {estimator.__name__}()",
        )
    for method in ("fit", "predict_proba", "get_params"):
        if not callable(getattr(estimator, method, None)):
            fix = "pass a classifier of scikit-learn that predicts probabilities"
            if method == "predict_proba":
                fix += ", or wrap this one in CalibratedClassifierCV"
            raise InputError(
                f"{type(estimator).__name__} has no {method}, which an audit by folds needs",
                field="model",
                fix=fix,
            )
    return Estimator(estimator)


def named(name: str, seed: int) -> Estimator:
    """Return the classifier that `sklearn:package.Class` names, with its defaults.

    The class is imported, so the name must come from the user and never from a file.
    """
    path = name.removeprefix(PREFIX)
    module, dot, last = path.rpartition(".")
    expected = f"expected {PREFIX}package.Class, such as {PREFIX}sklearn.svm.SVC"
    if not dot or not module or not last:
        raise InputError(f'the model "{name}" lacks a part: {expected}', field="model")
    try:
        found = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f'the model "{name}" cannot be imported ({reason}): {expected}', field="model"
        ) from None
    try:
        estimator = found()
        if "random_state" in estimator.get_params(deep=False):
            estimator.set_params(random_state=seed)
    except Exception as error:  # it may be anyone's code
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f'the model "{name}" cannot be made without arguments ({type(error).__name__}: '
            f"{reason})",
            field="model",
            fix="pass the classifier itself to proselflc.audit_estimator in Python",
        ) from None
    return checked(estimator)
