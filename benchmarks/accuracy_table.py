"""What `accuracy.py` has measured, as a table and in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from proselflc.methods import find
from proselflc.paper import output

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
                failed = sum("diverged" in one for one in found.values())
                cells.append(f"{failed} of {len(seeds)} diverged" if failed else "–")
                continue
            scale, digits = (1, 3) if name == "auroc" else (100, 1)
            cells.append(output.mean_std([scale * value for value in values], digits=digits))
            if name == "test_accuracy":
                order = statistics.mean(values)
        cells.insert(1, difference(measured, method, seeds))
        cells.append(f"{times[method]:.2f}" if method in times else "–")
        mark = " ¹" if method in TOLD else ""
        title = f"{find(method).title} (`{method}`){mark}"
        rows.append((order, f"| {title} | {' | '.join(cells)} |"))
    rows.sort(key=lambda row: -row[0])
    head = [COLUMNS["test_accuracy"], "less cross entropy's", *list(COLUMNS.values())[1:]]
    head.append("time per epoch, × cross entropy's")
    words = in_words(measured, methods, seeds)
    told = "; ".join(f"`{method}` {what}" for method, what in TOLD.items())
    note = f"¹ is told more than the given labels: {told}."
    lines = [f"| method | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    return "\n".join([*lines, *(row for _, row in rows), "", note, "", words])


def in_words(
    measured: Sequence[Mapping[str, Any]], methods: Sequence[str], seeds: Sequence[int]
) -> str:
    """Which methods are more accurate than cross entropy, and which nobody can tell."""
    kinds: dict[str, list[str]] = {"more": [], "less": [], "unclear": [], "diverged": []}
    for method in methods:
        points = differences(measured, method, seeds)
        if method == "cce" or any(point is None for point in points):
            if any("diverged" in one for one in measured if one["method"] == method):
                kinds["diverged"].append(method)
            continue
        mean, half = output.interval(points) or (0.0, 0.0)
        kind = "more" if mean - half > 0 else "less" if mean + half < 0 else "unclear"
        kinds[kind].append(method)

    def named(kind: str) -> str:
        return ", ".join(f"`{method}`" for method in kinds[kind]) or "none"

    diverged = f" Diverged: {named('diverged')}." if kinds["diverged"] else ""
    return (
        f"More accurate than cross entropy, as far as the interval says: {named('more')}. Less "
        f"accurate: {named('less')}. Nobody can tell: {named('unclear')}.{diverged}"
    )


def differences(
    measured: Sequence[Mapping[str, Any]], method: str, seeds: Sequence[int]
) -> list[float | None]:
    """Points of accuracy more than cross entropy's, for every seed; None where not measured."""
    found = {(one["method"], one["seed"]): one["test_accuracy"] for one in measured}
    pairs = [(found.get((method, seed)), found.get(("cce", seed))) for seed in seeds]
    return [None if a is None or b is None else 100 * (a - b) for a, b in pairs]


def difference(measured: Sequence[Mapping[str, Any]], method: str, seeds: Sequence[int]) -> str:
    """The mean of `differences` and its 95 % interval."""
    points = differences(measured, method, seeds)
    return output.MISSING if method == "cce" else output.difference(points, [0.0] * len(points))
