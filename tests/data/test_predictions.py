"""Probabilities and labels are read from the files that people have, and bad ones are refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proselflc.data.sources.predictions import read_predictions
from proselflc.errors import InputError

Array = npt.NDArray[Any]

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.25, 0.5, 0.25]])
NAMES = ("cat", "dog", "owl")
GIVEN = np.array([0, 1, 2, 0])
IDS = ("a", "b", "c", "d")


def texts(values: Any) -> Array:
    return np.array(values, dtype=np.str_)


def npy(path: Path, values: Any) -> Path:
    np.save(path, values)
    return path


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def table_of_p() -> str:
    rows = [",".join(map(str, (name, *row))) for name, row in zip(IDS, P, strict=True)]
    return "\n".join([f"id,{','.join(NAMES)}", *rows])


PROBABILITIES: dict[str, Callable[[Path], Path]] = {
    "npy": lambda folder: npy(folder / "p.npy", P),
    "npz": lambda folder: npz(folder / "p.npz", pred_probs=P),
    "npz, its only array": lambda folder: npz(folder / "p.npz", mine=P),
    "csv": lambda folder: csv(folder / "p.csv", table_of_p()),
    "parquet": lambda folder: parquet(
        folder / "p.parquet", {name: P[:, k] for k, name in enumerate(NAMES)}
    ),
    "npz with names and ids": lambda folder: npz(
        folder / "p.npz", p=P.astype(np.float32), names=texts(NAMES), ids=texts(IDS)
    ),
}
LABELS: dict[str, Callable[[Path], Path]] = {
    "npy": lambda folder: npy(folder / "y.npy", GIVEN),
    "npy of texts": lambda folder: npy(folder / "y.npy", texts([NAMES[k] for k in GIVEN])),
    "npz": lambda folder: npz(folder / "y.npz", labels=GIVEN),
    "txt": lambda folder: csv(folder / "y.txt", "cat\ndog\nowl\ncat\n"),
    "csv": lambda folder: csv(folder / "y.csv", "label\ncat\ndog\nowl\ncat\n"),
    "csv of ids": lambda folder: csv(folder / "y.csv", "id,label\na,0\nb,1\nc,2\nd,0\n"),
    "parquet": lambda folder: parquet(
        folder / "y.parquet", {"label": ["cat", "dog", "owl", "cat"]}
    ),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("probabilities", PROBABILITIES)
def test_every_form_of_both(probabilities: str, labels: str, tmp_path: Path) -> None:
    read = read_predictions(PROBABILITIES[probabilities](tmp_path), LABELS[labels](tmp_path))
    np.testing.assert_allclose(read.p.astype(np.float64), P)
    np.testing.assert_array_equal(read.given, GIVEN)
    assert len(read.names) == 3
    assert len(read.ids) == 4


def test_rows_are_matched_by_their_ids(tmp_path: Path) -> None:
    labels = csv(tmp_path / "y.csv", "id,label\nd,cat\nb,dog\nc,owl\na,dog\n")
    read = read_predictions(csv(tmp_path / "p.csv", table_of_p()), labels)
    np.testing.assert_array_equal(read.given, [1, 1, 2, 0])
    assert read.ids == IDS
    csv(labels, "id,label\nx,cat\nb,dog\nc,owl\na,dog\n")
    with pytest.raises(InputError, match='has no label for the id "d"'):
        read_predictions(tmp_path / "p.csv", labels)


def test_labels_and_probabilities_in_one_table(tmp_path: Path) -> None:
    rows = ["id,cat,dog,owl,label", "a,.7,.2,.1,dog", "b,.1,.8,.1,dog"]
    path = csv(tmp_path / "both.csv", "\n".join(rows))
    read = read_predictions(path, path)
    assert read.names == NAMES
    np.testing.assert_array_equal(read.given, [1, 1])


def test_labels_without_names_are_sorted_as_scikit_learn_does(tmp_path: Path) -> None:
    """Numbers by value, not as texts."""
    labels = csv(tmp_path / "y.txt", "10\n2\n100\n2\n")
    read = read_predictions(npy(tmp_path / "p.npy", P), labels)
    assert read.names == ("2", "10", "100")
    np.testing.assert_array_equal(read.given, [1, 0, 2, 0])


class Bomb:
    """An object whose unpickling would leave a trace."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize("name", ["p.npy", "y.npy"])
