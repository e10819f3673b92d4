"""Predictions for the rows of a table by models that did not see them, which judge its labels.

Whatever learns a table, its labels are judged by an ensemble of boosted trees that is fitted by
folds and by a forest. A learner of tables takes the place of the boosted trees in its own run.
"""

from __future__ import annotations

import numpy as np

from proselflc.auditing import held_out
from proselflc.auditing.records import HeldOut, together
from proselflc.auditing.verdict import Compared
from proselflc.data import splits
from proselflc.data.batches import one_thread, random_stream
from proselflc.data.inputs import Floats, Inputs
from proselflc.data.labels import Labels
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.tables.encoding import for_trees
from proselflc.learners.boosting import Boosting
from proselflc.learners.learner import LabelledTable, mean_over_rounds
from proselflc.training.run_directory import RunDirectory

FOLDS = 5


def of_network(
    inputs: Inputs, labels: Labels, preprocessing: Preprocessing, compared: Compared, seed: int
) -> HeldOut | None:
    """Return the judges of a table that a network has learned; None for other inputs."""
    n, C = len(labels.given), len(labels.names)
    folds = min(FOLDS, n // 2)
    if compared.forest is None or folds < 2:
        return None
    x, categorical = for_trees(preprocessing, inputs)
    table = LabelledTable(x, labels.given, C, categorical)
    p: Floats = np.zeros((n, C), np.float32)
    with one_thread():
        stream = random_stream(seed, "folds", folds)
        for split in splits.folds(labels.given, folds, generator=stream):
            fitted = Boosting(seed=seed).fit(table.take(split.train))
            p[split.validation] = mean_over_rounds(fitted, x[split.validation])
    return judged(p, folds, compared)


def judged(p: Floats, folds: int, compared: Compared) -> HeldOut:
    """Return out-of-fold predictions [n, C] together with those of the forest, if there is one."""
    both = p if compared.forest is None else together(p, compared.forest)
    return HeldOut(folds, both.astype(np.float16), is_calibrated=True)


def write(directory: RunDirectory, labels: Labels, held: HeldOut, seed: int) -> None:
    """Write predictions [n, C] as those of an audit by folds are written."""
    directory.folds.mkdir(exist_ok=True)
    kept = held_out.kept(held.p.astype(np.float32), labels.given)
    held_out.write(directory.folds_p, (len(labels.given), len(labels.names)), [kept])
    facts = {
        "folds": held.folds,
        "seed": seed,
        "fingerprint": labels.fingerprint,
        "is_calibrated": held.is_calibrated,
    }
    directory.write_json(directory.folds_done, facts)
