"""A run is read as far as it can be, and no number is believed that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proselflc.errors import InputError
from proselflc.pages.values import finite, share
from proselflc.reporting.run_facts import MOST_RUNS, POINTS, read_runs


def test_a_whole_run_is_read_without_a_word(
    fabricate: Callable[..., Path], resealed: Callable[[Path], None]
) -> None:
    path = fabricate()
    resealed(path)
    (one,) = read_runs([path])
    assert one.notes == ()
    assert (one.name, one.method, one.data) == ("run", "ProSelfLC", "pets")
    assert one.audit is not None
    assert one.accuracy == 0.7
    assert one.test["reliability"] is not None


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("audit.json", b"{"),
        ("audit.json", b'{"classes": 3}'),
        ("audit.npz", b"no archive"),
        ("history.jsonl", b'{"step": 1}\n[]\n'),
        ("evaluation.json", b"\xff\xfe"),
    ],
)
def test_a_damaged_part_is_left_out_and_named(
    fabricate: Callable[..., Path],
    resealed: Callable[[Path], None],
    file: str,
    content: bytes,
) -> None:
    path = fabricate()
    (path / file).write_bytes(content)
    resealed(path)
    (one,) = read_runs([path])
    assert len(one.notes) == 1
    assert str(path) in one.notes[0]


def test_without_an_audit_the_command_that_makes_one_is_told(
    fabricate: Callable[..., Path], resealed: Callable[[Path], None]
) -> None:
    path = fabricate(audited=False)
    resealed(path)
    (one,) = read_runs([path])
    assert one.audit is None
    assert f"proselflc audit {path}" in one.notes[0]


@pytest.mark.parametrize("file", ["summary.json", "config.toml"])
def test_what_a_run_cannot_do_without_is_an_error(
    fabricate: Callable[..., Path], file: str
) -> None:
    path = fabricate()
    (path / file).write_text("[[[")
    with pytest.raises(InputError, match=str(path / file)):
        read_runs([path])


def test_runs_that_are_missing_unfinished_or_too_many_are_refused(
    fabricate: Callable[..., Path], tmp_path: Path
) -> None:
    path = fabricate()
    with pytest.raises(InputError, match="there is no run"):
        read_runs([path, tmp_path / "gone"])
    with pytest.raises(InputError, match="at most 24"):
        read_runs([path] * (MOST_RUNS + 1))
    (path / "summary.json").unlink()
    with pytest.raises(InputError, match="is not finished"):
        read_runs([path])


def test_numbers_that_are_none_are_not_believed(fabricate: Callable[..., Path]) -> None:
    bins = {"edges": [0, 1], "counts": [1], "confidence": [0.5], "accuracy": [0.5]}
    broken = [
        {**bins, "counts": [-1]},
        {**bins, "counts": ["1"]},
        {**bins, "edges": [0]},
        {**bins, "accuracy": [7]},
        {**bins, "confidence": None},
        [],
    ]
    path = fabricate(
        summary={"test_accuracy": "0.9", "method": ["x"], "data": 7},
        history={"train_accuracy": "high", "extra": {"deep": 1}},
    )
    for one in broken:
        test = {
            "accuracy": "0.5",
            "per_class": ["a", 2, None, 0.5],
            "reliability": one,
            "calibration": [3, {"T": "1"}, {"T": 1, "ece": 5}, {"T": 1, "ece": 0.5, "reading": []}],
        }
        (path / "evaluation.json").write_text(json.dumps({"test": test, "validation": 3}))
        (found,) = read_runs([path])
        assert "reliability" not in found.test
        assert found.test["accuracy"] is None
        assert found.test["per_class"] == [None, None, None, 0.5]
        assert found.test["calibration"] == [{"T": 1, "ece": 0.5, "reading": "", "measure": ""}]
        assert (found.accuracy, found.method, found.data) == (None, "A method", "the data")
        assert found.validation == {}
        assert found.history[0]["train_accuracy"] is None
        assert found.history[0]["extra"] is None
    assert finite(10**400) is None
    assert finite(True) is None
    assert share({"a": 1.5}, "a") is None


def test_a_long_history_is_thinned_with_both_its_ends(fabricate: Callable[..., Path]) -> None:
    (one,) = read_runs([fabricate(points=1001)])
    steps = [float(str(line["step"])) for line in one.history]
    assert len(steps) == POINTS
    assert (steps[0], steps[-1]) == (1, 1001)
    assert steps == sorted(set(steps))
