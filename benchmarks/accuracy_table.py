"""What `accuracy.py` has measured, as a table and in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from proselflc.correction.catalogue import METHODS

MEASURES = ("test_accuracy", "wrong_fitting", "semantic_correction", "correct_fitting", "ece")
COLUMNS = {
    "test_accuracy": "last test accuracy, %",
    "wrong_fitting": "wrong labels learned, %",
    "semantic_correction": "wrong labels corrected, %",
    "auroc": "AUROC of the audit",
}
TOLD = {
    "distillation": "a teacher that has trained as long itself",
    "pseudo_label": "a tenth of the true labels",
    "masking": "which classes can be confused",
}
STUDENT = 4.303  # 97.5th percentile of Student's t with two degrees of freedom, for three seeds


def in_markdown(
    measured: Sequence[Mapping[str, Any]],
    times: Mapping[str, float],
    methods: Sequence[str],
    seeds: Sequence[int],
) -> str:
    """A row per method, the most accurate first; "–" is not measured yet."""
    rows = []
    for method in methods:
        found = {one["seed"]: one for one in measured if one["method"] == method}
        cells, order = [], -1.0
        for name in COLUMNS:
            values = [one[name] for one in found.values() if one[name] is not None]
            if len(values) < len(seeds):
                cells.append("–")
                continue
            scale, digits = (1, 3) if name == "auroc" else (100, 1)
            mean, std = statistics.mean(values) * scale, statistics.stdev(values) * scale
            cells.append(f"{mean:.{digits}f} ± {std:.{digits}f}")
            if name == "test_accuracy":
                order = mean
        cells.insert(1, difference(measured, method, seeds))
        cells.append(f"{times[method]:.2f}" if method in times else "–")
        mark = " ¹" if method in TOLD else ""
        title = f"{METHODS[method].title} (`{method}`){mark}"
        rows.append((order, f"| {title} | {' | '.join(cells)} |"))
    rows.sort(key=lambda row: -row[0])
    head = [COLUMNS["test_accuracy"], "less cross entropy's", *list(COLUMNS.values())[1:]]
    head.append("time per epoch, × cross entropy's")
    told = "; ".join(f"`{method}` {what}" for method, what in TOLD.items())
    note = f"¹ is told more than the given labels: {told}."
    lines = [f"| method | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    return "\n".join([*lines, *(row for _, row in rows), "", note])


def difference(measured: Sequence[Mapping[str, Any]], method: str, seeds: Sequence[int]) -> str:
    """Points of accuracy more than cross entropy's with the same seed, and a 95 % interval."""
    accuracy = {(one["method"], one["seed"]): one["test_accuracy"] for one in measured}
    if method == "cce" or any(
        (name, seed) not in accuracy for name in (method, "cce") for seed in seeds
    ):
        return "–"
    points = [100 * (accuracy[method, seed] - accuracy["cce", seed]) for seed in seeds]
    half = STUDENT * statistics.stdev(points) / math.sqrt(len(points))
    return f"{statistics.mean(points):+.1f} ± {half:.1f}"
