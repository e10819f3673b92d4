"""The figures of the paper: 1 is computed without any run, 2 to 5 are drawn from runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from proselflc.pages.drawing import PLAIN, ROUND, Figure, Style, figure, method_styles, run_style
from proselflc.pages.learning_dynamics import MEASURES
from proselflc.pages.sheet import Panel, Sheet
from proselflc.pages.svg import COLOURS
from proselflc.paper import printed
from proselflc.paper.curves import Curve, Limits, around, averaged, from_zero, panel
from proselflc.paper.output import Output, ResultTable, difference, mean_std, order
from proselflc.paper.plan import RunPlan, grid_of, noise_title, own_methods, title_of
from proselflc.paper.records import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISE = "pair:0.4"  # of Figures 2 and 3
RATES = ("pair:0.2", "pair:0.3", "pair:0.4")  # of Figure 4
ENTROPY_RATES = ("pair:0.2", "pair:0.4")  # of Figure 5
EPSILON = 0.5  # of Figure 1
SHORT = dict(zip(printed.OWN, ("CCE", "LS", "CP", "Boot-soft", "ProSelfLC"), strict=True))
_BAR = 0.27  # width of a bar in Figure 1; each target has width 1
_FILLS = (("line-1", ""), ("paper", "/////"), ("muted", ""))  # colour and hatch of each class
_WIDTHS = {"proselflc": 1.9}  # of the lines of a method, 1.2 otherwise


@dataclass(frozen=True)
class Line:
    """A line of a figure: its name, its title in tables, and the runs that it shows.

    The parameters are None while they are not chosen.
    """

    name: str
    title: str
    method: str
    parameters: dict[str, Any] | None
    style: Style


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
    targets["CP ≥ 0"] = [max(0.0, value) for value in targets["CP"]]
    sheet = Sheet(
        "Targets of target modification",
        (
            _bars("Output regularisation", targets, ("q", "u", "p", "LS", "CP", "CP ≥ 0")),
            _bars("Label correction", targets, ("q", "p", "LC")),
        ),
        2,
        120.0,
    )
    values = "; ".join(
        f"{target} {', '.join(f'{height:.2f}' for height in heights)}"
        for target, heights in targets.items()
    )
    alt = f"Targets of one example with 3 classes: {values}."
    rows = tuple((name, *(f"{value:+.3f}" for value in values)) for name, values in targets.items())
    words = (
        f"Three classes, the second annotated, ε = {EPSILON:g}. q is the annotation, p the "
        "prediction, u the uniform distribution. To (1 − ε) q, label smoothing (LS) adds ε u and "
        "label correction (LC) adds ε p; the confidence penalty (CP) subtracts ε p. CP ≥ 0 is its "
        "factual target, max(q̃, 0): a prediction is never negative.",
    )
    tables = {"": ResultTable(("target", "class 1", "class 2", "class 3"), rows)}
    picture = figure("figure1", sheet, alt)
    return Output("Figure 1: targets of target modification", tables, words, (picture,))


def _bars(title: str, targets: Mapping[str, Sequence[float]], names: Sequence[str]) -> Panel:
    """Return a panel of targets: three bars each, with the number of the class above or below."""

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for k, (colour, hatch) in enumerate(_FILLS):
            for i, name in enumerate(names):
                x, height = i + (k - 1) * _BAR, targets[name][k]
                axes.bar(
                    x,
                    height,
                    _BAR * 0.92,
                    color=COLOURS[colour],
                    hatch=hatch,
                    edgecolor=COLOURS["ink"],
                    linewidth=0.6,
                )
                axes.annotate(
                    str(k + 1),
                    (x, height),
                    (0, 1.5 if height >= 0 else -1.5),
                    textcoords="offset points",
                    size=6.2,
                    ha="center",
                    va="bottom" if height >= 0 else "top",
                )
        axes.spines["bottom"].set_visible(False)
        axes.axhline(0.0, linewidth=0.7, color=COLOURS["ink"])
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_xticks(range(len(names)))
        axes.set_xticklabels(list(names), size=PLAIN)
        axes.tick_params(axis="x", length=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.set_ylim(-0.38, 1.12)

    return Panel(title, plot)


def figure2(plan: RunPlan) -> Output:
    """Return a comparison of global and local trust, global trust alone, and a fixed ε."""
    B = plan.chosen_parameters("cifar100", NOISE, "proselflc")
    fixed = plan.chosen_parameters("cifar100", NOISE, "boot_soft")
    alone = replace(run_style(5), width=1.2)
    global_trust = None if B is None else {**B, "trust": "global"}
    name = "ε" if fixed is None else f"ε = {fixed['epsilon']:g}"
    lines = (
        Line(name, f"fixed {name}", "boot_soft", fixed, _styles()["boot_soft"]),
        Line("g(t)", "global trust alone", "proselflc", global_trust, alone),
        Line("g(t) · l(p)", "global and local trust", "proselflc", B, _styles()["proselflc"]),
    )
    values = ", ".join(f"{value:g}" for value in grid_of("boot_soft")["epsilon"])
    words = (
        f"The fixed ε is the best of {values} on the trusted examples; so is B, which both other "
        "lines share: global trust alone, g(t), and global and local trust, g(t) · l(p).",
    )
    columns = ("correct_fitting", "semantic_correction", "test_accuracy")
    title = "Figure 2: three ways to set ε"
    return _dynamics(plan, "figure2", title, (NOISE,), lambda noise: lines, columns, words)


def figure3(plan: RunPlan) -> Output:
    """Return the six panels of learning dynamics."""
    columns = (
        *("correct_fitting", "wrong_fitting", "semantic_correction"),
        *("entropy_clean", "entropy_noisy", "test_accuracy"),
    )
    title = "Figure 3: learning dynamics under asymmetric noise of 0.4"
    return _dynamics(plan, "figure3", title, (NOISE,), partial(_lines, plan), columns)


def figure4(plan: RunPlan) -> Output:
    """Return generalisation and wrong fitting for three noise rates.

    As in the paper, only (a) and (d), the lowest rate, show all of training; the others show the
    second half.
    """
    columns = ("test_accuracy", "wrong_fitting")
    words = ("Panels (b), (c), (e) and (f) show the second half of training, as in the paper.",)
    title = "Figure 4: learning dynamics by noise rate"
    return _dynamics(plan, "figure4", title, RATES, partial(_lines, plan), columns, words)


def figure5(plan: RunPlan) -> Output:
    """Return entropy and ε of ProSelfLC on the clean and on the noisy subset."""
    columns = ("entropy_clean", "entropy_noisy", "epsilon_clean", "epsilon_noisy")
    clean = replace(_styles()["proselflc"], width=1.5)
    styles = {"clean": clean, "noisy": replace(clean, dash=(4.0, 1.6), marker="s")}
    growth = Style("ink", (1, 1.5), width=1.0)
    found = {
        noise: _measured(plan, noise, (_line(plan, noise, "proselflc"),)) for noise in ENTROPY_RATES
    }
    drawn: dict[str, dict[str, list[Curve]]] = {"entropy": {}, "epsilon": {}}
    for measure, by_noise in drawn.items():
        for noise, measured in found.items():
            by_noise[noise] = [
                curve
                for subset, style in styles.items()
                for curve in measured.curves(f"{measure}_{subset}", subset, style)
            ]
    for noise, measured in found.items():
        drawn["epsilon"][noise] += measured.curves("g", "g(t)", growth)
    top = from_zero(list(itertools.chain.from_iterable(drawn["entropy"].values())), math.inf)
    heads = {"entropy": ("Entropy H(p)", top), "epsilon": ("Trust ε", (0.0, 1.0))}
    panels = [
        panel(f"{heads[measure][0]}, {noise_title(noise)}", curves, heads[measure][1])
        for measure, by_noise in drawn.items()
        for noise, curves in by_noise.items()
        if curves
    ]
    words = ("Clean and noisy are the examples whose label is right and wrong.",)
    title = "Figure 5: entropy and ε during training"
    return _output(plan, "figure5", title, found, columns, panels, 2, words)


def _styles() -> dict[str, Style]:
    """Return the styles of the paper's own methods."""
    styles = zip(own_methods(), method_styles(own_methods()), strict=True)
    return {name: replace(style, width=_WIDTHS.get(name, 1.2)) for name, style in styles}


