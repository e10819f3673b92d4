"""The learners by name, and how each is read from a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TypeAlias

from torch import Tensor, nn

from proselflc.errors import InputError
from proselflc.learners import estimator, libraries
from proselflc.learners.boosting import LEARNING_RATE, ROUNDS, Boosting
from proselflc.learners.learner import Learner
from proselflc.learners.libraries import LibraryBoosting
from proselflc.learners.trees import TreeEnsemble

# Makes a learner from its number of rounds, its learning rate and a seed.
Make: TypeAlias = Callable[[int, float, int], Learner]

LEARNERS: dict[str, tuple[str, Make]] = {
    "boosting": ("boosted trees of scikit-learn", Boosting),
    **{
        name: (f"boosted trees of {title}", partial(LibraryBoosting, name))
        for name, title in (
            ("lightgbm", "LightGBM"),
            ("xgboost", "XGBoost"),
            ("catboost", "CatBoost"),
        )
    },
}


def is_installed(name: str) -> bool:
    """Return whether a learner can be used here: its library is installed."""
    return name not in libraries.LIBRARIES or find_spec(name) is not None


def is_learner(name: str | None) -> bool:
    """Return whether a model is a learner of tables rather than a network."""
    return name in LEARNERS or is_estimator(name)


def is_estimator(name: str | None) -> bool:
    """Return whether a model is a classifier of scikit-learn, which runs do not keep."""
    return name is not None and name.startswith(estimator.PREFIX)


def make(name: str, rounds: int | None, learning_rate: float | None, seed: int) -> Learner:
    """Return the learner of a name; None for its own number of rounds or learning rate.

    A name `sklearn:package.Class` is imported: it must come from the user, never from a file.
    """
    if is_estimator(name):
        return estimator.named(name, seed)
    rate = LEARNING_RATE if learning_rate is None else learning_rate
    return LEARNERS[name][1](ROUNDS if rounds is None else rounds, rate, seed)


def read(
    name: str, state: Mapping[str, Tensor], num_classes: int, columns: int | None = None
) -> nn.Module:
    """Return the model that a run has saved; it maps rows for trees to logits [N, C].

    Args:
        name: of the learner.
        state: the tensors of the file.
        num_classes: C.
        columns: number of columns of the rows; None if it is not known.

    Raises:
        InputError: the arrays are not those of a model for that many classes and columns.
    """
    known = state.get("known")
    if known is not None and known.ndim == 2:
        return TreeEnsemble.from_state(
            state, len(known) if columns is None else columns, num_classes
        )
    if name in libraries.LIBRARIES:
        return libraries.read(name, state, num_classes, columns)
    raise InputError("the file holds no trees")
