"""The figures of the paper: 1 is computed without any run, 2 to 5 are drawn from runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from proselflc.pages.drawing import PLAIN, ROUND, Drawing, Figure, Style, figure
from proselflc.pages.learning_dynamics import dynamics
from proselflc.paper.output import Output, ResultTable, difference, mean_std
from proselflc.paper.plan import RunPlan, noise_title, own_methods, title_of
from proselflc.paper.records import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISE = "pair:0.4"  # of Figures 2 and 3
RATES = ("pair:0.2", "pair:0.3", "pair:0.4")  # of Figure 4
ENTROPY_RATES = ("pair:0.2", "pair:0.4")  # of Figure 5
EPSILON = 0.5  # of Figure 1, and of the fixed trust in Figure 2
_BAR = 0.26  # width of a bar in Figure 1; each target has width 1

# Method and parameters of each line of a figure; None while its parameters are not chosen.
Lines: TypeAlias = Mapping[str, tuple[str, dict[str, Any]] | None]


def figure1(plan: RunPlan) -> Output:
    """Return the targets of one example with three classes, as bars and as a table."""
    import torch

    from proselflc.correction import criteria

    p = torch.tensor([0.55, 0.35, 0.10])
    y = torch.tensor([1])
    targets: dict[str, list[float]] = {"q": [0.0, 1.0, 0.0], "p": p.tolist(), "u": [1 / 3] * 3}
    for name, criterion in {
        "LS": criteria.LabelSmoothing(EPSILON),
        "CP": criteria.ConfidencePenalty(EPSILON),
        "LC": criteria.BootSoft(EPSILON),
    }.items():
        targets[name] = criterion.correct(p.log()[None], y).target[0].tolist()
    styles = [Style(f"line-{k + 1}", marker="s", width=0) for k in range(3)]
    legend = tuple((f"class {k + 1}", style) for k, style in enumerate(styles))

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for k, style in enumerate(styles):
            centres = [i + (k - 1) * _BAR for i in range(len(targets))]
            axes.bar(centres, [v[k] for v in targets.values()], _BAR * 0.9, color=style.paint)
        axes.axhline(0.0, linewidth=0.6, color="black")
        axes.set_xticks(range(len(targets)))
        axes.set_xticklabels(list(targets), size=PLAIN)
        axes.tick_params(axis="x", length=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.set_ylim(min(-0.35, *(min(v) for v in targets.values())) - 0.05, 1.05)

    values = "; ".join(
        f"{target} {', '.join(f'{height:.2f}' for height in heights)}"
        for target, heights in targets.items()
    )
    panel = figure(
        "figure1",
        Drawing("Targets of one example", "probability of each class", plot, legend, below=22.0),
        f"Targets of one example with 3 classes: {values}.",
    )
    rows = tuple((name, *(f"{value:+.3f}" for value in values)) for name, values in targets.items())
    words = (
        f"Three classes, the second annotated, ε = {EPSILON:g}. q is the annotation, p the "
        "prediction, u the uniform distribution. To (1 − ε) q, label smoothing (LS) adds ε u and "
        "label correction (LC) adds ε p; the confidence penalty (CP) subtracts ε p.",
    )
    tables = {"": ResultTable(("target", "class 1", "class 2", "class 3"), rows)}
    return Output("Figure 1: targets of target modification", tables, words, (panel,))


def figure2(plan: RunPlan) -> Output:
    """Return a comparison of global and local trust, global trust alone, and a fixed ε."""
    B = plan.chosen_parameters("cifar100", NOISE, "proselflc")
    lines: Lines = {
        f"fixed ε = {EPSILON:g}": ("boot_soft", {"epsilon": EPSILON}),
        "global trust alone": None if B is None else ("proselflc", {**B, "trust": "global"}),
        "global and local trust": None if B is None else ("proselflc", B),
    }
    columns = ("correct_fitting", "semantic_correction", "test_accuracy")
    return _panels(plan, "figure2", "Figure 2: three ways to set ε", NOISE, lines, columns)


def figure3(plan: RunPlan) -> Output:
    """Return the six panels of learning dynamics."""
    return _panels(
        plan,
        "figure3",
        "Figure 3: learning dynamics under asymmetric noise of 0.4",
        NOISE,
        _lines(plan, NOISE, own_methods()),
        (
            *("correct_fitting", "wrong_fitting", "semantic_correction"),
            *("entropy_clean", "entropy_noisy", "test_accuracy"),
        ),
    )


def figure4(plan: RunPlan) -> Output:
    """Return generalisation and wrong fitting for three noise rates."""
    title = "Figure 4: learning dynamics by noise rate"
    columns = ("test_accuracy", "wrong_fitting")
    return _by_rate(plan, "figure4", title, RATES, own_methods(), columns)


def figure5(plan: RunPlan) -> Output:
    """Return entropy and ε of ProSelfLC on the clean and on the noisy subset."""
    title = "Figure 5: entropy and ε during training"
    columns = ("entropy_clean", "entropy_noisy", "epsilon_clean", "epsilon_noisy")
    return _by_rate(plan, "figure5", title, ENTROPY_RATES, ("proselflc",), columns)


def _lines(plan: RunPlan, noise: str, names: Sequence[str]) -> Lines:
    """Return a line for each method, with the parameters that the trusted examples chose."""
    chosen = {name: plan.chosen_parameters("cifar100", noise, name) for name in names}
    return {title_of(name): None if own is None else (name, own) for name, own in chosen.items()}


def _by_rate(
    plan: RunPlan,
    name: str,
    title: str,
    noises: Sequence[str],
    names: Sequence[str],
    columns: Sequence[str],
) -> Output:
    """Return the panels and tables of some methods under each noise, in one output."""
    figures: list[Figure] = []
    tables: dict[str, ResultTable] = {}
    for noise in noises:
        kind, rate = noise_title(noise), noise.partition(":")[2].replace(".", "")
        lines = _lines(plan, noise, names)
        output = _panels(plan, f"{name}-{rate}", kind, noise, lines, columns, suffix=f", {kind}")
        figures += output.figures
        for key, table in output.tables.items():
            head = f"{kind}: {table.columns[0]}"
            own = replace(table, columns=(head, *table.columns[1:]))
            tables[f"{rate}-{key}" if key else rate] = own
    return Output(title, tables, output.words, tuple(figures))


# The figures of `dynamics` that show columns of a run's history and have another name.
_DRAWN = {
    "test_accuracy": "generalisation",
    "epsilon_clean": "trust",
    "epsilon_noisy": "trust",
}


def _panels(
    plan: RunPlan,
    name: str,
    title: str,
    noise: str,
    lines: Lines,
    columns: Sequence[str],
    *,
    suffix: str = "",
) -> Output:
    """Return panels whose lines are means over the seeds, and tables of their final values.

    The names of the panels begin with `name`, and their titles end with `suffix`. A panel may show
    two columns of the history. The last line is compared with each of the others, paired by seed.
    """
    histories: dict[str, list[dict[str, Any]]] = {}
    ends: dict[str, list[list[float | None]]] = {}
    for label, setting in lines.items():
        records: list[RunRecord | None] = [None] * len(plan.seeds)
        if setting is not None:
            records = plan.final_runs("cifar100", noise, *setting)
        known = [record for record in records if record is not None]
        if len(known) == len(records) and all(record.history for record in known):
            histories[label] = averaged([record.history for record in known])
        ends[label] = [[_end(record, column) for record in records] for column in columns]
    drawn = {panel.name: panel for panel in dynamics(histories)} if histories else {}
    kept = dict.fromkeys(_DRAWN.get(column, column) for column in columns)
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


def _renamed(panel: Figure, name: str, suffix: str) -> Figure:
    """Return the panel under another name, with a suffix at the end of its title."""
    title = f"{panel.title}{suffix}"
    alt = panel.alt.replace(panel.title, title, 1)
    return figure(name, replace(panel.drawing, title=title), alt)