def _line(plan: RunPlan, noise: str, method: str) -> Line:
    """Return the line of a method, with the parameters that the trusted examples chose."""
    title = title_of(method)
    parameters = plan.chosen_parameters("cifar100", noise, method)
    return Line(SHORT[title], title, method, parameters, _styles()[method])


def _lines(plan: RunPlan, noise: str) -> tuple[Line, ...]:
    """Return a line for each of the paper's own methods."""
    return tuple(_line(plan, noise, method) for method in own_methods())


@dataclass(frozen=True)
class _Measured:
    """The lines of a figure under one noise, and the records of each, a list over seeds."""

    lines: tuple[Line, ...]
    records: tuple[list[RunRecord | None], ...]

    def ends(self, column: str) -> list[list[float | None]]:
        """Return the final values of every line, a list over seeds."""
        return [[_end(record, column) for record in records] for records in self.records]

    def curves(
        self, column: str, name: str | None = None, style: Style | None = None
    ) -> list[Curve]:
        """Return the curves of the lines whose runs are done, by default named as the lines."""
        found = []
        for line, records in zip(self.lines, self.records, strict=True):
            known = [record.history for record in records if record is not None]
            if known and len(known) == len(records):
                found.append(averaged(name or line.name, style or line.style, known, column))
        return [curve for curve in found if curve is not None]


def _measured(plan: RunPlan, noise: str, lines: Sequence[Line]) -> _Measured:
    records = []
    for line in lines:
        found: list[RunRecord | None] = [None] * len(plan.seeds_of(line.method))
        if line.parameters is not None:
            found = plan.final_runs("cifar100", noise, line.method, line.parameters)
        records.append(found)
    return _Measured(tuple(lines), tuple(records))


