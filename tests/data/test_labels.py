"""`labels.npz`: what is written comes back, and nothing else is believed."""

from __future__ import annotations

import io
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features, Ints
from proselflc.data.labels import (
    CorrectedLabels,
    Labels,
    from_dataset,
    holds_corrected_labels,
)
from proselflc.data.noise import corrupt, stream
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.files.regular import fleeting, whole_file


def dataset_of(labels: Ints, names: tuple[str, ...], ids: tuple[str, ...]) -> Dataset:
    return Dataset(
        "mine", Part(Features(np.zeros((len(labels), 1), np.float32)), labels, ids), names
    )


def example(n: int = 12, clean_known: bool = True) -> Labels:
    y = np.arange(n) % 3
    dataset = dataset_of(y, ("ä", "b c", "日本"), tuple(f"x/{i}.png" for i in range(n)))
    if not clean_known:
        return from_dataset(dataset, None)
    noise = corrupt(y, 3, kind="symmetric", rate="0.5", generator=stream(0))
    return from_dataset(dataset, noise)


def assert_same(a: Labels, b: Labels) -> None:
    for field in fields(Labels):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        else:
            assert left == right


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=0, max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(texts, min_size=2, max_size=6, unique=True),
    ids=st.lists(texts, min_size=2, max_size=30, unique=True),
    known=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    ids: list[str],
    known: bool,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("labels") / "labels.npz"
    y = np.random.default_rng(seed).integers(len(names), size=len(ids))
    noise = corrupt(y, len(names), kind="sym_inclusive", rate="0.6", generator=stream(seed))
    labels = from_dataset(dataset_of(y, tuple(names), tuple(ids)), noise if known else None)
    labels.save(path)
    assert_same(Labels.load(path), labels)
    assert os.listdir(path.parent) == ["labels.npz"]


def test_the_file_is_plain_arrays_by_the_names_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "labels.npz"
    labels = example()
    labels.save(path)
    with np.load(path, allow_pickle=False) as file:
        assert set(file) == {
            "given",
            "clean",
            "flipped",
            "transition",
            "names",
            "ids",
            "generator",
            "fingerprint",
        }
        assert file["given"].dtype == np.dtype("<i8")
        assert file["names"].tolist() == ["ä", "b c", "日本"]
        assert str(file["generator"]) == "sym_exclusive_exact:0.5"
        np.testing.assert_array_equal(file["flipped"], file["given"] != file["clean"])
    example(clean_known=False).save(path)
    with np.load(path, allow_pickle=False) as file:
        assert "clean" not in file
        assert not file["flipped"].any()
        assert str(file["generator"]) == "none"


def test_whose_labels_are_trusted_is_kept(tmp_path: Path) -> None:
    trusted = np.array([True, False, False, True])
    dataset = dataset_of(np.array([0, 0, 1, 1]), ("a", "b"), tuple("wxyz"))
    labels = from_dataset(replace(dataset, trusted=trusted), None)
    labels.save(tmp_path / "labels.npz")
    assert_same(Labels.load(tmp_path / "labels.npz"), labels)
    np.testing.assert_array_equal(Labels.load(tmp_path / "labels.npz").trusted, trusted)


def test_a_data_set_that_knows_its_truth_keeps_it(tmp_path: Path) -> None:
    clean = np.array([0, 0, 1, 1])
    given = np.array([0, 1, 1, 1])
    dataset = dataset_of(clean, ("a", "b"), tuple("wxyz")).with_labels(given, clean)
    labels = from_dataset(dataset, None)
    assert labels.flipped.tolist() == [False, True, False, False]
    np.testing.assert_array_equal(labels.transition, [[0.5, 0.5], [0, 1]])
    noise = corrupt(clean, 2, kind="pairflip", rate="1", generator=stream(0))
    noisier = from_dataset(dataset, noise)
    assert noisier.given.tolist() == [1, 1, 0, 0]
    assert noisier.clean is not None
    assert noisier.clean.tolist() == [0, 0, 1, 1]
    assert noisier.generator == "pairflip:1"


