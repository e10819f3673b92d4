"""What `export` and cleanlab write, read as labels: by id, by class name, spreadsheets undone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.data.inputs import Features
from proselflc.data.labels.labels import CorrectedLabels, holds_corrected_labels
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.errors import InputError

IDS = ("-a", "@b", "=c", "d")
NAMES = ("=1", "-1")


def data(folder: Path) -> str:
    """Four rows whose ids and classes a spreadsheet would execute."""
    path = folder / "d.csv"
    path.write_text("id,x,label\n-a,1,=1\n@b,2,-1\n=c,3,=1\nd,4,-1\n")
    return str(path)


def given(folder: Path, labels: Path, **columns: str) -> list[str]:
    dataset = open_data(Request(data(folder), labels=labels, **columns))  # type: ignore[arg-type]
    assert dataset.train.ids == IDS
    return [dataset.names[k] for k in dataset.train.labels]


def saved(path: Path, **change: Any) -> Path:
    file = io.BytesIO()
    CorrectedLabels(IDS[::-1], np.array([0, 0, 0, 1]), np.array([0, 1, 0, 1]), NAMES).save(
        file,
        is_suspect=np.zeros(4, np.bool_),
        quality=np.zeros(4, np.float32),
        reviewed=np.zeros(4, np.bool_),
    )
    arrays = dict(np.load(io.BytesIO(file.getvalue()), allow_pickle=False)) | change
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_arrays_are_read_back_by_id(tmp_path: Path) -> None:
    path = saved(tmp_path / "labels.npz")
    assert holds_corrected_labels(path)
    assert CorrectedLabels.load(path).labels.tolist() == [0, 0, 0, 1]
    assert given(tmp_path, path) == ["-1", "=1", "=1", "=1"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ids": None}, 'holds no "ids": it is not an export of proselflc'),
        ({"given": None}, 'holds no "given": it is not an export of proselflc'),
        ({"labels": np.array([0, 0, 0, 2])}, '"labels" in .* has labels outside 0 … 1'),
        ({"labels": np.array([0.0, 0, 0, 1])}, '"labels" in .* is float64'),
        ({"names": np.array(["a", "a"])}, "ids or names in .* are not distinct"),
        ({"names": np.array(["=1", "new"])}, 'unknown class "new"'),
        ({"ids": np.array(["-a", "@b", "=c", "e"])}, 'has 3 of the 4 ids of .*, but not "d"'),
        ({"ids": np.array([b"a", b"b", b"c", b"d"])}, '"ids" in .* is not a list of strings'),
    ],
)
def test_damaged_arrays(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        given(tmp_path, saved(tmp_path / "labels.npz", **change))


def test_what_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"nothing")
    assert not holds_corrected_labels(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", other=np.zeros(3))
    assert not holds_corrected_labels(tmp_path / "y.npz")


def test_apostrophes_of_a_spreadsheet_are_undone(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("id,label,given_label\nd,'=1,-1\n'=c,-1,'=1\n'@b,'=1,-1\n'-a,'=1,'=1\n")
    assert given(tmp_path, path) == ["=1", "=1", "-1", "=1"]
    path.write_text("id,label\nd,=1\n=c,-1\n@b,=1\n-a,=1\n")  # from elsewhere
    assert given(tmp_path, path) == ["=1", "=1", "-1", "=1"]


def test_an_apostrophe_of_a_class_stays(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,label\n1,'=1\n2,b\n")
    (tmp_path / "l.csv").write_text("label\nb\n'=1\n")
    dataset = open_data(Request(str(tmp_path / "t.csv"), labels=tmp_path / "l.csv"))
    assert [dataset.names[k] for k in dataset.train.labels] == ["b", "'=1"]


def test_a_label_that_may_be_either_of_two(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,label\n1,'=1\n2,=1\n")
    (tmp_path / "l.csv").write_text("label\n=1\n'=1\n")
    with pytest.raises(InputError, match='is ambiguous: "=1" is also known'):
        open_data(Request(str(tmp_path / "t.csv"), labels=tmp_path / "l.csv"))


def test_of_cleanlabs_columns_the_given_label_is_read(tmp_path: Path) -> None:
    path = tmp_path / "issues.csv"
    heading = ",is_label_issue,label_quality,given_label,predicted_label\n"
    path.write_text(heading + "0,True,0.1,0,1\n1,False,0.9,0,0\n2,False,0.8,0,0\n3,True,0,1,0\n")
    dataset = open_data(Request(data(tmp_path), labels=path))
    assert dataset.names == ("-1", "=1")
    assert dataset.train.labels.tolist() == [0, 0, 0, 1]  # class ids, row for row
    dataset = open_data(Request(data(tmp_path), labels=path, label_column="predicted_label"))
    assert dataset.train.labels.tolist() == [1, 0, 0, 0]


def test_what_is_said_about_labels_is_nothing_to_learn_from(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    about = "is_label_issue,label_score,given_label,predicted_label,corrected_label,label_before_2"
    path.write_text(f"a,{about},label_before\n" + "5,1,0.5,7,8,8,3,3\n6,0,0.6,8,7,7,3,3\n")
    dataset = open_data(Request(str(path)))
    assert isinstance(dataset.train.inputs, Features)
    assert dataset.train.inputs.columns == ("a",)
    assert dataset.names == ("7", "8")


def test_a_label_column_goes_before_the_given_one(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("a,given_label,label,predicted_label\n5,1,0,7\n6,0,1,8\n")
    dataset = open_data(Request(str(path)))
    assert dataset.train.labels.tolist() == [0, 1]
    assert isinstance(dataset.train.inputs, Features)
    # Without `is_label_issue` a predicted label is somebody's own number.
    assert dataset.train.inputs.columns == ("a", "predicted_label")
