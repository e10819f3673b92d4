"""One page about a search: what was chosen, by what, and what else was tried."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proselflc.models.named_code import flag_for
from proselflc.pages import table
from proselflc.pages.drawing import Figure
from proselflc.pages.html_page import Tile, rendered
from proselflc.pages.names import NAME, in_the_middle, on_page, percent
from proselflc.pages.table import Cell, Table
from proselflc.searching import study_figures
from proselflc.searching.study_figures import Point, Value

MOST_TRIALS = 500  # rows of a table

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


@dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
        number: from 1.
        state: complete, pruned, diverged, running or waiting.
        values: that were tried.
        accuracy: on the validation examples, of one that came to its end.
        seconds: that it took.
        is_chosen: whether it is the best of its stage.
    """

    number: int
    state: str
    values: Mapping[str, Value]
    accuracy: float | None
    seconds: float | None
    is_chosen: bool


@dataclass(frozen=True)
class Stage:
    """What was chosen at once.

    Attributes:
        title: a few words.
        method: that was trained.
        is_first: whether it is chosen for all methods.
        trials: in their order.
        importance: of the parameters; empty where nobody can tell.
        ranges: the parameters of which any number between two could be tried.
    """

    title: str
    method: str
    is_first: bool
    trials: tuple[Trial, ...]
    importance: Mapping[str, float]
    ranges: tuple[str, ...]


@dataclass(frozen=True)
class Method:
    """What was chosen for a method, and how well it then does.

    Attributes:
        title: of the method.
        values: of its own parameters.
        validation: accuracy of the trial that was best.
        test: accuracy of the run on all the training data, or None.
        run: where that is; empty without one.
        is_best: whether no other method has a higher validation accuracy.
    """

    title: str
    values: Mapping[str, Value]
    validation: float
    test: float | None
    run: str
    is_best: bool


@dataclass(frozen=True)
class Study:
    """A study, for a page.

    Attributes:
        data: what was learned from.
        noise: that was put on its labels; empty for none.
        knows_truth: whether those labels are trusted that have chosen.
        validation: how many they are.
        warning: why the choice is to be trusted less; empty where it is not.
        recipe: what was chosen for all methods.
        methods: and for each.
        stages: how.
        space: what could be chosen, as `--space` takes it.
        options: of the runs.
        chosen: the file of the best run's options.
        folder: of the study.
    """

    data: str
    noise: str
    knows_truth: bool
    validation: int
    warning: str
    recipe: Mapping[str, Value]
    methods: tuple[Method, ...]
    stages: tuple[Stage, ...]
    space: tuple[str, ...]
    options: Mapping[str, Any]
    chosen: str
    folder: str


@dataclass(frozen=True)
class Section:
    """A stage as the template shows it."""

    anchor: str
    title: str
    words: str
    figures: tuple[Figure, ...]
    trials: Table


@dataclass(frozen=True)
class Page:
    """What the template shows."""

    title: str
    verdict: tuple[str, ...]
    warnings: tuple[str, ...]
    tiles: tuple[Tile, ...]
    methods: Table
    sections: tuple[Section, ...]
    space: Table
    options: Table
    repeats: tuple[str, ...]
    folder: str


def make(study: Study) -> str:
    """The page, as HTML that needs nothing but itself."""
    best = next(one for one in study.methods if one.is_best)
    return rendered(
        Page(
            title=f"Search on {on_page(study.data, 80)}",
            verdict=_verdict(study, best),
            warnings=(study.warning,) if study.warning else (),
            tiles=tuple(_tiles(study, best)),
            methods=_methods(study),
            sections=tuple(_section(k, stage) for k, stage in enumerate(study.stages)),
            space=_space(study),
            options=_options(study),
            repeats=_repeats(study),
            folder=in_the_middle(study.folder, 5 * NAME),
        ),
        "searching/templates/study.html",
    )


def words(values: Mapping[str, Value]) -> str:
    """Chosen values in a sentence.

    >>> words({"epochs": 30, "lr": 0.05})
    'epochs 30 and learning rate 0.05'
    """
    said = [f"{_TITLES.get(name, name)} {_written(value)}" for name, value in values.items()]
    return " and ".join((", ".join(said[:-1]), said[-1])) if len(said) > 1 else "".join(said)


def _verdict(study: Study, best: Method) -> tuple[str, ...]:
    labels = "trusted labels" if study.knows_truth else "the labels that they were given"
    own = words(best.values)
    first = f"{best.title}{f' with {own}' if own else ''} was chosen"
    if study.recipe:
        first += f", trained with {words(study.recipe)} as all methods are"
    second = (
        f"{study.validation:,} examples with {labels} have chosen, of which it predicts "
        f"{percent(best.validation)}; the test set has chosen nothing."
    )
    found = [f"{first}.", second]
    if best.test is not None:
        found.append(
            f"Trained again on all the training data, it predicts {percent(best.test)} of the test "
            "set."
        )
    return tuple(found)


