"""Figures 2 to 5 of the paper, drawn from runs as its tables are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proselflc.paper.output import Output, Table, difference, mean_std
from proselflc.paper.plan import Study, named, own_methods, title_of
from proselflc.paper.records import Record

if TYPE_CHECKING:
    from proselflc.pages.drawing import Figure

NOISE = "pair:0.4"  # of Figures 2 and 3
RATES = ("pair:0.2", "pair:0.3", "pair:0.4")  # of Figure 4
ENTROPY_RATES = ("pair:0.2", "pair:0.4")  # of Figure 5
EPSILON = 0.5  # of the fixed trust in Figure 2


def figure2(study: Study) -> Output:
    """Global and local trust, global trust alone, and a fixed ε."""
    B = study.chosen("cifar100", NOISE, "proselflc")
    variants: dict[str, tuple[str, dict[str, Any]] | None] = {
        f"fixed ε = {EPSILON:g}": ("boot_soft", {"epsilon": EPSILON}),
        "global trust alone": None if B is None else ("proselflc", {**B, "trust": "global"}),
        "global and local trust": None if B is None else ("proselflc", B),
    }
    return _panels(
        study,
        "figure2",
        "Figure 2: three ways to set ε",
        {name: (NOISE, one) for name, one in variants.items()},
        ("correct_fitting", "semantic_correction", "test_accuracy"),
    )


def figure3(study: Study) -> Output:
    """The six panels of learning dynamics."""
    return _panels(
        study,
        "figure3",
        "Figure 3: learning dynamics under asymmetric noise of 0.4",
        {title_of(m): (NOISE, _setting(study, NOISE, m)) for m in own_methods()},
        (
            *("correct_fitting", "wrong_fitting", "semantic_correction"),
            *("entropy_clean", "entropy_noisy", "test_accuracy"),
        ),
    )


def figure4(study: Study) -> Output:
    """Generalisation and wrong fitting as the noise rate changes."""
    each = [
        _panels(
            study,
            f"figure4-{noise.partition(':')[2].replace('.', '')}",
            named(noise),
            {title_of(m): (noise, _setting(study, noise, m)) for m in own_methods()},
            ("test_accuracy", "wrong_fitting"),
            at=f", {named(noise)}",
        )
        for noise in RATES
    ]
    return _joined("Figure 4: learning dynamics by noise rate", each, RATES)


def figure5(study: Study) -> Output:
    """Entropy and ε of the clean and of the noisy subset, ProSelfLC."""
    each = [
        _panels(
            study,
            f"figure5-{noise.partition(':')[2].replace('.', '')}",
            named(noise),
            {"ProSelfLC": (noise, _setting(study, noise, "proselflc"))},
            ("entropy_clean", "entropy_noisy", "epsilon_clean", "epsilon_noisy"),
            at=f", {named(noise)}",
        )
        for noise in ENTROPY_RATES
    ]
    return _joined("Figure 5: entropy and ε during training", each, ENTROPY_RATES)


def _setting(study: Study, noise: str, method: str) -> tuple[str, dict[str, Any]] | None:
    parameters = study.chosen("cifar100", noise, method)
    return None if parameters is None else (method, parameters)


_DRAWN = {  # which figure of `dynamics` shows a column of the history of one run
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
    study: Study,
    name: str,
    title: str,
    lines: Mapping[str, tuple[str, tuple[str, dict[str, Any]] | None]],
    columns: Sequence[str],
    *,
    at: str = "",
) -> Output:
    """Panels of runs, each line the mean over the seeds, and tables of where they end.

    The last line is what the others are compared with, pair by pair of one seed.

    Args:
        study: where the runs are.
        name: the beginning of the panels' names.
        title: of the figure.
        lines: noise, method and its parameters by what is said of them; None if not known yet.
        columns: of the history; one panel may show two of them.
        at: what every panel's title ends with.
    """
    from proselflc.pages.learning_dynamics import dynamics

    histories: dict[str, list[dict[str, Any]]] = {}
    ends: dict[str, list[list[float | None]]] = {}
    for said, (noise, setting) in lines.items():
        records: list[Record | None] = [None] * len(study.seeds)
        if setting is not None:
            method, parameters = setting
            records = study.finals("cifar100", noise, method, parameters)
        known = [one for one in records if one is not None]
        if len(known) == len(records) and all(one.history for one in known):
            histories[said] = averaged([one.history for one in known])
        ends[said] = [[_end(one, column) for one in records] for column in columns]
    drawn = {one.name: one for one in dynamics(histories)} if histories else {}
    kept = dict.fromkeys(_DRAWN[column] for column in columns)
    figures = tuple(_renamed(drawn[k], f"{name}-{k}", at) for k in kept if k in drawn)
    seeds = ", ".join(map(str, study.seeds))
    words = (
        f"Scale {study.scale.name}: {study.scale.title}. Each line is the mean over the seeds "
        f"{seeds}; where it ends is in the table, with the standard deviation.",
    )
    names = tuple(column.replace("_", " ") for column in columns)
    rows = [(said, *(mean_std(cell, digits=3) for cell in cells)) for said, cells in ends.items()]
    tables = {"": Table(("at the end", *names), tuple(rows))}
    *others, best = ends
    if others:
        less = [
            (
                said,
                *(difference(a, b, digits=3) for a, b in zip(ends[best], ends[said], strict=True)),
            )
            for said in others
        ]
        tables["difference"] = Table((f"{best} less this, 95 % interval", *names), tuple(less))
    return Output(title, tables, words, figures)


def _end(record: Record | None, column: str) -> float | None:
    """What a run came to; None if that is not known, NaN if it diverged."""
    if record is not None and "diverged" in record.facts:
        return math.nan
    value = record.history[-1].get(column) if record is not None and record.history else None
    return None if value is None else float(value)


def _joined(title: str, each: Sequence[Output], noises: Sequence[str]) -> Output:
    tables = {}
    for one, noise in zip(each, noises, strict=True):
        rate = noise.partition(":")[2].replace(".", "")
        for key, table in one.tables.items():
            head = f"{named(noise)}: {table.columns[0]}"
            name = f"{rate}-{key}" if key else rate
            tables[name] = replace(table, columns=(head, *table.columns[1:]))
    figures = tuple(figure for one in each for figure in one.figures)
    return Output(title, tables, each[0].words, figures)


def averaged(histories: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The mean over seeds at every step that all have been looked at; None where any is None."""
    by_step = [{line["step"]: line for line in lines} for lines in histories]
    points = []
    for step in by_step[0]:
        lines = [one[step] for one in by_step if step in one]
        if len(lines) < len(by_step):
            continue
        point: dict[str, Any] = {}
        for column in lines[0]:
            values = [line.get(column) for line in lines]
            numbers = [float(v) for v in values if isinstance(v, int | float)]
            point[column] = statistics.fmean(numbers) if len(numbers) == len(values) else None
        points.append(point)
    return points


def _renamed(figure: Figure, name: str, at: str) -> Figure:
    """The same figure under another name, with more at the end of its title."""
    from proselflc.pages.drawing import figure as drawn

    title = f"{figure.title}{at}"
    alt = figure.alt.replace(figure.title, title, 1)
    return drawn(name, replace(figure.drawing, title=title), alt)
