"""The results of `accuracy.py` as a table, with a summary."""

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
EXTRA = {
    "distillation": "a teacher with the same training budget",
    "pseudo_label": "a tenth of the true labels",
    "masking": "which classes can be confused",
}


def to_markdown(
    measured: Sequence[Mapping[str, Any]],
    times: Mapping[str, float],
    methods: Sequence[str],
    seeds: Sequence[int],
) -> str:
    """Return a row per method, the most accurate first; "–" is not measured yet."""
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
        mark = " ¹" if method in EXTRA else ""
        title = f"{find(method).title} (`{method}`){mark}"
        rows.append((order, f"| {title} | {' | '.join(cells)} |"))
    rows.sort(key=lambda row: -row[0])
    head = [COLUMNS["test_accuracy"], "minus cross entropy's", *list(COLUMNS.values())[1:]]
    head.append("time per epoch, × cross entropy's")
    verdict = describe(measured, methods, seeds)
    extras = "; ".join(f"`{method}` {extra}" for method, extra in EXTRA.items())
    note = f"¹ uses more than the given labels: {extras}."
    lines = [f"| method | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    return "\n".join([*lines, *(row for _, row in rows), "", note, "", verdict])


def describe(
    measured: Sequence[Mapping[str, Any]], methods: Sequence[str], seeds: Sequence[int]
) -> str:
    """Return the methods above and below cross entropy, by the 95 % interval of the difference."""
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
        "The 95 % interval of the difference to cross entropy is above 0 for "
        f"{named('more')}; below 0 for {named('less')}; and contains 0 for "
        f"{named('unclear')}.{diverged}"
    )


def differences(
    measured: Sequence[Mapping[str, Any]], method: str, seeds: Sequence[int]
) -> list[float | None]:
    """Return the difference to cross entropy for every seed, in points; None if not measured."""
    found = {(one["method"], one["seed"]): one["test_accuracy"] for one in measured}
    pairs = [(found.get((method, seed)), found.get(("cce", seed))) for seed in seeds]
    return [None if a is None or b is None else 100 * (a - b) for a, b in pairs]


def difference(measured: Sequence[Mapping[str, Any]], method: str, seeds: Sequence[int]) -> str:
    """Return the mean of `differences` and its 95 % interval as text."""
    points = differences(measured, method, seeds)
    return output.MISSING if method == "cce" else output.difference(points, [0.0] * len(points))