def _dynamics(
    plan: RunPlan,
    name: str,
    title: str,
    noises: Sequence[str],
    lines_of: Callable[[str], Sequence[Line]],
    columns: Sequence[str],
    words: tuple[str, ...] = (),
) -> Output:
    """Return a sheet with a panel for each column under each noise, three in a row.

    Under a second and third noise it shows the second half of training.
    """
    found = {noise: _measured(plan, noise, lines_of(noise)) for noise in noises}
    drawn: dict[str, dict[str, list[Curve]]] = {}
    for column in columns:
        drawn[column] = {noise: measured.curves(column) for noise, measured in found.items()}
        for noise in noises[1:]:
            end = max((float(one.x.max()) for one in drawn[column][noise]), default=0.0)
            drawn[column][noise] = [one.after(end / 2) for one in drawn[column][noise]]
    limits = {column: _limits(column, drawn) for column in columns}
    panels = []
    for column, by_noise in drawn.items():
        measure = MEASURES[column]
        for noise, curves in by_noise.items():
            rate = f", r = {noise.partition(':')[2]}" if len(noises) > 1 else ""
            own = around(curves) if measure.scale == "part" and curves else limits[column]
            is_share = measure.scale != "nats"
            if curves:
                panels.append(panel(f"{measure.title}{rate}", curves, own, percent=is_share))
    return _output(plan, name, title, found, columns, panels, 3, (*words, *_orders(found, columns)))


def _limits(column: str, drawn: Mapping[str, Mapping[str, Sequence[Curve]]]) -> Limits:
    """Return the limits that all panels of a column share, and all panels of entropy."""
    scale = MEASURES[column].scale
    same = [other for other in drawn if other == column or MEASURES[other].scale == scale == "nats"]
    curves = [curve for other in same for by_noise in drawn[other].values() for curve in by_noise]
    return from_zero(curves, math.inf if scale == "nats" else 1.0)


def _orders(found: Mapping[str, _Measured], columns: Sequence[str]) -> tuple[str, ...]:
    """Return how far the order of the ends of the curves is the paper's, where all are drawn."""
    sentences: list[str] = []
    for noise, measured in found.items():
        names = [line.name for line in measured.lines]
        if names != list(SHORT.values()):
            continue
        for column in (column for column in columns if column in printed.ORDERS):
            ends = dict(zip(SHORT, measured.ends(column), strict=True))
            theirs, pairs = printed.ORDERS[column]
            head = theirs if len(found) == 1 else f"{noise_title(noise).capitalize()}. {theirs}"
            sentences += order(head, [(ends[high], ends[low]) for high, low in pairs])
    return tuple(sentences)


def _output(
    plan: RunPlan,
    name: str,
    title: str,
    found: Mapping[str, _Measured],
    columns: Sequence[str],
    panels: Sequence[Panel],
    width: int,
    words: tuple[str, ...],
) -> Output:
    """Return the sheet and, for every noise, the final values and their differences.

    The last line is compared with each of the others, paired by seed.
    """
    tables: dict[str, ResultTable] = {}
    heads = tuple(column.replace("_", " ") for column in columns)
    for noise, measured in found.items():
        rate = noise.partition(":")[2].replace(".", "") if len(found) > 1 else ""
        begin = f"{noise_title(noise)}: " if rate else ""
        ends = [measured.ends(column) for column in columns]
        names = [line.title for line in measured.lines]
        rows = [
            (line, *(mean_std(cells[k], digits=3) for cells in ends))
            for k, line in enumerate(names)
        ]
        tables[rate] = ResultTable((f"{begin}at the end", *heads), tuple(rows))
        if len(names) > 1:
            margins = [
                (line, *(difference(cells[-1], cells[k], digits=3) for cells in ends))
                for k, line in enumerate(names[:-1])
            ]
            head = f"{begin}{names[-1]} minus this, 95 % interval"
            key = f"{rate}-difference" if rate else "difference"
            tables[key] = ResultTable((head, *heads), tuple(margins))
    said = (
        f"Scale {plan.scale.name}: {plan.scale.title}. Each line is the mean over the seeds "
        f"{plan.seed_list}, with its 95 % interval as a band; the table has the final value and "
        "standard deviation.",
    )
    pictures: tuple[Figure, ...] = ()
    if panels:
        sheet = Sheet(title, tuple(panels), width)
        pictures = (figure(name, sheet, f"{title}. {' '.join(map(_describe, panels))}"),)
    return Output(title, tables, (*said, *words), pictures)


def _describe(one: Panel) -> str:
    return f"{one.title} at the end: {', '.join(f'{e.text} {e.y:.3f}' for e in one.ends)}."


def _end(record: RunRecord | None, column: str) -> float | None:
    """Return the final value of a run; None if it is not known, NaN if the run diverged."""
    if record is not None and record.is_diverged:
        return math.nan
    value = record.history[-1].get(column) if record is not None and record.history else None
    return None if value is None else float(value)
