"""Two sentences from the numbers, and a warning where they are not to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proselflc.reporting import verdict
from proselflc.reporting.reading import Reading, readings


@pytest.fixture
def reading(fabricate: Callable[..., Path]) -> Callable[..., Reading]:
    return lambda **options: readings([fabricate(**options)])[0]


def test_what_was_run_and_what_was_found(reading: Callable[..., Reading]) -> None:
    assert verdict.of_one(reading(n=2000, suspects=600), 600) == (
        "ProSelfLC learned pets with 40% pair noise for 4 epochs; it gets 70.0% of the test "
        "set right.",
        "About 30% of the 2,000 labels look wrong (30.0% are); 600 are marked as suspects, of "
        "which about 9 in 10 should really be wrong, and with the suggested labels 100.0% of "
        "all are right (50.0% before).",
    )


def test_nothing_is_said_of_what_is_not_known(reading: Callable[..., Reading]) -> None:
    first, second = verdict.of_one(
        reading(truth=False, test=False, summary={"noise": "none", "data": "/a/b.csv"}), 6
    )
    assert first == (
        "ProSelfLC learned /a/b.csv for 4 epochs; there is no test set to measure it on."
    )
    assert second == (
        "About 50% of the 12 labels look wrong; 6 are marked as suspects, of which about 9 in 10 "
        "should really be wrong."
    )


@pytest.mark.parametrize(
    ("suspects", "audited", "said"),
    [
        (0, True, "About 0% of the 12 labels look wrong; none is marked as a suspect."),
        (1, True, "About 8% of the 12 labels look wrong; 1 is marked as a suspect."),
        (0, False, "None is marked as a suspect."),
        (3, False, "3 are marked as suspects."),
    ],
)
def test_few_or_no_suspects(
    reading: Callable[..., Reading], suspects: int, audited: bool, said: str
) -> None:
    one = reading(suspects=suspects, audited=audited, truth=False)
    assert verdict.of_one(one, suspects)[1] == said


def test_without_audit_and_examples_nothing_is_known(reading: Callable[..., Reading]) -> None:
    assert (
        verdict.of_one(reading(audited=False), None)[1] == "Which labels look wrong is not known."
    )


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ("sym_exclusive_exact:0.4", "with 40% symmetric noise"),
        ("human", "with human noise"),
        ("odd_kind:much", "with odd kind noise"),
        ("none", "pets for 4 epochs"),
    ],
)
def test_noise_in_words(reading: Callable[..., Reading], noise: str, words: str) -> None:
    assert words in verdict.of_one(reading(summary={"noise": noise}), 1)[0]


def test_steps_where_there_are_no_epochs(reading: Callable[..., Reading]) -> None:
    one = reading()
    assert "for 1 step;" in verdict.of_one(replace(one, config={"steps": 1}), 1)[0]


def test_several_runs_are_compared_and_the_test_set_chooses_nothing(
    fabricate: Callable[..., Path],
) -> None:
    good = fabricate("good", summary={"label_accuracy_after": 0.9, "test_accuracy": 0.6})
    sure = fabricate("sure", summary={"label_accuracy_after": 0.8, "method": "cce"})
    assert verdict.of_several(readings([sure, good])) == (
        "2 runs of 2 methods learned pets with 40% pair noise.",
        "The labels are best as good suggests them, with 90.0% right (50.0% before), and the test "
        "set is predicted best by sure, with 70.0% right.",
    )
    opening, closing = verdict.of_several(readings([good, good]))
    assert opening == "2 runs of ProSelfLC learned pets with 40% pair noise."
    assert closing.endswith("and it also predicts the test set best, with 60.0% right.")


def test_several_runs_without_truth(fabricate: Callable[..., Path]) -> None:
    one = fabricate("one", truth=False, test=False)
    two = fabricate("two", truth=False, test=False, summary={"data": "other", "noise": "none"})
    opening, closing = verdict.of_several(readings([one, two]))
    assert opening == "2 runs of ProSelfLC learned different data with different noise."
    assert closing == "Neither true labels nor a test set say which of them is better."
    for path, accuracy in ((one, 0.4), (two, 0.5)):
        (path / "evaluation.json").write_text(f'{{"validation": {{"accuracy": {accuracy}}}}}')
    assert verdict.of_several(readings([one, two]))[1] == (
        "The validation set is predicted best by two, with 50.0% right."
    )


def test_a_good_run_has_no_warning(reading: Callable[..., Reading]) -> None:
    assert verdict.warnings(reading(suspects=4), 0.0) == []


@pytest.mark.parametrize(
    ("options", "unseen", "words"),
    [
        (
            {"history": {"train_accuracy": 0.99}},
            0.0,
            "99.0% of the given labels were fitted before",
        ),
        ({"history": {"train_accuracy": 0.4}}, 0.0, "hardly more than chance"),
        ({}, 0.2, "20.0% of the examples were never seen"),
        ({"suspects": 9}, None, "More than half of the labels look wrong"),
        ({"suspects": 4, "summary": {"label_accuracy_after": 0.4}}, None, "suggestions do harm"),
    ],
)
def test_what_is_not_to_be_trusted_is_said(
    reading: Callable[..., Reading], options: dict[str, object], unseen: float, words: str
) -> None:
    (said,) = verdict.warnings(reading(**options), unseen)
    assert words in said


def test_what_the_method_has_noted_is_said(reading: Callable[..., Reading]) -> None:
    notes = ["class cat is never predicted, so it keeps its label", 3, " ", "x" * 1000]
    said = verdict.warnings(reading(suspects=4, summary={"notes": notes}), None)
    assert said == ["Class cat is never predicted, so it keeps its label.", "X" + "x" * 298 + "…."]


@pytest.mark.parametrize("notes", ["a", None, {"a": 1}, 7])
def test_notes_that_are_none(reading: Callable[..., Reading], notes: object) -> None:
    assert verdict.warnings(reading(suspects=4, summary={"notes": notes}), None) == []


def test_many_notes_are_cut(reading: Callable[..., Reading]) -> None:
    one = reading(suspects=4, summary={"notes": [f"note {k}" for k in range(5000)]})
    assert verdict.warnings(one, None) == [
        *(f"Note {k}." for k in range(5)),
        "The method has noted 4,995 more, see summary.json.",
    ]


def test_an_audit_that_is_off_or_unsure_says_so(reading: Callable[..., Reading]) -> None:
    one = reading(suspects=3)
    assert one.audit is not None
    off = replace(one, audit=replace(one.audit, realised_noise_rate=0.4))
    assert verdict.warnings(off, None) == [
        "The audit is off: it takes 25.0% of the labels for wrong, and 40.0% are."
    ]
    unsure = replace(one, audit=replace(one.audit, expected_precision=0.3))
    assert "Fewer than half of the suspects" in verdict.warnings(unsure, None)[0]
