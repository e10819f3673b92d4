"""What the report says of decisions, and of a run that has learned from them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.auditing.caveats import OWN_CORRECTIONS, label_warnings
from proselflc.auditing.noise_range import Share
from proselflc.data.decisions import DecisionChange, Sample
from proselflc.data.labels import Labels
from proselflc.reporting import command as report
from proselflc.reporting import verdict
from proselflc.reporting.before_after import changes, decided
from proselflc.reporting.run_facts import read_runs
from proselflc.reviewing.view import next_steps
from proselflc.run.reader import Run
from proselflc.run.review import Review


@pytest.fixture
def before(reviewable: Callable[..., Path], tmp_path: Path) -> Path:
    """A run of which five suspects are decided: three as suggested, one kept, one unsure."""
    path = reviewable(tmp_path, "before", n=30, suspects=15)
    names = ("cat", "dog", "fox")
    wanted = [
        *(DecisionChange(f"id-{k}", names[(k + 1) % 3], 0) for k in range(3)),
        DecisionChange("id-3", names[0], 0),
        DecisionChange("id-4", None, 0),
    ]
    Run(path).decisions.add(wanted, "anna", "1")
    return path


@pytest.fixture
def after(before: Path, reviewable: Callable[..., Path], tmp_path: Path) -> Path:
    """A run that has learned what was decided, and one suggestion more."""
    path = reviewable(
        tmp_path,
        "after",
        n=30,
        suspects=3,
        config={"labels": str(before), "reviewed": True},
        summary={"test_accuracy": 0.8, "label_accuracy_before": 0.75},
    )
    old = Run(before).labels
    given = old.given.copy()
    given[[0, 1, 2, 7]] = (given[[0, 1, 2, 7]] + 1) % 3
    facts = {**vars(old), "given": given}
    from proselflc.data.noise import fingerprint

    Labels(**{**facts, "fingerprint": fingerprint(given, 3)}).save(path / "labels.npz")
    evaluation = json.loads((path / "evaluation.json").read_text())
    evaluation["test"] |= {"accuracy": 0.8, "per_class": [0.9, 0.4, 0.5]}
    evaluation["validation"] = {"n": 50, "accuracy": 0.66}
    (path / "evaluation.json").write_text(json.dumps(evaluation))
    return path


def test_how_many_suggestions_were_confirmed(before: Path) -> None:
    said = list(decided(Review(Run(before))))
    assert said[0].startswith(
        "5 of 15 suspects were reviewed: 3 suggested labels are right, 1 given label is right, "
        "and 1 could not be decided."
    )
    low, high = Share(3, 4).interval(1.96)
    expected = f"75% (95% interval {np.floor(100 * low):.0f} to {np.ceil(100 * high):.0f}%)"
    assert expected in said[1]
    assert len(said) == 2


def test_one_is_said_as_one(before: Path) -> None:
    Run(before).decisions.add(
        [DecisionChange("id-5", "cat", 0)], "anna", "2"
    )  # given fox, suggested cat
    Run(before).decisions.add(
        [DecisionChange("id-6", "fox", 0)], "anna", "3"
    )  # given cat, suggested dog
    [first, *_] = decided(Review(Run(before)))
    assert "4 suggested labels are right, 1 label should be another class, 1 given" in first


def test_what_a_sample_says_of_all(before: Path) -> None:
    review = Review(Run(before))
    review.use_sample(30, "anna", seed=2)
    assert len(list(decided(Review(Run(before))))) == 2  # too few of the sample are decided
    names = ("cat", "dog", "fox")
    drawn = [k for k in review.suspects.tolist() if Run(before).decisions.of(f"id-{k}") is None]
    wanted = [DecisionChange(f"id-{k}", names[k % 3], 0) for k in drawn]
    Run(before).decisions.add(wanted, "anna", "2")
    last = list(decided(Review(Run(before))))[-1]
    rate = np.mean([k < 3 for k in range(30) if k != 4])  # the first three are wrong
    assert "Measured on 29 reviewed labels, " in last
    measured = float(last.partition("labels, ")[2].partition("%")[0])
    assert measured == pytest.approx(100 * rate, abs=1)  # the one that nobody could tell is spread


def test_what_a_sample_of_an_older_version_says(before: Path) -> None:
    log = Run(before).decisions
    log.draw(Sample(("id-1", "id-0", "id-9"), 15, 0), "anna")
    last = list(decided(Review(Run(before))))[-1]
    assert "a random sample of 15 suspects" not in last
    assert "a random sample of 3 suspects, of which the first 2 are decided, " in last


def test_before_and_after(before: Path, after: Path) -> None:
    [found] = changes(read_runs([before, after]))
    said = " ".join(found.sentences)
    assert "after 4 of 30 were corrected, 3 of them by a person" in said
    spread = 1.96 * np.sqrt(0.7 * 0.3 / 40 + 0.8 * 0.2 / 40)
    assert f"the test set is 80.0%, +10.0 points (95% interval ± {100 * spread:.1f})" in said
    assert "The class cat gained most, +40.0 points; dog lost most, −10.0." in said
    assert "differ" not in said
    assert found.measures.heading == ("", "before", "after", "change")  # narrow, for phones
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in found.measures.rows}
    assert rows["test accuracy"] == ["70.0%", "80.0%", "+10.0"]
    assert rows["labels right"] == ["50.0%", "75.0%", "+25.0"]
    assert rows["labels that look wrong"] == ["50.0%", "10.0%", "−40.0"]
    assert "accuracy on trusted examples" not in rows  # of one of them alone
    assert found.classes is not None
    assert [[cell.text for cell in row] for row in found.classes.rows] == [
        ["cat", "50.0%", "90.0%", "+40.0"],
        ["dog", "50.0%", "40.0%", "−10.0"],
    ]
    assert changes(read_runs([after, before])) == changes(read_runs([after, before]))
    assert len(changes(read_runs([after, before]))) == 1  # in whatever order


def test_what_nobody_reviewed_is_no_measure_of_improvement(before: Path, after: Path) -> None:
    (before / "review.jsonl").unlink()
    config = after / "config.toml"
    config.write_text(config.read_text().replace("reviewed = true\n", ""))
    run = Run(after)
    replace(run.audit, warnings=tuple(label_warnings(run.config))).save(run.directory)
    [found] = changes(read_runs([before, after]))
    assert "4 of 30 were corrected, none of them by a person." in found.sentences[0]
    assert found.sentences[1] == f"{OWN_CORRECTIONS.capitalize()}."
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in found.measures.rows}
    assert rows["labels that look wrong"] == ["50.0%", "10.0%", "–"]
    assert rows["labels right"] == ["50.0%", "75.0%", "+25.0"]
    [warning] = verdict.warnings(read_runs([after])[0], None)
    assert warning.startswith("These labels were corrected by a model of this kind")


def test_what_people_reviewed_is_a_measure(before: Path, after: Path) -> None:
    [found] = changes(read_runs([before, after]))
    assert not any("of this kind" in sentence for sentence in found.sentences)
    assert verdict.warnings(read_runs([after])[0], None) == []


def test_what_else_was_done_otherwise_is_said(before: Path, after: Path) -> None:
    for path, more in ((before, "noise = 'pair:0.4'"), (after, "lr = 0.1\nworkers = 7")):
        text = (path / "config.toml").read_text()
        text = text.replace("seed = 7", "seed = 8") if path == after else text
        (path / "config.toml").write_text(f"{more}\n{text}")
    [found] = changes(read_runs([before, after]))
    assert "differ in seed (7, then 8) and lr (–, then 0.1)," in found.sentences[-1]


def test_runs_that_have_nothing_to_do_with_each_other(
    fabricate: Callable[..., Path], before: Path
) -> None:
    assert changes(read_runs([before, fabricate("other")])) == []


def test_the_page_has_it_all(before: Path, after: Path) -> None:
    html = report.make(read_runs([before, after])).html
    words = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "Review and its effect" in words
    assert "5 of 15 suspects were reviewed" in words
    assert "did not all learn the same labels" not in words  # that is what was wanted
    one = report.make(read_runs([before])).html
    assert "Review" in one
    assert "what it changed" not in one


def test_where_nobody_decided_the_page_names_nobody(before: Path, after: Path) -> None:
    (before / "review.jsonl").unlink()
    html = report.make(read_runs([before, after])).html
    assert "Corrections and their effect" in html
    assert '<a href="#review">Corrections</a>' in html
    assert "What people decided" not in html


def test_a_page_of_runs_that_nobody_reviewed_is_as_it_was(fabricate: Callable[..., Path]) -> None:
    made = report.make(read_runs([fabricate()]))
    assert "What people decided" not in made.html
    assert not any("review.jsonl" in note for note in made.notes)


def test_a_review_that_cannot_be_read_is_noted(before: Path) -> None:
    (before / "review.jsonl").write_text('{"review": 1, "fingerprint": "other"}\n')
    made = report.make(read_runs([before]))
    assert "What people decided" not in made.html
    assert any("about other labels" in note for note in made.notes)


def test_a_run_on_its_own_corrections_says_so_wherever_it_is_read(
    program: Any, tmp_path: Path
) -> None:
    options = ("--data", "digits", "--model", "mlp", "--epochs", 4)
    program("train", *options, "--noise", "pair:0.4", "--out", tmp_path / "a", "--quiet")
    program(*("train", *options, "--labels", tmp_path / "a"), "--out", tmp_path / "b", "--quiet")
    words = "corrected by a model of this kind, which cannot detect"
    for name in ("summary", "audit"):
        found = json.loads((tmp_path / "b" / f"{name}.json").read_text())["warnings"]
        assert [one["code"] for one in found].count("own_corrections") == 1
        assert sum(words in one["message"] for one in found) == 1
    assert program("audit", tmp_path / "b").stdout.count(words) == 1
    page = report.make(read_runs([tmp_path / "b"])).html
    assert page.count(words) == 1


def test_the_loop_closes(program: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Train, decide as the truth says, train on that: more is right, and the page says so."""
    options = ("--data", "digits", "--model", "mlp", "--epochs", 6, "--quiet")
    program("train", *options, "--noise", "pair:0.4", "--out", tmp_path / "a")
    run = Run(tmp_path / "a")
    rows = [row for row in run.examples.to_pylist() if row["is_suspect"]]
    run.decisions.add(
        [DecisionChange(row["id"], row["clean_label"], 0) for row in rows], "anna", "1"
    )
    train, compare = (shlex.split(line)[1:] for line in next_steps(run))  # as the review says
    program(*train, "--quiet")
    page = tmp_path / "page.html"
    program(*compare, "--out", page)
    wrong = sum(row["clean_label"] != row["given_label"] for row in rows)
    words = " ".join(re.sub(r"<[^>]+>", " ", page.read_text()).split())
    assert f"{wrong:,} of 1,297 were corrected, all of them by a person" in words
    assert "also differ" not in words
    first, second = (Run(tmp_path / name).summary for name in ("a", "a-reviewed"))
    right = float(str(first["label_accuracy_before"])) + wrong / 1297
    assert second["label_accuracy_before"] == pytest.approx(right)
    assert float(str(second["test_accuracy"])) > float(str(first["test_accuracy"]))
