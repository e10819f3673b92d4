"""When a run says that its audit means little."""

import math
from pathlib import Path
from typing import Any

import pytest

from proselflc.auditing.caveats import OWN_CORRECTIONS, caveats


def point(epoch: Any, progress: Any, fits: Any) -> dict[str, object]:
    return {"epoch": epoch, "progress": progress, "train_accuracy": fits}


GOOD = [point(5, 0.25, 0.5), point(10, 0.5, 0.7), point(20, 1.0, 0.9)]


def test_there_are_none_of_a_usual_run_or_of_nothing() -> None:
    assert caveats(GOOD, 10) == []
    assert caveats([], 10) == []


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        ([point(1, 1.0, 0.8)], "for 1 epoch, but an audit needs at least 3"),
        ([point(0.5, 0.5, 0.8), point(2.5, 1.0, 0.8)], "for 2.5 epochs, but an audit needs"),
        ([*GOOD, point(20, 1.0, 0.149)], "only 14.9% of the given labels, barely more than chance"),
        ([point(9, 0.5, 0.981), point(20, 1.0, 0.9)], "fitted 98.1% of the given labels"),
    ],
)
def test_each_reason(history: list[dict[str, object]], sentence: str) -> None:
    (found,) = caveats(history, 10)
    assert sentence in found


@pytest.mark.parametrize(
    "history",
    [
        [point(3, 1.0, 0.8)],
        [*GOOD, point(20, 1.0, 0.15)],
        [point(9, 0.5, 0.98), point(20, 1.0, 1.0)],
        [point(9, 0.51, 0.99), point(20, 1.0, 1.0)],
    ],
)
def test_just_good_enough(history: list[dict[str, object]]) -> None:
    assert caveats(history, 10) == []


@pytest.mark.parametrize("odd", [None, "9", True, math.nan, [1], {}])
def test_what_is_no_number_is_no_reason(odd: Any) -> None:
    assert caveats([point(odd, odd, odd)], 10) == []


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
    found = caveats(GOOD, 10, config)
    assert [OWN_CORRECTIONS in one for one in found] == [True] * is_own


def test_a_folder_is_a_run_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "run.csv").mkdir()
    (tmp_path / "labels").touch()
    assert len(caveats(GOOD, 10, {"labels": str(tmp_path / "run.csv")})) == 1
    assert caveats(GOOD, 10, {"labels": str(tmp_path / "labels")}) == []
