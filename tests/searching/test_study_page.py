"""The page of a study says what was chosen, by what, and shows every trial."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from proselflc.data.request import Request
from proselflc.pages.drawing import Drawing
from proselflc.run.config import Config
from proselflc.searching import study_page
from proselflc.searching.search_space import Space
from proselflc.searching.study import (
    MethodChoice,
    SearchOutcome,
    SearchStage,
    StudyDirectory,
    StudyPlan,
    TrialRecord,
)
from proselflc.training.recipe import Recipe

CONFIG = Config(Request("digits"), noise="pair:0.4", recipe=Recipe(epochs=30, seed=0))


def search_outcome() -> SearchOutcome:
    grid = [(15, 0.05, 0.7), (15, 0.1, 0.74), (30, 0.05, 0.72), (30, 0.1, None)]
    first = tuple(
        TrialRecord(
            k,
            "diverged" if accuracy is None else "complete",
            {"epochs": epochs, "lr": lr},
            accuracy,
            1.5,
        )
        for k, (epochs, lr, accuracy) in enumerate(grid)
    )
    own = tuple(
        TrialRecord(k, "complete", {"sharpness": 7.5 + k}, 0.8 + k / 100, 2.0) for k in range(5)
    )
    space = Space(
        {"epochs": CategoricalDistribution((15, 30)), "lr": CategoricalDistribution((0.05, 0.1))},
        {"proselflc": {"sharpness": FloatDistribution(4.0, 20.0)}},
    )
    methods = ("boot_soft", "proselflc")
    plan = StudyPlan("digits", CONFIG, methods, space, 5, False, "l" * 64, "t" * 64, True)
    summaries = {name: {"test_accuracy": value} for name, value in (("b", 0.7), ("p", 0.81))}
    return SearchOutcome(
        StudyDirectory(Path("study")),
        plan,
        {"epochs": 15, "lr": 0.1},
        (
            SearchStage("cce", True, first, {"epochs": 0.25, "lr": 0.75}),
            SearchStage("proselflc", False, own),
        ),
        (
            MethodChoice(
                "boot_soft", {"epsilon": 0.5}, 0.78, CONFIG, Path("runs/boot"), summaries["b"]
            ),
            MethodChoice(
                "proselflc", {"sharpness": 11.5}, 0.84, CONFIG, Path("runs/pro"), summaries["p"]
            ),
        ),
        259,
    )


def text(html: str) -> str:
    """What is read on a page."""
    body = re.sub(r"<(style|script|desc|title)\b.*?</\1>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_it_says_what_was_chosen_and_by_what() -> None:
    seen = text(study_page.make(search_outcome()))
    assert "ProSelfLC with B 11.5 was chosen" in seen
    assert "trained with epochs 15 and learning rate 0.1" in seen
    assert "259 examples with trusted labels, of which it predicts 84.0%" in seen
    assert "The test set was not used" in seen
    assert "it predicts 81.0% of the test set" in seen
    assert "Careful" not in seen
    assert "proselflc train --config study/chosen.toml" in seen


def test_without_trusted_labels_it_warns() -> None:
    outcome = search_outcome()
    noisy = replace(outcome, plan=replace(outcome.plan, knows_truth=False))
    seen = text(study_page.make(noisy))
    assert "Careful. The true labels are unknown" in seen
    assert "259 examples with their given labels" in seen


def test_every_trial_is_in_its_table_and_the_chosen_one_is_marked() -> None:
    html = study_page.make(search_outcome())
    tables = re.findall(r'aria-label="(Trials of [^"]+)">(.*?)</table>', html, re.S)
    assert [label for label, _ in tables] == ["Trials of Γ and optimiser", "Trials of ProSelfLC"]
    stages = search_outcome().stages
    for (_, table), stage, chosen in zip(tables, stages, (1, 4), strict=True):
        trials = stage.records
        rows = [text(row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)][1:]
        assert len(rows) == len(trials)
        for row, trial in zip(rows, trials, strict=True):
            accuracy = "–" if trial.val_accuracy is None else f"{trial.val_accuracy:.2%}"
            values = " ".join(f"{value:g}" for value in trial.values.values())
            assert row.startswith(f"{trial.number + 1} {values} {accuracy}")
            assert ("chosen" in row) == (trial.number == chosen)
            assert ("diverged" in row) == (trial.state == "diverged")


def test_what_was_searched_is_not_said_to_be_fixed() -> None:
    html = study_page.make(search_outcome())
    (fixed,) = re.findall(r'aria-label="Fixed options">(.*?)</table>', html, re.S)
    assert "seed" in fixed
    assert "epochs" not in fixed


def test_figures_are_those_of_the_parameters() -> None:
    html = study_page.make(search_outcome())
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    assert captions == ["epochs", "learning rate", "Trials", "Importance", "B", "Trials"]


def trial(number: int, value: object, accuracy: float) -> TrialRecord:
    return TrialRecord(number, "complete", {"a": value}, accuracy)  # type: ignore[dict-item]


def test_a_parameter_s_figure_has_the_best_of_each_value() -> None:
    trials = [trial(0, 1, 0.5), trial(1, 2, 0.6), trial(2, 1, 0.9), trial(3, 2, 0.4)]
    drawn = study_page.by_parameter("figure", "a", trials, trials[2])
    assert drawn is not None
    assert drawn.alt == "Validation accuracy by a: 1 90.0%, 2 60.0%."
    assert isinstance(drawn.drawing, Drawing)
    assert next(said for said, _ in drawn.drawing.legend) == "chosen · 90.0%"
    same = [replace(one, values={"a": 1}) for one in trials]
    assert study_page.by_parameter("figure", "a", same, same[2]) is None


def test_names_and_many_numbers_can_be_drawn() -> None:
    words = [trial(0, "x", 0.5), trial(1, "y", 0.6)]
    drawn = study_page.by_parameter("figure", "a", words, words[1])
    assert drawn is not None
    assert "x 50.0%, y 60.0%" in drawn.alt
    many = [trial(k, 10.0**-k, 0.5 + k / 100) for k in range(1, 10)]
    for is_drawn in (True, False):
        assert study_page.by_parameter("figure", "a", many, many[-1], is_drawn=is_drawn)
    same = [replace(one, val_accuracy=0.5) for one in many]
    drawn = study_page.history("figure", same, same[0])
    assert drawn.alt.startswith("Validation accuracy of 9 trials")


def test_what_matters_is_in_order() -> None:
    drawn = study_page.importance("figure", {"a": 0.2, "batch_size": 0.8})
    assert drawn is not None
    assert drawn.alt.endswith("each parameter explains: batch size 80%, a 20%.")
    assert study_page.importance("figure", {}) is None


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>'])
def test_untrusted_names_are_text(hostile: str) -> None:
    outcome = search_outcome()
    directory = StudyDirectory(Path(hostile))
    choice = replace(outcome.choices[1], run=Path(hostile), values={hostile[:10]: hostile})
    stage = outcome.stages[1]
    records = tuple(
        replace(trial, values={"kind": f"{hostile}{trial.number}"}) for trial in stage.records
    )
    config = replace(CONFIG, model=hostile)
    bad = replace(
        outcome,
        directory=directory,
        plan=replace(outcome.plan, data=hostile, config=config),
        choices=(choice,),
        stages=(replace(stage, records=records),),
    )
    html = study_page.make(bad)
    assert hostile not in html
    assert html.count("<script>") == 1
    assert "<img" not in html


def test_one_trial_needs_no_figures() -> None:
    outcome = search_outcome()
    stage = outcome.stages[1]
    alone = replace(stage, records=(replace(stage.records[4], values={}),))
    html = study_page.make(replace(outcome, stages=(alone,)))
    assert "<figure" not in html
    assert "There was nothing to choose." in text(html)