def _tiles(study: Study, best: Method) -> list[Tile]:
    trials = [trial for stage in study.stages for trial in stage.trials]
    done = sum(trial.state == "complete" for trial in trials)
    found = [Tile("Chosen", best.title, words(best.values))]
    by = "trusted labels" if study.knows_truth else "labels as given"
    found.append(Tile("Validation accuracy", percent(best.validation), by))
    if best.test is not None:
        found.append(Tile("Test accuracy", percent(best.test), "learned from all"))
    others = [
        f"{count} {word}"
        for word, state in (("ended early", "pruned"), ("diverged", "diverged"))
        if (count := sum(trial.state == state for trial in trials))
    ]
    found.append(Tile("Trials", f"{done:,}", ", ".join(others)))
    return found


def _methods(study: Study) -> Table:
    best = max(one.validation for one in study.methods)
    has_test = any(one.test is not None for one in study.methods)
    rows = []
    for one in study.methods:
        cells = [
            Cell(one.title),
            Cell(words(one.values) or "–"),
            Cell(percent(one.validation), order=one.validation, is_best=one.validation == best),
        ]
        if has_test:
            test = one.test
            cells.append(Cell("–") if test is None else Cell(percent(test), order=test))
        run = in_the_middle(one.run, NAME) or "–"
        cells.append(Cell(run, one.run if run.endswith("…") else ""))
        rows.append(tuple(cells))
    heading = ("method", "chosen", "validation", *(("test",) if has_test else ()), "run")
    numeric = (False, False, True, *((True,) if has_test else ()), False)
    return Table("What was chosen", heading, numeric, tuple(rows), len(rows) > 1)


def _section(k: int, stage: Stage) -> Section:
    points = [
        Point(one.number, one.values, one.accuracy, one.is_chosen)
        for one in stage.trials
        if one.accuracy is not None
    ]
    names = list(dict.fromkeys(name for one in stage.trials for name in one.values))
    titles = {name: _TITLES.get(name, name) for name in names}
    figures: list[Figure | None] = []
    if len(points) > 1:
        figures = [
            study_figures.by_parameter(
                f"stage{k}-{name}", name, titles[name], points, is_range=name in stage.ranges
            )
            for name in names
        ]
        figures.append(study_figures.history(f"stage{k}-trials", points))
        figures.append(study_figures.importance(f"stage{k}-matters", stage.importance, titles))
    chosen = next((one for one in stage.trials if one.is_chosen), None)
    said = f"Tried with {stage.method[0].lower()}{stage.method[1:]}. " if stage.is_first else ""
    if chosen is not None and chosen.values:
        said += f"Chosen: {words(chosen.values)}, trial {chosen.number} of {len(stage.trials)}."
    elif len(stage.trials) == 1:
        said += "There was nothing to choose."
    title = f"{stage.title}, for all methods" if stage.is_first else stage.title
    drawn = tuple(one for one in figures if one is not None)
    return Section(f"stage-{k}", title, said.strip(), drawn, _trials(stage, names, titles))


def _trials(stage: Stage, names: list[str], titles: Mapping[str, str]) -> Table:
    rows = []
    for one in stage.trials[:MOST_TRIALS]:
        values = [_cell(one.values.get(name)) for name in names]
        accuracy = Cell("–")
        if one.accuracy is not None:
            accuracy = Cell(percent(one.accuracy, 2), order=one.accuracy, is_best=one.is_chosen)
        seconds = one.seconds
        took = Cell("–") if seconds is None else Cell(f"{seconds:,.0f}", order=seconds)
        state = {"complete": "", "pruned": "ended early"}.get(one.state, one.state)
        note = "chosen" if one.is_chosen else state
        rows.append((Cell(str(one.number), order=one.number), *values, accuracy, took, Cell(note)))
    numbers = [
        all(isinstance(one.values.get(name, 0), int | float) for one in stage.trials)
        for name in names
    ]
    heading = ("trial", *(titles[name] for name in names), "validation", "seconds", "note")
    numeric = (True, *numbers, True, True, False)
    return Table(f"Trials of {stage.title}", heading, numeric, tuple(rows), len(rows) > 1)


def _cell(value: Value | None) -> Cell:
    if value is None:
        return Cell("–")
    order = float(value) if isinstance(value, int | float) else None
    return Cell(on_page(_written(value)), order=order)


def _space(study: Study) -> Table:
    rows = [one.partition("=") for one in study.space]
    cells = tuple((table.name(name), table.name(said, 2 * NAME)) for name, _, said in rows)
    return Table("What could be chosen", ("name", "values"), (False, False), cells)


def _options(study: Study) -> Table:
    flat: dict[str, Any] = {}
    for key, value in study.options.items():
        if isinstance(value, dict):
            flat |= {"method" if k == "name" else f"{key}.{k}": v for k, v in value.items()}
        else:
            flat[key] = value
    rows = tuple(
        (table.name(key), table.name(_written(value), 2 * NAME))
        for key, value in flat.items()
        if key not in study.recipe
    )
    return Table("What was fixed", ("option", "value"), (False, False), rows)


def _repeats(study: Study) -> tuple[str, ...]:
    chosen = shlex.quote(in_the_middle(study.chosen, 5 * NAME))
    runs = [one.run for one in study.methods if one.run]
    found = [
        f"proselflc train --config {chosen}{flag_for(study.options.get('model'))} "
        f"--out {chosen.removesuffix('.toml')}-again"
    ]
    if runs:
        found.append("proselflc report " + " ".join(map(shlex.quote, runs[:8])))
    return tuple(found)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
