"""Tables 3 to 7 of the paper, made of runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from proselflc import methods
from proselflc.paper import printed
from proselflc.paper.output import MISSING, Output, Table, difference, interval, mean_std
from proselflc.paper.plan import (
    LETTERS,
    Study,
    grid_of,
    named,
    own_methods,
    quoted_methods,
    title_of,
)
from proselflc.paper.records import Record

TEMPERATURES = {"1": 1.0, "1/4": 0.25, "1/8": 0.125}
READINGS = {"divide": "logits / T, as printed", "multiply": "logits · T, which fits the numbers"}
MEASURES = {"max_p": "max p", "entropy": "1 − H(p)/H(u)"}


def accuracies(records: Sequence[Record | None], what: str = "test_accuracy") -> list[float | None]:
    """Test accuracy, or another share, in percent at the last step; NaN for one that diverged."""
    found: list[float | None] = []
    for one in records:
        value = None if one is None else one.summary.get(what)
        found.append(None if one is None else math.nan if value is None else 100 * float(value))
    return found


def table3(study: Study) -> Output:
    """The standard setting: clean labels, three settings of each method."""
    rows, compared, theirs_ahead = [], [], 0
    for data in (one for one in ("cifar100", "imagenet") if one in study.scale.recipes):
        plain = accuracies(study.finals(data, None, "cce", {}))
        for method in own_methods():
            for value, theirs in printed.STANDARD[data][title_of(method)].items():
                found = accuracies(study.finals(data, None, method, _parameters(method, value)))
                less = ""
                if method != "cce":
                    less = difference(found, plain)
                    compared.append((found, plain))
                    theirs_ahead += theirs > printed.STANDARD[data][title_of("cce")][None]
                rows.append((data, _row(method, value), mean_std(found), less, f"{theirs:.1f}"))
    columns = ("data", "method", "test accuracy, %", "less cross entropy's", "printed, %")
    words = (
        _setting(study),
        "Clean labels. Differences are paired by seed, with a 95 % interval.",
        *agreement(
            f"The paper prints more than cross entropy's accuracy for {theirs_ahead} of "
            f"{len(compared)} settings.",
            compared,
        ),
    )
    return Output("Table 3: the standard setting", {"": Table(columns, tuple(rows))}, words)


def table4(study: Study) -> Output:
    """Synthetic noise, with ε and B chosen by the trusted examples."""
    found: dict[tuple[str, str], list[float | None]] = {}
    learned: dict[tuple[str, str], list[float | None]] = {}
    chosen: dict[tuple[str, str], dict[str, Any] | None] = {}
    compared = (*quoted_methods(), *own_methods())
    for noise in printed.NOISES:
        for method in compared:
            setting = study.chosen("cifar100", noise, method)
            chosen[method, noise] = setting
            records: list[Record | None] = [None] * len(study.seeds)
            if setting is not None:
                records = study.finals("cifar100", noise, method, setting)
            found[method, noise] = accuracies(records)
            learned[method, noise] = accuracies(records, "wrong_fitting")
    heads = tuple(named(noise) for noise in printed.NOISES)

    def rows(cell: Any) -> tuple[tuple[str, ...], ...]:
        return tuple(
            (_title(method), *(cell(method, k, noise) for k, noise in enumerate(printed.NOISES)))
            for method in compared
        )

    def less(method: str, k: int, noise: str) -> str:
        return difference(found["proselflc", noise], found[method, noise])

    tables = {
        "ours": Table(
            ("ours: test accuracy, %", *heads),
            rows(lambda method, k, noise: mean_std(found[method, noise])),
        ),
        "difference": Table(("ProSelfLC less this, 95 % interval", *heads), rows(less)[:-1]),
        "learned": Table(
            ("ours: wrong labels that are learned, %", *heads),
            rows(lambda method, k, noise: mean_std(learned[method, noise])),
        ),
        "chosen": Table(
            ("chosen by the trusted examples", *heads),
            rows(lambda method, k, noise: _shown(method, chosen[method, noise])),
        ),
        "trials": Table(("by: accuracy on the trusted examples, %", *heads), _trials(study)),
        "printed": Table(
            ("printed: test accuracy, %", *heads),
            rows(lambda method, k, noise: f"{printed.SYNTHETIC[title_of(method)][k]:.1f}"),
        ),
    }
    words = (
        _setting(study),
        "Rows marked ¹ are quoted in the paper from Wang et al. 2019; ours are runs like all "
        "others, with the method's defaults. ε and B are chosen with seed 0: 80 % of the examples "
        "train, 20 % with their true labels choose; Γ and the optimiser are the scale's.",
        *agreement(
            "The paper has ProSelfLC ahead of cross entropy, label smoothing, confidence penalty "
            f"and Boot-soft in all {len(printed.NOISES) * len(printed.OWN[:-1])} cells.",
            [
                (found["proselflc", noise], found[method, noise])
                for noise in printed.NOISES
                for method in own_methods()[:-1]
            ],
        ),
    )
    return Output("Table 4: synthetic label noise", tables, words)


def _trials(study: Study) -> tuple[tuple[str, ...], ...]:
    """What the trusted examples choose by: a row per value, a column per noise."""
    rows = []
    for method in own_methods():
        found = [study.trials("cifar100", noise, method) for noise in printed.NOISES]
        for value in found[0]:
            cells = (_percent(one[value]) for one in found)
            rows.append((_row(method, value), *(mean_std([cell]) for cell in cells)))
    return tuple(rows)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def agreement(
    theirs: str, compared: Sequence[tuple[Sequence[float | None], Sequence[float | None]]]
) -> tuple[str, ...]:
    """What the paper says, and in how many comparisons our intervals say the same."""
    ahead, behind, unclear, missing = 0, 0, 0, 0
    for ours, other in compared:
        if any(value is None for value in (*ours, *other)):
            missing += 1
            continue
        pairs = zip(ours, other, strict=True)
        one = interval([None if a is None or b is None else a - b for a, b in pairs])
        if one is None:  # a run has diverged, or there is one seed
            unclear += 1
        elif one[0] - one[1] > 0:
            ahead += 1
        elif one[0] + one[1] < 0:
            behind += 1
        else:
            unclear += 1
    if missing == len(compared):
        return ()
    left = f"; {missing} are not run yet" if missing else ""
    return (
        f"{theirs} Here the interval says so in {ahead}, the opposite in {behind}, and in "
        f"{unclear} nobody can tell{left}.",
    )


def table5(study: Study) -> Output:
    """Hyper-parameters: every value of every grid under every noise, one seed."""
    noises = (*printed.NOISES, None)
    rows, theirs = [], []
    means: dict[str, list[list[float | None]]] = {method: [] for method in own_methods()}
    for method in own_methods():
        for value, values in printed.HYPERPARAMETERS[title_of(method)].items():
            found = [
                accuracies(study.finals("cifar100", noise, method, _parameters(method, value)))
                for noise in noises
            ]
            rows.append((_row(method, value), *map(mean_std, found)))
            theirs.append((_row(method, value), *(f"{one:.1f}" for one in values)))
            means[method].append([_mean(one) for one in found])
    spreads = []
    for method in own_methods()[1:]:
        title = title_of(method)
        spreads.append((f"{title}, ours", *_spread(means[method])))
        values_printed = [list(v) for v in printed.HYPERPARAMETERS[title].values()]
        spreads.append((f"{title}, printed", *_spread(values_printed)))
    heads = tuple(named(noise) for noise in noises)
    tables = {
        "ours": Table(("ours: test accuracy, %", *heads), tuple(rows)),
        "spread": Table(("best less worst of ε or B, points", *heads), tuple(spreads)),
        "printed": Table(("printed: test accuracy, %", *heads), tuple(theirs)),
    }
    words = [_setting(study)]
    if len(study.seeds) == 1:
        words.append("One seed has no interval: small differences say nothing.")
    return Output("Table 5: hyper-parameters", tables, tuple(words))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _spread(rows: Sequence[Sequence[float | None]]) -> list[str]:
    """Of every column the largest value less the smallest."""
    found = []
    for column in zip(*rows, strict=True):
        known = [value for value in column if value is not None and not math.isnan(value)]
        is_whole = len(known) == len(column)
        found.append(f"{max(known) - min(known):.1f}" if is_whole else MISSING)
    return found


def table6(study: Study) -> Output:
    """Clothing1M."""
    rows = []
    for title, theirs in printed.CLOTHING.items():
        method = methods.titled(title).name
        parameters = study.chosen("clothing1m", None, method)
        found = MISSING
        if method == "masking" and study.mask is None:
            found = "not run: it needs --mask"
        elif parameters is not None:
            told = {"mask": study.mask} if method == "masking" else {}
            records = study.finals("clothing1m", None, method, {**parameters, **told})
            found = mean_std(accuracies(records))
        mark = "" if title in printed.OWN else " ¹"
        shown = _shown(method, parameters)
        rows.append((f"{title}{mark}", shown, found, f"{theirs:.1f}"))
    columns = ("method", "chosen", "test accuracy, %", "printed, %")
    seeds = ", ".join(map(str, study.seeds))
    words = (
        f"Scale {study.scale.name}: ResNet-50 from ImageNet's weights, 10,000 steps; seeds "
        f"{seeds}.",
        "ε and B are chosen by the data's own clean validation part, with seed 0. Rows marked ¹ "
        "are quoted in the paper from elsewhere; ours are runs with the method's defaults.",
    )
    return Output("Table 6: Clothing1M", {"": Table(columns, tuple(rows))}, words)


def table7(study: Study) -> Output:
    """Calibration of ProSelfLC and of cross entropy, under asymmetric noise of 0.4."""
    noise, data = "pair:0.4", "cifar100"
    runs = {}
    for method in ("proselflc", "cce"):
        setting = study.chosen(data, noise, method)
        runs[method] = (
            [None] * len(study.seeds)
            if setting is None
            else study.finals(data, noise, method, setting)
        )
    tables = {}
    for reading, said in READINGS.items():
        rows = []
        for measure, title in MEASURES.items():
            cells = [
                f"{mean_std(_ece(runs['proselflc'], T, reading, measure))} "
                f"({mean_std(_ece(runs['cce'], T, reading, measure))})"
                for T in TEMPERATURES.values()
            ]
            rows.append((title, *cells))
            cells = [
                difference(*(_ece(runs[m], T, reading, measure) for m in ("proselflc", "cce")))
                for T in TEMPERATURES.values()
            ]
            rows.append((f"{title}, ProSelfLC less cross entropy", *cells))
        heads = tuple(f"T = {T}" for T in TEMPERATURES)
        tables[reading] = Table((f"ours, ECE %, {said}", *heads), tuple(rows))
    theirs = tuple(
        (title, *("{:.2f} ({:.2f})".format(*printed.ECE[measure, T]) for T in TEMPERATURES))
        for measure, title in MEASURES.items()
    )
    tables["printed"] = Table(("printed, ECE %", *(f"T = {T}" for T in TEMPERATURES)), theirs)
    words = (
        _setting(study),
        "ECE with ten bins of ProSelfLC and, in brackets, of cross entropy, asymmetric noise of "
        "0.4; differences are paired by seed, with a 95 % interval. The paper says logits/T with "
        "T ≤ 1, which sharpens; its falling numbers fit softening only, so both readings are here.",
    )
    return Output("Table 7: calibration", tables, words)


def _ece(
    records: Sequence[Record | None], T: float, reading: str, measure: str
) -> list[float | None]:
    """In percent, of every run; None where it is not there, NaN where it diverged."""
    values: list[float | None] = []
    for one in records:
        if one is None:
            values.append(None)
            continue
        match = [
            100 * float(c["ece"])
            for c in one.test["calibration"]
            if (c["T"], c["reading"], c["measure"]) == (T, reading, measure)
        ]
        values.append(match[0] if match else math.nan)
    return values


def _setting(study: Study) -> str:
    seeds = ", ".join(map(str, study.seeds))
    several = "" if len(study.seeds) < 2 else "; mean ± standard deviation"
    return f"Scale {study.scale.name}: {study.scale.title}. Seeds {seeds}{several}."


def _parameters(method: str, value: float | None) -> dict[str, Any]:
    grid = grid_of(method)
    return {} if value is None or grid is None else {grid.parameter: value}


def _row(method: str, value: float | None) -> str:
    grid = grid_of(method)
    if value is None or grid is None:
        return title_of(method)
    return f"{title_of(method)}, {grid.letter} = {value:g}"


def _title(method: str) -> str:
    return title_of(method) + (" ¹" if method in quoted_methods() else "")


def _shown(method: str, setting: dict[str, Any] | None) -> str:
    if grid_of(method) is None:
        return "default"
    if setting is None:
        return MISSING
    (name, value), *_ = setting.items()
    return f"{LETTERS[name]} = {value:g}"