def test_pickles_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    npy(tmp_path / "p.npy", P)
    npy(tmp_path / "y.npy", GIVEN)
    np.save(tmp_path / name, np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=name):
        read_predictions(tmp_path / "p.npy", tmp_path / "y.npy")
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match=name):
        read_predictions(tmp_path / "p.npy", tmp_path / "y.npy")
    assert not (tmp_path / "exploded").exists()


def test_a_header_that_promises_more_than_is_there_is_refused(tmp_path: Path) -> None:
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10)}
    with (tmp_path / "p.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(b"\0" * 800)
    with pytest.raises(InputError, match=r"p\.npy"):
        read_predictions(tmp_path / "p.npy", npy(tmp_path / "y.npy", GIVEN))


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        ("p.npy", "short.txt", r"p\.npy has 4 rows, but .*short\.txt has 2 labels"),
        ("flat.npy", "y.npy", r"flat\.npy holds an array of shape \[4\]: expected \[n, C\]"),
        ("p.npy", "far.npy", r"far\.npy has 4 different labels, but .*p\.npy has 3 columns"),
        ("p.npy", "floats.npy", r"floats\.npy holds float64 .* expected class ids or texts"),
        ("p.npy", "empty.txt", r"line 2 of .*empty\.txt is empty"),
        ("p.json", "y.npy", r"its ending is none of \.npy, \.npz, \.csv"),
        ("two.npz", "y.npy", "has none of the arrays pred_probs, p, probabilities: it holds"),
        ("words.csv", "y.npy", "every column but that of the ids holds the probabilities"),
        ("p.csv", "unknown.txt", 'unknown class "cow"'),
        ("one.csv", "y.npy", "has 1 columns of probabilities: expected one for each class"),
        ("ids.npz", "y.npy", "has 4 ids, 1 of them distinct, for 4 rows"),
        ("names.npz", "y.npy", "has 2 class names, 2 of them distinct, for 3 columns"),
        ("gone.npy", "y.npy", r"gone\.npy"),
        ("torn.npz", "y.npy", r"torn\.npz is not an \.npz file or is damaged"),
    ],
)
def test_files_that_do_not_fit(p: str, y: str, message: str, tmp_path: Path) -> None:
    npy(tmp_path / "p.npy", P)
    npy(tmp_path / "y.npy", GIVEN)
    csv(tmp_path / "p.csv", table_of_p())
    npy(tmp_path / "flat.npy", P[:, 0])
    npy(tmp_path / "far.npy", np.array([0, 1, 2, 7]))
    npy(tmp_path / "floats.npy", P[:, 0])
    npz(tmp_path / "two.npz", a=P, b=P)
    npz(tmp_path / "ids.npz", p=P, ids=texts(["a"] * 4))
    npz(tmp_path / "names.npz", p=P, names=texts(["a", "b"]))
    for name, text in {
        "short.txt": "cat\ndog\n",
        "empty.txt": "cat\n\ndog\nowl\n",
        "unknown.txt": "cat\ndog\nowl\ncow\n",
        "p.json": "[]",
        "words.csv": "cat,dog,owl\n0.5,0.5,high\n",
        "one.csv": "id,cat\na,1\n",
        "torn.npz": "PK\x03\x04",
    }.items():
        csv(tmp_path / name, text)
    with pytest.raises(InputError, match=message):
        read_predictions(tmp_path / p, tmp_path / y)


def test_a_column_needs_a_table(tmp_path: Path) -> None:
    p, y = npy(tmp_path / "p.npy", P), npy(tmp_path / "y.npy", GIVEN)
    with pytest.raises(InputError, match=r"names a column, but .*y\.npy is not a table"):
        read_predictions(p, y, label_column="label")
