"""Labels come back in the type and dtype they came in; files and command lines have strings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pytest
import torch

import proselflc
from proselflc import ProSelfLCClassifier
from proselflc.cli import app as cli
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features
from proselflc.data.labels import Labels, LabelValues, labelled
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.run.reader import Predictions

Array = npt.NDArray[Any]
CLASSES = 3
N = 60


def clouds() -> tuple[Array, Array]:
    """Three clouds that do not touch, and the class of each point."""
    generator = np.random.default_rng(0)
    classes = np.arange(N) % CLASSES
    x = np.eye(CLASSES)[classes] * 4 + generator.normal(0, 0.1, (N, CLASSES))
    return x.astype(np.float32), classes


def of(values: Any) -> Callable[[Array], Array]:
    return lambda classes: np.asarray(values)[classes]


# What a caller may have: how y is made of class ids, the type of y and the dtype of what returns.
KINDS: dict[str, tuple[Callable[[Array], Any], type, str | None]] = {
    "int64": (of([0, 1, 2]), np.ndarray, "int64"),
    "uint8": (lambda c: c.astype(np.uint8), np.ndarray, "uint8"),
    "from 1 on": (of([1, 2, 3]), np.ndarray, "int64"),
    "negative": (of([-1, 0, 1]), np.ndarray, "int64"),
    "with gaps": (of([3, 10, 200]), np.ndarray, "int64"),
    "whole floats": (of([0.0, 1.0, 10.0]), np.ndarray, "float64"),
    "bool": (lambda c: c > 0, np.ndarray, "bool"),
    "texts": (of(["b", "cat", "a"]), np.ndarray, "<U3"),
    "texts of digits": (of(["10", "9", "2"]), np.ndarray, "<U2"),
    "objects": (lambda c: np.array(["b", "cat", "a"], dtype=object)[c], np.ndarray, "object"),
    "list of int": (lambda c: of([5, 7, 6])(c).tolist(), list, None),
    "list of bool": (lambda c: (c > 0).tolist(), list, None),
    "list of str": (lambda c: of(["x", "y", "z"])(c).tolist(), list, None),
    "list of np.str_": (lambda c: list(of(["x", "y", "z"])(c)), list, None),
    "tuple": (lambda c: tuple(of([5, 7, 6])(c).tolist()), list, None),
    "tensor": (lambda c: torch.from_numpy(c) + 1, torch.Tensor, "torch.int64"),
    "int32 tensor": (lambda c: torch.from_numpy(c).int(), torch.Tensor, "torch.int32"),
    "series": (lambda c: pd.Series(c + 1, index=c * 2 + 7), np.ndarray, "int64"),
    "series of str": (lambda c: pd.Series(of(["x", "y", "z"])(c)), np.ndarray, "object"),
    "category of int": (lambda c: pd.Series(c * 5).astype("category"), np.ndarray, "int64"),
    "category of str": (lambda c: pd.Categorical(of(["q", "r", "s"])(c)), np.ndarray, "object"),
}


def same(found: Any, expected: Any) -> bool:
    return bool((np.asarray(found) == np.asarray(expected)).all())


@pytest.mark.parametrize("kind", KINDS)
def test_labels_come_back_as_they_came_in(kind: str, tmp_path: Path) -> None:
    make, container, dtype = KINDS[kind]
    x, classes = clouds()
    y = make(classes)
    result = proselflc.fit(x, y, epochs=12, batch_size=16, out=tmp_path / "run")
    for run in (result, proselflc.load_run(tmp_path / "run"), tmp_path / "run"):
        corrected: Any = proselflc.corrected_labels(run)
        said: Any = proselflc.predict(run, x).labels
        both: list[Any] = [corrected, said]
        for found in both:
            assert type(found).__name__ == container.__name__
            assert dtype is None or str(found.dtype) == dtype
            assert len(found) == N
            equal = found == y if container is not list else found == list(y)
            assert np.asarray(equal).all()
        if container is list:
            assert {type(label) for label in corrected} == {type(np.asarray(y).tolist()[0])}
    frame = proselflc.find_label_issues(result)
    for column in ("given_label", "predicted_label", "corrected_label"):
        assert same(frame[column], np.asarray(y))
    # In files a label is its class name, as it was before.
    names = {type(name) for name in result.examples["given_label"].to_pylist()}
    assert names == {str}


def test_comparing_with_y_counts_what_was_right() -> None:
    """The sentence of the issue: silently all False, where nine tenths are right."""
    x, y = clouds()
    given = y.copy()
    given[:6] = (given[:6] + 1) % CLASSES
    result = proselflc.fit(x, given, epochs=12, batch_size=16)
    assert (proselflc.corrected_labels(result) == y).mean() == 1
    assert (proselflc.corrected_labels(result) == given).mean() == 0.9
    assert (result.predict(x).labels == y).mean() == 1


@pytest.mark.parametrize("dtype", ["int64", "int16"])
def test_with_names_class_ids_come_back_as_ids_and_names_as_names(dtype: str) -> None:
    x, y = clouds()
    names = ["cat", "dog", "emu"]
    by_id = proselflc.fit(x, y.astype(dtype), names=names, epochs=8, batch_size=16)
    found = proselflc.corrected_labels(by_id)
    assert isinstance(found, np.ndarray)
    assert found.dtype == dtype
    assert same(found, y)
    assert by_id.predict(x[:3]).class_names == names
    texts = [names[k] for k in y]
    by_name = proselflc.fit(x, texts, names=names, epochs=8, batch_size=16)
    assert proselflc.corrected_labels(by_name) == texts


def test_a_class_that_only_the_truth_has_comes_back_in_the_type_too() -> None:
    x, y = clouds()
    given = np.where(y == 2, 1, y).astype(np.uint8)
    result = proselflc.fit(x, given, clean=y.astype(np.uint8), steps=3)
    found = proselflc.corrected_labels(result)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.uint8
    large = proselflc.fit(x, given, clean=y * 300, steps=3)  # 300 and 600 are no bytes
    assert set(proselflc.corrected_labels(large)) <= {0, 1, 300, 600}


class Pairs:
    """A map-style data set."""

    def __init__(self, x: Array, y: list[Any]) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, k: int) -> tuple[Array, Any]:
        return self.x[k], self.y[k]


def test_a_data_set_gives_back_what_its_items_held() -> None:
    x, y = clouds()
    labels: list[list[Any]] = [(y + 1).tolist(), list(torch.from_numpy(y)), list(y > 0)]
    for given in labels:
        result = proselflc.fit(Pairs(x, given), epochs=8, batch_size=16)
        found = proselflc.corrected_labels(result)
        assert isinstance(found, np.ndarray)
        assert found.dtype == ("bool" if given is labels[2] else "int64")
        assert same(found, np.array([int(one) for one in given]))
    texts = [f"class {k}" for k in y]
    result = proselflc.fit(Pairs(x, texts), epochs=8, batch_size=16)
    assert proselflc.corrected_labels(result) == texts
    named = Pairs(x, y.tolist())
    named.classes = ["cat", "dog", "emu"]  # type: ignore[attr-defined]
    result = proselflc.fit(named, epochs=8, batch_size=16)
    assert same(proselflc.corrected_labels(result), y)
    assert result.names == ("cat", "dog", "emu")


def test_a_dataset_of_ours_gives_class_ids_back() -> None:
    x, y = clouds()
    part = Part(Features(x), y, tuple(map(str, range(N))))
    result = proselflc.fit(Dataset("mine", part, ("cat", "dog", "emu")), epochs=8, batch_size=16)
    found = proselflc.corrected_labels(result)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.int64
    assert same(found, y)


def test_a_dataset_that_was_read_from_a_file_gives_class_names_back(tmp_path: Path) -> None:
    x, y = clouds()
    names = ("cat", "dog", "emu")
    rows = [f"{a},{b},{c},{names[k]}" for (a, b, c), k in zip(x, y, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,label", *rows]))
    result = proselflc.fit(
        open_data(Request(data=str(tmp_path / "t.csv"))), epochs=8, batch_size=16
    )
    assert proselflc.corrected_labels(result) == [names[k] for k in y]


def test_a_recording_gives_back_what_it_was_given() -> None:
    _, y = clouds()
    logits = torch.eye(CLASSES)[torch.from_numpy(y)] * 6

    def recorded(**about: Any) -> Any:
        with pytest.warns(UserWarning, match="epoch"), proselflc.record(N, CLASSES, **about) as rec:
            rec(torch.arange(N), logits, torch.from_numpy(y))
        return proselflc.corrected_labels(rec.run, force=True)  # one epoch is too short

    found = recorded(names=["cat", "dog", "emu"])
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.int64
    assert same(found, y)
    assert str(recorded(labels=torch.from_numpy(y).short()).dtype) == "torch.int16"
    texts = [("cat", "dog", "emu")[k] for k in y]
    assert recorded(names=["cat", "dog", "emu"], labels=texts) == texts


@pytest.mark.parametrize(
    "values", [[1, 2, 3], [0.0, 1.0, 5.0], [True, False, True], ["a", "b", "c"]]
)
def test_the_estimator_answers_in_the_dtype_of_y(values: list[Any]) -> None:
    x, classes = clouds()
    y = np.array(values)[classes]
    classifier = ProSelfLCClassifier(epochs=8, random_state=0).fit(x, y)
    for found in (classifier.predict(x), classifier.corrected_labels_):
        assert found.dtype == y.dtype
        assert (found == y).mean() == 1
    frame = classifier.get_label_issues()
    assert same(frame["given_label"], y)


def test_the_command_line_and_its_files_have_class_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = clouds()
    proselflc.fit(x, y + 1, epochs=8, batch_size=16, out=tmp_path / "run")
    np.save(tmp_path / "x.npy", x[:3])
    out = tmp_path / "p.csv"
    arguments = ["predict", str(tmp_path / "run"), "--data", str(tmp_path / "x.npy")]
    assert cli.run([*arguments, "--out", str(out)]) == 0
    assert [line.split(",")[1] for line in out.read_text().splitlines()[1:]] == ["1", "2", "3"]
    assert cli.run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "l.parquet")]) == 0
    table = pd.read_parquet(tmp_path / "l.parquet")
    assert table["label"].tolist()[:3] == ["1", "2", "3"]
    np.savez(tmp_path / "d.npz", x=x, y=y)
    arguments = ["train", "--data", str(tmp_path / "d.npz"), "--epochs", "8", "--quiet"]
    assert cli.run([*arguments, "--out", str(tmp_path / "cli")]) == 0
    capsys.readouterr()
    labels = proselflc.corrected_labels(tmp_path / "cli")
    assert isinstance(labels, list)
    assert {type(label) for label in labels} == {str}


def test_a_run_that_says_nothing_of_the_type_has_names(tmp_path: Path) -> None:
    """As runs that older versions wrote: neither file has a label_type."""
    x, y = clouds()
    result = proselflc.fit(x, y, steps=3)
    description = json.loads(result.directory.model.read_text())
    assert description["label_type"]["dtype"] == "int64"
    assert LabelValues.from_json(None, CLASSES, "model.json") is None
    assert Labels.load(result.directory.labels).values == result.labels.values is not None
    replace(result.labels, values=None).save(tmp_path / "labels.npz")
    assert Labels.load(tmp_path / "labels.npz").values is None
    old = Predictions(np.eye(CLASSES, dtype=np.float32), ("a", "b", "c"))
    assert old.labels == old.class_names == ["a", "b", "c"]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"container": "array", "dtype": "int64"},
        {"container": "array", "dtype": "int64", "values": [0, 1]},
        {"container": "array", "dtype": "int64", "values": [0, 1, "2"]},
        {"container": "array", "dtype": "uint8", "values": [0, 1, 256]},
        {"container": "array", "dtype": "str", "values": [0, 1, 2]},
        {"container": "array", "dtype": "O,O", "values": [0, 1, 2]},
        {"container": "array", "dtype": ["i8"], "values": [0, 1, 2]},
        {"container": "tensor", "dtype": "load", "values": [0, 1, 2]},
        {"container": "tensor", "dtype": "uint8", "values": [0, 1, 256]},
        {"container": "list", "dtype": "object", "values": [0, 1, [2]]},
        {"container": {}, "dtype": "object", "values": [0, 1, 2]},
    ],
)
def test_a_damaged_type_is_refused_with_a_sentence(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"label type in model\.json is damaged"):
        LabelValues.from_json(wrong, CLASSES, "model.json")
    labels = labelled(np.array([0, 1, 2]), None, ("a", "b", "c"), ("x", "y", "z"))
    good = LabelValues((0, 1, 2))
    replace(labels, values=good).save(tmp_path / "labels.npz")
    arrays = dict(np.load(tmp_path / "labels.npz"))
    assert Labels.load(tmp_path / "labels.npz").values == good
    arrays["label_type"] = np.array(json.dumps(wrong))
    np.savez(tmp_path / "labels.npz", **arrays)
    with pytest.raises(InputError, match=r"label type in .*labels\.npz is damaged"):
        Labels.load(tmp_path / "labels.npz")
