"""The page of a search: the chosen values, how they were chosen, and every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from proselflc import methods
from proselflc.models.factory import names_code
from proselflc.pages.drawing import ROUND, Drawing, Figure, Legend, Series, Style, figure, label
from proselflc.pages.html_page import Cell, Table, Tile, name_cell, render, share_cell
from proselflc.pages.values import NAME, flattened, percent, shorten, shorten_middle
from proselflc.searching.search_space import Range
from proselflc.searching.study import NOISY, MethodChoice, SearchOutcome, SearchStage, StudyPlan
from proselflc.training.method import Value
from proselflc.wording import command

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TRIALS = 500  # rows of a table
MOST_TICKS = 7  # values of a parameter that are labelled on its axis
MOST_POINTS = 2000  # trials in a figure

_TRIAL = Style("line-1", marker="o", width=0)
_BEST = Style("line-1", width=1.2, opacity=0.6)
_CHOSEN = Style("line-2", marker="D", width=0)

_TITLES = {
    "epochs": "epochs",
    "steps": "steps Γ",
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "batch_size": "batch size",
    "optimizer": "optimiser",
    "epsilon": "ε",
    "sharpness": "B",
}


def make(outcome: SearchOutcome) -> str:
    """Return the page as HTML that needs no other file."""
    plan = outcome.plan
    page = {
        "title": f"Search on {shorten(plan.data, 80)}",
        "verdict": _verdict(outcome),
        "warnings": () if plan.knows_truth else (f"{NOISY[0].upper()}{NOISY[1:]}.",),
        "tiles": _tiles(outcome),
        "methods": _methods(outcome.choices),
        "sections": [_section(k, stage, plan) for k, stage in enumerate(outcome.stages)],
        "space": _space(plan),
        "options": _options(outcome),
        "repeats": _commands(outcome),
        "folder": shorten_middle(str(outcome.directory.path), 5 * NAME),
    }
    return render(page, "searching/templates/study.html")


def join_values(values: Mapping[str, Value]) -> str:
    """Return chosen values as part of a sentence.

    >>> join_values({"epochs": 30, "lr": 0.05})
    'epochs 30 and learning rate 0.05'
    """
    parts = [f"{_TITLES.get(name, name)} {_format(value)}" for name, value in values.items()]
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)


def _verdict(outcome: SearchOutcome) -> tuple[str, ...]:
    best = outcome.best
    labels = "trusted labels" if outcome.plan.knows_truth else "their given labels"
    own = join_values(best.values)
    first = f"{best.title}{f' with {own}' if own else ''} was chosen"
    if outcome.recipe:
        first += f"; all methods are trained with {join_values(outcome.recipe)}"
    sentences = [
        f"{first}.",
        f"The choice was made on {outcome.validation:,} examples with {labels}, of which it "
        f"predicts {percent(best.accuracy)} correctly. The test set was not used.",
    ]
    if best.test_accuracy is not None:
        sentences.append(
            f"Trained again on all the training data, it predicts {percent(best.test_accuracy)} of "
            "the test set correctly."
        )
    return tuple(sentences)


def _tiles(outcome: SearchOutcome) -> tuple[Tile, ...]:
    best = outcome.best
    labels = "trusted labels" if outcome.plan.knows_truth else "given labels"
    tiles = [
        Tile("Chosen", best.title, join_values(best.values)),
        Tile("Validation accuracy", percent(best.accuracy), labels),
    ]
    if best.test_accuracy is not None:
        tiles.append(Tile("Test accuracy", percent(best.test_accuracy), "trained on all data"))
    states = [trial.state for stage in outcome.stages for trial in stage.records]
    others = [
        f"{states.count(state)} {state if state == 'diverged' else 'ended early'}"
        for state in ("pruned", "diverged")
        if state in states
    ]
    return (*tiles, Tile("Trials", f"{states.count('complete'):,}", ", ".join(others)))


def _methods(choices: Sequence[MethodChoice]) -> Table:
    best = max(choice.accuracy for choice in choices)
    has_test = any(choice.test_accuracy is not None for choice in choices)
    rows = []
    for choice in choices:
        cells = [
            Cell(choice.title),
            Cell(join_values(choice.values) or "–"),
            share_cell(choice.accuracy, is_best=choice.accuracy == best),
        ]
        if has_test:
            cells.append(share_cell(choice.test_accuracy))
        path = "" if choice.run is None else str(choice.run)
        run = shorten_middle(path, NAME) or "–"
        cells.append(Cell(run, path if run.endswith("…") else ""))
        rows.append(tuple(cells))
    heading = ("method", "chosen", "validation", *(("test",) if has_test else ()), "run")
    numeric = (False, False, True, *((True,) if has_test else ()), False)
    return Table("Chosen parameters", heading, numeric, tuple(rows), len(rows) > 1)


def _section(k: int, stage: SearchStage, plan: StudyPlan) -> dict[str, object]:
    chosen = stage.best
    points = [
        Point(trial.number + 1, trial.values, trial.accuracy, trial is chosen)
        for trial in stage.records
        if trial.accuracy is not None
    ]
    names = list(dict.fromkeys(name for trial in stage.records for name in trial.values))
    titles = {name: _TITLES.get(name, name) for name in names}
    candidates = plan.space.recipe if stage.is_first else plan.space.methods.get(stage.method, {})
    figures: list[Figure | None] = []
    if len(points) > 1:
        for name in names:
            is_range = isinstance(candidates.get(name), Range)
            figures.append(
                by_parameter(f"stage{k}-{name}", name, titles[name], points, is_range=is_range)
            )
        figures.append(history(f"stage{k}-trials", points))
        figures.append(importance(f"stage{k}-matters", stage.importance, titles))
    sentences = []
    if stage.is_first:
        method = methods.find(stage.method).title
        sentences.append(f"Trials use {method[0].lower()}{method[1:]}.")
    if chosen is not None and chosen.values:
        sentences.append(
            f"Trial {chosen.number + 1} of {len(stage.records)} was chosen: "
            f"{join_values(chosen.values)}."
        )
    elif len(stage.records) == 1:
        sentences.append("There was nothing to choose.")
    title = f"{stage.title}, for all methods" if stage.is_first else stage.title
    return {
        "anchor": f"stage-{k}",
        "title": title,
        "words": " ".join(sentences),
        "figures": [figure for figure in figures if figure is not None],
        "trials": _trials(stage, names, titles),
    }


def _trials(stage: SearchStage, names: list[str], titles: Mapping[str, str]) -> Table:
    rows = []
    for trial in stage.records[:MOST_TRIALS]:
        is_chosen = trial is stage.best
        accuracy, seconds = share_cell(trial.accuracy, 2, is_best=is_chosen), Cell("–")
        if trial.seconds is not None:
            seconds = Cell(f"{trial.seconds:,.0f}", order=trial.seconds)
        state = {"complete": "", "pruned": "ended early"}.get(trial.state, trial.state)
        number = trial.number + 1
        values = [_cell(trial.values.get(name)) for name in names]
        note = Cell("chosen" if is_chosen else state)
        rows.append((Cell(str(number), order=number), *values, accuracy, seconds, note))
    numbers = [
        all(isinstance(trial.values.get(name, 0), int | float) for trial in stage.records)
        for name in names
    ]
    heading = ("trial", *(titles[name] for name in names), "validation", "seconds", "note")
    numeric = (True, *numbers, True, True, False)
    return Table(f"Trials of {stage.title}", heading, numeric, tuple(rows), len(rows) > 1)


def _cell(value: Value | None) -> Cell:
    if value is None:
        return Cell("–")
    order = float(value) if isinstance(value, int | float) else None
    return Cell(shorten(_format(value)), order=order)


def _space(plan: StudyPlan) -> Table:
    rows = [line.partition("=") for line in plan.space.words()]
    cells = tuple((name_cell(name), name_cell(values, 2 * NAME)) for name, _, values in rows)
    return Table("Search space", ("name", "values"), (False, False), cells)


def _options(outcome: SearchOutcome) -> Table:
    plan = outcome.plan
    table = replace(plan.config, method=",".join(plan.methods)).table()
    rows = tuple(
        (name_cell(key), name_cell(_format(value), 2 * NAME))
        for key, value in flattened(table).items()
        if key not in outcome.recipe
    )
    return Table("Fixed options", ("option", "value"), (False, False), rows)


def _commands(outcome: SearchOutcome) -> tuple[str, ...]:
    """Return the commands that repeat the chosen run and that compare the runs of the methods."""
    chosen = shorten_middle(str(outcome.directory.chosen), 5 * NAME)
    model = outcome.plan.config.model
    own_model = model if names_code(model) else None
    out = f"{chosen.removesuffix('.toml')}-again"
    commands = [command("train", config=chosen, model=own_model, out=out)]
    runs = [choice.run for choice in outcome.choices if choice.run is not None]
    if runs:
        commands.append(command("report", *runs[:8]))
    return tuple(commands)


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Point:
    """A complete trial in a figure; numbers begin with 1."""

    number: int
    values: Mapping[str, Value]
    accuracy: float
    is_chosen: bool


def history(name: str, points: Sequence[Point]) -> Figure:
    """Return a figure of the validation accuracy of each trial and of the best so far."""
    drawn = points[:MOST_POINTS]
    x = np.array([point.number for point in drawn], np.float64)
    y = np.array([point.accuracy for point in drawn], np.float64)
    best = np.maximum.accumulate(y)

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.step(x, best, where="post", color=_BEST.paint, linewidth=1.2, alpha=_BEST.opacity)
        _scatter(axes, x, y, drawn)
        axes.set_xlim(0.5, x.max() + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=ROUND))
        axes.set_xlabel("trial")
        _percent(axes, y)

    winner = next((point for point in drawn if point.is_chosen), drawn[0])
    return figure(
        name,
        Drawing(
            "Trials",
            "validation accuracy in order",
            plot,
            (*_legend(winner), ("best so far", _BEST)),
            right=14,
        ),
        f"Validation accuracy of {len(drawn)} trials, from {percent(float(y.min()))} to "
        f"{percent(float(y.max()))}; the best is trial {winner.number}.",
    )


def by_parameter(
    name: str, parameter: str, title: str, points: Sequence[Point], *, is_range: bool = False
) -> Figure | None:
    """Return a figure of the validation accuracy by the value of a parameter.

    None is returned for fewer than two different values. `title` is that of the axis, and
    `is_range` says whether values were drawn from a range rather than from a list.
    """
    drawn = [point for point in points if parameter in point.values][:MOST_POINTS]
    known = list(dict.fromkeys(point.values[parameter] for point in drawn))
    if len(known) < 2:
        return None
    are_numbers = all(isinstance(value, int | float) for value in known)
    if are_numbers:
        known.sort()
    place = {value: float(value) if are_numbers else float(k) for k, value in enumerate(known)}
    x = np.array([place[point.values[parameter]] for point in drawn])
    y = np.array([point.accuracy for point in drawn], np.float64)
    top = np.array([y[x == place[value]].max() for value in known])
    at = np.array([place[value] for value in known])
    is_log = are_numbers and at.min() > 0 and at.max() / at.min() >= 8
    ticks = len(known) <= MOST_TICKS and not is_range

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

        if is_log:
            axes.set_xscale("log")
        if ticks and are_numbers:
            axes.plot(at, top, color=_BEST.paint, linewidth=1.2, alpha=_BEST.opacity)
        _scatter(axes, x, y, drawn)
        if ticks:
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticks(at, [label(_format_tick(value), 12) for value in known])
        else:
            nearby = LogLocator(subs=(1.0, 3.0)) if is_log else MaxNLocator(6, steps=ROUND)
            axes.xaxis.set_major_locator(nearby)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        _set_limits(axes, at, is_log)
        axes.set_xlabel(title)
        _percent(axes, y)

    winner = next((point for point in drawn if point.is_chosen), drawn[int(y.argmax())])
    legend: Legend = _legend(winner)
    if ticks and are_numbers and len(drawn) > len(known):
        legend = (*legend, ("best of each", _BEST))
    values = ", ".join(
        f"{label(_format_tick(value))} {percent(float(accuracy))}"
        for value, accuracy in list(zip(known, top, strict=True))[:MOST_TICKS]
    )
    return figure(
        name,
        Drawing(title, "validation accuracy by its value", plot, legend, right=14),
        f"Validation accuracy by {title}: {values}{' …' if len(known) > MOST_TICKS else ''}.",
    )


def importance(name: str, shares: Mapping[str, float], titles: Mapping[str, str]) -> Figure | None:
    """Return a figure of the importance of each parameter; None if it is unknown."""
    if not shares:
        return None
    names = sorted(shares, key=lambda key: shares[key])[-12:]
    sizes = np.array([shares[key] for key in names])
    longest = max(len(titles.get(key, key)) for key in names)

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        axes.barh(np.arange(len(names)), sizes, 0.6, color=_TRIAL.paint)
        axes.set_yticks(np.arange(len(names)), [label(titles.get(key, key), 20) for key in names])
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x")
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.xaxis.set_major_formatter(PercentFormatter(1))

    values = ", ".join(f"{titles.get(key, key)} {percent(shares[key], 0)}" for key in names[::-1])
    return figure(
        name,
        Drawing(
            "Importance",
            "share of the variance between trials",
            plot,
            left=min(100.0, 12 + 4.6 * min(longest, 20)),
            right=16,
            height=max(40.0, 22.0 * len(names)),
        ),
        f"Share of the variance between trials that each parameter explains: {values}.",
    )


def _scatter(axes: Axes, x: Series, y: Series, points: Sequence[Point]) -> None:
    chosen = np.array([point.is_chosen for point in points])
    for which, style, size in ((~chosen, _TRIAL, 14), (chosen, _CHOSEN, 30)):
        axes.scatter(
            x[which],
            y[which],
            s=size,
            color=style.paint,
            marker=style.marker,
            linewidths=0,
            clip_on=False,
            zorder=3,
        )


def _percent(axes: Axes, y: Series) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = float(y.min()), float(y.max())
    margin = max(0.005, 0.1 * (high - low))
    axes.set_ylim(max(0.0, low - margin), min(1.0, high + margin))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.4g}%"))


def _set_limits(axes: Axes, at: Series, is_log: bool) -> None:
    """Leave a margin beside the first and the last value."""
    if is_log:
        margin = (at.max() / at.min()) ** 0.06
        axes.set_xlim(at.min() / margin, at.max() * margin)
        return
    margin = 0.06 * (at.max() - at.min())
    axes.set_xlim(at.min() - margin, at.max() + margin)


def _legend(winner: Point) -> Legend:
    return ((f"chosen · {percent(winner.accuracy)}", _CHOSEN), ("a trial", _TRIAL))


def _format_tick(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
