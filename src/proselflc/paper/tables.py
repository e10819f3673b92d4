"""The tables of the paper: 1 and 2 are computed without any run, 3 to 7 are made from runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from proselflc import methods
from proselflc.correction.target import Prediction, Target, Uniform
from proselflc.paper import printed
from proselflc.paper.output import (
    MISSING,
    Output,
    ResultTable,
    agreement,
    difference,
    mean_std,
)
from proselflc.paper.plan import (
    SYMBOLS,
    RunPlan,
    grid_of,
    noise_title,
    own_methods,
    quoted_methods,
    title_of,
)
from proselflc.paper.records import RunRecord
from proselflc.wording import option

if TYPE_CHECKING:
    from torch import Tensor

SHARPNESS = 10.0  # of Table 2, which holds for any value
CASES = ("0.1 (non-confident)", "0.9 (confidently consistent)", "0.9 (confidently inconsistent)")
TEMPERATURES = {"1": 1.0, "1/4": 0.25, "1/8": 0.125}
READINGS = {"divide": "logits / T, as printed", "multiply": "logits · T, which fits the numbers"}
MEASURES = {"max_p": "max p", "entropy": "1 − H(p)/H(u)"}


def table1(plan: RunPlan) -> Output:
    """Return the summary of the methods, made from their definitions in the code."""
    rows = []
    for title in printed.OWN:
        method = methods.titled(title)
        target = method.default_target()
        assert target is not None
        trust = MISSING if target.reference is None else target.trust.symbol
        structure = "yes" if "learned" in method.semantic_class else "no"
        facts = (_divergence(target), method.entropy, method.semantic_class, structure)
        rows.append((method.title, target.formula, trust, method.loss, *facts))
    shared = ("low entropy", "semantic class", "similarity structure")
    columns = ("ours", "target q̃", "ε", "loss H(q̃, p)", "divergence", *shared)
    theirs = tuple((name, *cells) for name, cells in printed.SUMMARY.items())
    words = (
        "Made from the same definitions as the criteria; tests verify the identities. The "
        "divergence is the loss without its constant. Low entropy: whether the method penalises or "
        "rewards it, apart from its cross-entropy term. The paper's LC is any label correction: "
        "Boot-soft with a fixed ε, ProSelfLC with its own ε.",
    )
    tables = {
        "": ResultTable(columns, tuple(rows)),
        "printed": ResultTable(("printed", "learning target", "divergence", *shared), theirs),
    }
    return Output("Table 1: summary of the methods", tables, words)


def _divergence(target: Target) -> str:
    """Return the loss as divergences, without its constant; `test_row_divergence` verifies it."""
    if target.reference is None:
        return "KL(q‖p)"
    if isinstance(target.reference, Uniform):
        return "(1 − ε) KL(q‖p) + ε KL(u‖p)"
    assert isinstance(target.reference, Prediction)
    return f"(1 − ε) KL(q‖p) {'−' if target.sign > 0 else '+'} ε KL(p‖u)"


def table2(plan: RunPlan) -> Output:
    """Return the case analysis of ε = g(t) · l(p), computed by the criterion itself."""
    import torch

    from proselflc.correction import criteria

    rows = []
    for phase, g in (("earlier phase", 0.1), ("later phase", 0.9)):
        cells = [f"{phase}, g(t) = {g}"]
        for confidence, is_consistent in ((0.1, True), (0.9, True), (0.9, False)):
            logits = _logits_with_confidence(confidence)
            y = 0 if is_consistent else 1
            criterion = criteria.ProSelfLC(1, SHARPNESS)
            progress = 0.5 + math.log(g / (1 - g)) / SHARPNESS  # the inverse of g(t)
            found = criterion.correct(logits, torch.tensor([y]), progress=progress)
            changes = int(found.target.argmax()) != y
            cells.append(f"{float(found.trust):.2f}{' (class changes)' if changes else ''}")
        rows.append(tuple(cells))
    cases = tuple(f"l(p) = {case}" for case in CASES)
    theirs = tuple(
        (row[0], *(f"{value:.2f}" for value in values))
        for row, values in zip(rows, printed.CASES, strict=True)
    )
    tables = {
        "": ResultTable(("ours: ε = g(t) · l(p)", *cases), tuple(rows)),
        "printed": ResultTable(("printed: ε", *cases), theirs),
    }
    words = (
        "Computed by the criterion itself, at the progress where g(t) has the given value and for "
        "predictions over three classes with the given l(p). The semantic class changes where "
        "ε > 1/2 and p favours another class.",
    )
    return Output("Table 2: case analysis", tables, words)


def _logits_with_confidence(confidence: float) -> Tensor:
    """Return [1, 3] logits for class 0 with the given local trust 1 − H(p)/H(u), by bisection."""
    import torch

    from proselflc.correction.evidence import entropy

    low, high = 0.0, 30.0
    for _ in range(100):
        middle = (low + high) / 2
        logits = torch.tensor([[middle, 0.0, 0.0]], dtype=torch.float64)
        found = 1 - float(entropy(torch.log_softmax(logits, 1))) / math.log(3)
        low, high = (middle, high) if found < confidence else (low, middle)
    return torch.tensor([[high, 0.0, 0.0]], dtype=torch.float64)


def accuracies(
    records: Sequence[RunRecord | None], what: str = "test_accuracy"
) -> list[float | None]:
    """Return a share at the last step of each run, in percent; NaN for a run that diverged."""
    found: list[float | None] = []
    for record in records:
        value = None if record is None else record.summary.get(what)
        found.append(None if record is None else math.nan if value is None else 100 * float(value))
    return found


def table3(plan: RunPlan) -> Output:
    """Return the standard setting: clean labels, three settings of each method."""
    rows, compared, theirs_ahead = [], [], 0
    for data in (name for name in ("cifar100", "imagenet") if name in plan.scale.recipes):
        baseline = accuracies(plan.final_runs(data, None, "cce", {}))
        for method in own_methods():
            for value, theirs in printed.STANDARD[data][title_of(method)].items():
                found = accuracies(plan.final_runs(data, None, method, _parameters(method, value)))
                delta = ""
                if method != "cce":
                    delta = difference(found, baseline)
                    compared.append((found, baseline))
                    theirs_ahead += theirs > printed.STANDARD[data][title_of("cce")][None]
                rows.append((data, _row(method, value), mean_std(found), delta, f"{theirs:.1f}"))
    columns = ("data", "method", "test accuracy, %", "minus cross entropy's", "printed, %")
    words = (
        plan.setting,
        "Clean labels. Differences are paired by seed, with a 95 % interval.",
        *agreement(
            f"The paper prints more than cross entropy's accuracy for {theirs_ahead} of "
            f"{len(compared)} settings.",
            compared,
        ),
    )
    return Output("Table 3: the standard setting", {"": ResultTable(columns, tuple(rows))}, words)


def table4(plan: RunPlan) -> Output:
    """Return the results under synthetic noise, with ε and B chosen by the trusted examples."""
    found: dict[tuple[str, str], list[float | None]] = {}
    learned: dict[tuple[str, str], list[float | None]] = {}
    chosen: dict[tuple[str, str], dict[str, Any] | None] = {}
    compared = (*quoted_methods(), *own_methods())
    for noise in printed.NOISES:
        for method in compared:
            chosen[method, noise] = plan.chosen_parameters("cifar100", noise, method)
            records = plan.chosen_runs("cifar100", noise, method)
            found[method, noise] = accuracies(records)
            learned[method, noise] = accuracies(records, "wrong_fitting")
    heads = tuple(noise_title(noise) for noise in printed.NOISES)
    titles = {m: title_of(m) + " ¹" * (m in quoted_methods()) for m in compared}

    def rows(cell: Any) -> tuple[tuple[str, ...], ...]:
        return tuple(
            (titles[method], *(cell(method, k, noise) for k, noise in enumerate(printed.NOISES)))
            for method in compared
        )

    def margin(method: str, k: int, noise: str) -> str:
        others = found[method, noise]
        return difference(found["proselflc", noise][: len(others)], others)

    tables = {
        "ours": ResultTable(
            ("ours: test accuracy, %", *heads),
            rows(lambda method, k, noise: mean_std(found[method, noise])),
        ),
        "difference": ResultTable(
            ("ProSelfLC minus this, 95 % interval", *heads), rows(margin)[:-1]
        ),
        "learned": ResultTable(
            ("ours: wrong labels fitted, %", *heads),
            rows(lambda method, k, noise: mean_std(learned[method, noise])),
        ),
        "chosen": ResultTable(
            ("chosen by the trusted examples", *heads),
            rows(lambda method, k, noise: _format_choice(method, chosen[method, noise])),
        ),
        "trials": ResultTable(("accuracy on the trusted examples, %", *heads), _trials(plan)),
        "printed": ResultTable(
            ("printed: test accuracy, %", *heads),
            rows(lambda method, k, noise: f"{printed.SYNTHETIC[title_of(method)][k]:.1f}"),
        ),
    }
    words = (
        plan.setting,
        "The paper quotes rows marked ¹ from Wang et al. 2019; ours are trained here, with the "
        f"method's defaults{plan.quoted_seeds}. ε and B are chosen with seed 0: 80 % of the "
        "examples train, and 20 % with their true labels choose; Γ and the optimiser are those of "
        "the scale's recipe.",
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


def _trials(plan: RunPlan) -> tuple[tuple[str, ...], ...]:
    """Return the accuracies on the trusted examples: a row per value, a column per noise."""
    rows = []
    for method in own_methods():
        found = [plan.trial_accuracies("cifar100", noise, method) for noise in printed.NOISES]
        for value in found[0]:
            shares = [accuracies[value] for accuracies in found]
            cells = [None if share is None else 100 * share for share in shares]
            rows.append((_row(method, value), *(mean_std([cell]) for cell in cells)))
    return tuple(rows)


def table5(plan: RunPlan) -> Output:
    """Return the results of every value of every grid under every noise, for one seed."""
    noises = (*printed.NOISES, None)
    rows, theirs = [], []
    means: dict[str, list[list[float | None]]] = {method: [] for method in own_methods()}
    for method in own_methods():
        for value, values in printed.HYPERPARAMETERS[title_of(method)].items():
            found = [
                accuracies(plan.final_runs("cifar100", noise, method, _parameters(method, value)))
                for noise in noises
            ]
            rows.append((_row(method, value), *map(mean_std, found)))
            theirs.append((_row(method, value), *(f"{value:.1f}" for value in values)))
            means[method].append(list(map(_mean, found)))
    spreads = []
    for method in own_methods()[1:]:
        title = title_of(method)
        spreads.append((f"{title}, ours", *_spread(means[method])))
        values_printed = [list(v) for v in printed.HYPERPARAMETERS[title].values()]
        spreads.append((f"{title}, printed", *_spread(values_printed)))
    heads = tuple(noise_title(noise) for noise in noises)
    tables = {
        "ours": ResultTable(("ours: test accuracy, %", *heads), tuple(rows)),
        "spread": ResultTable(("best minus worst ε or B, points", *heads), tuple(spreads)),
        "printed": ResultTable(("printed: test accuracy, %", *heads), tuple(theirs)),
    }
    words = [plan.setting]
    if len(plan.seeds) == 1:
        words.append("With one seed there is no interval, so small differences mean nothing.")
    return Output("Table 5: hyper-parameters", tables, tuple(words))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _spread(rows: Sequence[Sequence[float | None]]) -> list[str]:
    """Return the difference between the largest and the smallest value of every column."""
    found = []
    for column in zip(*rows, strict=True):
        known = [value for value in column if value is not None and not math.isnan(value)]
        is_complete = len(known) == len(column)
        found.append(f"{max(known) - min(known):.1f}" if is_complete else MISSING)
    return found


def table6(plan: RunPlan) -> Output:
    """Return the results on Clothing1M."""
    rows = []
    for title, theirs in printed.CLOTHING.items():
        method = methods.titled(title).name
        parameters = plan.chosen_parameters("clothing1m", None, method)
        found = MISSING
        if method == "masking" and plan.mask is None:
            found = f"not run: it needs {option('mask')}"
        elif parameters is not None:
            own = {"mask": plan.mask} if method == "masking" else {}
            records = plan.final_runs("clothing1m", None, method, {**parameters, **own})
            found = mean_std(accuracies(records))
        mark = "" if title in printed.OWN else " ¹"
        chosen = _format_choice(method, parameters)
        rows.append((f"{title}{mark}", chosen, found, f"{theirs:.1f}"))
    columns = ("method", "chosen", "test accuracy, %", "printed, %")
    words = (
        f"Scale {plan.scale.name}: ResNet-50 from ImageNet weights, 10,000 steps; seeds "
        f"{plan.seed_list}.",
        "ε and B are chosen on the dataset's own clean validation part, with seed 0. The paper "
        "quotes rows marked ¹ from other work; ours are trained with the method's defaults.",
    )
    return Output("Table 6: Clothing1M", {"": ResultTable(columns, tuple(rows))}, words)


def table7(plan: RunPlan) -> Output:
    """Return the calibration of ProSelfLC and cross entropy under asymmetric noise of 0.4."""
    runs = {m: plan.chosen_runs("cifar100", "pair:0.4", m) for m in ("proselflc", "cce")}
    tables = {}
    for reading, explanation in READINGS.items():
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
            rows.append((f"{title}, ProSelfLC minus cross entropy", *cells))
        heads = tuple(f"T = {T}" for T in TEMPERATURES)
        tables[reading] = ResultTable((f"ours, ECE %, {explanation}", *heads), tuple(rows))
    theirs = tuple(
        (title, *("{:.2f} ({:.2f})".format(*printed.ECE[measure, T]) for T in TEMPERATURES))
        for measure, title in MEASURES.items()
    )
    tables["printed"] = ResultTable(("printed, ECE %", *(f"T = {T}" for T in TEMPERATURES)), theirs)
    words = (
        plan.setting,
        "ECE with ten bins of ProSelfLC and, in brackets, of cross entropy, under asymmetric noise "
        "of 0.4; differences are paired by seed, with a 95 % interval. The paper defines logits/T "
        "with T ≤ 1, which sharpens; its falling numbers fit only softening, so both readings are "
        "given.",
    )
    return Output("Table 7: calibration", tables, words)


def _ece(
    records: Sequence[RunRecord | None], T: float, reading: str, measure: str
) -> list[float | None]:
    """Return the ECE of each run in percent; None if it is not done, NaN if it diverged."""
    values: list[float | None] = []
    for record in records:
        if record is None:
            values.append(None)
            continue
        match = [
            100 * point.ece
            for point in record.calibration
            if (point.T, point.reading, point.measure) == (T, reading, measure)
        ]
        values.append(match[0] if match else math.nan)
    return values


def _parameters(method: str, value: float | None) -> dict[str, Any]:
    return {} if value is None else dict.fromkeys(grid_of(method), value)


def _row(method: str, value: float | str | None) -> str:
    symbols = [] if value is None else [SYMBOLS[name] for name in grid_of(method)]
    return ", ".join([title_of(method), *(f"{symbol} = {value:g}" for symbol in symbols)])


def _format_choice(method: str, parameters: dict[str, Any] | None) -> str:
    if not grid_of(method):
        return "default"
    if parameters is None:
        return MISSING
    (name, value), *_ = parameters.items()
    return f"{SYMBOLS[name]} = {value:g}"
