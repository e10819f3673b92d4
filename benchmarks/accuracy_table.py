"""What `accuracy.py` has measured, as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from proselflc.correction.catalogue import METHODS

MEASURES = ("test_accuracy", "wrong_fitting", "semantic_correction", "correct_fitting", "ece")


def in_markdown(
    measured: Sequence[dict[str, Any]], methods: Sequence[str], seeds: Sequence[int]
) -> str:
    """A row per method, best first; "–" where not all seeds are there."""
    columns = {
        "test_accuracy": "last test accuracy, %",
        "wrong_fitting": "wrong labels learned, %",
        "semantic_correction": "wrong labels corrected, %",
        "auroc": "AUROC of the audit",
    }
    rows = []
    for method in methods:
        found = [one for one in measured if one["method"] == method]
        cells, order = [], -1.0
        for name in columns:
            values = [one[name] for one in found if one[name] is not None]
            if len(values) < len(seeds):
                cells.append("–")
                continue
            scale, digits = (1, 3) if name == "auroc" else (100, 1)
            mean, std = statistics.mean(values) * scale, statistics.stdev(values) * scale
            cells.append(f"{mean:.{digits}f} ± {std:.{digits}f}")
            if name == "test_accuracy":
                order = mean
        rows.append((order, f"| {METHODS[method].title} (`{method}`) | {' | '.join(cells)} |"))
    rows.sort(key=lambda row: -row[0])
    head = f"| method | {' | '.join(columns.values())} |"
    return "\n".join([head, "|---|" + "---|" * len(columns), *(row for _, row in rows)])
