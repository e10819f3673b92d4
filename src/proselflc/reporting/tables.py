"""The tables of a page: runs, calibration, confused pairs, classes, options and files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from proselflc.auditing.detection import suspect_pairs
from proselflc.data.class_matrix import ClassMatrix
from proselflc.pages.html_page import Cell, Column, Table, name_cell, share_cell
from proselflc.pages.values import NAME, TITLE, flattened, number, percent, share, shorten
from proselflc.reporting.gallery import codes
from proselflc.reporting.run_facts import RunFacts
from proselflc.run import audit_words

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CLASSES = 1000  # rows of the table of classes
MOST_PAIRS = 10
MOST_OPTIONS = 200
MOST_DIFFERING = 20  # columns of the table of different options

_FILES = {
    "config.toml": "every option, the seed and the versions",
    "labels.npz": "the given labels and their fingerprint",
    "history.jsonl": "measures during training",
    "dynamics": "predictions for every example in every epoch",
    "examples.parquet": "given and suggested label, action and quality of every example",
    "audit.json": "estimated noise rate, overall and by class, and warnings",
    "audit.npz": "estimated counts by true and given class",
    "neighbours.npz": "the nearest neighbours of every example",
    "map.npz": "a point on the map for every example",
    "review.jsonl": "decisions of the review",
    "inputs.parquet": "the examples, kept to be shown",
    "inputs.npz": "the examples, kept to be shown",
    "transition.npy": "the transition matrix that the method used",
    "evaluation.json": "measures on the test and validation sets",
    "summary.json": "the most important numbers",
    "model.safetensors": "the weights of the model",
    "model.json": "its architecture, classes and preprocessing",
    "manifest.json": "checksums of the other files",
    "checkpoints": "states to resume from",
    "tracking": "files of a tracker",
}


def runs(reported: Sequence[RunFacts]) -> Table:
    """Return a row per run; columns without numbers are omitted."""
    # Each has a title, a value, how that is written, and whether a large value is good.
    columns: list[
        tuple[str, Callable[[RunFacts], float | None], Callable[[float], str] | None, int]
    ] = [
        ("test accuracy", lambda one: one.accuracy, percent, 1),
        ("right after changes", _of_summary("label_accuracy_after"), percent, 1),
        ("wrong labels fitted", _of_summary("wrong_fitting"), percent, -1),
        ("AUROC of quality", _auroc, lambda value: f"{value:.3f}", 1),
        ("calibration error", _of_summary("ece"), lambda value: f"{value:.3f}", -1),
        ("labels look wrong", lambda one: one.noise_rate, None, 0),  # a range
        ("suspects", _suspects, lambda value: f"{value:,.0f}", 0),
        ("seconds", lambda one: number(one.summary, "seconds"), lambda value: f"{value:,.0f}", 0),
    ]
    shown: list[Column] = [
        ("run", False, [Cell(one.name) for one in reported]),
        ("method", False, [name_cell(one.method) for one in reported]),
    ]
    for title, value, words, sense in columns:
        values = [value(one) for one in reported]
        best = max((sense * v for v in values if v is not None), default=None)
        if best is None:
            continue
        cells = [
            Cell("–")
            if v is None
            else Cell(
                _range(one) if words is None else words(v),
                order=v,
                is_best=sense != 0 and sense * v == best,
            )
            for one, v in zip(reported, values, strict=True)
        ]
        shown.append((title, True, cells))
    return Table.of_columns("Runs compared", shown, True)


def calibration(reported: Sequence[RunFacts]) -> Table | None:
    """Return the calibration errors for the paper's temperatures; None if no run has any."""
    errors: dict[tuple[int, float], dict[tuple[str, str], float]] = {}
    for k, facts in enumerate(reported):
        for row in facts.test.get("calibration") or []:  # type: ignore[attr-defined]
            found = errors.setdefault((k, row["T"]), {})
            found[row["reading"], row["measure"]] = row["ece"]
    if not errors:
        return None
    columns: list[Column] = []
    if len(reported) > 1:
        columns.append(("run", False, [Cell(reported[k].name) for k, _ in errors]))
    columns.append(("T", True, [Cell(_fraction(T), order=T) for _, T in errors]))
    measures = {
        "max_p": "max\N{NO-BREAK SPACE}p",
        "entropy": "1\N{NO-BREAK SPACE}−\N{NO-BREAK SPACE}H(p)/H(u)",
    }
    for reading, sign in (("divide", "÷"), ("multiply", "×")):
        for measure, name in measures.items():
            cells = [
                Cell("–") if ece is None else Cell(f"{ece:.3f}", order=ece)
                for ece in (found.get((reading, measure)) for found in errors.values())
            ]
            title = f"logits\N{NO-BREAK SPACE}{sign}\N{NO-BREAK SPACE}T, {name}"
            columns.append((title, True, cells))
    return Table.of_columns("Expected calibration error", columns, False)


