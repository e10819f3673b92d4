"""Figures and tables of many classes, from the cells of their matrices alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from proselflc.auditing.audit import Audit, noise_rate
from proselflc.data import class_matrix, memory_budget
from proselflc.reporting import transitions as figures_of
from proselflc.reporting.tables import _wrong


def audit(clean: np.ndarray, given: np.ndarray, C: int) -> Audit:
    counts = class_matrix.counted(clean, given, C)
    return Audit(
        num_examples=len(given),
        suspects=0,
        folds=None,
        estimated_noise_rate=noise_rate(counts),
        realised_noise_rate=noise_rate(counts),
        expected_precision=None,
        names=tuple(f"class {k}" for k in range(C)),
        joint=counts,
        realised=counts,
    )


def labels(n: int, C: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    clean = generator.integers(0, C, n)
    return clean, np.where(generator.random(n) < 0.3, (clean + 7) % C, clean)


def test_both_forms_of_a_matrix_give_the_same_figures_and_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clean, given = labels(5000, 320)
    dense = audit(clean, given, 320)
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 100)
    sparse = audit(clean, given, 320)
    assert figures_of._flows(sparse.joint) == figures_of._flows(dense.joint)
    assert len(figures_of._flows(sparse.joint)) == figures_of.FLOWS
    for together in (3, 7):
        np.testing.assert_array_equal(
            figures_of._blocks(sparse.joint, together),
            figures_of._blocks(dense.joint, together),
        )
    assert _wrong(sparse.joint) == _wrong(dense.joint)
    ours, theirs = (figures_of.transitions(one) for one in (sparse, dense))
    assert [one.svg for one in ours] == [one.svg for one in theirs]


def test_no_matrix_of_twenty_thousand_classes_is_made() -> None:
    C = 20_000
    clean, given = labels(30_000, C)
    tracemalloc.start()
    found = figures_of.transitions(audit(clean, given, C))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # 3.2 GB as an array
    assert [one.name for one in found] == [
        "transition_estimated",
        "transition_realised",
        "confusions",
    ]
    assert all(len(one.svg) < 60_000 for one in found)
