"""Boosted trees of other libraries, where they are installed, in their own format of text."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.errors import InputError
from proselflc.learners.boosting import FittedTrees
from proselflc.learners.learner import Doubles, LabelledTable
from proselflc.learners.trees import ABSENT, constant
from proselflc.wording import option

LEAVES = 15
DEPTH = 4  # of trees that are limited by their depth
PENALTY = 5.0
SHARE_OF_COLUMNS = 0.5


class Booster(Protocol):
    """A fitted model of a library, for K classes."""

    def scores(self, x: Floats) -> Iterator[Doubles]:
        """Yield the sums [N, K] of the trees after each round; [N, 1] for two classes."""

    def text(self) -> bytes:
        """Return the model in the library's own format."""


class Library(Protocol):
    """Fits and reads the models of a library."""

    def fit(self, table: LabelledTable, boosting: LibraryBoosting) -> Booster:
        """Fit a table whose labels are 0 … K−1, all of which occur."""

    def read(self, text: bytes) -> Booster:
        """Read what `Booster.text` returned."""


@dataclass(frozen=True)
class LibraryBoosting:
    """Gradient boosting by a library that is installed beside this package."""

    library: str
    rounds: int
    learning_rate: float
    seed: int = 0
    takes_codes: ClassVar[bool] = True

    def fit(self, table: LabelledTable) -> FittedBooster | FittedTrees:
        """Learn a table."""
        library = LIBRARIES[self.library]
        _imported(self.library)
        classes, y = np.unique(table.y, return_inverse=True)
        if len(classes) == 1:
            return FittedTrees(constant(int(classes[0]), table.x.shape[1], table.num_classes))
        own = LabelledTable(
            table.x, y.astype(np.int64), len(classes), table.categorical, table.weight
        )
        booster = library.fit(own, self)
        return FittedBooster(BoosterModule(self.library, booster, classes, table.num_classes))


