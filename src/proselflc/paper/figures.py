"""Figures 2 to 5 of the paper, drawn from runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proselflc.paper.output import Output, ResultTable, difference, mean_std
from proselflc.paper.plan import RunPlan, noise_title, own_methods, title_of
from proselflc.paper.records import RunRecord

if TYPE_CHECKING:
    from proselflc.pages.drawing import Figure

NOISE = "pair:0.4"  # of Figures 2 and 3
RATES = ("pair:0.2", "pair:0.3", "pair:0.4")  # of Figure 4
ENTROPY_RATES = ("pair:0.2", "pair:0.4")  # of Figure 5
EPSILON = 0.5  # of the fixed trust in Figure 2


def figure2(plan: RunPlan) -> Output:
    """Return a comparison of global and local trust, global trust alone, and a fixed ε."""
    B = plan.chosen_parameters("cifar100", NOISE, "proselflc")
    variants: dict[str, tuple[str, dict[str, Any]] | None] = {
        f"fixed ε = {EPSILON:g}": ("boot_soft", {"epsilon": EPSILON}),
        "global trust alone": None if B is None else ("proselflc", {**B, "trust": "global"}),
        "global and local trust": None if B is None else ("proselflc", B),
    }
    return _panels(
        plan,
        "figure2",
        "Figure 2: three ways to set ε",
        {name: (NOISE, variant) for name, variant in variants.items()},
        ("correct_fitting", "semantic_correction", "test_accuracy"),
    )


def figure3(plan: RunPlan) -> Output:
    """Return the six panels of learning dynamics."""
    return _panels(
        plan,
        "figure3",
        "Figure 3: learning dynamics under asymmetric noise of 0.4",
        {title_of(m): (NOISE, _setting(plan, NOISE, m)) for m in own_methods()},
        (
            *("correct_fitting", "wrong_fitting", "semantic_correction"),
            *("entropy_clean", "entropy_noisy", "test_accuracy"),
        ),
    )


def figure4(plan: RunPlan) -> Output:
    """Return generalisation and wrong fitting for three noise rates."""
    panels = [
        _panels(
            plan,
            f"figure4-{_rate(noise)}",
            noise_title(noise),
            {title_of(m): (noise, _setting(plan, noise, m)) for m in own_methods()},
            ("test_accuracy", "wrong_fitting"),
            suffix=f", {noise_title(noise)}",
        )
        for noise in RATES
    ]
    return _joined("Figure 4: learning dynamics by noise rate", panels, RATES)


def figure5(plan: RunPlan) -> Output:
    """Return entropy and ε of ProSelfLC on the clean and on the noisy subset."""
    panels = [
        _panels(
            plan,
            f"figure5-{_rate(noise)}",
            noise_title(noise),
            {"ProSelfLC": (noise, _setting(plan, noise, "proselflc"))},
            ("entropy_clean", "entropy_noisy", "epsilon_clean", "epsilon_noisy"),
            suffix=f", {noise_title(noise)}",
        )
        for noise in ENTROPY_RATES
    ]
    return _joined("Figure 5: entropy and ε during training", panels, ENTROPY_RATES)


def _setting(plan: RunPlan, noise: str, method: str) -> tuple[str, dict[str, Any]] | None:
    parameters = plan.chosen_parameters("cifar100", noise, method)
    return None if parameters is None else (method, parameters)


_DRAWN = {  # the figure of `dynamics` that shows a column of a run's history
    "correct_fitting": "correct_fitting",
    "wrong_fitting": "wrong_fitting",
    "semantic_correction": "semantic_correction",
    "entropy_clean": "entropy_clean",
    "entropy_noisy": "entropy_noisy",
    "test_accuracy": "generalisation",
    "epsilon_clean": "trust",
    "epsilon_noisy": "trust",
}


def _panels(
    plan: RunPlan,
    name: str,
    title: str,
    lines: Mapping[str, tuple[str, tuple[str, dict[str, Any]] | None]],
    columns: Sequence[str],
    *,
    suffix: str = "",
) -> Output:
    """Return panels whose lines are means over the seeds, and tables of their final values.

    The last line is compared with each of the others, paired by seed.

    Args:
        plan: the runs.
        name: the beginning of the panels' names.
        title: the title of the figure.
        lines: noise, method and parameters by the label of the line; None if not known yet.
        columns: columns of the history; one panel may show two of them.
        suffix: the end of every panel's title.
    """
    from proselflc.pages.learning_dynamics import dynamics

    histories: dict[str, list[dict[str, Any]]] = {}
    ends: dict[str, list[list[float | None]]] = {}
    for label, (noise, setting) in lines.items():
        records: list[RunRecord | None] = [None] * len(plan.seeds)
        if setting is not None:
            method, parameters = setting
            records = plan.final_runs("cifar100", noise, method, parameters)
        known = [record for record in records if record is not None]
        if len(known) == len(records) and all(record.history for record in known):
            histories[label] = averaged([record.history for record in known])
        ends[label] = [[_end(record, column) for record in records] for column in columns]
    drawn = {figure.name: figure for figure in dynamics(histories)} if histories else {}
    kept = dict.fromkeys(_DRAWN[column] for column in columns)
    figures = tuple(_renamed(drawn[k], f"{name}-{k}", suffix) for k in kept if k in drawn)
    words = (
        f"Scale {plan.scale.name}: {plan.scale.title}. Each line is the mean over the seeds "
        f"{plan.seed_list}; the table has its final value and standard deviation.",
    )
    names = tuple(column.replace("_", " ") for column in columns)
    rows = [(label, *(mean_std(cell, digits=3) for cell in cells)) for label, cells in ends.items()]
    tables = {"": ResultTable(("at the end", *names), tuple(rows))}
    *others, best = ends
    if others:
        margins = tuple(
            (
                label,
                *(difference(a, b, digits=3) for a, b in zip(ends[best], ends[label], strict=True)),
            )
            for label in others
        )
        tables["difference"] = ResultTable((f"{best} minus this, 95 % interval", *names), margins)
    return Output(title, tables, words, figures)


def _end(record: RunRecord | None, column: str) -> float | None:
    """Return the final value of a run; None if it is not known, NaN if the run diverged."""
    if record is not None and record.is_diverged:
        return math.nan
    value = record.history[-1].get(column) if record is not None and record.history else None
    return None if value is None else float(value)


def _rate(noise: str) -> str:
    """Return the digits of a noise rate, for names of files."""
    return noise.partition(":")[2].replace(".", "")


def _joined(title: str, panels: Sequence[Output], noises: Sequence[str]) -> Output:
    tables = {}
    for output, noise in zip(panels, noises, strict=True):
        rate = _rate(noise)
        for key, table in output.tables.items():
            head = f"{noise_title(noise)}: {table.columns[0]}"
            name = f"{rate}-{key}" if key else rate
            tables[name] = replace(table, columns=(head, *table.columns[1:]))
    figures = tuple(figure for output in panels for figure in output.figures)
    return Output(title, tables, panels[0].words, figures)


def averaged(histories: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the mean over seeds at every step where all were evaluated; None if any is None."""
    by_step = [{line["step"]: line for line in lines} for lines in histories]
    points = []
    for step in by_step[0]:
        lines = [history[step] for history in by_step if step in history]
        if len(lines) < len(by_step):
            continue
        point: dict[str, Any] = {}
        for column in lines[0]:
            values = [line.get(column) for line in lines]
            numbers = [float(v) for v in values if isinstance(v, int | float)]
            point[column] = statistics.fmean(numbers) if len(numbers) == len(values) else None
        points.append(point)
    return points


def _renamed(figure: Figure, name: str, suffix: str) -> Figure:
    """Return the figure under another name, with a suffix at the end of its title."""
    from proselflc.pages.drawing import figure as drawn

    title = f"{figure.title}{suffix}"
    alt = figure.alt.replace(figure.title, title, 1)
    return drawn(name, replace(figure.drawing, title=title), alt)
