"""An audit after the review of a random sample, from training to the words about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proselflc
from proselflc.auditing.audit import Audit
from proselflc.auditing.measured import in_words
from proselflc.data.decisions import DecisionChange
from proselflc.reviewing import command as reviewing
from proselflc.run.audit import describe
from proselflc.run.reader import Run, load_run
from proselflc.run.review import UNDECIDED, Review


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two overlapping clouds, a third of whose labels is wrong."""
    generator = np.random.default_rng(0)
    y = np.arange(900) % 3
    x = (generator.normal(0, 1.2, (900, 4)) + 2 * np.eye(3, 4)[y]).astype(np.float32)
    given = np.where(generator.random(900) < 0.3, (y + 1) % 3, y)
    path = tmp_path_factory.mktemp("measured") / "run"
    proselflc.fit(x, given, epochs=6, out=path)
    np.savez(path.parent / "true.npz", y=y, given=given)
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(trained, tmp_path / "run")
    shutil.copy(trained.parent / "true.npz", tmp_path / "true.npz")
    return tmp_path / "run"


def review_sample(path: Path, size: int, seed: int = 0) -> np.ndarray:
    """Review a sample by the true labels; return the positions."""
    truth = np.load(path.parent / "true.npz")["y"]
    review = Review(Run(path))
    review.use_sample(size, "anna", seed=seed)
    rows = [int(i) for i in review.suspects if review.label[i] == UNDECIDED]
    wanted = [DecisionChange(review.ids[i], review.names[truth[i]], 0) for i in rows]
    review.decisions.add(wanted, "anna", f"sample of {size}")
    return review.suspects


def test_a_reviewed_sample_replaces_the_estimate(run: Path, program: Any) -> None:
    before = load_run(run)
    assert before.audit.measured is None
    assert json.loads((run / "audit.json").read_text())["measured"] is None
    review_sample(run, 200)
    proselflc.audit(run)
    after = load_run(run)
    audit = after.audit
    arrays = np.load(run.parent / "true.npz")
    wrong = arrays["y"] != arrays["given"]
    found = audit.measured
    assert found is not None
    assert found.reviewed == 200
    low, rate, high = found.noise_rate
    assert low <= wrong.mean() <= high
    assert high - low < 0.15
    assert (audit.noise_low, audit.noise_high) == pytest.approx((low, high))
    assert audit.estimated_noise_rate == pytest.approx(rate)
    suspect = after.examples["is_suspect"].to_numpy()
    quality = after.examples["quality"].to_numpy()
    np.testing.assert_array_equal(suspect, quality < 0.5)
    # The order of the labels stays.
    old = before.examples["quality"].to_numpy()
    order = np.argsort(old, kind="stable")
    assert (np.diff(quality[order].astype(np.float64)) >= -1e-6).all()
    # What is stated about the budgets is so.
    n = len(wrong)
    budgets = {
        "top_1_percent": order[: int(np.ceil(0.01 * n))],
        "estimated_rate": order[: int(np.ceil(rate * n))],
        "suspects": np.flatnonzero(suspect),
    }
    for name, rows in budgets.items():
        share = getattr(found.precision, name)
        assert share[0] - 1e-9 <= wrong[rows].mean() <= share[2] + 1e-9
    assert audit.expected_precision == found.precision.suspects[1]  # type: ignore[index]
    kept = json.loads((run / "audit.json").read_text())["measured"]
    assert kept["reviewed"] == 200
    assert kept["noise_rate"] == [low, rate, high]
    assert set(kept["precision"]) == set(budgets)
    assert not [one for one in audit.warnings if one.code == "wide_range" and high - low <= 0.1]
    said = program("audit", run).stdout
    assert in_words(found) in said
    assert "estimated" not in said
    assert json.loads(program("audit", run, "--json").stdout)["measured"]["reviewed"] == 200
    # The page, the export and the review say the same.
    program("report", run)
    page = (run / "report.html").read_text()
    assert "Measured on 200 reviewed labels" in page
    assert "measured on 200 reviewed labels" in page
    told = program("export", run, "--suspects", "--out", run.parent / "labels.csv")
    assert "are right as given, measured on 200 reviewed labels" in told.stdout + told.stderr
    assert in_words(found) in reviewing.describe(Review(Run(run)))
    assert json.loads(json.dumps(reviewing.summary(Review(Run(run)))))["measured"] == kept


def test_few_decisions_leave_a_wide_range_that_is_said(run: Path) -> None:
    review_sample(run, 30)
    audit = proselflc.audit(run)
    assert audit.measured is not None
    assert audit.measured.reviewed == 30
    [warning] = [one for one in audit.warnings if one.code == "wide_range"]
    assert warning.message.startswith("30 reviewed labels say that from ")
    assert f"proselflc review {run} --sample 100 narrows this" in warning.message
    kept = json.loads((run / "audit.json").read_text())["warnings"]
    assert "proselflc review RUN --sample 100" in str(kept)  # a run may be moved
    again = load_run(run)
    words = describe(again, again.audit, again.examples, 3)
    assert "RUN" not in words
    assert audit.warnings == again.audit.warnings
    assert f"proselflc review {run} --sample 100" in words
    # A second sample counts with the first.
    review_sample(run, 60)
    more = proselflc.audit(run).measured
    assert more is not None
    assert more.reviewed == 90
    low, _, high = audit.measured.noise_rate
    assert more.noise_rate[2] - more.noise_rate[0] < high - low


def test_decisions_outside_a_sample_change_no_estimate(run: Path) -> None:
    before = proselflc.audit(run)
    review = Review(Run(run))
    rows = review.all_suspects[:40]
    wanted = [DecisionChange(review.ids[i], review.names[review.given[i]], 0) for i in rows]
    review.decisions.add(wanted, "anna", "1")
    after = proselflc.audit(run)
    assert after.measured is None
    assert after.estimated_noise_rate == before.estimated_noise_rate
    # Too few of a sample neither.
    drawn = Review(Run(run))
    drawn.use_sample(30, "anna", seed=0)
    assert proselflc.audit(run).measured is None


def test_decisions_about_labels_that_look_right_are_exported(run: Path) -> None:
    rows = review_sample(run, 120)
    table = load_run(run).examples
    arrays = np.load(run.parent / "true.npz")
    found = [i for i in rows if not table["is_suspect"][int(i)].as_py()]
    assert any(arrays["y"][i] != arrays["given"][i] for i in found)
    corrected = np.array(proselflc.corrected_labels(run, reviewed=True))
    np.testing.assert_array_equal(corrected[found], arrays["y"][found])


def test_an_audit_is_read_as_it_was_written(run: Path) -> None:
    review_sample(run, 30)
    audit = proselflc.audit(run)
    assert Audit.load(load_run(run).directory).measured == audit.measured
    content = json.loads((run / "audit.json").read_text())
    content["measured"]["noise_rate"] = [0.1, 0.2]
    (run / "audit.json").write_text(json.dumps(content))
    with pytest.raises(proselflc.InputError, match="audit"):
        Audit.load(load_run(run).directory)
