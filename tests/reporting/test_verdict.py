"""Two sentences from the numbers, and a warning where they are not to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proselflc.auditing.caveats import AuditWarning
from proselflc.reporting import verdict
from proselflc.reporting.run_facts import RunFacts, read_runs


@pytest.fixture
def facts(fabricate: Callable[..., Path]) -> Callable[..., RunFacts]:
    return lambda **options: read_runs([fabricate(**options)])[0]


def test_what_was_run_and_what_was_found(facts: Callable[..., RunFacts]) -> None:
    assert verdict.of_one(facts(n=2000, suspects=600), 600) == (
        "ProSelfLC was trained on pets with 40% pair noise for 4 epochs; its test accuracy is "
        "70.0%.",
        "An estimated 30.0% of the 2,000 labels are wrong (30.0% are). 600 labels are suspect: 600 "
        "can be changed without a person. About 9 in 10 suspects are expected to be wrong. After "
        "the changes 100.0% of all labels are right (50.0% before).",
        "The labels were judged by a second opinion that did not see them (standardised columns). "
        "It is right for about 95% of the examples and agrees with the trained model on 90% of "
        "them.",
    )


def test_nothing_is_said_of_what_is_not_known(facts: Callable[..., RunFacts]) -> None:
    first, second, _ = verdict.of_one(
        facts(truth=False, test=False, summary={"noise": "none", "data": "/a/b.csv"}), 6
    )
    assert first == "ProSelfLC was trained on /a/b.csv for 4 epochs; there is no test set."
    assert second == (
        "An estimated 50.0% of the 12 labels are wrong. 6 labels are suspect: 6 can be changed "
        "without a person. About 9 in 10 suspects are expected to be wrong."
    )


@pytest.mark.parametrize(
    ("suspects", "audited", "said"),
    [
        (0, True, "An estimated 0.0% of the 12 labels are wrong. No label is suspect."),
        (
            1,
            True,
            "An estimated 8.3% of the 12 labels are wrong. 1 label is suspect: 1 can be changed "
            "without a person.",
        ),
        (0, False, "There are no suspects."),
        (3, False, "There are 3 suspects."),
    ],
)
def test_few_or_no_suspects(
    facts: Callable[..., RunFacts], suspects: int, audited: bool, said: str
) -> None:
    one = facts(suspects=suspects, audited=audited, truth=False)
    assert verdict.of_one(one, suspects)[1] == said


def test_without_audit_and_examples_nothing_is_known(facts: Callable[..., RunFacts]) -> None:
    assert verdict.of_one(facts(audited=False), None)[1] == "The labels were not audited."


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ("sym_exclusive_exact:0.4", "with 40% symmetric noise"),
        ("human", "with human noise"),
        ("odd_kind:much", "with odd kind noise"),
        ("none", "pets for 4 epochs"),
    ],
)
def test_noise_in_words(facts: Callable[..., RunFacts], noise: str, words: str) -> None:
    assert words in verdict.of_one(facts(summary={"noise": noise}), 1)[0]


def test_steps_where_there_are_no_epochs(facts: Callable[..., RunFacts]) -> None:
    one = facts()
    assert "for 1 step;" in verdict.of_one(replace(one, config={"steps": 1}), 1)[0]


def test_several_runs_are_compared_and_the_test_set_chooses_nothing(
    fabricate: Callable[..., Path],
) -> None:
    good = fabricate("good", summary={"label_accuracy_after": 0.9, "test_accuracy": 0.6})
    sure = fabricate("sure", summary={"label_accuracy_after": 0.8, "method": "cce"})
    assert verdict.of_several(read_runs([sure, good])) == (
        "2 runs of 2 methods trained on pets with 40% pair noise.",
        "The corrections of good are best, with 90.0% of the labels right (50.0% before), and sure "
        "has the highest accuracy on the test set, 70.0%.",
    )
    opening, closing = verdict.of_several(read_runs([good, good]))
    assert opening == "2 runs of ProSelfLC trained on pets with 40% pair noise."
    assert closing.endswith("and it also has the highest accuracy on the test set, 60.0%.")


def test_several_runs_without_truth(fabricate: Callable[..., Path]) -> None:
    one = fabricate("one", truth=False, test=False)
    two = fabricate("two", truth=False, test=False, summary={"data": "other", "noise": "none"})
    opening, closing = verdict.of_several(read_runs([one, two]))
    assert opening == "2 runs of ProSelfLC trained on different data with different noise."
    assert closing == "Without true labels or a test set they cannot be ranked."
    for path, accuracy in ((one, 0.4), (two, 0.5)):
        (path / "evaluation.json").write_text(f'{{"validation": {{"accuracy": {accuracy}}}}}')
    assert verdict.of_several(read_runs([one, two]))[1] == (
        "Two has the highest accuracy on the validation set, 50.0%."
    )


def test_a_good_run_has_no_warning(facts: Callable[..., RunFacts]) -> None:
    assert verdict.warnings(facts(suspects=4), 0.0) == []


@pytest.mark.parametrize(
    ("options", "unseen", "words"),
    [
        ({"warnings": [AuditWarning("memorised", "it is so")]}, 0.0, "It is so."),
        ({}, 0.2, "20.0% of the examples were never seen"),
        ({"suspects": 9}, None, "More than half of the labels look wrong"),
        (
            {"suspects": 4, "summary": {"label_accuracy_after": 0.4}},
            None,
            "suggestions make the labels worse",
        ),
    ],
)
def test_what_is_not_to_be_trusted_is_said(
    facts: Callable[..., RunFacts], options: dict[str, object], unseen: float, words: str
) -> None:
    (said,) = verdict.warnings(facts(**options), unseen)
    assert words in said


def test_all_warnings_of_the_audit_are_said_in_their_order(
    facts: Callable[..., RunFacts],
) -> None:
    found = [AuditWarning("wide_range", "the rate is unknown"), AuditWarning("odd", "so is this")]
    one = facts(suspects=4, warnings=found)
    assert verdict.warnings(one, 0.0) == ["The rate is unknown.", "So is this."]
    assert one.audit is not None
    odd = replace(one, audit=replace(one.audit, warnings=(AuditWarning("odd", ""),)))
    assert verdict.warnings(odd, 0.0) == ["."]  # of a strange file, but no failure


def test_an_audit_of_an_older_version_is_to_be_made_again(facts: Callable[..., RunFacts]) -> None:
    one = facts(suspects=4)
    assert one.audit is not None
    replace(one.audit, changes=None).save(one.run.directory)
    [said] = verdict.warnings(read_runs([one.run.path])[0], 0.0)
    assert said.startswith("An older version made this audit")
    assert said.endswith("audit the run again.")


def test_what_was_noted_and_warned_of_is_said_once(facts: Callable[..., RunFacts]) -> None:
    """As a run that an older version trained and this one has audited."""
    warning = AuditWarning("own_corrections", "these labels were corrected: review them")
    noted = {"notes": ["these labels were corrected: decide about them"]}
    one = facts(suspects=4, warnings=[warning], summary=noted)
    assert verdict.warnings(one, 0.0) == ["These labels were corrected: review them."]


def test_what_the_method_has_noted_is_said(facts: Callable[..., RunFacts]) -> None:
    notes = ["class cat is never predicted, so it keeps its label", 3, " ", "x" * 1000]
    said = verdict.warnings(facts(suspects=4, summary={"notes": notes}), None)
    assert said == ["Class cat is never predicted, so it keeps its label.", "X" + "x" * 298 + "…."]


@pytest.mark.parametrize("notes", ["a", None, {"a": 1}, 7])
def test_notes_that_are_none(facts: Callable[..., RunFacts], notes: object) -> None:
    assert verdict.warnings(facts(suspects=4, summary={"notes": notes}), None) == []


def test_many_notes_are_cut(facts: Callable[..., RunFacts]) -> None:
    one = facts(suspects=4, summary={"notes": [f"note {k}" for k in range(5000)]})
    assert verdict.warnings(one, None) == [
        *(f"Note {k}." for k in range(5)),
        "The method has 4,995 more notes in summary.json.",
    ]


def test_an_audit_that_is_off_or_unsure_says_so(facts: Callable[..., RunFacts]) -> None:
    one = facts(suspects=3)
    assert one.audit is not None
    off = replace(one, audit=replace(one.audit, realised_noise_rate=0.4))
    assert verdict.warnings(off, None) == [
        "The estimate of the audit is inaccurate: it takes 25.0% of the labels to be wrong, but "
        "40.0% are."
    ]
    unsure = replace(one, audit=replace(one.audit, expected_precision=0.3))
    assert "Fewer than half of the suspects" in verdict.warnings(unsure, None)[0]
