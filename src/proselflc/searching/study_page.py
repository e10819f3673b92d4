"""The page of a search: the chosen values, how they were chosen, and every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from proselflc import methods
from proselflc.models.factory import names_code
from proselflc.pages.drawing import ROUND, Drawing, Figure, Legend, Series, Style, figure, label
from proselflc.pages.html_page import Cell, Table, Tile, name_cell, render, share_cell
from proselflc.pages.values import NAME, flattened, percent, shorten, shorten_middle
from proselflc.searching.search_space import is_range
from proselflc.searching.study import (
    NOISY,
    MethodChoice,
    SearchOutcome,
    SearchStage,
    StudyPlan,
    TrialRecord,
)
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
    parts = [f"{_title(name)} {_format(value)}" for name, value in values.items()]
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
    done = [trial for trial in stage.records if trial.val_accuracy is not None]
    names = list(dict.fromkeys(name for trial in stage.records for name in trial.values))
    candidates = plan.space.recipe if stage.is_first else plan.space.methods.get(stage.method, {})
    figures: list[Figure | None] = []
    if chosen is not None and len(done) > 1:
        for name in names:
            drawn = name in candidates and is_range(candidates[name])
            figures.append(by_parameter(f"stage{k}-{name}", name, done, chosen, is_drawn=drawn))
        figures.append(history(f"stage{k}-trials", done, chosen))
        figures.append(importance(f"stage{k}-matters", stage.importance))
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
    return {
        "anchor": f"stage-{k}",
        "title": f"{stage.title}, for all methods" if stage.is_first else stage.title,
        "words": " ".join(sentences),
        "figures": [figure for figure in figures if figure is not None],
        "trials": _trials(stage, names),
    }


def _trials(stage: SearchStage, names: list[str]) -> Table:
    rows = []
    for trial in stage.records[:MOST_TRIALS]:
        is_chosen = trial is stage.best
        accuracy, seconds = share_cell(trial.val_accuracy, 2, is_best=is_chosen), Cell("–")
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
    heading = ("trial", *map(_title, names), "validation", "seconds", "note")
    numeric = (True, *numbers, True, True, False)
    return Table(f"Trials of {stage.title}", heading, numeric, tuple(rows), len(rows) > 1)


def _title(name: str) -> str:
    return _TITLES.get(name, name)


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


def history(name: str, trials: Sequence[TrialRecord], chosen: TrialRecord) -> Figure:
    """Return a figure of the validation accuracy of each complete trial and of the best so far."""
    drawn = trials[:MOST_POINTS]
    x, y = np.array([float(trial.number + 1) for trial in drawn]), _accuracies(drawn)

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        best = np.maximum.accumulate(y)
        axes.step(x, best, where="post", color=_BEST.paint, linewidth=1.2, alpha=_BEST.opacity)
        _scatter(axes, x, y, drawn, chosen)
        axes.set_xlim(0.5, x.max() + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=ROUND))
        axes.set_xlabel("trial")

    legend = (*_legend(chosen), ("best so far", _BEST))
    return figure(
        name,
        Drawing("Trials", "validation accuracy in order", plot, legend, right=14),
        f"Validation accuracy of {len(drawn)} trials, from {percent(float(y.min()))} to "
        f"{percent(float(y.max()))}; the best is trial {chosen.number + 1}.",
    )


def by_parameter(
    name: str,
    parameter: str,
    trials: Sequence[TrialRecord],
    chosen: TrialRecord,
    *,
    is_drawn: bool = False,
) -> Figure | None:
    """Return a figure of the validation accuracy of complete trials by the value of a parameter.

    None is returned for fewer than two different values. `is_drawn` says whether values were drawn
    from a range rather than from a list.
    """
    drawn = [trial for trial in trials if parameter in trial.values][:MOST_POINTS]
    known = list(dict.fromkeys(trial.values[parameter] for trial in drawn))
    if len(known) < 2:
        return None
    are_numbers = all(isinstance(value, int | float) for value in known)
    if are_numbers:
        known.sort()
    place = {value: float(value) if are_numbers else float(k) for k, value in enumerate(known)}
    x, y = np.array([place[trial.values[parameter]] for trial in drawn]), _accuracies(drawn)
    at = np.array([place[value] for value in known])
    top = np.array([y[x == where].max() for where in at])
    is_log = are_numbers and at.min() > 0 and at.max() / at.min() >= 8
    has_ticks = len(known) <= MOST_TICKS and not is_drawn

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

        if is_log:
            axes.set_xscale("log")
        if has_ticks and are_numbers:
            axes.plot(at, top, color=_BEST.paint, linewidth=1.2, alpha=_BEST.opacity)
        _scatter(axes, x, y, drawn, chosen)
        axes.xaxis.set_minor_locator(NullLocator())
        if has_ticks:
            axes.set_xticks(at, [label(_format_tick(value), 12) for value in known])
        else:
            nearby = LogLocator(subs=(1.0, 3.0)) if is_log else MaxNLocator(6, steps=ROUND)
            axes.xaxis.set_major_locator(nearby)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        low, high = (np.log(at.min()), np.log(at.max())) if is_log else (at.min(), at.max())
        ends = np.array([low - 0.06 * (high - low), high + 0.06 * (high - low)])
        axes.set_xlim(*(np.exp(ends) if is_log else ends))
        axes.set_xlabel(_title(parameter))

    legend: Legend = _legend(chosen)
    if has_ticks and are_numbers and len(drawn) > len(known):
        legend = (*legend, ("best of each", _BEST))
    values = ", ".join(
        f"{label(_format_tick(value))} {percent(float(accuracy))}"
        for value, accuracy in list(zip(known, top, strict=True))[:MOST_TICKS]
    )
    title = _title(parameter)
    return figure(
        name,
        Drawing(title, "validation accuracy by its value", plot, legend, right=14),
        f"Validation accuracy by {title}: {values}{' …' if len(known) > MOST_TICKS else ''}.",
    )


def importance(name: str, shares: Mapping[str, float]) -> Figure | None:
    """Return a figure of the importance of each parameter; None if it is unknown."""
    if not shares:
        return None
    names = sorted(shares, key=lambda key: shares[key])[-12:]
    titles, sizes = list(map(_title, names)), [shares[key] for key in names]

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        axes.barh(np.arange(len(names)), sizes, 0.6, color=_TRIAL.paint)
        axes.set_yticks(np.arange(len(names)), [label(title, 20) for title in titles])
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x")
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.xaxis.set_major_formatter(PercentFormatter(1))

    drawing = Drawing(
        "Importance",
        "share of the variance between trials",
        plot,
        left=min(100.0, 12 + 4.6 * min(max(map(len, titles)), 20)),
        right=16,
        height=max(40.0, 22.0 * len(names)),
    )
    pairs = list(zip(titles, sizes, strict=True))[::-1]
    values = ", ".join(f"{title} {percent(share, 0)}" for title, share in pairs)
    return figure(
        name,
        drawing,
        f"Share of the variance between trials that each parameter explains: {values}.",
    )


def _accuracies(trials: Sequence[TrialRecord]) -> Series:
    return np.array([trial.val_accuracy for trial in trials], np.float64)


def _scatter(
    axes: Axes, x: Series, y: Series, trials: Sequence[TrialRecord], chosen: TrialRecord
) -> None:
    """Draw the validation accuracies y, in percent, and mark the chosen trial."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    is_chosen = np.array([trial is chosen for trial in trials])
    for which, style, size in ((~is_chosen, _TRIAL, 14), (is_chosen, _CHOSEN, 30)):
        shape: dict[str, Any] = {
            "color": style.paint,
            "marker": style.marker,
            "linewidths": 0,
            "s": size,
        }
        axes.scatter(x[which], y[which], **shape, clip_on=False, zorder=3)
    low, high = float(y.min()), float(y.max())
    margin = max(0.005, 0.1 * (high - low))
    axes.set_ylim(max(0.0, low - margin), min(1.0, high + margin))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.4g}%"))


def _legend(chosen: TrialRecord) -> Legend:
    return ((f"chosen · {percent(chosen.val_accuracy)}", _CHOSEN), ("a trial", _TRIAL))


def _format_tick(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
