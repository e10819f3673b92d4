"""Whether the audit does harm where classes overlap: simulated tables of several clusters.

scikit-learn's `make_classification` draws 2,000 rows of 12 columns, 6 of them informative. Classes
that consist of several overlapping clusters are the hardest case that we know for the audit: its
two models can be sure and wrong in the same places. Labels are clean, or a share of them is
replaced by another class. The run has default options. `SEEDS` are reported and chose nothing; with
`--development` other ones are measured and printed.

    python benchmarks/overlapping_tables.py [--development]
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import result_file
import torch
from sklearn.datasets import make_classification

import proselflc

CLASSES, CLUSTERS, SEPARATIONS, RATES = (2, 3, 5), (1, 3), (0.8, 1.2), (0.0, 0.1, 0.3)
SEEDS, DEVELOPMENT_SEEDS = (1, 2, 3), (100, 101)
HARM = 0.005  # a share of right labels that must not be lost


def measured(classes: int, clusters: int, separation: float, rate: float, seed: int) -> Any:
    """Return what the audit of a default run says about one table, and what is true."""
    x, clean = make_classification(
        2000,
        12,
        n_informative=6,
        n_classes=classes,
        n_clusters_per_class=clusters,
        class_sep=separation,
        flip_y=0,
        random_state=seed,
    )
    draw = np.random.default_rng(seed)
    step = draw.integers(1, classes, len(clean))
    y = np.where(draw.random(len(clean)) < rate, (clean + step) % classes, clean)
    run = proselflc.fit(x.astype(np.float32), y, seed=seed, notes=False)
    audit, table = run.audit, run.examples
    suggested = np.array([int(name) for name in table["suggested_label"].to_pylist()])
    change = np.array(table["action"].to_pylist()) == "change"
    suspect = table["is_suspect"].to_numpy()
    return {
        "classes": classes,
        "clusters": clusters,
        "separation": separation,
        "rate": rate,
        "seed": seed,
        "truth": float((y != clean).mean()),
        "low": audit.noise_low,
        "high": audit.noise_high,
        "stated": audit.expected_precision,
        "precision": float((y != clean)[suspect].mean()) if suspect.any() else None,
        "changed": float(change.mean()),
        "before": float((y == clean).mean()),
        "after": float((np.where(change, suggested, y) == clean).mean()),
        "after_suspects": float((suggested == clean).mean()),
        "warnings": [warning.code for warning in audit.warnings],
    }


def in_markdown(rows: Sequence[Any]) -> str:
    lines = [
        "| classes | clusters each | separation | wrong | tables | labels right: before | after "
        "`change` | worst change, points | harmed by more than 0.5 | after all suspects | changed "
        "| range contains the share | stated precision within 10 points |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (classes, clusters, separation), rate in product(_kinds(), RATES):
        those = [
            row
            for row in rows
            if (row["classes"], row["clusters"], row["separation"])
            == (classes, clusters, separation)
            and row["rate"] == rate
        ]
        lines.append(f"| {classes} | {clusters} | {separation} | {rate:.0%} | {_cells(those)} |")
    for rate in RATES:
        those = [row for row in rows if row["rate"] == rate]
        lines.append(f"| all |  |  | {rate:.0%} | {_cells(those)} |")
    return "\n".join(lines)


def _kinds() -> Iterator[tuple[int, int, float]]:
    return product(CLASSES, CLUSTERS, SEPARATIONS)


def _cells(rows: Sequence[Any]) -> str:
    gains = [row["after"] - row["before"] for row in rows]
    stated = [row for row in rows if row["stated"] is not None and row["precision"] is not None]
    close = sum(abs(row["stated"] - row["precision"]) <= 0.1 for row in stated)
    inside = sum(row["low"] <= row["truth"] <= row["high"] for row in rows)
    return " | ".join(
        (
            str(len(rows)),
            *(_mean(row[name] for row in rows) for name in ("before", "after")),
            f"{100 * min(gains):+.1f}",
            str(sum(gain < -HARM for gain in gains)),
            *(_mean(row[name] for row in rows) for name in ("after_suspects", "changed")),
            f"{inside} of {len(rows)}",
            f"{close} of {len(stated)}",
        )
    )


def _mean(values: Iterator[float]) -> str:
    found = np.array(list(values))
    return f"{found.mean():.3f} ± {found.std(ddof=1):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--development", action="store_true", help="measure other seeds, and print")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in DEVELOPMENT_SEEDS if given.development else SEEDS:
        for kind, rate in product(_kinds(), RATES):
            rows.append(measured(*kind, rate, seed))
            print(rows[-1], flush=True)
    text = in_markdown(rows)
    print(text)
    if not given.development:
        result_file.write(
            "overlapping_tables",
            rows,
            text,
            config={"rows": 2000, "columns": 12, "informative": 6},
            seeds=SEEDS,
            made_with=f"proselflc {proselflc.__version__}, torch {torch.__version__}, "
            f"Python {platform.python_version()}",
        )


if __name__ == "__main__":
    main()
