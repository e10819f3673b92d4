"""Which predictions of boosted trees tell wrong labels best: in-sample, out-of-fold or out-of-bag.

    python benchmarks/tree_predictions.py [--seeds 100]

Each judges the labels of the tables of `real_tables.py` as the audit does, with and without the
second opinion of the witness. These are development seeds: the rule was chosen by this script.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import real_tables
import result_file
import sklearn
import torch
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from tables import Array, flipped

from proselflc.auditing import verdict
from proselflc.auditing.records import HeldOut, Records
from proselflc.auditing.witness import of_inputs
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.serving import fit as fit_preprocessing
from proselflc.data.tables.encoding import for_trees
from proselflc.learners.boosting import Boosting
from proselflc.learners.learner import Fitted, LabelledTable, mean_over_rounds, predictions
from proselflc.training.observations import ROW, Rows

NOISES = (("symmetric", 0.15), ("pair", 0.30))
BAGS, SHARE = 10, 0.63


def recorded(p: Array, given: Array) -> Rows:
    """Return the predictions of a round as an epoch is recorded."""
    every = np.arange(len(given))
    row = np.zeros(len(given), ROW)
    row["predicted"], row["p_given"] = p.argmax(1), p[every, given]
    row["entropy"] = -(p * np.log(np.maximum(p, 1e-12))).sum(1)
    others = p.copy()
    others[every, given] = -1
    row["other"], row["p_other"], row["semantic"] = others.argmax(1), others.max(1), given
    return row


def held_out(table: LabelledTable, seed: int) -> tuple[Array, Array, Array]:
    """Return [n, C] out of fold after the last round, their mean over rounds, and out of bag."""
    n, C = len(table.y), table.num_classes
    last, mean, bagged, count = np.zeros((n, C)), np.zeros((n, C)), np.zeros((n, C)), np.zeros(n)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    for train, rest in folds.split(table.x, table.y):
        fitted: Fitted = Boosting().fit(table.take(train))
        last[rest], mean[rest] = (
            predict(fitted, table.x[rest]) for predict in (predictions, mean_over_rounds)
        )
    stream = np.random.default_rng(seed)
    for _ in range(BAGS):
        order = stream.permutation(n)
        inside, outside = np.split(order, [round(SHARE * n)])
        bagged[outside] += mean_over_rounds(Boosting().fit(table.take(inside)), table.x[outside])
        count[outside] += 1
    missing = count == 0
    bagged[missing], count[missing] = mean[missing], 1
    return last, mean, bagged / count[:, None]


def measured(records: Records, given: Array, y: Array, names: tuple[str, ...]) -> dict[str, float]:
    """Return how well the audit of some records tells wrong labels."""
    scores = verdict.assess(records, given, names).scores
    after = np.where(scores.change, scores.suggested, given)
    return {
        "auroc": float(roc_auc_score(given != y, -scores.quality)),
        "f1": float(f1_score(given != y, scores.suggested != given)),
        "gain": float((after == y).mean() - (given == y).mean()),
    }


def cells(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield what every kind of prediction measures on a table."""
    table = real_tables.load(name)
    names, y = np.unique(table.frame[table.label].to_numpy(str), return_inverse=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table.frame.to_csv(path, index=False)
        part = open_data(Request(data=str(path), label_column=table.label)).train
    prepared = fit_preprocessing(part.inputs)
    x, categorical = for_trees(prepared, part.inputs)
    C, words = len(names), tuple(map(str, names))
    for kind, rate in NOISES:
        given = flipped(y, C, kind, rate, seed)
        rows = LabelledTable(x, given, C, categorical)
        second = of_inputs(part.inputs, given, C, prepared)
        observed = [recorded(p, given) for p in Boosting().fit(rows).staged(x)][1::2]
        last, mean, bagged = held_out(rows, seed)
        judges = {
            "in sample, mean over rounds": None,
            "out of fold, last round": last,
            "out of fold, mean over rounds": mean,
            "out of bag, mean over rounds": bagged,
        }
        for judge, p in judges.items():
            for witness in (None, second):
                held = None if p is None else HeldOut(5, p)
                found = measured(Records(observed, held, witness), given, y, words)
                about = {"table": name, "kind": kind, "rate": rate, "seed": seed, "judge": judge}
                yield {**about, "witness": witness is not None, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = []
    for seed in options.seeds:
        for name in real_tables.TABLES:
            found += list(cells(name, seed))
            print(name, seed, flush=True)
    lines = [
        f"{len(real_tables.TABLES)} tables, 15 % symmetric and 30 % pair noise, development seeds "
        f"{', '.join(map(str, options.seeds))}; means.",
        "",
        "| predictions | witness | AUROC | F1 | labels right, gain | worst gain |",
        "|---|---|---|---|---|---|",
    ]
    for judge in dict.fromkeys(one["judge"] for one in found):
        for witness in (False, True):
            some = [c for c in found if c["judge"] == judge and c["witness"] == witness]
            auroc, f1, gain = (
                statistics.mean(c[key] for c in some) for key in ("auroc", "f1", "gain")
            )
            worst = min(c["gain"] for c in some)
            lines.append(
                f"| {judge} | {'yes' if witness else 'no'} | {auroc:.4f} | {f1:.4f} | "
                f"{gain:+.4f} | {worst:+.4f} |"
            )
    text = "\n".join(lines)
    print(text)
    made_with = {
        "python": platform.python_version(),
        "scikit-learn": sklearn.__version__,
        "machine": platform.machine(),
    }
    result_file.write(
        "tree_predictions",
        found,
        text,
        config={"noises": NOISES, "bags": BAGS},
        seeds=options.seeds,
        made_with=made_with,
    )


if __name__ == "__main__":
    main()
