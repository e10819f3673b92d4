"""What an audit found, in sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proselflc.auditing.audit import Audit
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.judge import Judge
from proselflc.auditing.measured import Measured, MeasuredPrecision, in_words
from proselflc.run import audit_words


def audit(**facts: Any) -> Audit:
    known: dict[str, Any] = {
        "num_examples": 1000,
        "suspects": 60,
        "changes": 40,
        "folds": None,
        "estimated_noise_rate": 0.08,
        "noise_low": 0.05,
        "noise_high": 0.12,
        "realised_noise_rate": None,
        "expected_precision": 0.8,
        "names": ("cat", "dog"),
        "joint": np.eye(2) * 500,
        "realised": None,
    }
    return Audit(**{**known, **facts})


def test_a_range_instead_of_a_number() -> None:
    assert audit_words.noise_range(audit()) == "5.0 to 12.0%"
    assert audit_words.noise_range(audit(), "–") == "5.0–12.0%"
    assert audit_words.noise_range(audit(noise_high=0.0501)) == "5.0%"
    assert audit_words.noise_range(audit(noise_low=None)) == "8.0%"


def test_what_to_do() -> None:
    assert audit_words.actions(audit()) == {"keep": 940, "review": 20, "change": 40}
    assert audit_words.actions(audit(changes=None)) is None
    assert list(audit_words.sentences(audit(realised_noise_rate=0.1))) == [
        "An estimated 5.0 to 12.0% of the 1,000 labels are wrong (10.0% are).",
        "60 labels are suspect: 40 can be changed without a person and 20 should be reviewed.",
        "About 8 in 10 suspects are expected to be wrong.",
    ]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"expected_precision": None},
            "How many of the suspects are wrong is not known; a review of 30 measures it.",
        ),
        ({"changes": 0}, "60 labels are suspect: 60 should be reviewed."),
        ({"changes": 60}, "60 labels are suspect: 60 can be changed without a person."),
        ({"suspects": 1, "changes": 0}, "1 label is suspect: 1 should be reviewed."),
        ({"suspects": 0, "changes": 0}, "No label is suspect."),
    ],
)
def test_few_suspects_and_what_is_not_known(facts: dict[str, Any], said: str) -> None:
    assert said in audit_words.sentences(audit(**facts))


def test_an_audit_that_abstains_contradicts_nothing() -> None:
    weak = AuditWarning("few_epochs", "too few")
    found = audit(suspects=0, changes=0, expected_precision=None, warnings=(weak,))
    assert found.abstains
    assert list(audit_words.sentences(found))[1:] == [
        "The labels are ranked by quality, but none is called suspect."
    ]


def test_the_judge_in_words() -> None:
    assert audit_words.judge(audit()) == ""
    judge = Judge("4 folds", 0.93, 0.9, 0.88, 0.95)
    assert audit_words.judge(audit(judge=judge)) == (
        "The labels were judged by a second opinion that did not see them (4 folds). It is right "
        "for about 93% of the examples and agrees with the trained model on 88% of them."
    )
    alone = audit_words.judge(audit(judge=Judge(None, 0.7, 0.6, 1.0, 0.9)))
    assert alone.startswith("The labels were judged by the early epochs of training alone")
    assert "right for about 70%" in alone


def test_a_measurement_takes_the_place_of_estimates() -> None:
    whole = Measured(30, (0.05, 0.08, 0.12), MeasuredPrecision(suspects=(0.6, 0.8, 0.9)))
    said = list(audit_words.sentences(audit(measured=whole)))
    assert said == [
        in_words(whole),
        "60 labels are suspect: 40 can be changed without a person and 20 should be reviewed.",
    ]
    assert audit_words.measured_on(audit(measured=whole)) == "measured on 30 reviewed labels"
    assert audit_words.measured_on(audit()) == ""
