"""Matrices of classes: the sparse form against the array, in memory and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data import class_matrix, memory_budget
from proselflc.data.class_matrix import read_transition
from proselflc.data.labels import Labels, labelled
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


@pytest.mark.parametrize("name", ["T.npy", "T.npz", "transition.npz", "T.csv"])
def test_transition_matrices_from_files(tmp_path: Path, name: str) -> None:
    T = np.array([[0.9, 0.1, 0], [0.25, 0.5, 0.25], [0, 0, 1]])
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, T)
    elif name.endswith(".npz"):
        np.savez(path, **{path.stem: T})  # type: ignore[arg-type]
    else:
        path.write_text("0.9,0.1,0\n0.25, 0.5,0.25\n\n0,0,1\n")
    matrix = read_transition(path)
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, T)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("T.csv", b"a,b\n1,0\n", "does not hold a matrix of numbers: could not convert"),
        ("T.csv", b"1,0\n1\n", "does not hold a matrix of numbers"),
        ("T.csv", b"\xff\xfe", "does not hold a matrix of numbers"),
        ("T.npy", b"\x93NUMPY", "damaged"),
        ("T.npz", b"PK", "damaged"),
        ("T.txt", b"1", r"a transition matrix is an \.npy, \.npz or \.csv file"),
    ],
)
def test_wrong_transition_files_are_refused(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_transition(path)


def test_transitions_that_are_not_numbers_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "T.npy"
    np.save(path, np.array([["a", "b"], ["c", "d"]]))
    with pytest.raises(InputError, match="holds <U1 values: expected a matrix of numbers"):
        read_transition(path)
    with pytest.raises(InputError, match=r"none\.npy does not exist"):
        read_transition(tmp_path / "none.npy")
    np.savez(tmp_path / "other.npz", x=np.eye(2))
    with pytest.raises(InputError, match="none of the arrays transition, T"):
        read_transition(tmp_path / "other.npz")


@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(st.binary(max_size=60), st.text("0123456789.,-e\n \r#nai", max_size=60)),
    suffix=st.sampled_from([".csv", ".npy", ".npz"]),
)
def test_any_bytes_are_a_matrix_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzzed{suffix}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        matrix = read_transition(path)
        class_matrix.checked_transition(matrix, 2)
    except InputError:
        return
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-5)
