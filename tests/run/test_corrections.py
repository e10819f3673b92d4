"""What the summary of a run says about labels after its changes, and after all suggestions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from proselflc.data.corrections import Corrections
from proselflc.run.corrections import followed, has_actions
from proselflc.run.summary import _accuracy_after_changes

TABLE = pa.table(
    {
        "given_label": ["a", "a", "b", "b"],
        "suggested_label": ["a", "b", "a", "a"],
        "is_suspect": [False, True, True, True],
        "action": ["keep", "change", "review", "change"],
        "p_suggested": pa.array([0.9, 0.8, 0.6, 0.7], pa.float32()),
        "clean_label": ["a", "b", "b", "b"],
    }
)


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (Corrections(), [1, 3]),
        (Corrections(suspects=True), [1, 2, 3]),
        (Corrections(min_confidence=0.7), [1, 3]),
        (Corrections(min_confidence=0.0), [1, 2, 3]),
        (Corrections(reviewed=True), []),
        (Corrections(reviewed=True, min_confidence=0.8), [1]),
    ],
)
def test_which_suggestions_are_followed(wanted: Corrections, rows: list[int]) -> None:
    assert np.flatnonzero(followed(TABLE, wanted)).tolist() == rows


def test_without_actions_suspects_are_followed() -> None:
    older = TABLE.drop_columns(["action"])
    assert has_actions(TABLE)
    assert not has_actions(older)
    assert np.flatnonzero(followed(older, Corrections())).tolist() == [1, 2, 3]


def test_labels_right_after_the_changes() -> None:
    assert _accuracy_after_changes(TABLE) == 0.75  # one change is right, and one is wrong
    assert _accuracy_after_changes(TABLE.drop_columns(["clean_label"])) is None
    assert _accuracy_after_changes(TABLE.slice(0, 0)) is None
