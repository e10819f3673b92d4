"""What the page of a review says about the audit: its range, its judge, actions and warnings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.judge import Judge
from proselflc.data.decisions import DecisionChange
from proselflc.errors import InputError
from proselflc.reviewing.command import ServerOptions, review, summary
from proselflc.reviewing.view import ReviewView
from proselflc.run.reader import Run
from proselflc.run.review import Review

WIDE = AuditWarning("wide_range", "the estimates differ")


@pytest.fixture
def reviewed(
    reviewable: Callable[..., Path], acting: Callable[..., Path], tmp_path: Path
) -> Review:
    judge = Judge("4 folds", 0.93, 0.9, 0.88, 0.95)
    path = reviewable(tmp_path, n=100, suspects=20, truth=False)
    return Review(Run(acting(path, 12, warnings=(WIDE,), judge=judge)))


def test_what_the_page_is_told(reviewed: Review) -> None:
    view = ReviewView(reviewed, "anna")
    start = view.start()
    assert start["warnings"] == ["The estimates differ."]
    assert isinstance(start["about"], list)
    about, judge = start["about"]
    assert about.startswith("An estimated 10.0 to 40.0% of the 100 labels are wrong.")
    assert "12 can be changed without a person and 8 should be reviewed" in about
    assert "(4 folds)" in judge
    actions = [one["action"] for one in view.items(np.arange(100))]
    assert actions == ["change"] * 12 + ["review"] * 8 + ["keep"] * 80


def test_the_wrong_labels_that_are_left_are_a_range(reviewed: Review) -> None:
    view = ReviewView(reviewed, "anna")
    assert view.state(0)["remainingRange"] == [10, 40]
    wrong = [DecisionChange(f"id-{k}", "fox", 0) for k in (0, 3)]  # which were given as cats
    kept = [DecisionChange("id-1", "dog", 0)]
    reviewed.decisions.add([*wrong, *kept], "anna", "1")
    reviewed.refresh()
    assert view.state(0)["remainingRange"] == [8, 38]


def test_warnings_as_data(reviewed: Review) -> None:
    assert summary(reviewed)["warnings"] == [
        {"code": "wide_range", "message": "the estimates differ"}
    ]


def test_a_run_of_an_older_version(reviewable: Callable[..., Path], tmp_path: Path) -> None:
    view = ReviewView(Review(Run(reviewable(tmp_path, truth=False, older=True))), "anna")
    start = view.start()
    assert start["remainingRange"] is None
    assert "older version" in str(start["warnings"])
    assert {one["action"] for one in view.items(np.arange(12))} == {None}


def test_an_audit_that_abstains_says_why_there_is_nothing_to_review(
    reviewable: Callable[..., Path], acting: Callable[..., Path], tmp_path: Path
) -> None:
    short = AuditWarning("few_epochs", "the model was trained for 1 epoch")
    run = acting(reviewable(tmp_path, suspects=0, truth=False), 0, warnings=(short,))
    with pytest.raises(InputError, match=r"nothing to review: the model was trained for 1 epoch"):
        review(Run(run), ServerOptions(port=0), note=print, announce=print)