def arrays_of(labels: Labels) -> dict[str, npt.NDArray[Any]]:
    assert labels.clean is not None
    return {
        "given": labels.given,
        "clean": labels.clean,
        "flipped": labels.flipped,
        "transition": labels.transition,
        "names": np.array(labels.names),
        "ids": np.array(labels.ids),
        "generator": np.array(labels.generator),
        "fingerprint": np.array(labels.fingerprint),
    }


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("given", None, 'holds no "given": it is not a label file of proselflc'),
        ("fingerprint", None, 'holds no "fingerprint"'),
        ("given", np.zeros(11, np.int64), r'"given" in .* expected 12 class ids'),
        ("given", np.zeros(12), r'"given" in .* is float64 of shape \(12,\)'),
        ("given", np.full(12, 3), r'"given" in .* has labels outside 0 … 2'),
        ("given", np.full(12, -1), r'"given" in .* has labels outside 0 … 2'),
        ("given", np.zeros(12, np.int64), "do not match their fingerprint"),
        ("clean", np.full(12, 9), r'"clean" in .* has labels outside'),
        ("clean", np.ones(12, np.int64), '"flipped" in .* contradicts'),
        ("flipped", np.zeros(12, np.int64), '"flipped" in .* does not hold one boolean'),
        ("flipped", np.zeros(11, np.bool_), '"flipped" in .* does not hold one boolean'),
        ("flipped", np.zeros(12, np.bool_), '"flipped" in .* contradicts'),
        ("trusted", np.zeros(11, np.bool_), '"trusted" in .* does not hold one boolean'),
        ("transition", np.eye(4), r"the transition matrix has shape \(4, 4\)"),
        ("transition", np.ones((3, 3)), "row 0 of the transition matrix is not a distribution"),
        ("names", np.arange(3), '"names" in .* is not a list of strings'),
        ("names", np.array(["a", "a", "b"]), "ids or names in .* are not distinct"),
        ("ids", np.array(["x"] * 12), "ids or names in .* are not distinct"),
        ("ids", np.array("x"), '"ids" in .* is not a list of strings'),
        ("fingerprint", np.array(7), '"fingerprint" in .* is not a string'),
        ("fingerprint", np.array("ab"), "do not match their fingerprint"),
        ("generator", np.array(["ab"]), '"generator" in .* is not a string'),
    ],
)
def test_contradictions_are_refused(
    tmp_path: Path, name: str, value: object, sentence: str
) -> None:
    path = tmp_path / "labels.npz"
    arrays = {**arrays_of(example()), name: value}
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=sentence):
        Labels.load(path)


def test_python_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    arrays = {**arrays_of(example()), "ids": np.array([{"a": 1}], dtype=object)}
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(InputError, match="holds Python objects, which can run code"):
        Labels.load(path)


@pytest.fixture(scope="module")
def whole() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays_of(example()))
    return file.getvalue()


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_read_as_they_were(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        what = data.draw(st.sampled_from(["change", "cut", "insert"]))
        if what == "change":
            content[at] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del content[at : at + data.draw(st.integers(1, 200))]
        else:
            content[at:at] = data.draw(st.binary(max_size=8))
        if not content:
            break
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(content)
    try:
        labels = Labels.load(path)
    except InputError:
        return
    # What no checksum covers (dates, the order of members) may differ.
    assert_same(labels, example())


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY", b"not an archive" * 50])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is not an \.npz file or is damaged"):
        Labels.load(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.npz is not an \.npz file .*No such file"):
        Labels.load(tmp_path / "none.npz")
    with pytest.raises(InputError, match=r"is a folder, and only regular files are read"):
        Labels.load(tmp_path)
    with pytest.raises(InputError, match=r"cannot write .*: No such file"):
        example().save(tmp_path / "no folder" / "labels.npz")


def test_a_broken_off_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "labels.npz"
    path.write_bytes(b"old")

    def broken_off() -> None:
        with whole_file(path) as file:
            file.write(b"half of the new")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        broken_off()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["labels.npz"]
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_only_what_lasts_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr("proselflc.files.regular.os.fsync", waited.append)
    with fleeting(), whole_file(tmp_path / "fleeting") as file:
        file.write(b"gone before long")
    assert waited == []
    assert (tmp_path / "fleeting").read_bytes() == b"gone before long"
    with whole_file(tmp_path / "lasting") as file:
        file.write(b"here to stay")
    assert len(waited) == 2  # the file and its folder


IDS = ("-a", "@b", "=c", "d")
NAMES = ("=1", "-1")


def data(folder: Path) -> str:
    """Four rows whose ids and classes a spreadsheet would execute."""
    path = folder / "d.csv"
    path.write_text("id,x,label\n-a,1,=1\n@b,2,-1\n=c,3,=1\nd,4,-1\n")
    return str(path)


def given_labels(folder: Path, labels: Path, **columns: str) -> list[str]:
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
    assert given_labels(tmp_path, path) == ["-1", "=1", "=1", "=1"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ids": None}, 'holds no "ids": it is not a label file of proselflc'),
        ({"given": None}, 'holds no "given": it is not a label file of proselflc'),
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
        given_labels(tmp_path, saved(tmp_path / "labels.npz", **change))


def test_what_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"nothing")
    assert not holds_corrected_labels(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", other=np.zeros(3))
    assert not holds_corrected_labels(tmp_path / "y.npz")


def test_apostrophes_of_a_spreadsheet_are_undone(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("id,label,given_label\nd,'=1,-1\n'=c,-1,'=1\n'@b,'=1,-1\n'-a,'=1,'=1\n")
    assert given_labels(tmp_path, path) == ["=1", "=1", "-1", "=1"]
    path.write_text("id,label\nd,=1\n=c,-1\n@b,=1\n-a,=1\n")  # from elsewhere
    assert given_labels(tmp_path, path) == ["=1", "=1", "-1", "=1"]


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
