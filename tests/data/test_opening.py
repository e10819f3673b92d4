"""What `--data` and `--features` take, and what each of them opens."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proselflc.data.dataset import NO_LABEL, Dataset, Part
from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.data.opening import DATASETS, open_data, open_inputs
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.data.sources import cifar, cifar_n, clothing1m, imagenet, small_images
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.wording import on_command_line


def tiny(name: str) -> Dataset:
    part = Part(Features(np.zeros((2, 1), np.float32)), np.array([0, 1]), ("0", "1"))
    return Dataset(name, part, ("a", "b"))


def test_digits_are_the_default() -> None:
    dataset = open_data(Request())
    assert dataset.name == "digits"
    assert len(dataset.train) == DATASETS["digits"].train == 1297
    assert dataset.test is not None
    assert len(dataset.test) == DATASETS["digits"].test == 500
    assert dataset.num_classes == DATASETS["digits"].classes == 10


def test_a_run_in_the_place_of_data_is_named(tmp_path: Path) -> None:
    def refused(written: str, *, is_predicted: bool = False, **options: Any) -> str:
        (tmp_path / "config.toml").write_text(f'fingerprint = "f"\nversions = {{}}\n{written}')
        request = Request(str(tmp_path), **options)
        with on_command_line(), pytest.raises(InputError) as error:
            open_inputs(request, ("a",)) if is_predicted else open_data(request)
        assert error.value.field == "data"
        return str(error.value).removeprefix(f"{tmp_path} is a run, not data: ")

    known, unknown = 'data = "my data.csv"', f'data = "{FROM_PYTHON}"'
    corrected = "to train on its corrected labels, pass"
    assert refused(known) == f"{corrected} --data 'my data.csv' and --labels {tmp_path}"
    assert refused(unknown) == f"{corrected} its data with --data, and --labels {tmp_path}"
    for options in ({"labels": "x.csv"}, {"is_predicted": True}):
        assert (
            refused(known, **options) == "pass data, such as that of the run: --data 'my data.csv'"
        )
        assert refused(unknown, **options) == "pass data with --data"
    (tmp_path / "config.toml").write_text("[[[")
    with pytest.raises(InputError, match="there are no images"):  # it is not a run's
        open_data(Request(str(tmp_path)))


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_every_name_goes_to_its_source(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []

    def record(source: str) -> Any:
        def load(*args: Any, **options: Any) -> Dataset:
            calls.append((source, *args, options))
            return tiny(source)

        return load

    for source in (cifar, cifar_n, small_images, imagenet, clothing1m):
        monkeypatch.setattr(source, "load", record(source.__name__.rpartition(".")[2]))
    monkeypatch.setattr(cifar, "shrink", lambda whole, size: whole)
    monkeypatch.setattr(cifar, "find", lambda name, root, fetch: root / name)
    monkeypatch.setattr(small_images, "find", lambda name, root, fetch: root / name)
    cache = tmp_path / "cache"
    open_data(Request(name, data_root=tmp_path, cache=cache, on_bad_image="skip"))
    expected: dict[str, tuple[Any, ...]] = {
        "mnist": ("small_images", tmp_path / "mnist", "mnist", {}),
        "fashion-mnist": ("small_images", tmp_path / "fashion-mnist", "fashion-mnist", {}),
        "cifar10": ("cifar", tmp_path / "cifar10", "cifar10", {"cache": cache}),
        "cifar100": ("cifar", tmp_path / "cifar100", "cifar100", {"cache": cache}),
        "cifar100-small": ("cifar", tmp_path / "cifar100", "cifar100", {"cache": cache}),
        "cifar100-tiny": ("cifar", tmp_path / "cifar100", "cifar100", {"cache": cache}),
        "imagenet": ("imagenet", tmp_path, {"on_bad_image": "skip"}),
        "clothing1m": ("clothing1m", tmp_path, {"on_bad_image": "skip"}),
    }
    human = ("cifar_n", name, tmp_path, {"cache": cache, "fetch": True})
    assert calls == [expected.get(name, human)]


def test_sets_from_ones_own_folder_may_lie_below_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def load(path: Path, **options: object) -> Dataset:
        opened.append(path)
        return tiny("imagenet")

    monkeypatch.setattr(imagenet, "load", load)
    (tmp_path / "imagenet").mkdir()
    open_data(Request("imagenet", data_root=tmp_path))
    assert opened == [tmp_path / "imagenet"]
    with pytest.raises(InputError, match=r"imagenet cannot be downloaded for you") as caught:
        open_data(Request("imagenet"))
    assert caught.value.field == "data_root"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "cifar-10-python.tar.gz"),
        ("cifar100", "cifar-100-python.tar.gz"),
        ("cifar100n", "cifar-n/CIFAR-100_human.pt"),
        ("mnist", "mnist/train-images-idx3-ubyte.gz"),
    ],
)
def test_without_network_the_error_says_which_file_to_put_where(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*args: object, **options: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(InputError) as caught:
        open_data(Request(name, data_root=tmp_path))
    message = str(caught.value)
    assert "no network" in message
    assert f"at {tmp_path / file}" in message
    assert "https://" in message or "http://" in message
    # Without --data-root the place is a folder of ours in the user's cache.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    with pytest.raises(InputError) as caught:
        open_data(Request(name))
    assert str(tmp_path / "xdg" / "proselflc" / file) in str(caught.value)


def test_a_table(table: Path) -> None:
    dataset = open_data(Request(str(table)))
    assert dataset.names == ("cat", "dog")
    assert dataset.train.ids == ("r1", "r2", "r3", "r4")
    assert dataset.train.labels.tolist() == [0, 1, 0, 1]
    assert isinstance(dataset.train.inputs, Features)
    assert dataset.train.inputs.columns == ("height", "width")


def test_a_tables_columns_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "posts.tsv"
    path.write_text("key\tbody\tkind\nk1\thello\tham\nk2\tbuy\tspam\n")
    dataset = open_data(
        Request(str(path), label_column="kind", text_column="body", id_column="key")
    )
    assert dataset.train.inputs == Texts(("hello", "buy"))
    assert dataset.train.ids == ("k1", "k2")
    assert dataset.names == ("ham", "spam")
    with pytest.raises(InputError, match='unknown column "knd"; did you mean "kind"'):
        open_data(Request(str(path), label_column="knd", text_column="body"))


@pytest.mark.parametrize(
    "column", ["label_column", "text_column", "path_column", "id_column", "ignore_column"]
)
def test_columns_of_what_is_no_table_are_refused(column: str) -> None:
    with pytest.raises(InputError, match="x' names a column, but digits is not a table") as caught:
        open_data(Request("digits", **{column: "x"}))  # type: ignore[arg-type]
    assert caught.value.field == column


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((4, 5, 5, 3), np.uint8), y=np.array([0, 1, 1, 0]))
    dataset = open_data(Request(str(path)))
    assert isinstance(dataset.train.inputs, Images)
    assert dataset.train.labels.tolist() == [0, 1, 1, 0]


def photos(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(root / name)
    return root


def test_a_folder_of_images(tmp_path: Path) -> None:
    root = photos(tmp_path / "pets", ["cat/1.png", "cat/2.png", "dog/1.png"])
    dataset = open_data(Request(str(root)))
    assert isinstance(dataset.train.inputs, ImageFiles)
    assert dataset.train.ids == ("cat/1.png", "cat/2.png", "dog/1.png")
    (root / "dog" / "2.png").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"2\.png"):
        open_data(Request(str(root)))
    skipped = open_data(Request(str(root), on_bad_image="skip"))
    assert [one.id for one in skipped.skipped] == ["dog/2.png"]


@pytest.mark.parametrize(
    ("files", "source"),
    [
        (["batches.meta", "data_batch_1"], "cifar10"),
        (["meta", "train", "test"], "cifar100"),
        (["train-images-idx3-ubyte.gz"], "mnist"),
        (["noisy_label_kv.txt"], "clothing1m"),
        (["annotations/noisy_label_kv.txt"], "clothing1m"),
        (["train/n01440764/1.JPEG"], "imagenet"),
        (["ILSVRC/x"], "imagenet"),
    ],
)
def test_a_folder_in_a_published_layout(
    files: list[str], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(cifar, "find", lambda name, root, fetch: root)
    monkeypatch.setattr(cifar, "load", lambda path, name, cache: tiny(f"{name} {path}"))
    monkeypatch.setattr(small_images, "load", lambda path, name: tiny(f"{name} {path}"))
    monkeypatch.setattr(clothing1m, "load", lambda path, on_bad_image: tiny(f"clothing1m {path}"))
    monkeypatch.setattr(imagenet, "load", lambda path, on_bad_image: tiny(f"imagenet {path}"))
    assert open_data(Request(str(tmp_path))).name == f"{source} {tmp_path}"


def test_what_is_not_there_is_said_so_with_the_name_probably_meant(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'there is no .* cifar-100.*did you mean "cifar100"'):
        open_data(Request("cifar-100"))
    with pytest.raises(InputError, match="there is no file or folder"):
        open_data(Request(str(tmp_path / "none.csv")))
    (tmp_path / "patients.csv").touch()
    with pytest.raises(InputError, match=r'no file or folder .*did you mean ".*/patients\.csv"\?$'):
        open_data(Request(str(tmp_path / "patient.csv")))
    other = tmp_path / "notes.docx"
    other.touch()
    with pytest.raises(InputError, match=r"notes\.docx is not a table \(\.csv, .*\)"):
        open_data(Request(str(other)))
    photo = tmp_path / "photo.JPG"
    photo.touch()
    with pytest.raises(InputError, match=r"photo\.JPG is one image, where a folder"):
        open_data(Request(str(photo)))


def test_features_in_place_of_inputs(table: Path, tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "emb.npy", values)
    dataset = open_data(Request(str(table), features=tmp_path / "emb.npy"))
    assert isinstance(dataset.train.inputs, Features)
    np.testing.assert_array_equal(dataset.train.inputs.values, values)
    assert dataset.train.labels.tolist() == [0, 1, 0, 1]


def test_the_request_is_what_the_sources_need_and_can_be_read_without_numpy() -> None:
    script = (
        "import sys; from proselflc.data.opening import DATASETS, Request; "
        "print(sorted({'numpy', 'torch', 'PIL', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_paths_may_be_strings_from_python(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 2), np.float32), y=np.arange(4) % 2)
    np.save(tmp_path / "e.npy", np.ones((4, 3), np.float32))
    request = Request(data=tmp_path / "d.npz", features=str(tmp_path / "e.npy"))  # type: ignore[arg-type]
    assert request.features == tmp_path / "e.npy"
    inputs = open_data(request).train.inputs
    assert isinstance(inputs, Features)
    assert inputs.values.shape == (4, 3)


NAMES = ("bird", "cat", "dog")


def test_inputs_of_a_table_with_labels(table: Path) -> None:
    contents = open_inputs(Request(str(table)), NAMES)
    assert contents.name == str(table)
    assert contents.skipped == ()
    found = contents.joined()
    assert isinstance(found.inputs, Features)
    assert found.inputs.columns == ("height", "width")
    assert found.inputs.values.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert found.ids == ("r1", "r2", "r3", "r4")
    assert found.labels is not None
    assert found.labels.tolist() == [1, 2, 1, 2]
    with pytest.raises(InputError, match=r'"label" of .*, line 3: unknown class "dog"; known: cat'):
        open_inputs(Request(str(table)), ("cat",)).joined()


def test_inputs_may_be_of_one_class_only(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,label\n1,dog\n2,dog\n")
    found = open_inputs(Request(str(path)), NAMES).joined()
    assert found.labels is not None
    assert found.labels.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("id,h\nr1,1\nr2,3\n", {}, Features(np.array([[1], [3]], np.float32), ("h",))),
        ("id,text\nr1,good\nr2,bad\n", {}, Texts(("good", "bad"))),
        ("id,body\nr1,good\nr2,bad\n", {"text_column": "body"}, Texts(("good", "bad"))),
        ("id,h,label\nr1,1,\nr2,3,\n", {}, Features(np.array([[1], [3]], np.float32), ("h",))),
    ],
)
def test_inputs_of_a_table_without_labels(
    tmp_path: Path, content: str, options: dict[str, str], expected: Any
) -> None:
    path = tmp_path / "new.csv"
    path.write_text(content)
    found = open_inputs(Request(str(path), **options), NAMES).joined()  # type: ignore[arg-type]
    assert repr(found.inputs) == repr(expected)
    assert found.ids == ("r1", "r2")
    assert found.labels is None
    with pytest.raises(InputError, match=r"label"):
        open_data(Request(str(path), **options))  # type: ignore[arg-type]


def test_a_label_column_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("id,h\nr1,1\n")
    with pytest.raises(InputError, match='unknown column "species"'):
        open_inputs(Request(str(path), label_column="species"), NAMES).joined()


def test_image_paths_without_labels(tmp_path: Path) -> None:
    photos(tmp_path, ["p/1.png", "p/2.png"])
    (tmp_path / "p/3.png").write_bytes(b"no image")
    path = tmp_path / "list.tsv"
    path.write_text("photo\nsize\np/1.png\n".replace("size\n", "") + "p/3.png\np/2.png\n")
    with pytest.raises(InputError, match=r"p/3\.png"):
        open_inputs(Request(str(path), path_column="photo"), NAMES).joined()
    contents = open_inputs(Request(str(path), path_column="photo", on_bad_image="skip"), NAMES)
    assert [skip.id for skip in contents.skipped] == ["p/3.png"]
    found = contents.joined()
    assert found.inputs == ImageFiles((tmp_path / "p/1.png", tmp_path / "p/2.png"))
    assert found.ids == ("p/1.png", "p/2.png")
    assert found.labels is None


SPLIT_CSV = "id,h,label,split\na,1,cat,train\nb,2,,test\nc,3,dog,val\nd,4,,test\ne,5,cat,train\n"


@pytest.mark.parametrize(
    ("split", "ids", "labels"),
    [
        (None, "bd", None),
        ("test", "bd", None),
        ("train", "ae", [1, 1]),
        ("all", "aebdc", None),
    ],
)
def test_which_split_of_the_inputs(
    tmp_path: Path, split: Any, ids: str, labels: list[int] | None
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SPLIT_CSV)
    found = open_inputs(Request(str(path)), NAMES, split=split).joined()
    assert found.ids == tuple(ids)
    assert isinstance(found.inputs, Features)
    assert found.inputs.values[:, 0].tolist() == [ord(c) - ord("a") + 1 for c in ids]
    assert (None if found.labels is None else found.labels.tolist()) == labels


def test_a_label_may_be_missing_among_others(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("h,label\n1,cat\n2,\n")
    found = open_inputs(Request(str(path)), NAMES).joined()
    assert found.labels is not None
    assert found.labels.tolist() == [NAMES.index("cat"), NO_LABEL]


def test_inputs_of_named_data_are_their_test_part() -> None:
    digits = tuple(reversed("0123456789"))
    found = open_inputs(Request("digits"), digits).joined()
    dataset = open_data(Request("digits"))
    assert dataset.test is not None
    assert found.ids == dataset.test.ids
    assert found.labels is not None
    assert found.labels.tolist() == (9 - dataset.test.labels).tolist()
    assert len(open_inputs(Request("digits"), digits, split="all").joined()) == 1797
    with pytest.raises(InputError, match='digits: unknown class "0"'):
        open_inputs(Request("digits"), NAMES).joined()


def test_inputs_of_arrays(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "x.npz", x=x)
    np.save(tmp_path / "x.npy", x)
    for file in ("x.npz", "x.npy"):
        found = open_inputs(Request(str(tmp_path / file)), NAMES).joined()
        assert isinstance(found.inputs, Features)
        np.testing.assert_array_equal(found.inputs.values, x)
        assert found.ids == ("train/000000", "train/000001", "train/000002")
        assert found.labels is None


def test_inputs_of_folders(tmp_path: Path) -> None:
    flat = photos(tmp_path / "flat", ["2.png", "1.png"])
    found = open_inputs(Request(str(flat)), NAMES).joined()
    assert found.inputs == ImageFiles((flat / "1.png", flat / "2.png"))
    assert found.ids == ("1.png", "2.png")
    assert found.labels is None
    split = photos(tmp_path / "split", ["train/cat/1.png", "train/dog/1.png", "test/9.png"])
    assert open_inputs(Request(str(split)), NAMES).joined().ids == ("test/9.png",)
    found = open_inputs(Request(str(split)), NAMES, split="train").joined()
    assert found.labels is not None
    assert found.labels.tolist() == [1, 2]


def test_inputs_of_a_folder_in_a_published_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "batches.meta").write_bytes(b"")
    monkeypatch.setattr(cifar, "find", lambda name, root, fetch: root)
    monkeypatch.setattr(cifar, "load", lambda *_, **__: tiny("cifar10"))
    contents = open_inputs(Request(str(tmp_path)), ("b", "a"))
    assert contents.name == "cifar10"
    found = contents.joined()
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0]


def test_embeddings_stand_in_for_the_inputs(tmp_path: Path) -> None:
    table, emb = tmp_path / "a.csv", tmp_path / "emb.npy"
    table.write_text("id,note\nr1,what a day\nr2,never mind\n")
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.save(emb, values)
    found = open_inputs(Request(str(table), features=emb), NAMES).joined()
    assert isinstance(found.inputs, Features)
    np.testing.assert_array_equal(found.inputs.values, values)
    assert found.ids == ("r1", "r2")
    assert found.labels is None
    alone = open_inputs(Request("", features=emb), NAMES).joined()
    assert isinstance(alone.inputs, Features)
    np.testing.assert_array_equal(alone.inputs.values, values)
    assert alone.ids == ("train/000000", "train/000001")
    np.save(emb, values[:1])
    with pytest.raises(InputError, match="1 rows of features for 2 examples"):
        open_inputs(Request(str(table), features=emb), NAMES).joined()
    with pytest.raises(InputError, match=r"no\.npy does not exist: expected a file with emb"):
        open_inputs(Request("", features=tmp_path / "no.npy"), NAMES).joined()


def test_embeddings_of_all_splits_are_cut_to_the_one_asked_for(tmp_path: Path) -> None:
    table, emb = tmp_path / "a.csv", tmp_path / "emb.npz"
    table.write_text(SPLIT_CSV)
    np.savez(emb, x=np.array([[1.0], [5]]), x_test=np.array([[2.0], [4]]), x_validation=[[3.0]])
    found = open_inputs(Request(str(table), features=emb), NAMES).joined()
    assert isinstance(found.inputs, Features)
    assert found.inputs.values.tolist() == [[2], [4]]
    assert found.ids == ("b", "d")
    every = open_inputs(Request(str(table), features=emb), NAMES, split="all").joined()
    assert isinstance(every.inputs, Features)
    assert every.inputs.values[:, 0].tolist() == [1, 5, 2, 4, 3]


def test_a_table_of_labels_will_do_beside_embeddings(tmp_path: Path) -> None:
    table, emb = tmp_path / "a.csv", tmp_path / "emb.npy"
    table.write_text("id,note,label\nr1,what a day,cat\nr2,never mind,dog\n")
    np.save(emb, np.eye(2))
    dataset = open_data(Request(str(table), features=emb))
    assert isinstance(dataset.train.inputs, Features)
    assert dataset.train.inputs.values.tolist() == [[1, 0], [0, 1]]
    assert dataset.train.labels.tolist() == [0, 1]
    assert isinstance(open_data(Request(str(table))).train.inputs, MixedColumns)


def test_what_inputs_are_not(tmp_path: Path, table: Path) -> None:
    with pytest.raises(InputError, match="no difference to predictions") as caught:
        open_inputs(Request(str(table), labels=table), NAMES)
    assert caught.value.field == "labels"
    with pytest.raises(InputError, match="there is no file or folder"):
        open_inputs(Request(str(tmp_path / "none.csv")), NAMES).joined()
    with pytest.raises(InputError, match="names a column") as caught:
        open_inputs(Request("digits", text_column="t"), NAMES)
    assert caught.value.field == "text_column"
    with pytest.raises(InputError, match="has no test part, only train"):
        open_inputs(Request(str(table)), NAMES, split="test").joined()
    with pytest.raises(InputError, match="data= is empty"):
        open_inputs(Request(""), NAMES).joined()
    with pytest.raises(InputError, match="data= is empty"):
        open_data(Request("", features=table))
    empty = tmp_path / "empty.csv"
    empty.write_text("id,h\n")
    with pytest.raises(InputError, match="has column names but no rows"):
        open_inputs(Request(str(empty)), NAMES).joined()


def test_ignored_columns_are_named_once_or_several_times(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("h,city,name,label\n1,Bonn,x,a\n2,Kiel,y,b\n")
    for names in (("city", "name"), ["city", "name"]):
        data = open_data(Request(str(path), ignore_column=names))  # type: ignore[arg-type]
        assert isinstance(data.train.inputs, Features)
        assert data.train.inputs.columns == ("h",)
    found = open_inputs(Request(str(path), ignore_column=("city", "name")), ("a", "b")).joined()
    assert isinstance(found.inputs, Features)
    assert found.inputs.columns == ("h",)


@pytest.mark.parametrize("ending", [".xlsb", ".XLS", ".ods"])
@pytest.mark.parametrize("column", [None, "kind"])
def test_a_spreadsheet_is_to_be_saved_as_csv(
    ending: str, column: str | None, tmp_path: Path
) -> None:
    path = tmp_path / f"patients{ending}"
    path.write_bytes(b"PK")
    request = Request(str(path), label_column=column)
    words = rf"patients{ending} is a spreadsheet.*: save it as .xlsx, or the sheet as CSV UTF-8"
    with pytest.raises(InputError, match=words):
        open_data(request)
    with pytest.raises(InputError, match=words):
        open_inputs(request, NAMES).joined()
    with pytest.raises(InputError, match=words):
        open_data(Request("digits", labels=path))
