"""The onset of trust in words, from a summary that anyone may have written."""

from __future__ import annotations

import math
from typing import Any

import pytest

from proselflc.reporting.onset import read, sentences

SETTLED: dict[str, Any] = {
    "epoch": 4,
    "latest": 20,
    "guess_loss": math.log(10),
    "fall": math.log(10) - 1.58,
    "recent_fall": -0.02,
    "held_out_losses": [2.1, 1.8, 1.58, 1.6],
    "surest": 125,
    "contradicted": 44,
}
SURE = (
    "At the end, 44 of its 125 surest predictions contradicted the label; that is 35.2%, its "
    "estimate of the share of wrong labels."
)


def words(**changes: object) -> list[str]:
    found = read({"method": "proselflc_auto", "onset": {**SETTLED, **changes}})
    assert found is not None
    return sentences(found)


def test_it_settled() -> None:
    began = (
        "It began to trust its own predictions after epoch 4, when it had stopped learning what "
        "labels share."
    )
    fell = "The loss on held-out labels fell from 2.30 (a guess) to 1.58"
    assert words() == [
        began,
        f"{fell}, and rose again in the last third of these epochs.",
        SURE,
    ]
    assert words(recent_fall=0.01 * SETTLED["fall"], surest=0, contradicted=0) == [
        began,
        f"{fell}; the last third of these epochs had 1.0% of this fall.",
    ]


def test_it_was_still_learning() -> None:
    assert words(epoch=None, recent_fall=0.2 * SETTLED["fall"], surest=0, contradicted=0) == [
        "It never trusted its own predictions more than ProSelfLC does, because it was still "
        "learning what labels share at half of training.",
        "The loss on held-out labels fell from 2.30 (a guess) to 1.58; the last third of these "
        "epochs had 20.0% of this fall; less than 2%, with its standard error, would count as "
        "settled. With more epochs, trust may begin.",
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"latest": 0, "held_out_losses": []}, "training had fewer than 6 epochs"),
        ({"fall": 0.0}, "it predicted held-out labels no better than a guess would"),
    ],
)
def test_it_never_began(changes: dict[str, Any], why: str) -> None:
    found = words(epoch=None, surest=0, contradicted=0, **changes)
    assert found == [
        f"It never trusted its own predictions more than ProSelfLC does, because {why}."
    ]


ODD: tuple[object, ...] = (None, "text", [], {}, math.nan, 10**400, True)
NO_EPOCHS: tuple[object, ...] = (5, "4", [], -1, 10**400)
NUMBERS = [key for key in SETTLED if key != "epoch"]


def changed(key: str, odd: object) -> dict[str, Any]:
    return {"onset": {**SETTLED, key: odd}}


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"onset": None},
        {"onset": "early"},
        {"onset": {}},
        *(changed(key, odd) for key in NUMBERS for odd in ODD),
        *(changed("epoch", odd) for odd in NO_EPOCHS),
        *(changed("held_out_losses", [1.0, odd]) for odd in (-1.0, 1e9, None, "a")),
    ],
)
def test_a_summary_without_a_valid_onset_has_none(summary: dict[str, Any]) -> None:
    assert read(summary) is None
