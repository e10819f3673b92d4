"""Matrices of classes: the sparse form against the array, in memory and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.data import memory_budget
from proselflc.data.labels import class_matrix
from proselflc.data.labels.labels import Labels, labelled
from proselflc.errors import InputError

C = 40


def pairs(seed: int, n: int = 300) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    clean = generator.integers(0, C - 3, n)  # three classes have no example
    return clean, np.where(generator.random(n) < 0.3, generator.integers(0, C, n), clean)


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 5)
    return monkeypatch


def test_the_two_forms_hold_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        clean, given = pairs(seed)
        monkeypatch.undo()
        dense = class_matrix.counted(clean, given, C)
        rates = class_matrix.rows_to_1(dense)
        assert isinstance(dense, np.ndarray)
        monkeypatch.setattr(memory_budget, "DENSE_CLASSES", C - 1)
        few = class_matrix.counted(clean, given, C)
        assert not isinstance(few, np.ndarray)
        assert len(few.data) == np.count_nonzero(dense)
        np.testing.assert_array_equal(few.toarray(), dense)
        np.testing.assert_array_equal(class_matrix.rows_to_1(few).toarray(), rates)
        np.testing.assert_array_equal(class_matrix.identity(C).toarray(), np.eye(C))
        np.testing.assert_array_equal(few.sum(0), dense.sum(0))
        assert few.trace() == dense.trace()
        for ours, theirs in zip(class_matrix.cells(few), class_matrix.cells(dense), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_no_array_of_all_pairs_is_made_of_twenty_thousand_classes(tmp_path: Path) -> None:
    import tracemalloc

    many = 20_000
    clean = np.arange(many)
    tracemalloc.start()
    labels = labelled(
        (clean + 1) % many, clean, tuple(map(str, clean)), tuple(f"id {k}" for k in clean)
    )
    labels.save(tmp_path / "labels.npz")
    again = Labels.load(tmp_path / "labels.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6  # 3.2 GB as an array
    assert again.transition[3, 4] == 1
    assert again.transition[3, 3] == 0
    assert again.transition.sum() == many
    assert (tmp_path / "labels.npz").stat().st_size < 2e6


def test_labels_are_read_back_in_either_form(tmp_path: Path, sparse: pytest.MonkeyPatch) -> None:
    clean, given = pairs(0)
    names, ids = tuple(map(str, range(C))), tuple(map(str, range(len(given))))
    labels = labelled(given, clean, names, ids)
    few = tmp_path / "few.npz"
    labels.save(few)
    with np.load(few) as file:
        assert "transition" not in file
        assert len(file["transition_rows"]) == len(labels.transition.data)
    again = Labels.load(few)
    np.testing.assert_array_equal(again.transition.toarray(), labels.transition.toarray())
    sparse.undo()
    dense = Labels.load(few)  # the same file, where so many classes are few
    assert isinstance(dense.transition, np.ndarray)
    np.testing.assert_array_equal(dense.transition, labels.transition.toarray())
    dense.save(tmp_path / "dense.npz")
    sparse.setattr(memory_budget, "DENSE_CLASSES", 5)
    once = Labels.load(tmp_path / "dense.npz")  # and one that an older version wrote
    np.testing.assert_array_equal(once.transition.toarray(), dense.transition)


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("rows", lambda a: a + C, "outside its 40 classes"),
        ("rows", lambda a: a[::-1].copy(), "out of order"),
        ("columns", lambda a: a.astype(float), "does not hold the cells"),
        ("columns", lambda a: a[1:], "does not hold the cells"),
        ("values", lambda a: a * np.nan, "not finite"),
        ("values", lambda a: -a, "is not a distribution"),
        ("values", lambda a: a / 2, "is not a distribution"),
    ],
)
def test_damaged_cells_are_refused(
    tmp_path: Path, sparse: pytest.MonkeyPatch, part: str, change: Any, words: str
) -> None:
    clean, given = pairs(1)
    names, ids = tuple(map(str, range(C))), tuple(map(str, range(len(given))))
    path = tmp_path / "labels.npz"
    labelled(given, clean, names, ids).save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file}
    arrays[f"transition_{part}"] = change(arrays[f"transition_{part}"])
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=words):
        Labels.load(path)


def test_numbers_whose_sum_overflows_are_refused_without_a_warning() -> None:
    with pytest.raises(InputError, match="row 0 of the transition matrix is not a distribution"):
        class_matrix.checked_transition(np.full((2, 2), 1.7e308), 2)
