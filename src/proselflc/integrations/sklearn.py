"""`ProSelfLCClassifier`: a scikit-learn classifier for tables whose labels may be wrong."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import sklearn
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import nn

from proselflc import methods
from proselflc.auditing import verdict
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.examples import ACTIONS
from proselflc.auditing.records import Records, Witness, slices
from proselflc.data.batches import one_thread
from proselflc.data.dataset import Dataset, checked
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.tables.encoding import TableEncoding
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError, invalid_option
from proselflc.exporting.labels import issues_frame
from proselflc.learners.catalogue import is_estimator, is_learner
from proselflc.models.networks import mlp
from proselflc.run.fit import fit
from proselflc.run.learned.choice import AUTO

try:
    from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: F401
except ImportError:
    raise ImportError(
        f"scikit-learn {sklearn.__version__} is too old; ProSelfLCClassifier needs 1.6 or newer: "
        "pip install -U scikit-learn"
    ) from None

from proselflc.integrations.sklearn_rows import (
    GivenLabels,
    distinct_rows,
    rows_to_predict,
    training_rows,
    weights_of,
)

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from typing_extensions import Self

    from proselflc.data.preprocessing import Preprocessing
    from proselflc.run.reader import Run
    from proselflc.training.recipe import Schedule
    from proselflc.training.run_directory import Json

STEPS = 10  # per epoch of a small table, if no batch size is given
SMALL = 10**8  # weights times rows of a step below which a second thread does not help
_NESTED = "method__"  # scikit-learn's prefix for the parameters of the method
# The parameters that `proselflc.fit` takes as they are.
_FORWARDED = [
    "method",
    "parameters",
    "epochs",
    "optimizer",
    "lr",
    "weight_decay",
    "momentum",
    "schedule",
]
_fitting = threading.Lock()  # torch has one generator for all threads


class ProSelfLCClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """A classifier that learns from partly wrong labels and finds the wrong ones.

    Numbers are standardised; categories, dates, texts and missing cells of a data frame are encoded
    as `proselflc.fit` does. The result depends on the rows and their weights alone, not on
    their order: a row that occurs k times, or has weight k, counts k times; a row of weight 0 is
    ignored. This holds for every method that is a criterion, such as proselflc; other methods do
    not accept weights.

    Args:
        method: the name of a method, see `proselflc methods`.
        parameters: the method's own parameters, such as {"sharpness": 12}. A search can set each
            separately: `set_params(method__sharpness=12)`; None is the method's default.
        hidden_layer_sizes: widths of the hidden layers of the network; one number for one layer.
        model: what learns: "boosting" for boosted trees, or "lightgbm", "xgboost" or "catboost"
            where they are installed; "auto" to choose between boosting and the network "mlp" by
            held-out agreement with y; a module that maps [N, D] float32 to logits [N, C], of which
            a copy is trained; or package.module:factory. By default a network of the hidden layers
            above. Trees ignore the options of networks, from `epochs` to `schedule`.
        epochs: passes over the rows; Γ is their total number of steps.
        batch_size: rows per step; by default a tenth of them, from 8 to 128.
        optimizer, lr, weight_decay: by default chosen for the network.
        momentum: the momentum of SGD.
        schedule: the schedule of the learning rate: "multistep", "poly", "cosine" or "constant".
        class_weight: factors of the weights of a class's rows: {label: weight}, 1 for labels that
            are not listed; "balanced" for equal weights of all classes; None for 1.
        warm_start: whether another call of `fit` starts from the weights and preprocessing of the
            last one; Γ is counted again. Classes and columns must be the same.
        random_state: seed of the initial weights and of the order of the rows.
        verbose: whether to show progress and warnings about the audit on stderr.

    Attributes:
        classes_: [C] the distinct labels.
        label_issues_: [n] bool, which labels are more likely wrong than right.
        label_quality_: [n] the estimated probability that the label is right, in [0, 1]; **low
            means probably mislabelled**. NaN for a row of weight 0, which is never an issue.
        label_actions_: [n] what the audit would do with each label: "keep", "review" or "change".
        corrected_labels_: [n] the labels, with suggestions in place of those to "change".
        noise_rate_: the estimated share of wrong labels.
        noise_range_: the range that this share is probably in, from low to high.
        warnings_: reasons to be careful with the audit, each with a `code` and a `message`.
        history_: measurements on the distinct rows, about twenty times, as in history.jsonl.
        n_iter_: the number of epochs of the last `fit`.
        n_features_in_: D.
        feature_names_in_: [D] names of the columns, if X is a data frame.
        model_, preprocessing_: the trained network, and the preprocessing of its rows.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> y[::5] = (y[::5] + 1) % 3  # a fifth of the labels is wrong
        >>> classifier = ProSelfLCClassifier(random_state=0).fit(X, y)
        >>> classifier.predict_proba(X).shape
        (150, 3)
        >>> classifier.label_issues_[::5].mean() > 0.8
        np.True_
    """

    classes_: npt.NDArray[Any]
    label_issues_: Bools
    label_quality_: Floats
    label_actions_: npt.NDArray[Any]
    corrected_labels_: npt.NDArray[Any]
    noise_rate_: float
    noise_range_: tuple[float, float]
    warnings_: tuple[AuditWarning, ...]
    history_: list[Json]
    n_iter_: int
    model_: nn.Module
    preprocessing_: Preprocessing

    def __init__(
        self,
        method: str = "proselflc",
        *,
        parameters: Mapping[str, Any] | None = None,
        hidden_layer_sizes: Sequence[int] | int = (128,),
        model: nn.Module | str | None = None,
        epochs: int = 30,
        batch_size: int | None = None,
        optimizer: Literal["sgd", "adamw"] | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        momentum: float = 0.9,
        schedule: Schedule = "multistep",
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.parameters = parameters
        self.hidden_layer_sizes = hidden_layer_sizes
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.momentum = momentum
        self.schedule = schedule
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Args:
            deep: whether to include those of the method, as `method__sharpness`.
        """
        settings: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.method, str) and self.method in methods.names():
            given = self.parameters if isinstance(self.parameters, Mapping) else {}
            method = methods.find(self.method)
            for name in method.takes:
                value, default = given.get(name), getattr(method.parameters, name, None)
                settings[_NESTED + name] = default if value is None else value
        return settings

    def set_params(self, **settings: Any) -> Self:
        """Set parameters, also those of the method, as `method__sharpness`.

        Raises:
            ValueError: there is no such parameter, or the method does not take it.
        """
        own = {
            name.removeprefix(_NESTED): settings.pop(name)
            for name in list(settings)
            if name.startswith(_NESTED)
        }
        if own:
            _check_taken(settings.get("method", self.method), own)
        super().set_params(**settings)
        if own:
            together = {**(self.parameters or {}), **own}
            kept = {name: value for name, value in together.items() if value is not None}
            self.parameters = kept or None
        return self

    def fit(self, X: Any, y: Any, sample_weight: object | None = None) -> Self:
        """Fit the classifier.

        Args:
            X: [n, D] numbers; or a data frame (pandas, polars or pyarrow) with D columns of any
                kind, whose cells may be missing.
            y: [n] labels of any type. Rows whose label is None or NaN are not learned.
            sample_weight: [n] weights of the rows, at least 0; equal by default.
        """
        if is_estimator(self.model if isinstance(self.model, str) else None):
            raise invalid_option(
                "model",
                f"cannot be {self.model}, because the fitted estimator is not kept for predictions",
                fix="use that estimator itself, or audit_estimator for its labels",
            )
        goes_on = bool(self.warm_start) and hasattr(self, "model_")
        rows, labels = training_rows(self, X, y, reset=not goes_on)
        check_classification_targets(labels.classes)
        if goes_on:
            self._check_goes_on(labels.classes)
        self.classes_, given = labels.classes, labels.codes
        weight = self._by_class(weights_of(sample_weight, len(rows)) * labels.known, given)
        counts = weight > 0
        part, weights, place = distinct_rows(
            rows.take(np.flatnonzero(counts)),
            given[counts],
            weight[counts],
            merged=methods.weighs(self.method),
        )
        names = tuple(map(str, self.classes_))
        dataset = checked(Dataset("y", part, names, sample_weight=weights))
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        batch_size = self._batch_size(len(part))
        with _fitting, contextlib.ExitStack() as stack:
            fitted = self.preprocessing_ if goes_on else None
            if isinstance(part.inputs, MixedColumns) and not self._has_learner() and not goes_on:
                fitted = TableEncoding.fit(part.inputs)
            width = fitted.width if isinstance(fitted, TableEncoding) else self.n_features_in_
            model = self._model(seed, width, goes_on)
            size = SMALL if isinstance(model, str) else sum(w.numel() for w in model.parameters())
            if size * batch_size < SMALL:
                stack.enter_context(one_thread())  # on a busy machine much faster than two
            options = {name: getattr(self, name) for name in _FORWARDED} | {
                "batch_size": batch_size
            }
            if self._has_learner():
                options = {name: options[name] for name in ("method", "parameters")}
            run = fit(
                dataset,
                model=model,
                preprocessing=fitted,
                seed=seed,
                quiet=not self.verbose,
                notes=bool(self.verbose),
                **options,
            )
        self.model_, self.preprocessing_ = run.model.cpu(), run.served_by
        if self.model is None:
            self.model_.double()  # so that a prediction does not depend on the other rows
        rounds = run.config.get("epochs") if self._has_learner() else self.epochs
        self.history_, self.n_iter_ = run.history, int(str(rounds))
        self._widths = self._hidden()
        self._audit(run, labels, counts, place)
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probabilities [n, C] of the classes, in the order of `classes_`."""
        check_is_fitted(self)
        rows = rows_to_predict(self, X)
        p = np.empty((len(rows), len(self.classes_)))
        dtype = next((weight.dtype for weight in self.model_.parameters()), torch.float32)
        with torch.inference_mode():
            for some in slices(len(rows), 256):
                x = self.preprocessing_(rows.take(np.arange(len(rows))[some]))
                logits = self.model_(x.to(dtype))
                p[some] = torch.softmax(logits.double(), 1).numpy()
        return p

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable label of every row, [n]."""
        p = self.predict_proba(X)
        labels: npt.NDArray[Any] = self.classes_[p.argmax(1)]
        return labels

    def get_label_issues(self) -> pd.DataFrame:
        """Return the issues of the training labels, like cleanlab's `get_label_issues()`.

        Returns:
            A pandas data frame with a row per row of X and the columns `is_label_issue`,
            `label_quality`, `given_label` and `predicted_label`.
        """
        check_is_fitted(self)
        return issues_frame(self._given_labels, self._suggested_labels, self.label_quality_)

    def _batch_size(self, m: int) -> int:
        """Return the batch size for m distinct rows."""
        if self.batch_size is None:
            return min(m, max(8, min(128, m // STEPS)))
        if not isinstance(self.batch_size, Integral):
            raise invalid_option("batch_size", f"must be a whole number, got {self.batch_size!r}")
        return min(m, int(self.batch_size))

    def _by_class(self, weight: npt.NDArray[np.float64], given: Ints) -> npt.NDArray[np.float64]:
        """Return [n] the weights of the rows times those of their classes."""
        if self.class_weight is None:
            return weight
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            total = np.bincount(given, weight, len(self.classes_))
            there = total > 0  # scikit-learn's rule, with weights in place of numbers of rows
            factor = np.divide(total.sum() / there.sum(), total, np.zeros_like(total), where=there)
        else:
            labels = self.classes_[given]
            factor = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        wrong = ~(np.isfinite(factor) & (factor >= 0))
        if wrong.any():
            raise ValueError(
                f"class_weight has a weight of {factor[wrong][0]:g}: weights must be finite and at "
                "least 0"
            )
        product: npt.NDArray[np.float64] = weight * factor[given]
        if not (product > 0).any():
            raise ValueError("class_weight is zero for every row: there is nothing to learn from")
        return product

    def _has_learner(self) -> bool:
        """Return whether the model may be one of trees, which takes no options of networks."""
        return isinstance(self.model, str) and (self.model == AUTO or is_learner(self.model))

    def _check_goes_on(self, classes: npt.NDArray[Any]) -> None:
        """Refuse a warm start with other classes, or with another network than the fitted one."""
        if self._has_learner():
            raise InputError(
                f'warm_start continues the training of a network, which model="{self.model}" may '
                "not be",
                field="warm_start",
                fix="set warm_start=False",
            )
        if not np.array_equal(classes, self.classes_):
            had, has = (", ".join(map(str, some[:20])) for some in (self.classes_, classes))
            raise InputError(
                f"warm_start continues with the classes {had}, but y has {has}",
                field="warm_start",
                fix="give labels of the same classes, or set warm_start=False",
            )
        if self.model is None and self._hidden() != self._widths:
            raise InputError(
                f"warm_start continues with the fitted network, but hidden_layer_sizes were "
                f"{self._widths} and are {self._hidden()} now",
                field="hidden_layer_sizes",
                fix="leave them, or set warm_start=False",
            )

    def _model(self, seed: int, width: int, goes_on: bool) -> nn.Module | str:
        """Return a new model, or a copy of the fitted one for a warm start."""
        if goes_on:
            fitted = copy.deepcopy(self.model_)
            return fitted.float() if self.model is None else fitted
        if isinstance(self.model, str):
            return self.model
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        if self.model is not None:
            raise invalid_option(
                "model", f"must be a module, package.module:factory or None, got {self.model!r}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return mlp(width, len(self.classes_), hidden=self._hidden())

    def _hidden(self) -> tuple[int, ...]:
        """Return the widths of the hidden layers."""
        sizes = self.hidden_layer_sizes
        widths = tuple(sizes) if isinstance(sizes, Sequence | np.ndarray) else (sizes,)
        if not all(isinstance(width, Integral) and width >= 1 for width in widths):
            raise invalid_option(
                "hidden_layer_sizes", f"must be whole numbers ≥ 1, such as (128,), got {sizes!r}"
            )
        return tuple(map(int, widths))

    def _audit(self, run: Run, labels: GivenLabels, counts: Bools, place: Ints) -> None:
        """Judge the labels of all rows that count, by the records of the distinct ones."""
        given = labels.codes
        second = run.records_of_training.witness
        if second is not None:
            second = Witness(second.p[place], second.kind)
        held = run.records.held_out
        if held is not None:
            held = replace(held, p=held.p[place])
        records = Records([epoch[place] for epoch in run.dynamics], held, second)
        found = verdict.assess(records, given[counts], tuple(map(str, self.classes_)))
        judgement = found.scores
        self.noise_rate_ = found.noise.rate
        self.noise_range_ = (found.noise.low, found.noise.high)
        self.warnings_ = found.warnings
        self.label_quality_ = np.full(len(given), np.nan, np.float32)
        self.label_quality_[counts] = judgement.quality
        suggested = given.copy()
        suggested[counts] = judgement.suggested
        self._given_labels = labels.with_codes(given)
        self._suggested_labels = labels.with_codes(suggested)
        self.label_issues_ = suggested != given
        change = np.zeros(len(given), np.bool_)
        change[counts] = judgement.change
        self.label_actions_ = np.array(ACTIONS)[self.label_issues_.astype(np.int8) + change]
        self.corrected_labels_ = labels.with_codes(np.where(change, suggested, given))


def _check_taken(method: object, own: Mapping[str, Any]) -> None:
    """Refuse parameters that a method does not take."""
    takes = methods.find(str(method)).takes
    extra = next((name for name in own if name not in takes), None)
    if extra is not None:
        listed = ", ".join(_NESTED + name for name in takes) or "no parameters"
        raise InputError(
            f"method {method} has no {_NESTED}{extra}: it takes {listed}", field=f"method.{extra}"
        )
