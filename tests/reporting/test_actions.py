"""What an audit would do with labels, its range, its judge and its warnings on the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.judge import Judge
from proselflc.cli.app import run as command
from proselflc.reporting import tables, verdict
from proselflc.reporting.command import make
from proselflc.reporting.run_facts import read_runs

WIDE = AuditWarning("wide_range", "the estimates of how many labels are wrong differ")
SHORT = AuditWarning("few_epochs", "the model was trained for 1 epoch")
JUDGE = Judge("4 folds", 0.93, 0.9, 0.88, 0.95)


def test_actions_range_and_judge(
    fabricate: Callable[..., Path], acting: Callable[..., Path]
) -> None:
    run = acting(fabricate(n=100, suspects=20), 12, judge=JUDGE, warnings=(WIDE,))
    (facts,) = read_runs([run])
    _, found, judge = verdict.of_one(facts, 20)
    assert found.startswith("An estimated 10.0 to 40.0% of the 100 labels are wrong (20.0% are).")
    assert "20 labels are suspect: 12 can be changed without a person and 8 should" in found
    assert "After the changes 100.0% of all labels are right (50.0% before)." in found
    assert judge.startswith("The labels were judged by a second opinion")
    page = make([facts])
    for words in ("10.0–40.0%", "<b>12</b>", "<b>8</b>", "<b>80</b>", "without a person"):
        assert words in page.html
    assert page.html.count("<span>change</span>") == 12
    assert page.html.count("<span>review</span>") == 8
    assert "The estimates of how many labels are wrong differ." in page.html


def test_all_suspects_are_compared_with_the_changes(
    fabricate: Callable[..., Path], acting: Callable[..., Path]
) -> None:
    accuracy = {"label_accuracy_after": 0.9, "label_accuracy_after_suspects": 0.4}
    (facts,) = read_runs([acting(fabricate(n=100, suspects=20, summary=accuracy), 12)])
    words = "are right (50.0% before, 40.0% if all suspects were changed)."
    assert words in verdict.of_one(facts, 20)[1]
    (warning,) = verdict.warnings(facts, None)
    assert warning.startswith("The suggestions make the labels worse: 40.0% would be right if all")


def test_a_range_that_misses_the_truth_is_said(
    fabricate: Callable[..., Path], acting: Callable[..., Path]
) -> None:
    (facts,) = read_runs([acting(fabricate(n=100, suspects=20), 12)])
    assert facts.audit is not None
    assert verdict.warnings(facts, None) == []
    off = replace(facts, audit=replace(facts.audit, realised_noise_rate=0.45))
    assert verdict.warnings(off, None) == [
        "The estimate of the audit is inaccurate: it takes 10.0 to 40.0% of the labels to be "
        "wrong, but 45.0% are."
    ]


def test_a_page_of_an_audit_that_abstains(
    fabricate: Callable[..., Path], acting: Callable[..., Path]
) -> None:
    run = acting(fabricate(suspects=0), 0, warnings=(SHORT,))
    page = make(read_runs([run])).html
    assert "The labels are ranked by quality, but none is called suspect." in page
    assert "The model was trained for 1 epoch." in page
    assert "The audit ranks the labels, but names no suspects" in page
    assert f"proselflc export {run} --force --out labels.csv" in page
    assert "There are no suspects" not in page


def test_ranges_of_several_runs(
    fabricate: Callable[..., Path], acting: Callable[..., Path]
) -> None:
    paths = [acting(fabricate(name="a", suspects=3), 2), fabricate(name="b", suspects=6)]
    table = tables.runs(read_runs(paths))
    place = table.heading.index("labels look wrong")
    assert [row[place].text for row in table.rows] == ["12.5 to 50.0%", "50.0%"]


def test_warnings_as_data(
    fabricate: Callable[..., Path],
    acting: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide, plain = acting(fabricate(name="a"), 2, warnings=(WIDE,)), acting(fabricate(name="b"), 2)
    out = ["--out", str(tmp_path / "page.html")]
    assert command(["report", str(wide), *out, "--json"]) == 0
    own = {"code": "wide_range", "message": WIDE.message}
    assert json.loads(capsys.readouterr().out)["warnings"] == [own]
    assert command(["report", str(plain), str(wide), *out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == [{"run": str(wide), **own}]
