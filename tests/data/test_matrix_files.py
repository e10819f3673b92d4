"""Matrices of transitions from files, whatever is in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data import noise
from proselflc.data.labels.class_matrix import read_transition
from proselflc.errors import InputError


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
        noise.checked_transition(matrix, 2)
    except InputError:
        return
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-5)
