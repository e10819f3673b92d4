"""What `detection.py` has measured, as tables: goals, what the audit says, and beside cleanlab."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from cells import HELD_BACK, Cell

OURS, FOLDED, NETWORK = "audit", "audit with folds", "cleanlab, the same network"
LOGISTIC, FOREST, BOOSTING = (
    "cleanlab, logistic regression",
    "cleanlab, random forest",
    "cleanlab, boosting",
)
OTHERS = (NETWORK, LOGISTIC, FOREST, BOOSTING)
NOISY = 0.08  # share of wrong labels from which the gain is counted; a drawn 10 % can be less

Row: TypeAlias = dict[str, Any]
Measured: TypeAlias = Sequence[tuple[Cell, int, dict[str, Row]]]  # cell, seed, rows by name
Goal: TypeAlias = tuple[str, str, str, bool | None]  # what, wanted, found, whether it is met


def goals(rows: Sequence[dict[str, Row]]) -> list[Goal]:
    """Return what the audit is to show, and whether it does, over cells and seeds."""
    ours = [row[OURS] for row in rows if OURS in row]
    noisy = [row for row in rows if OURS in row and NETWORK in row and row[OURS]["truth"] > 0]
    clean = [row for row in ours if row["truth"] == 0]
    gains = [row["right_by_change"] - (1 - row["truth"]) for row in ours]
    stated = [row for row in ours if row["stated_precision"] is not None]
    helped = [row for row in ours if row["truth"] >= NOISY and not row["is_weak"]]
    reached = sum(row["right_by_change"] - (1 - row["truth"]) for row in helped)
    possible = sum(row["right_by_known_rate"] - (1 - row["truth"]) for row in helped)
    share = reached / possible if possible else math.nan
    return [
        _goal("worst change of labels right, in points", "≥ −0.5", min(gains) * 100, -0.5, "+.2f"),
        _goal(
            "the same on clean labels, mean",
            "≥ −0.3",
            _mean(row["right_by_change"] - 1 for row in clean) * 100,
            -0.3,
            "+.2f",
        ),
        _goal(
            "gain, as a share of that with the rate known",
            "≥ 80 %",
            share,
            0.8,
        ),
        _goal("clean labels changed", "≤ 0.5 %", _mean(r["changed"] for r in clean), -0.005, ".2%"),
        _goal("clean labels suspect", "≤ 3 %", _mean(r["flagged"] for r in clean), -0.03, ".2%"),
        _goal(
            f"stated precision within 10 points ({len(stated)} of {len(ours)} state one)",
            "≥ 85 %",
            _mean(abs(r["stated_precision"] - r["precision"]) <= 0.1 for r in stated),
            0.85,
        ),
        _goal(
            "range contains the share of wrong labels",
            "≥ 85 %",
            _mean(r["low"] <= r["truth"] <= r["high"] for r in ours),
            0.85,
        ),
        _goal(
            "F1 of suspects at least cleanlab's with the same network",
            "≥ 90 %",
            _mean((r[OURS]["f1"] or 0) >= (r[NETWORK]["f1"] or 0) for r in noisy),
            0.9,
        ),
    ]


def _goal(what: str, wanted: str, found: float, bound: float, form: str = ".0%") -> Goal:
    """Return a goal; a bound below 0 of a share is an upper one."""
    if math.isnan(found):
        return what, wanted, "–", None
    is_met = -found >= bound if wanted.startswith("≤") else found >= bound
    return what, wanted, f"{found:{form}}", is_met


def in_markdown(measured: Measured) -> str:
    """Return all tables for the documents."""
    if not measured:
        return "Nothing is measured yet.\n"
    kept = [(c, s, r) for c, s, r in measured if c.data not in HELD_BACK]
    held = [(c, s, r) for c, s, r in measured if c.data in HELD_BACK]
    seeds = sorted({seed for _, seed, _ in measured})
    parts = [
        f"Goals, over {len(measured)} cells and seeds ({len(kept)} of the data sets that the rules "
        f"were chosen on with another seed, {len(held)} of data sets that chose nothing: "
        f"{', '.join(HELD_BACK)}):",
        _goal_table(kept, held),
        f"What the audit of one ProSelfLC run says, and what is true: mean ± standard deviation of "
        f'{len(seeds)} seeds. "Range" and "estimate" are of the share of wrong labels. '
        '"Labels right" is before → after `change` → after following all suspects.',
        _table(measured, AUDIT),
        "F1 and AUROC beside cleanlab's default, which judges the predictions of four folds. "
        'Boosting learns from 50 principal components; "–" was not run.',
        _table(measured, BESIDE),
    ]
    return "\n\n".join(parts) + "\n"


def in_words(measured: Measured) -> str:
    """Return the tables for a terminal."""
    return in_markdown(measured)


def _goal_table(kept: Measured, held: Measured) -> str:
    lines = ["| | wanted | data of the rules | held-back data |", "|---|---|---|---|"]
    columns = [goals([rows for _, _, rows in some]) if some else [] for some in (kept, held)]
    first = columns[0] or columns[1]
    for k, (what, wanted, _, _) in enumerate(first):
        cells = [_met(column[k]) if column else "–" for column in columns]
        lines.append(f"| {what} | {wanted} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _met(goal: Goal) -> str:
    return goal[2] if goal[3] is not False else f"**{goal[2]}, missed**"


def _range(rows: list[Row]) -> str:
    return f"{_mean(r['low'] for r in rows):.3f} – {_mean(r['high'] for r in rows):.3f}"


def _precision(rows: list[Row]) -> str:
    stated = [row["stated_precision"] for row in rows if row["stated_precision"] is not None]
    words = shown(stated, 2) if stated else "unknown"
    return f"{words} / {shown([row['precision'] for row in rows], 2)}"


def _right(rows: list[Row]) -> str:
    before = _mean(1 - row["truth"] for row in rows)
    after = shown([row["right_by_change"] for row in rows])
    return f"{before:.3f} → {after} → {_mean(row['right_by_suspects'] for row in rows):.3f}"


def _ours(measure: str, digits: int = 3) -> Callable[[dict[str, list[Row]]], str]:
    return lambda rows: shown([row[measure] for row in rows[OURS]], digits)


def _beside(name: str, measure: str) -> Callable[[dict[str, list[Row]]], str]:
    return lambda rows: shown([row[measure] for row in rows.get(name, [])], 2)


AUDIT: dict[str, Callable[[dict[str, list[Row]]], str]] = {
    "wrong": _ours("truth"),
    "estimate": _ours("rate"),
    "range": lambda rows: _range(rows[OURS]),
    "precision stated / real": lambda rows: _precision(rows[OURS]),
    "AUROC": _ours("auroc"),
    "AP": _ours("average_precision"),
    "precision": _ours("precision", 2),
    "recall": _ours("recall", 2),
    "F1": _ours("f1"),
    "labels right": lambda rows: _right(rows[OURS]),
    "CPU s: run + audit": lambda rows: (
        f"{_mean(r['trained'] for r in rows[OURS]):.1f} + "
        f"{_mean(r['audited'] for r in rows[OURS]):.1f}"
    ),
}
BESIDE: dict[str, Callable[[dict[str, list[Row]]], str]] = {
    **{f"F1: {name}": _beside(name, "f1") for name in (OURS, FOLDED, *OTHERS)},
    **{f"AUROC: {name}": _beside(name, "auroc") for name in (OURS, *OTHERS)},
    "CPU s: ours / folds of the network": lambda rows: (
        f"{_mean(r['trained'] + r['audited'] for r in rows[OURS]):.1f} / "
        f"{_mean(r['trained'] for r in rows.get(NETWORK, [])):.1f}"
    ),
}


def _table(measured: Measured, columns: dict[str, Callable[[dict[str, list[Row]]], str]]) -> str:
    head = ["labels", *columns]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in dict.fromkeys(cell.name for cell, _, _ in measured):
        rows: dict[str, list[Row]] = {}
        for cell, _, one in measured:
            if cell.name == name:
                for kind, row in one.items():
                    rows.setdefault(kind, []).append(row)
        if OURS in rows:
            cells = [make(rows) for make in columns.values()]
            lines.append(f"| {title(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def title(name: str) -> str:
    """Return the name of a cell for a table."""
    for kind, words in (("-symmetric-", ", symmetric "), ("-pairflip-", ", pair ")):
        name = name.replace(kind, words)
    return name


def shown(values: Sequence[float | None], digits: int = 3) -> str:
    """Return mean ± standard deviation, the mean alone of one value, "–" of none."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = f"{statistics.mean(known):.{digits}f}"
    if len(known) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(known):.{digits}f}"


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return statistics.mean(known) if known else float("nan")
