"""When an audit says that it means little, and when it names no suspects for that reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from proselflc.auditing.caveats import (
    OWN_CORRECTIONS,
    epoch_warnings,
    fitted_shares,
    label_warnings,
    warnings_of,
)
from proselflc.auditing.judge import ConfusedPair, Judge
from proselflc.auditing.noise_range import NoiseRange
from proselflc.auditing.records import HeldOut, Records
from proselflc.training.observations import ROW, Rows

N, C = 1000, 10
GIVEN = np.arange(N) % C
GOOD = Judge("standardised columns", 0.9, 0.89, 0.9, 0.9)
ALONE = Judge(None, 0.9, 0.89, 0.9, 0.9)
NARROW = NoiseRange(0.08, 0.1, 0.12)


def epoch(fitted: float, unseen: int = 0) -> Rows:
    """An epoch that predicts a share of the given labels; the last examples were not seen."""
    rows = np.zeros(N, ROW)
    seen = np.arange(N) < N - unseen
    right = np.arange(N) < round(fitted * seen.sum())
    rows["predicted"] = np.where(right, GIVEN, (GIVEN + 1) % C)
    rows["p_given"] = np.where(seen, 0.5, np.nan)
    return rows


def codes(
    fitted: list[float],
    judge: Judge = GOOD,
    noise: NoiseRange = NARROW,
    held_out: HeldOut | None = None,
) -> list[str]:
    records = Records([epoch(share) for share in fitted], held_out)
    return [one.code for one in warnings_of(records, GIVEN, C, judge, noise)]


def message(fitted: list[float], judge: Judge = GOOD, noise: NoiseRange = NARROW) -> str:
    records = Records([epoch(share) for share in fitted])
    [found] = warnings_of(records, GIVEN, C, judge, noise)
    return found.message


USUAL = [0.3, 0.5, 0.7, 0.9]


def test_there_are_none_of_a_usual_run() -> None:
    assert codes(USUAL) == []


@pytest.mark.parametrize("unseen", [0, 100])
def test_what_was_fitted_is_counted_where_it_was_seen(unseen: int) -> None:
    records = Records([epoch(share, unseen) for share in (0.0, 0.25, 1.0)])
    np.testing.assert_allclose(fitted_shares(records, GIVEN), [0, 0.25, 1], atol=1e-3)
    never = epoch(0.5)
    never["p_given"] = np.nan
    assert fitted_shares(Records([never]), GIVEN) == [0.0]


@pytest.mark.parametrize(
    ("fitted", "judge", "noise", "code", "words"),
    [
        ([0.9], GOOD, NARROW, "few_epochs", "for 1 epoch, but an audit needs at least 3"),
        ([0.5, 0.9], GOOD, NARROW, "few_epochs", "for 2 epochs, but an audit needs at least 3"),
        # Chance is a tenth, and 15.3 % is 5.9 % of the way from chance to perfection.
        ([*USUAL, 0.153], GOOD, NARROW, "barely_learned", "only 15.3% of the given labels, barely"),
        # Less than that is "too weak".
        (
            USUAL,
            Judge("4 folds", 0.3, 0.249, 0.9, 0.9),
            NARROW,
            "too_weak",
            "right for about 30% of the examples, hardly better than chance",
        ),
        (
            USUAL,
            Judge("4 folds", 0.6, 0.599, 0.9, 0.9),
            NARROW,
            "weak_judge",
            "right for only about 60% of the examples, so no label is changed without a person",
        ),
        (USUAL, ALONE, NARROW, "no_witness", "no second opinion on these labels, so none is"),
        (
            USUAL,
            GOOD,
            NoiseRange(0.05, 0.1, 0.1501),
            "wide_range",
            "from 5% to 15%; reviewing 30 labels with proselflc review RUN --sample 30",
        ),
    ],
)
def test_each_reason(
    fitted: list[float], judge: Judge, noise: NoiseRange, code: str, words: str
) -> None:
    assert codes(fitted, judge, noise) == [code]
    assert words in message(fitted, judge, noise)


def test_labels_that_were_memorised_are_told_of_where_there_is_no_second_opinion() -> None:
    """In the first half, which of five epochs are three."""
    for fitted, is_late in (([0.5, 0.5, 0.981, 1, 1], False), ([0.5, 0.5, 0.98, 1, 1], True)):
        assert codes(fitted, ALONE) == ["memorised"] * (not is_late) + ["no_witness"]
        assert codes(fitted, GOOD) == []
    records = Records([epoch(0.981)] * 4)
    first = next(iter(warnings_of(records, GIVEN, C, ALONE, NARROW)))
    assert "fitted 98.1% of the given labels in the first half of training, and there" in (
        first.message
    )


@pytest.mark.parametrize(
    ("fitted", "judge", "noise"),
    [
        ([0.5, 0.6, 0.9], GOOD, NARROW),
        ([*USUAL, 0.155], GOOD, NARROW),  # a skill of 6.1 %
        (USUAL, Judge("4 folds", 0.64, 0.6, 0.9, 0.9), NARROW),
        (USUAL, GOOD, NoiseRange(0.05, 0.1, 0.15)),
    ],
)
def test_just_good_enough(fitted: list[float], judge: Judge, noise: NoiseRange) -> None:
    assert codes(fitted, judge, noise) == []


def test_a_judge_that_is_hardly_better_than_chance_is_not_called_weak_as_well() -> None:
    assert codes(USUAL, Judge(None, 0.3, 0.2, 0.9, 0.9)) == ["too_weak"]
    assert codes(USUAL, Judge("4 folds", 0.33, 0.25, 0.9, 0.9)) == ["weak_judge"]
    assert codes(USUAL, Judge(None, 0.33, 0.25, 0.9, 0.9)) == ["no_witness"]


def test_folds_make_up_for_few_epochs() -> None:
    held_out = HeldOut(4, np.full((N, C), 1 / C, np.float16))
    assert codes([0.9], GOOD, held_out=held_out) == []
    assert codes([0.9], GOOD) == ["few_epochs"]


def test_classes_that_cannot_be_told_apart_are_named() -> None:
    pairs = tuple(ConfusedPair(f"a{k}", f"b{k}", 0.6) for k in range(5))
    for many, words in (
        (1, "can hardly tell apart a0 and b0, so labels"),
        (3, "can hardly tell apart a0 and b0; a1 and b1; a2 and b2, so labels"),
        (5, "a2 and b2; 2 more pairs, so labels between these are not changed"),
    ):
        judge = Judge("4 folds", 0.9, 0.89, 0.9, 0.9, pairs[:many])
        assert codes(USUAL, judge) == ["confused_classes"]
        assert words in message(USUAL, judge)


def test_which_reasons_leave_no_suspects() -> None:
    records = Records([epoch(1.0), epoch(0.1)])
    judge = Judge(None, 0.1, 0.0, 0.9, 0.1, (ConfusedPair("a", "b", 0.5),))
    found = list(warnings_of(records, GIVEN, C, judge, NoiseRange(0, 0.5, 1)))
    assert {one.code: one.abstains for one in found} == {
        "few_epochs": True,
        "barely_learned": True,
        "memorised": True,
        "too_weak": True,
        "wide_range": False,
        "confused_classes": False,
    }
    for one in found:
        assert ("none is called suspect" in one.message) == one.abstains
        assert not one.message.endswith(".")


@pytest.mark.parametrize(
    ("epochs", "words"),
    [(1, "1 epoch, but"), (2.5, "2.5 epochs, but"), (0, "0 epochs, but"), (3, None), (20, None)],
)
def test_the_number_of_epochs_alone(epochs: float, words: str | None) -> None:
    found = [one.message for one in epoch_warnings(epochs)]
    assert [words is not None and words in one for one in found] == [True] * (words is not None)


@pytest.mark.parametrize(
    ("config", "is_own"),
    [
        ({"labels": "gone/run"}, True),
        ({"labels": "gone/run", "min_confidence": 0.9}, True),
        ({"labels": "gone/run", "reviewed": True}, False),
        ({"labels": "gone/labels.csv"}, False),
        ({"labels": 7}, False),
        ({"labels": "\0" + "x" * 5000}, True),
        ({}, False),
    ],
)
def test_a_run_that_judges_what_a_run_corrected_says_so(
    config: dict[str, object], is_own: bool
) -> None:
    found = list(label_warnings(config))
    assert [one.code for one in found] == ["own_corrections"] * is_own
    assert all(OWN_CORRECTIONS in one.message and not one.abstains for one in found)


def test_a_folder_is_a_run_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "run.csv").mkdir()
    (tmp_path / "labels").touch()
    assert len(list(label_warnings({"labels": str(tmp_path / "run.csv")}))) == 1
    assert list(label_warnings({"labels": str(tmp_path / "labels")})) == []
