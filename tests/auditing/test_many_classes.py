"""An audit of many classes, from a few numbers per example, against the one from all of them."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from proselflc.auditing import held_out
from proselflc.auditing.audit import Audit, noise_rate
from proselflc.auditing.examples import TopClasses
from proselflc.auditing.noise_estimate import joint
from proselflc.auditing.records import KEPT_CLASSES, HeldOut, Records, largest_probabilities
from proselflc.auditing.suspects import LabelOdds
from proselflc.auditing.verdict import audit_labels
from proselflc.data import memory_budget
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels import Labels, labelled
from proselflc.training.observations import ROW, Rows
from proselflc.training.run_directory import RunDirectory

Doubles = npt.NDArray[np.float64]


def rows_of(p: Doubles, y: Ints) -> Rows:
    """What a recorder keeps of predictions."""
    rows, n = np.zeros(len(y), ROW), np.arange(len(y))
    rows["predicted"], rows["p_given"] = p.argmax(1), p[n, y]
    others = p.copy()
    others[n, y] = -1
    rows["other"], rows["p_other"] = others.argmax(1), others.max(1)
    return rows


def world(seed: int, n: int, C: int, epochs: int) -> tuple[Labels, list[Rows], Doubles]:
    """Labels of which some are wrong, what epochs have recorded, and the last epoch's p."""
    generator = np.random.default_rng(seed)
    clean = generator.integers(0, C, n)
    given = np.where(generator.random(n) < 0.25, (clean + 1 + clean % 3) % C, clean)
    recorded = []
    p = np.zeros((n, C))
    for _ in range(epochs):
        z = 2.0 * generator.normal(size=(n, C)) + 6 * np.eye(C)[clean] + 2 * np.eye(C)[given]
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        recorded.append(rows_of(p, given))
    recorded[1]["p_given"][::17] = np.nan  # not seen in an epoch
    for epoch in recorded:
        epoch["p_given"][5] = np.nan  # never seen
    names, ids = tuple(f"c{k}" for k in range(C)), tuple(map(str, range(n)))
    return labelled(given, clean, names, ids), recorded, p


@dataclass(frozen=True)
class Scores:
    """What follows from the log-odds at the rate of the joint itself."""

    odds: LabelOdds
    quality: Floats
    suggested: Ints

    def distribution(self, rows: slice) -> Any:
        return self.odds.distribution(rows, 1 - self.quality, self.suggested)


def score_labels(records: Records, y: Ints, counts: Any, trusted: Bools | None = None) -> Scores:
    odds = LabelOdds(records, y, counts, trusted)
    wrong = odds.wrong(noise_rate(counts))
    return Scores(odds, 1 - wrong, np.where(wrong > 0.5, odds.other, y))


def scores_of(labels: Labels, records: Records) -> tuple[Scores, Any]:
    counts = joint(records, labels.given, len(labels.names))
    return score_labels(records, labels.given, counts), counts


def test_scores_are_alike_in_both_forms_to_five_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        # More epochs than candidates of an example, so that no class without a number is one.
        labels, recorded, _ = world(seed, 900, 120, 8)
        dense, whole = scores_of(labels, Records(recorded))
        with monkeypatch.context() as patch:
            patch.setattr(memory_budget, "DENSE_CLASSES", 100)
            sparse, few = scores_of(labels, Records(recorded))
            cells = sparse.distribution(slice(0, 900))
        np.testing.assert_allclose(few.toarray(), whole, atol=1e-4)
        assert (dense.suggested != labels.given).sum() > 30
        np.testing.assert_array_equal(sparse.suggested, dense.suggested)
        np.testing.assert_allclose(sparse.quality, dense.quality, rtol=2e-4, atol=2e-6)
        chances = np.delete(dense.distribution(slice(0, 900)), 5, 0)  # that was never seen
        assert isinstance(cells, TopClasses)
        largest = -np.sort(-chances, 1)[:, :5]
        np.testing.assert_allclose(np.delete(cells.p, 5, 0), largest, rtol=2e-3, atol=1e-6)
        np.testing.assert_array_equal(np.delete(cells.classes[:, 0], 5), chances.argmax(1))
        assert all(len(set(row)) == 5 for row in np.delete(cells.classes, 5, 0).tolist())