def pairs(table: pa.Table) -> Table | None:
    """Return the most frequent pairs of given and suggested class; None without suspects."""
    found = suspect_pairs(table, MOST_PAIRS)
    if not found:
        return None
    columns: list[Column] = [
        ("given", False, [name_cell(pair.given_label) for pair in found]),
        ("suggested", False, [name_cell(pair.suggested_label) for pair in found]),
        ("examples", True, [Cell(f"{pair.count:,}", order=pair.count) for pair in found]),
    ]
    if "clean_label" in table.column_names:
        right = [share_cell((pair.right or 0) / pair.count, 0) for pair in found]
        columns.append(("right", True, right))
    return Table.of_columns("Suspects by suggested label", columns, True)


def classes(facts: RunFacts, table: pa.Table) -> tuple[Table, int]:
    """Return a row per class, at most `MOST_CLASSES` by suspects, and the number of classes."""
    audit = facts.audit
    code, own = codes(table)
    given = np.bincount(code, minlength=len(own))
    suspect = np.bincount(code[table["is_suspect"].to_numpy()], minlength=len(own))
    place = {label: k for k, label in enumerate(own)}
    names = own if audit is None else list(audit.names)
    tested: Any = facts.test.get("per_class") or []
    tested = tested if len(tested) == len(names) and audit is not None else []
    counts = [
        (int(given[place[n]]), int(suspect[place[n]])) if n in place else (0, 0) for n in names
    ]
    kept = sorted(range(len(names)), key=lambda k: (-counts[k][1], -counts[k][0], k))
    shown = sorted(kept[:MOST_CLASSES])
    columns: list[Column] = [
        ("class", False, [name_cell(names[k]) for k in shown]),
        ("examples", True, [Cell(f"{counts[k][0]:,}", order=counts[k][0]) for k in shown]),
        ("suspects", True, [Cell(f"{counts[k][1]:,}", order=counts[k][1]) for k in shown]),
    ]
    shares = {"test accuracy": tested} if tested else {}
    if audit is not None:
        wrong = {"look wrong": _wrong(audit.joint)}
        if audit.realised is not None:
            wrong["are wrong"] = _wrong(audit.realised)
        shares = {**wrong, **shares}
    for title, values in shares.items():
        columns.append((title, True, [share_cell(values[k]) for k in shown]))
    return Table.of_columns("Numbers by class", columns, True), len(names)


def options(reported: Sequence[RunFacts]) -> tuple[Table, Table | None]:
    """Return the common options, and those that differ between the runs, or None."""
    values = written_options(reported)
    differing = [key for key, of_it in values.items() if len(set(of_it)) > 1]
    alike = tuple(
        (name_cell(key), name_cell(of_it[0], 2 * NAME))
        for key, of_it in values.items()
        if key not in differing
    )
    table = Table("Options", ("option", "value"), (False, False), alike[:MOST_OPTIONS])
    if not differing:
        return table, None
    shown = differing[:MOST_DIFFERING]
    rows = tuple(
        (Cell(one.name), *(name_cell(values[key][k]) for key in shown))
        for k, one in enumerate(reported)
    )
    heading = ("run", *(shorten(key) for key in shown))
    return table, Table("Options that differ", heading, (False,) * len(heading), rows)


def written_options(reported: Sequence[RunFacts]) -> dict[str, tuple[str, ...]]:
    """Return every option with its value for each run, as text."""
    flat = [flattened(facts.config) for facts in reported]
    keys = dict.fromkeys(key for one in flat for key in one)
    return {key: tuple(_written(one.get(key)) for one in flat) for key in keys}


def files(facts: RunFacts) -> Table:
    """Return the files of a run and their content."""
    rows = []
    for file, holds in _FILES.items():
        path = facts.run.path / file
        if path.is_dir():
            rows.append((Cell(file + "/"), Cell(""), Cell(holds)))
        elif path.is_file():
            size = path.stat().st_size
            rows.append((Cell(file), Cell(_size(size), order=size), Cell(holds)))
    return Table("Files of the run", ("file", "size", "content"), (False, True, False), tuple(rows))


def _of_summary(key: str) -> Callable[[RunFacts], float | None]:
    return lambda facts: share(facts.summary, key)


def _auroc(facts: RunFacts) -> float | None:
    found = facts.summary.get("detection")
    return share(found, "auroc") if isinstance(found, dict) else None


def _suspects(facts: RunFacts) -> float | None:
    return None if facts.audit is None else float(facts.audit.suspects)


def _range(facts: RunFacts) -> str:
    return "" if facts.audit is None else audit_words.noise_range(facts.audit)


def _fraction(T: float) -> str:
    return f"1/{round(1 / T)}" if 0 < T < 1 and math.isclose(round(1 / T) * T, 1) else f"{T:g}"


def _wrong(joint: ClassMatrix) -> list[float | None]:
    """Return the share of every given class, a column, whose true class is another."""
    totals, rights = joint.sum(0).tolist(), joint.diagonal().tolist()
    return [
        1 - right / total if total > 0 else None
        for total, right in zip(totals, rights, strict=True)
    ]


def _written(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)[: 20 * TITLE]


def _size(size: int) -> str:
    for unit, bytes_ in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size} B"
