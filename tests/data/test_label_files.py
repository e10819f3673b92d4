"""What `--labels` takes: tables, label files and runs, by row or by id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from proselflc.data import noise
from proselflc.data.dataset import Dataset
from proselflc.data.labels import from_dataset
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.errors import InputError

SHARED = Path(__file__).parents[2] / "../shared/data"
CIFAR100 = SHARED / "cifar-100-python.tar.xz"


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
            r'has 3 of the 4 ids of .*, but not "r4"',
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
    with pytest.raises(InputError, match=r"is not a finished run: it holds no examples\.parquet"):
        open_data(Request(str(table), labels=tmp_path))


def finished(folder: Path, **columns: list[str]) -> Path:
    """A run, as far as its labels are concerned."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    rows = {"index": list(range(len(columns["id"]))), **columns}
    pq.write_table(pa.table(rows), folder / "examples.parquet")
    return folder


def test_labels_of_a_run_go_by_id(table: Path, tmp_path: Path) -> None:
    run = finished(
        tmp_path / "run",
        id=["r4", "r2", "r3", "r1"],
        given_label=["dog", "dog", "cat", "cat"],
        suggested_label=["cat", "dog", "dog", "cat"],
    )
    dataset = open_data(Request(str(table), labels=run))
    assert dataset.train.labels.tolist() == [0, 1, 1, 0]
    assert dataset.train.ids == ("r1", "r2", "r3", "r4")
    assert dataset.clean is None


def test_the_truth_of_a_run_is_used_where_the_data_knows_none(table: Path, tmp_path: Path) -> None:
    run = finished(
        tmp_path / "run",
        id=["r1", "r2", "r3", "r4"],
        suggested_label=["dog", "dog", "dog", "cat"],
        clean_label=["cat", "cat", "dog", "dog"],
    )
    dataset = open_data(Request(str(table), labels=run))
    assert dataset.train.labels.tolist() == [1, 1, 1, 0]
    assert dataset.clean is not None
    assert dataset.clean.tolist() == [0, 0, 1, 1]
    told = tmp_path / "told.csv"
    told.write_text("id,h,label,clean\nr1,1,cat,cat\nr2,3,dog,dog\nr3,5,cat,dog\nr4,7,dog,cat\n")
    dataset = open_data(Request(str(told), labels=run))
    assert dataset.train.labels.tolist() == [1, 1, 1, 0]
    assert dataset.clean is not None
    assert dataset.clean.tolist() == [0, 1, 1, 0]


def test_what_a_run_set_aside_keeps_its_labels(table: Path, tmp_path: Path) -> None:
    run = finished(
        tmp_path / "run", id=["r1", "r3"], suggested_label=["dog", "cat"], clean_label=["cat"] * 2
    )
    dataset = open_data(Request(str(table), labels=run))
    assert dataset.train.labels.tolist() == [1, 1, 0, 1]
    assert dataset.clean is not None
    assert dataset.clean.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"id": ["r1", "r9"], "suggested_label": ["cat", "cat"]},
            r'run is a run on other data: it has labels for "r9", which .*\.csv does not hold',
        ),
        (
            {"id": ["0", "1"], "suggested_label": ["cat", "cat"]},
            'other data: it has labels for "0"',
        ),
        ({"id": ["r1"], "suggested_label": ["cow"]}, 'unknown class "cow"'),
        ({"id": ["r1"], "given_label": ["cat"]}, 'unknown column "suggested_label"'),
        ({"id": ["r1", "r1"], "suggested_label": ["cat", "dog"]}, 'has the id "r1" twice'),
    ],
)
def test_runs_that_do_not_fit_are_refused(
    table: Path, tmp_path: Path, columns: dict[str, list[str]], sentence: str
) -> None:
    run = finished(tmp_path / "run", **columns)
    with pytest.raises(InputError, match=sentence):
        open_data(Request(str(table), labels=run))
    (run / "examples.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="cannot read the Parquet file"):
        open_data(Request(str(table), labels=run))


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
    head, *rows = table.read_text().splitlines()
    turned = tmp_path / "turned.csv"
    turned.write_text("\n".join([head, *reversed(rows)]))
    other = open_data(Request(str(turned), labels=tmp_path / "labels.npz"))
    np.testing.assert_array_equal(other.train.labels, result.given[::-1])
    np.testing.assert_array_equal(other.clean, dataset.train.labels[::-1])


def test_the_real_cifar100_with_its_human_labels(cifar100_cache: Path) -> None:
    request = Request(
        str(CIFAR100), labels=SHARED / "cifar-n" / "CIFAR-100_human.npz", cache=cifar100_cache
    )
    dataset = open_data(request)
    assert dataset.clean is not None
    assert dataset.coarse is not None
    assert abs((dataset.train.labels != dataset.clean).mean() - 0.402) < 0.0005