def test_audits_of_many_classes_are_much_the_same_in_both_forms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The estimate of the rate differs, for one of its two parts needs all chances."""
    labels, recorded, _ = world(0, 1500, 120, 8)
    table, audit = audit_labels(labels, Records(recorded))
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 100)
    few_table, few = audit_labels(labels, Records(recorded))
    for one in (audit, few):
        assert one.noise_low is not None
        assert one.noise_high is not None
        assert one.noise_low <= one.estimated_noise_rate <= one.noise_high
        assert one.suspects > 20
        assert one.changes == 0  # without a witness
    assert few.judge == audit.judge
    assert [w.code for w in few.warnings] == [w.code for w in audit.warnings]
    assert few.realised is not None
    np.testing.assert_array_equal(few.realised.toarray(), audit.realised)
    np.testing.assert_allclose(few.joint.sum(0), audit.joint.sum(0), atol=1e-6)
    order, other = (
        np.argsort(t["quality"].to_numpy(zero_copy_only=False), kind="stable")[:-1]
        for t in (table, few_table)
    )
    assert (order == other).mean() > 0.99  # the ranking is the same
    assert few_table["quality"][5].as_py() is None
    assert few_table["corrected_distribution"][5].as_py()[0] == {
        "label": few_table["given_label"][5].as_py(),
        "p": 1.0,
    }


def test_trusted_labels_stay_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, recorded, _ = world(1, 400, 60, 8)
    records, trusted = Records(recorded), np.arange(400) % 3 == 0
    dense = score_labels(records, labels.given, joint(records, labels.given, 60), trusted)
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 10)
    sparse = score_labels(records, labels.given, joint(records, labels.given, 60), trusted)
    np.testing.assert_array_equal(sparse.suggested, dense.suggested)
    seen = ~np.isnan(dense.quality)
    assert (sparse.quality[trusted & seen] == 1).all()
    np.testing.assert_allclose(sparse.quality, dense.quality, rtol=2e-4, atol=2e-6)


def test_predictions_out_of_sample_are_judged_alike_where_all_classes_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    C = KEPT_CLASSES + 1
    labels, recorded, p = world(2, 600, C, 3)
    p = p.astype(np.float16)
    dense = score_labels(
        Records(recorded, HeldOut(2, p)),
        labels.given,
        joint(Records(recorded, HeldOut(2, p)), labels.given, C),
    )
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 10)
    kept = largest_probabilities(p, labels.given)
    for few in (p, kept):  # whole, and as a file has it
        records = Records(recorded, HeldOut(2, few))
        records.check(labels)
        found = joint(records, labels.given, C)
        sparse = score_labels(records, labels.given, found)
        np.testing.assert_array_equal(sparse.suggested, dense.suggested)
        np.testing.assert_allclose(sparse.quality, dense.quality, rtol=1e-3, atol=1e-5)


def test_beyond_the_kept_classes_the_others_share_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels, recorded, p = world(3, 800, 150, 3)
    one = Records(recorded, HeldOut(2, p.astype(np.float16)))
    dense = score_labels(one, labels.given, joint(one, labels.given, 150))
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 100)
    sparse = score_labels(one, labels.given, joint(one, labels.given, 150))
    assert (sparse.suggested != dense.suggested).mean() < 0.005
    assert np.nanmax(np.abs(sparse.quality - dense.quality)) < 0.05
    few = one.sparse_mean_prediction(slice(0, 800), labels.given, 150)
    whole = few.rest * (150 - 1 - KEPT_CLASSES) + np.bincount(few.row, few.p)
    np.testing.assert_allclose(whole, 1, atol=2e-3)


def test_the_largest_of_a_prediction_are_kept_with_that_of_the_given_label() -> None:
    p = np.array([[0.1, 0.5, 0.15, 0.25], [np.nan] * 4], np.float32)
    kept = largest_probabilities(p, np.array([2, 0]))
    assert kept["class"][0].tolist() == [2, 1, 3, 0]
    np.testing.assert_allclose(kept["value"][0], [0.15, 0.5, 0.25, 0.1], rtol=1e-3)
    assert np.isnan(kept["value"][1]).all()
    few = Records([], HeldOut(2, kept)).sparse_mean_prediction(slice(0, 2), np.array([2, 0]), 4)
    assert few.row.tolist() == [0] * 4
    assert np.isnan(few.rest[1])


def test_a_file_of_predictions_out_of_sample_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 100)
    p = np.random.default_rng(0).dirichlet(np.ones(300), 50).astype(np.float32)
    y = np.arange(50)
    path = tmp_path / "p.npy"
    held_out.write(
        path, (50, 300), (held_out.kept(p[k : k + 7], y[k : k + 7]) for k in range(0, 50, 7))
    )
    found = held_out.read(path, (50, 300))
    assert found.shape == (50, 1 + KEPT_CLASSES)
    np.testing.assert_allclose(found["value"][:, 0], p[y, y], rtol=1e-3, atol=1e-7)
    others = p.copy()
    others[y, y] = -1
    np.testing.assert_array_equal(found["class"][:, 1], others.argmax(1))
    old = tmp_path / "old.npy"
    np.save(old, p.astype(np.float16))  # as a version before wrote it
    assert held_out.read(old, (50, 300)).shape == (50, 300)


def test_an_audit_is_read_back_in_either_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, recorded, _ = world(0, 500, 40, 5)
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 20)
    _, audit = audit_labels(labels, Records(recorded))
    directory = RunDirectory(tmp_path)
    audit.save(directory)
    again = Audit.load(directory)
    np.testing.assert_array_equal(again.joint.toarray(), audit.joint.toarray())
    np.testing.assert_array_equal(again.transition.sum(1), audit.transition.sum(1))
    monkeypatch.undo()
    dense = Audit.load(directory)
    np.testing.assert_array_equal(dense.joint, audit.joint.toarray())
    assert dense.to_json() == audit.to_json()


def test_no_array_of_examples_by_classes_or_of_pairs_of_classes_is_made() -> None:
    n, C = 2000, 5000
    generator = np.random.default_rng(0)
    clean = generator.integers(0, C, n)
    given = np.where(generator.random(n) < 0.2, generator.integers(0, C, n), clean)
    recorded = []
    for _ in range(4):
        rows = np.zeros(n, ROW)
        rows["predicted"], rows["p_given"], rows["p_other"] = clean, 0.2, 0.5
        rows["other"] = np.where(given == clean, (clean + 1) % C, clean)
        recorded.append(rows)
    names, ids = tuple(map(str, range(C))), tuple(map(str, range(n)))
    labels = labelled(given, clean, names, ids)
    records = Records(recorded)
    audit_labels(labels, records)  # whatever the first use alone takes
    tracemalloc.start()
    table, audit = audit_labels(labels, records)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < min(2 * n * C, 8 * C * C) / 2  # half precision, double precision
    assert len(table) == n
    assert audit.joint.shape == (C, C)
    found = score_labels(records, given, audit.joint).distribution(slice(0, 10))
    assert isinstance(found, TopClasses)
    assert found.classes.shape == (10, 5)
