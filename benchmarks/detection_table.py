"""What `detection.py` has measured: mean and standard deviation over seeds, in tables and words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from settings import Setting
from trainings import FOLDS

OURS, OURS_CCE, OURS_FOLDS = "audit proselflc", "audit cce", "audit folds"
DEFAULT, BEST = "cleanlab default", "cleanlab best"
ROWS = {
    OURS: "our audit, one ProSelfLC run",
    OURS_CCE: "our audit, one cross-entropy run",
    OURS_FOLDS: f"our audit, {FOLDS} folds and a run",
    DEFAULT: f"cleanlab by default, {FOLDS} folds",
    BEST: f"cleanlab at best, {FOLDS} folds",
    "argmax proselflc": "arg max, one ProSelfLC run",
    "argmax cce": "arg max, one cross-entropy run",
    "margin proselflc": "mean margin, one ProSelfLC run",
    "margin cce": "mean margin, one cross-entropy run",
}
MEASURES = {
    "auroc": "AUROC",
    "average_precision": "AP",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "labels_after": "labels right",
}
UNITS = {"seconds": "CPU seconds", "steps": "steps"}
IN_DOCUMENTS = {
    OURS: "**our audit, one ProSelfLC run**",
    OURS_CCE: "our audit, one cross-entropy run",
    DEFAULT: ROWS[DEFAULT],
    BEST: ROWS[BEST],
    "argmax proselflc": "arg max of the ProSelfLC run",
    "margin proselflc": "mean margin of the ProSelfLC run",
}
SHARE = 0.25  # of confident learning's cost that one run may take

Numbers: TypeAlias = Mapping[str, float | None]
Summary: TypeAlias = dict[str, Any]  # plain JSON


@dataclass(frozen=True)
class Measured:
    """What is there of one setting with one seed.

    Attributes:
        labels: facts about the labels.
        rows: measures, seconds and steps by row.
    """

    labels: Mapping[str, Any]
    rows: Mapping[str, Numbers]


def summary(setting: Setting, by_seed: Mapping[int, Measured]) -> Summary:
    """A setting, over the seeds of which anything was measured."""
    labels = {str(seed): one.labels for seed, one in by_seed.items()}
    first: Mapping[str, Any] = next(iter(labels.values()), {})
    kinds = dict.fromkeys((*ROWS, *(row for one in by_seed.values() for row in one.rows)))
    return {
        "title": setting.title,
        "examples": first.get("examples"),
        "classes": first.get("classes"),
        "noise_rate": mean_std([one["noise_rate"] for one in labels.values()]),
        "fingerprints": {seed: one["fingerprint"] for seed, one in labels.items()},
        "rows": {
            row: _row([_beside_ours(one, row) for one in by_seed.values() if row in one.rows])
            for row in kinds
        },
        "verdicts": [*_detection_verdicts(by_seed), *_cost_verdicts(by_seed)],
    }


def mean_std(values: Sequence[float | None]) -> Summary | None:
    """Over the seeds; None without seeds, or where one of them has no number."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": statistics.mean(known), "std": std}


def _beside_ours(one: Measured, row: str) -> Numbers:
    """A row with what its training took, in multiples of our one run."""
    ours = one.rows[OURS]["seconds"] if OURS in one.rows else None
    seconds = one.rows[row]["seconds"]
    return {**one.rows[row], "times_ours": seconds / ours if seconds and ours else None}


def _row(seeds: Sequence[Numbers]) -> Summary:
    """Every number of a row; none where there is no seed."""
    names = seeds[0] if seeds else ()
    return {
        "seeds": len(seeds),
        **{name: mean_std([numbers[name] for numbers in seeds]) for name in names},
    }


def _detection_verdicts(by_seed: Mapping[int, Measured]) -> list[Summary]:
    """By how much one run of ours is better than cleanlab, seed by seed."""
    result = []
    for measure in ("auroc", "f1"):
        for other in (BEST, DEFAULT):
            both = [one.rows for one in by_seed.values() if {OURS, other} <= set(one.rows)]
            found = mean_std(
                [(rows[OURS][measure] or 0) - (rows[other][measure] or 0) for rows in both]
            )
            is_met = None if found is None else round(found["mean"], 3) >= 0
            result.append(_verdict(measure, [other], found, len(both), is_met))
    return result


def _cost_verdicts(by_seed: Mapping[int, Measured]) -> list[Summary]:
    """What one run costs as a share of the folds', without and with a final run on everything."""
    result = []
    for measure in UNITS:
        for others in ([BEST], [BEST, OURS_CCE]):
            known = [one.rows for one in by_seed.values() if {OURS, *others} <= set(one.rows)]
            found = mean_std(
                [
                    (rows[OURS][measure] or 0) / sum(rows[other][measure] or 0 for other in others)
                    for rows in known
                ]
            )
            is_met = None if found is None else round(found["mean"], 2) <= SHARE
            result.append(_verdict(measure, others, found, len(known), is_met))
    return result


