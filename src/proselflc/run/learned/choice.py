"""Which model learns a table, if the user does not choose: a network or boosted trees.

Both learn two thirds of a sample of the rows, three times, and predict the rest. The one that
agrees with more of the given labels is used. Wrong labels lower both numbers alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from proselflc.data import splits
from proselflc.data.batches import one_thread, random_stream
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features, Floats
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.serving import fit as fit_preprocessing
from proselflc.data.tables.encoding import for_trees
from proselflc.learners.boosting import Boosting
from proselflc.learners.learner import Doubles, LabelledTable, Learner, predictions
from proselflc.run.config import Config
from proselflc.run.learned import options
from proselflc.run.prepare import LabelledData, PreparedRun, prepare
from proselflc.training import processes
from proselflc.training.loop import Training, train_steps
from proselflc.training.recipe import EPOCHS
from proselflc.wording import option

AUTO = "auto"
NETWORK, TREES = "mlp", "boosting"
MOST_ROWS, FOLDS = 3000, 3
MOST_FOR_TREES = 1_000_000  # rows; scikit-learn keeps several copies of them in memory
_FEWEST_ROWS = 12


@dataclass(frozen=True)
class NetworkLearner:
    """The network for tables, trained in the loop without a run directory."""

    config: Config
    rounds: int = EPOCHS
    takes_codes: ClassVar[bool] = False

    def fit(self, table: LabelledTable) -> FittedNetwork:
        """Train the network on a table."""
        n = len(table.y)
        part = Part(Features(table.x), table.y, tuple(map(str, range(n))))
        names = tuple(map(str, range(table.num_classes)))
        config = replace(
            self.config, model=NETWORK, noise=None, noise_seed=None, trusted=None, tracker=None
        )
        prepared = prepare(config, Dataset("rows", part, names), report=lambda note: None)
        training = Training(
            prepared.model,
            prepared.strategy,
            prepared.config.recipe,
            prepared.total_steps,
            len(prepared.train),
            accelerator=processes.accelerator(prepared.config.recipe.precision),
        )
        deque(train_steps(training, prepared.train), maxlen=0)
        return FittedNetwork(prepared, training.evaluated)


@dataclass(frozen=True)
class FittedNetwork:
    """A trained network; only its last epoch is kept."""

    prepared: PreparedRun
    network: nn.Module

    def staged(self, x: Floats) -> Iterator[Doubles]:
        """Yield the probabilities [N, C] of N rows after the last epoch."""
        network = self.network.eval()
        with torch.inference_mode():
            device = next(network.parameters()).device
            rows = self.prepared.preprocessing(Features(x)).to(device)
            p: Doubles = torch.softmax(network(rows).double(), 1).cpu().numpy()
        yield p

    def module(self) -> nn.Module:
        """Return the network."""
        return self.network


@dataclass(frozen=True)
class Choice:
    """The model that was chosen, and a sentence that says why."""

    name: str
    why: str


def chooses(config: Config, data: LabelledData) -> bool:
    """Return whether the model of a config is to be chosen here.

    It is if the user asks for it, and for a table with named columns if no model is named.
    """
    inputs = data.dataset.train.inputs
    is_table = inputs.medium == "table" and inputs.columns is not None
    if inputs.medium != "table":
        return False
    return config.model == AUTO or (
        config.model is None and is_table and config.request.features is None
    )


def choose(
    config: Config, data: LabelledData, preprocessing: Preprocessing | None = None
) -> Choice:
    """Return the model for a table, by held-out agreement with its labels."""
    inputs, given = data.dataset.train.inputs, data.labels.given
    trees = option("model", TREES)
    meant = _of_network(config)
    if meant is not None:
        return Choice(NETWORK, f"{option(meant)} is for a network, so {NETWORK} learns the table")
    if len(given) < _FEWEST_ROWS:
        return Choice(NETWORK, f"the table has only {len(given)} rows, so {NETWORK} learns it")
    if len(given) > MOST_FOR_TREES:
        return Choice(
            NETWORK,
            f"the table has {len(given):,} rows, so {NETWORK} learns it, which needs less memory; "
            f"choose yourself with {trees}",
        )
    stream = random_stream(config.recipe.seed, "choice of a model")
    rows = np.arange(len(given))
    if len(given) > MOST_ROWS:
        rows = np.sort(stream.choice(len(given), MOST_ROWS, replace=False))
    some, y, C = inputs.take(rows), given[rows], len(data.labels.names)
    preprocessing = preprocessing or fit_preprocessing(some)
    x, categorical = for_trees(preprocessing, some)
    dense: Floats = preprocessing(some).numpy()
    learners: dict[str, tuple[Learner, LabelledTable]] = {
        NETWORK: (NetworkLearner(config), LabelledTable(dense, y, C)),
        TREES: (Boosting(seed=config.recipe.seed), LabelledTable(x, y, C, categorical)),
    }
    folds = splits.folds(y, FOLDS, generator=stream)
    agreed = dict.fromkeys(learners, 0)
    with one_thread():
        for split in folds:
            for name, (learner, table) in learners.items():
                fitted = learner.fit(table.take(split.train))
                p = predictions(fitted, table.x[split.validation])
                agreed[name] += int((p.argmax(1) == y[split.validation]).sum())
    shares = {name: count / len(y) for name, count in agreed.items()}
    best = TREES if shares[TREES] > shares[NETWORK] else NETWORK
    other = NETWORK if best == TREES else TREES
    return Choice(
        best,
        f"{best} learns the table: it agrees with {shares[best]:.1%} of the labels that it did not "
        f"see, {other} with {shares[other]:.1%}; choose yourself with "
        f"{trees if best == NETWORK else option('model', NETWORK)}",
    )


def _of_network(config: Config) -> str | None:
    """Return an option that the user has set and that only a network follows, or None."""
    given = options.of_training(config)
    if given:
        return given[0]
    if config.method not in options.METHODS:
        return "method"
    return f"method.{next(iter(config.parameters))}" if config.parameters else None
