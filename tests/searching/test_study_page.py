"""The page of a study says what was chosen, by what, and shows every trial."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from proselflc.searching import study_figures, study_page
from proselflc.searching.study_figures import Point
from proselflc.searching.study_page import Method, Stage, Study, Trial


def study() -> Study:
    grid = [(15, 0.05, 0.7), (15, 0.1, 0.74), (30, 0.05, 0.72), (30, 0.1, None)]
    first = Stage(
        "Γ and optimiser",
        "Cross entropy",
        True,
        tuple(
            Trial(
                k + 1,
                "complete" if accuracy is not None else "diverged",
                {"epochs": epochs, "lr": lr},
                accuracy,
                1.5,
                k == 1,
            )
            for k, (epochs, lr, accuracy) in enumerate(grid)
        ),
        {"epochs": 0.25, "lr": 0.75},
        (),
    )
    own = Stage(
        "ProSelfLC",
        "ProSelfLC",
        False,
        tuple(
            Trial(k + 1, "complete", {"sharpness": 7.5 + k}, 0.8 + k / 100, 2.0, k == 4)
            for k in range(5)
        ),
        {},
        ("sharpness",),
    )
    return Study(
        data="digits",
        noise="pairflip:0.4",
        knows_truth=True,
        validation=259,
        warning="",
        recipe={"epochs": 15, "lr": 0.1},
        methods=(
            Method("Boot-soft", {"epsilon": 0.5}, 0.78, 0.7, "runs/boot", False),
            Method("ProSelfLC", {"sharpness": 11.5}, 0.84, 0.81, "runs/pro", True),
        ),
        stages=(first, own),
        space=("epochs=15,30", "lr=0.05,0.1", "proselflc.sharpness=4..20"),
        options={"data": "digits", "epochs": 30, "seed": 0, "method": {"name": "boot_soft"}},
        chosen="study/chosen.toml",
        folder="study",
    )


def text(html: str) -> str:
    """What is read on a page."""
    body = re.sub(r"<(style|script|desc|title)\b.*?</\1>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_it_says_what_was_chosen_and_by_what() -> None:
    seen = text(study_page.make(study()))
    assert "ProSelfLC with B 11.5 was chosen, trained with epochs 15 and learning rate 0.1" in seen
    assert "259 examples with trusted labels have chosen, of which it predicts 84.0%" in seen
    assert "the test set has chosen nothing" in seen
    assert "it predicts 81.0% of the test set" in seen
    assert "Careful" not in seen
    assert "proselflc train --config study/chosen.toml" in seen


def test_without_trusted_labels_it_warns() -> None:
    seen = text(study_page.make(replace(study(), knows_truth=False, warning="They may be wrong.")))
    assert "Careful. They may be wrong." in seen
    assert "259 examples with the labels that they were given have chosen" in seen


def test_every_trial_is_in_its_table_and_the_chosen_one_is_marked() -> None:
    html = study_page.make(study())
    tables = re.findall(r'aria-label="(Trials of [^"]+)">(.*?)</table>', html, re.S)
    assert [label for label, _ in tables] == ["Trials of Γ and optimiser", "Trials of ProSelfLC"]
    for (_, table), trials in zip(tables, (one.trials for one in study().stages), strict=True):
        rows = [text(row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)][1:]
        assert len(rows) == len(trials)
        for row, trial in zip(rows, trials, strict=True):
            accuracy = "–" if trial.accuracy is None else f"{trial.accuracy:.2%}"
            values = " ".join(f"{value:g}" for value in trial.values.values())
            assert row.startswith(f"{trial.number} {values} {accuracy}")
            assert ("chosen" in row) == trial.is_chosen
            assert ("diverged" in row) == (trial.state == "diverged")


def test_what_was_searched_is_not_said_to_be_fixed() -> None:
    html = study_page.make(study())
    (fixed,) = re.findall(r'aria-label="What was fixed">(.*?)</table>', html, re.S)
    assert "seed" in fixed
    assert "epochs" not in fixed


def test_figures_are_those_of_the_parameters() -> None:
    html = study_page.make(study())
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    assert captions == ["epochs", "learning rate", "Trials", "What matters", "B", "Trials"]


def test_a_parameter_s_figure_has_the_best_of_each_value() -> None:
    points = [
        Point(k + 1, {"a": value}, accuracy, k == 2)
        for k, (value, accuracy) in enumerate([(1, 0.5), (2, 0.6), (1, 0.9), (2, 0.4)])
    ]
    drawn = study_figures.by_parameter("figure", "a", "size", points)
    assert drawn is not None
    assert drawn.alt == "Validation accuracy by size: 1 90.0%, 2 60.0%."
    assert next(said for said, _ in drawn.drawing.legend) == "chosen · 90.0%"
    same = [replace(one, values={"a": 1}) for one in points]
    assert study_figures.by_parameter("figure", "a", "size", same) is None


def test_names_and_many_numbers_can_be_drawn() -> None:
    words = [Point(1, {"a": "x"}, 0.5, False), Point(2, {"a": "y"}, 0.6, True)]
    drawn = study_figures.by_parameter("figure", "a", "kind", words)
    assert drawn is not None
    assert "x 50.0%, y 60.0%" in drawn.alt
    many = [Point(k, {"a": 10.0**-k}, 0.5 + k / 100, k == 9) for k in range(1, 10)]
    for is_range in (True, False):
        assert study_figures.by_parameter("figure", "a", "rate", many, is_range=is_range)
    same = [replace(one, accuracy=0.5) for one in many]
    assert study_figures.history("figure", same).alt.startswith("Validation accuracy of 9 trials")


def test_what_matters_is_in_order() -> None:
    drawn = study_figures.importance("figure", {"a": 0.2, "b": 0.8}, {"b": "size"})
    assert drawn is not None
    assert drawn.alt.endswith("each parameter makes: size 80%, a 20%.")
    assert study_figures.importance("figure", {}, {}) is None


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>'])
def test_names_of_strangers_are_text(hostile: str) -> None:
    one = study()
    bad = replace(
        one,
        data=hostile,
        folder=hostile,
        chosen=hostile,
        options={**one.options, hostile: hostile},
        methods=(replace(one.methods[1], run=hostile, values={hostile[:10]: hostile}),),
        stages=(
            replace(
                one.stages[1],
                trials=tuple(
                    replace(trial, values={"kind": f"{hostile}{trial.number}"})
                    for trial in one.stages[1].trials
                ),
            ),
        ),
    )
    html = study_page.make(bad)
    assert hostile not in html
    assert html.count("<script>") == 1
    assert "<img" not in html


def test_one_trial_needs_no_figures() -> None:
    one = study()
    alone = replace(one.stages[1], trials=(replace(one.stages[1].trials[4], values={}),))
    html = study_page.make(replace(one, stages=(alone,)))
    assert "<figure" not in html
    assert "There was nothing to choose." in text(html)
