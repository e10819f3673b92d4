"""What `--data`, `--labels` and `--features` take, and what each of them opens."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from proselflc.data import noise
from proselflc.data.dataset import Dataset, Features, ImageFiles, Images, Part, Texts
from proselflc.data.labels import from_dataset
from proselflc.data.opening import DATASETS, Request, open_data, read_transition
from proselflc.data.sources import cifar, cifar_n, clothing1m, idx, imagenet
from proselflc.errors import InputError

SHARED = Path(__file__).parents[2] / "../shared/data"
CIFAR100 = SHARED / "cifar-100-python.tar.xz"

CSV = "id,height,width,label\nr1,1,2,cat\nr2,3,4,dog\nr3,5,6,cat\nr4,7,8,dog\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "animals.csv"
    path.write_text(CSV)
    return path


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

    for source in (cifar, cifar_n, idx, imagenet, clothing1m):
        monkeypatch.setattr(source, "load", record(source.__name__.rpartition(".")[2]))
    monkeypatch.setattr(cifar, "find", lambda name, root, fetch: root / name)
    monkeypatch.setattr(idx, "find", lambda name, root, fetch: root / name)
    cache = tmp_path / "cache"
    open_data(Request(name, data_root=tmp_path, cache=cache, on_bad_image="skip"))
    expected: dict[str, tuple[Any, ...]] = {
        "mnist": ("idx", tmp_path / "mnist", "mnist", {}),
        "fashion-mnist": ("idx", tmp_path / "fashion-mnist", "fashion-mnist", {}),
        "cifar10": ("cifar", tmp_path / "cifar10", "cifar10", {"cache": cache}),
        "cifar100": ("cifar", tmp_path / "cifar100", "cifar100", {"cache": cache}),
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
    with pytest.raises(InputError, match=r"imagenet cannot be downloaded for you.*DIR/imagenet"):
        open_data(Request("imagenet"))


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


@pytest.mark.parametrize("column", ["label_column", "text_column", "path_column", "id_column"])
def test_columns_of_what_is_no_table_are_refused(column: str) -> None:
    option = "--" + column.replace("_", "-")
    with pytest.raises(InputError, match=f'{option} "x" names a column, but digits is no table'):
        open_data(Request("digits", **{column: "x"}))  # type: ignore[arg-type]


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
    monkeypatch.setattr(idx, "load", lambda path, name: tiny(f"{name} {path}"))
    monkeypatch.setattr(clothing1m, "load", lambda path, on_bad_image: tiny(f"clothing1m {path}"))
    monkeypatch.setattr(imagenet, "load", lambda path, on_bad_image: tiny(f"imagenet {path}"))
    assert open_data(Request(str(tmp_path))).name == f"{source} {tmp_path}"


def test_what_is_not_there_is_said_so_with_the_name_probably_meant(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'there is no .* cifar-100.*did you mean "cifar100"'):
        open_data(Request("cifar-100"))
    with pytest.raises(InputError, match="there is no file or folder"):
        open_data(Request(str(tmp_path / "none.csv")))
    other = tmp_path / "notes.docx"
    other.touch()
    with pytest.raises(InputError, match=r"notes\.docx is none of what --data takes"):
        open_data(Request(str(other)))


def test_features_in_place_of_inputs(table: Path, tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "emb.npy", values)
    dataset = open_data(Request(str(table), features=tmp_path / "emb.npy"))
    assert isinstance(dataset.train.inputs, Features)
    np.testing.assert_array_equal(dataset.train.inputs.values, values)
    assert dataset.train.labels.tolist() == [0, 1, 0, 1]


def relabelled(table: Path, content: str, **options: str) -> Dataset:
    path = table.parent / "other.csv"
    path.write_text(content)
    return open_data(Request(str(table), labels=path, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("id,label\nr4,cat\nr3,dog\nr1,dog\nr2,cat\n", [1, 0, 1, 0]),  # by id
        ("label\ndog\ndog\ncat\ncat\n", [1, 1, 0, 0]),  # no ids: row for row
        ("id,label\n1,dog\n2,dog\n3,cat\n4,cat\n", [1, 1, 0, 0]),  # other ids: row for row
        ("id,label\nr4,1\nr3,0\nr2,0\nr1,1\n", [1, 0, 0, 1]),  # class ids
        ("id,clean,label\nr1,cat,dog\nr2,dog,dog\nr3,cat,cat\nr4,dog,dog\n", [1, 1, 0, 1]),
    ],
)
def test_labels_from_a_table(table: Path, content: str, labels: list[int]) -> None:
    dataset = relabelled(table, content)
    assert dataset.train.labels.tolist() == labels
    assert dataset.train.ids == ("r1", "r2", "r3", "r4")
    assert dataset.clean is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("label\ndog\ncat\n", r"other\.csv has 2 labels, but .* has 4 training examples"),
        ("label\n" + "dog\n" * 5, r"other\.csv has 5 labels, but .* has 4 training examples"),
        (
            "id,label\nr1,cat\nr2,cat\nr3,cat\nr9,cat\n",
            r'knows 3 of the 4 ids of .*, but not "r4"',
        ),
        ("label\ndog\ncat\ndgo\ncat\n", 'unknown class "dgo"; did you mean "dog"'),
        ("label\n0\n1\n2\n0\n", 'unknown class "0"'),
        ("lable\n0\n1\n1\n0\n", 'no label column; did you mean "lable"'),
    ],
)
def test_wrong_label_tables_are_refused(table: Path, content: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        relabelled(table, content)


def test_label_files_that_are_no_files(table: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.npz does not exist: expected a file with labels"):
        open_data(Request(str(table), labels=tmp_path / "none.npz"))
    with pytest.raises(InputError, match="is not a file: expected a file with labels"):
        open_data(Request(str(table), labels=tmp_path))


def test_our_own_labels_keep_their_truth_and_go_by_id(table: Path, tmp_path: Path) -> None:
    dataset = open_data(Request(str(table)))
    result = noise.corrupt(
        dataset.train.labels, 2, kind="symmetric", rate="0.5", generator=noise.stream(1)
    )
    from_dataset(dataset, result).save(tmp_path / "labels.npz")
    again = open_data(Request(str(table), labels=tmp_path / "labels.npz"))
    np.testing.assert_array_equal(again.train.labels, result.given)
    assert again.clean is not None
    np.testing.assert_array_equal(again.clean, dataset.train.labels)
    # The same rows in another order.
    head, *rows = CSV.splitlines()
    turned = tmp_path / "turned.csv"
    turned.write_text("\n".join([head, *reversed(rows)]))
    other = open_data(Request(str(turned), labels=tmp_path / "labels.npz"))
    np.testing.assert_array_equal(other.train.labels, result.given[::-1])
    np.testing.assert_array_equal(other.clean, dataset.train.labels[::-1])


@pytest.mark.skipif(not CIFAR100.exists(), reason="the real CIFAR-100 is not in ../shared/data")
def test_the_real_cifar100_with_its_human_labels(tmp_path: Path) -> None:
    request = Request(
        str(CIFAR100), labels=SHARED / "cifar-n" / "CIFAR-100_human.npz", cache=tmp_path
    )
    dataset = open_data(request)
    assert dataset.clean is not None
    assert dataset.coarse is not None
    assert abs((dataset.train.labels != dataset.clean).mean() - 0.402) < 0.0005


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