def _verdict(
    measure: str, against: list[str], found: Summary | None, seeds: int, is_met: bool | None
) -> Summary:
    return {
        "measure": measure,
        "against": against,
        "found": found,
        "seeds": seeds,
        "is_met": is_met,
    }


def in_words(tables: Sequence[Summary], seeds: Sequence[int], made_with: Sequence[str]) -> str:
    """All tables, one per setting."""
    head = [
        f"{'; '.join(made_with) or 'nothing is measured yet'}; one thread",
        f"seeds {', '.join(map(str, seeds))}: mean ± std; labels right: after the correction; "
        "CPU s: of training",
        "cleanlab at best: the best of its filters and of its scores, chosen by the truth for "
        "every seed and measure",
    ]
    return "\n".join(head) + "\n\n" + "\n\n".join(map(_table, tables)) + "\n"


def in_markdown(tables: Sequence[Summary]) -> str:
    """One table with the rows that matter most, for the documents."""
    head = ["labels", "found by", *MEASURES.values(), "CPU s"]
    rows = [head, ["---"] * len(head)]
    for table in tables:
        wrong = table["noise_rate"]
        title = table["title"] + (f" ({wrong['mean']:.0%} wrong)" if wrong else "")
        for row, name in IN_DOCUMENTS.items():
            numbers = table["rows"][row]
            cells = [shown(numbers.get(measure)) for measure in MEASURES]
            rows.append([title, name, *cells, shown(numbers.get("seconds"), 1)])
            title = ""
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _table(table: Summary) -> str:
    title = table["title"]
    if table["examples"] is not None:
        title += (
            f": {table['examples']:,} examples, {table['classes']} classes, "
            f"{table['noise_rate']['mean']:.1%} of the labels wrong"
        )
    head = "".join(f"{name:>16}" for name in MEASURES.values())
    lines = [title, f"{'':35}{head}{'CPU s':>15}{'× ours':>14}{'seeds':>7}"]
    for row, name in ROWS.items():
        numbers = table["rows"][row]
        cells = "".join(f"{shown(numbers.get(measure)):>16}" for measure in MEASURES)
        seconds, times = shown(numbers.get("seconds"), 1), shown(numbers.get("times_ours"), 2)
        lines.append(f"{name:35}{cells}{seconds:>15}{times:>14}{numbers['seeds'] or '–':>7}")
    if table["examples"] is None:
        return "\n".join(lines)
    ours = table["rows"][OURS]
    lines += [
        f"{ROWS[OURS]}: noise rate estimated {shown(ours.get('estimated_noise_rate'))}, "
        f"realised {shown(table['noise_rate'])}; precision expected "
        f"{shown(ours.get('expected_precision'))}, realised {shown(ours.get('precision'))}",
        *_verdict_lines(table["verdicts"]),
    ]
    return "\n".join(lines)


def _verdict_lines(verdicts: Sequence[Summary]) -> list[str]:
    """A line per measure: what was found against whom, and whether that is what was wanted."""
    lines = []
    for measure in dict.fromkeys(verdict["measure"] for verdict in verdicts):
        parts = []
        for verdict in (one for one in verdicts if one["measure"] == measure):
            met = {None: "not measured yet", True: "met", False: "NOT met"}[verdict["is_met"]]
            seeds = "1 seed" if verdict["seeds"] == 1 else f"{verdict['seeds']} seeds"
            if measure in MEASURES:
                against = f"of {ROWS[verdict['against'][0]]}"
                found = shown(verdict["found"], sign="+")
            else:
                final = " and a run on all examples" if len(verdict["against"]) > 1 else ""
                against = f"of {FOLDS} folds{final}"
                found = shown(verdict["found"], 2)
            parts.append(f"{against}: {found}, {met} ({seeds})")
        wanted = (
            f"{MEASURES[measure]} minus that"
            if measure in MEASURES
            else f"share, {SHARE:.0%} wanted, of the {UNITS[measure]}"
        )
        lines.append(f"{wanted} {'; '.join(parts)}")
    return lines


def shown(number: Summary | None, digits: int = 3, sign: str = "-") -> str:
    """Mean ± standard deviation, the mean alone of one seed, "–" of none."""
    if number is None:
        return "–"
    mean = f"{number['mean']:{sign}.{digits}f}"
    return mean if number["std"] is None else f"{mean} ± {number['std']:.{digits}f}"
