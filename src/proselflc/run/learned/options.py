"""Which options of a run only a network follows, and their refusal beside a learner of tables."""

from __future__ import annotations

from proselflc.data.dataset import Dataset
from proselflc.errors import InputError
from proselflc.learners.catalogue import is_estimator
from proselflc.run.config import Config
from proselflc.training.recipe import Recipe
from proselflc.wording import option

METHODS = ("proselflc", "cce")  # those that mean something without a loss
_BOOSTED = ("epochs", "lr")  # boosted trees follow them too
_OF_NETWORKS = (
    "steps",
    "batch_size",
    "optimizer",
    "momentum",
    "weight_decay",
    "schedule",
    "warmup",
    "precision",
    "accumulate",
    "clip",
    "ema",
    "channels_last",
    "compile",
)


def of_networks(config: Config) -> list[str]:
    """Return the options that are not as by default and that no learner of tables follows."""
    default = Recipe()
    found = [key for key in _OF_NETWORKS if getattr(config.recipe, key) != getattr(default, key)]
    found += ["weights"] if config.weights is not None else []
    found += ["normalize"] if config.normalize not in (None, "data") else []
    # A run of trees stores that nothing is augmented, and may be resumed.
    return found + (["augment"] if config.augment not in (None, "none") else [])


def of_training(config: Config) -> list[str]:
    """Return the options that are not as by default and that say how to train."""
    boosted = [key for key in _BOOSTED if getattr(config.recipe, key) is not None]
    return boosted + of_networks(config)


def check(config: Config, dataset: Dataset) -> None:
    """Refuse options that a learner of tables cannot follow."""
    name, remedy = config.model, f"use {option('model', 'mlp')}"
    if dataset.train.inputs.medium != "table":
        raise InputError(
            f"{name} learns from the columns of a table, but these are {dataset.train.inputs.kind}",
            field="model",
            fix="leave it out",
        )
    if config.method not in METHODS:
        raise InputError(
            f"the method {config.method} trains a network, and {name} is not a network",
            field="method",
            fix=f"choose one of {', '.join(METHODS)}, or {remedy}",
        )
    given = of_networks(config)
    if given:
        raise InputError(
            f"{option(given[0])} is an option of networks, and {name} is not a network",
            field=given[0],
            fix=f"leave it out, or {remedy}",
        )
    if not is_estimator(name):
        return
    # A run of an estimator stores that it has one round, and may be resumed.
    rounds = config.recipe.epochs
    for key, is_given in (("epochs", rounds not in (None, 1)), ("lr", config.recipe.lr)):
        if is_given:
            raise InputError(
                f"{option(key)} is an option of models that learn in rounds, and {name} is fitted "
                "once",
                field=key,
                fix="leave it out, or pass the classifier itself to proselflc.audit_estimator in "
                "Python",
            )