class BoosterModule(nn.Module):
    """A model of a library as a module, whose state is its text."""

    text: Tensor
    classes: Tensor

    def __init__(self, library: str, booster: Booster, classes: Ints, num_classes: int) -> None:
        super().__init__()
        self.booster = booster
        self.num_classes = num_classes
        content = np.frombuffer(booster.text(), np.uint8).copy()
        self.register_buffer("text", torch.from_numpy(content))
        self.register_buffer("classes", torch.from_numpy(classes))
        name = np.frombuffer(library.encode(), np.uint8).copy()
        self.register_buffer("library", torch.from_numpy(name))

    def staged(self, x: Floats) -> Iterator[Tensor]:
        """Yield the logits [N, C] after each round."""
        for scores in self.booster.scores(x):
            if scores.shape[1] == 1:
                scores = np.concatenate((np.zeros_like(scores), scores), 1)
            logits = torch.full((len(scores), self.num_classes), ABSENT, dtype=torch.float64)
            logits[:, self.classes] = torch.from_numpy(np.ascontiguousarray(scores)).double()
            yield logits

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [N, C] in float64."""
        *_, last = self.staged(x.cpu().numpy())
        return last


@dataclass(frozen=True)
class FittedBooster:
    """A model of a library that has learned a table."""

    trees: BoosterModule

    def staged(self, x: Floats) -> Iterator[Doubles]:
        """Yield the probabilities [N, C] of N rows after each round."""
        for logits in self.trees.staged(x):
            p: Doubles = torch.softmax(logits, 1).numpy()
            yield p

    def module(self) -> nn.Module:
        """Return the model."""
        return self.trees


def read(
    name: str, state: Mapping[str, Tensor], num_classes: int, columns: int | None = None
) -> BoosterModule:
    """Return a model from the text in a file, which the library itself reads.

    Args:
        name: of the library.
        state: the tensors of the file.
        num_classes: C.
        columns: number of columns of the rows that it must predict; None if it is not known.

    Raises:
        InputError: the library is not installed, or the file is not one of its models.
    """
    _imported(name)
    text, classes = state.get("text"), state.get("classes")
    good = text is not None and text.dtype == torch.uint8 and text.ndim == 1
    good &= classes is not None and classes.dtype == torch.int64 and classes.ndim == 1
    if not good or text is None or classes is None:
        raise InputError(f"the file holds no model of {name}")
    unique = torch.unique(classes)
    if len(unique) != len(classes) or not ((classes >= 0) & (classes < num_classes)).all():
        raise InputError("the classes of the model are damaged")
    try:
        booster = LIBRARIES[name].read(text.numpy().tobytes())
    except Exception as error:  # the library's own reader, which may fail in any way
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{name} cannot read the model: {reason}") from None
    if columns is not None:
        _check_shape(name, booster, columns, len(classes))
    return BoosterModule(name, booster, classes.numpy(), num_classes)


def _check_shape(name: str, booster: Booster, columns: int, K: int) -> None:
    """Refuse a model for another number of columns or classes, by a prediction for a row."""
    try:
        found = next(booster.scores(np.full((1, columns), np.nan, np.float32)))
    except StopIteration:
        raise InputError(f"the model of {name} has no trees") from None
    except Exception as error:  # the library's own code, which may fail in any way
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"the model of {name} cannot predict a row of {columns} columns: {reason}"
        ) from None
    expected = (1, 1 if K == 2 else K)
    if found.shape != expected or not np.isfinite(found).all():
        raise InputError(
            f"the model of {name} predicts {found.size} numbers for a row of {columns} columns, "
            f"expected {expected[1]} finite ones for {K} classes"
        )


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"{name} is not installed",
            field="model",
            fix=f"pip install {name}, or use {option('model', 'boosting')}, which needs nothing "
            "else",
        ) from None


def _columns(categorical: Bools | None) -> list[int]:
    return [] if categorical is None else [int(k) for k in np.flatnonzero(categorical)]


class _LightGBM:
    def fit(self, table: LabelledTable, boosting: LibraryBoosting) -> Booster:
        lightgbm = _imported("lightgbm")
        K = table.num_classes
        data = lightgbm.Dataset(
            table.x,
            table.y,
            weight=table.weight,
            categorical_feature=_columns(table.categorical),
            params={"verbose": -1},
        )
        parameters = {
            "objective": "binary" if K == 2 else "multiclass",
            "learning_rate": boosting.learning_rate,
            "num_leaves": LEAVES,
            "lambda_l2": PENALTY,
            "feature_fraction": SHARE_OF_COLUMNS,
            "seed": boosting.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbose": -1,
            **({} if K == 2 else {"num_class": K}),
        }
        return _LightGBMBooster(lightgbm.train(parameters, data, boosting.rounds))

    def read(self, text: bytes) -> Booster:
        return _LightGBMBooster(_imported("lightgbm").Booster(model_str=text.decode()))


@dataclass(frozen=True)
class _LightGBMBooster:
    model: Any

    def scores(self, x: Floats) -> Iterator[Doubles]:
        total: Any = 0.0
        for k in range(self.model.current_iteration()):
            one = self.model.predict(x, start_iteration=k, num_iteration=1, raw_score=True)
            total = total + np.asarray(one, np.float64).reshape(len(x), -1)
            yield total

    def text(self) -> bytes:
        return str(self.model.model_to_string()).encode()


class _XGBoost:
    def fit(self, table: LabelledTable, boosting: LibraryBoosting) -> Booster:
        xgboost = _imported("xgboost")
        K = table.num_classes
        kinds = ["q"] * table.x.shape[1]
        for column in _columns(table.categorical):
            kinds[column] = "c"
        data = xgboost.DMatrix(
            table.x, table.y, weight=table.weight, feature_types=kinds, enable_categorical=True
        )
        parameters = {
            "objective": "binary:logistic" if K == 2 else "multi:softprob",
            "learning_rate": boosting.learning_rate,
            "max_leaves": LEAVES,
            "grow_policy": "lossguide",
            "tree_method": "hist",
            "reg_lambda": PENALTY,
            "colsample_bynode": SHARE_OF_COLUMNS,
            "seed": boosting.seed,
            "verbosity": 0,
            **({} if K == 2 else {"num_class": K}),
        }
        return _XGBoostBooster(xgboost.train(parameters, data, boosting.rounds), tuple(kinds))

    def read(self, text: bytes) -> Booster:
        model = _imported("xgboost").Booster()
        model.load_model(bytearray(text))
        return _XGBoostBooster(model, tuple(model.feature_types or ()))


@dataclass(frozen=True)
class _XGBoostBooster:
    model: Any
    kinds: tuple[str, ...]

    def scores(self, x: Floats) -> Iterator[Doubles]:
        data = _imported("xgboost").DMatrix(
            x, feature_types=list(self.kinds) or None, enable_categorical=True
        )
        for k in range(self.model.num_boosted_rounds()):
            found = self.model.predict(data, output_margin=True, iteration_range=(0, k + 1))
            yield np.asarray(found, np.float64).reshape(len(x), -1)

    def text(self) -> bytes:
        return bytes(self.model.save_raw("json"))


class _CatBoost:
    def fit(self, table: LabelledTable, boosting: LibraryBoosting) -> Booster:
        catboost = _imported("catboost")
        model = catboost.CatBoostClassifier(
            iterations=boosting.rounds,
            learning_rate=boosting.learning_rate,
            depth=DEPTH,
            l2_leaf_reg=PENALTY,
            loss_function="Logloss" if table.num_classes == 2 else "MultiClass",
            random_seed=boosting.seed,
            verbose=False,
            allow_writing_files=False,
        )
        # Its own categories are encoded with the labels; as numbers, codes do not need them.
        model.fit(table.x, table.y, sample_weight=table.weight)
        return _CatBoostBooster(model)

    def read(self, text: bytes) -> Booster:
        json.loads(text)  # refuses what is not the format that is written here
        model = _imported("catboost").CatBoostClassifier()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            path.write_bytes(text)
            model.load_model(str(path), format="json")
        return _CatBoostBooster(model)


@dataclass(frozen=True)
class _CatBoostBooster:
    model: Any

    def scores(self, x: Floats) -> Iterator[Doubles]:
        for found in self.model.staged_predict(x, prediction_type="RawFormulaVal"):
            yield np.asarray(found, np.float64).reshape(len(x), -1)

    def text(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            self.model.save_model(str(path), format="json")
            return path.read_bytes()


LIBRARIES: dict[str, Library] = {
    "lightgbm": _LightGBM(),
    "xgboost": _XGBoost(),
    "catboost": _CatBoost(),
}
