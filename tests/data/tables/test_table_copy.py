"""A corrected copy of a table: one column changed, one added, and not a byte more."""

import csv
import gzip
import io
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proselflc.data.tables.table_copy import CopyResult, TableCorrection
from proselflc.data.tables.table_file import open_table
from proselflc.errors import InputError


def copy(
    path: Path,
    new: dict[int, str],
    *,
    names: tuple[str, ...] = ("cat", "dog"),
    column: str = "label",
    out: Path | None = None,
) -> tuple[CopyResult, Path]:
    """The copy of a table in which some rows have other labels."""
    target = out or path.with_name("copy" + path.suffix)
    place = {name: k for k, name in enumerate(names)}
    rows, labels = np.array(list(new), np.int64), np.array([place[n] for n in new.values()])
    table = open_table(path)
    return TableCorrection(table, column, rows, labels, names, place).write(target), target


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_only_the_label_changes(tmp_path: Path) -> None:
    path = text(
        tmp_path / "d.csv",
        'id,"text", label ,x\n1,"a, ""b""",cat,-1.50\n2,=1+1,"dog", 2\n\n3,"two\nlines", dog ,\n',
    )
    done, out = copy(path, {0: "dog", 1: "cat", 2: "cat"})
    assert done == CopyResult(3, "label_before")
    assert out.read_text() == (
        'id,"text", label ,x,label_before\n'
        '1,"a, ""b""",dog,-1.50,cat\n'
        '2,=1+1,"cat", 2,"dog"\n'
        "\n"
        '3,"two\nlines", cat ,, dog \n'
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_mark_stay(tmp_path: Path, end: str, bom: bytes) -> None:
    path = text(tmp_path / "d.csv", bom + f"label;x{end}cat;1{end}dog;2".encode())
    _, out = copy(path, {0: "dog"})
    expected = f"label;x;label_before{end}dog;1;cat{end}dog;2;dog".encode()
    assert out.read_bytes() == bom + expected


def test_a_label_that_stays_is_not_written_anew(tmp_path: Path) -> None:
    path = text(tmp_path / "d.csv", 'label,x\n" cat ",1\n cat,2\n')
    done, out = copy(path, {0: "cat", 1: "cat"})
    assert done.changed == 0
    assert out.read_text() == 'label,x,label_before\n" cat ",1," cat "\n cat,2, cat\n'


def test_quotation_marks_that_are_only_characters(tmp_path: Path) -> None:
    path = text(tmp_path / "d.tsv", 'text\tlabel\n12" long\tcat\n"so\tdog\n')
    _, out = copy(path, {0: "dog"})
    assert out.read_text() == 'text\tlabel\tlabel_before\n12" long\tdog\tcat\n"so\tdog\tdog\n'


def test_a_class_that_such_a_file_cannot_hold(tmp_path: Path) -> None:
    path = text(tmp_path / "d.tsv", 'text\tlabel\n"a\tcat\n')
    with pytest.raises(InputError, match=r"has no quotation marks, so .* cannot be a cell of it"):
        copy(path, {0: "a\tb"}, names=("cat", "a\tb"))
    assert not (tmp_path / "copy.tsv").exists()


def test_a_class_is_spelled_as_it_was(tmp_path: Path) -> None:
    """A class "=1" stays "=1" where it is a label; what is new to the file is neutralised."""
    path = text(tmp_path / "d.csv", "label,x\n=1,1\n-1,2\n-1,3\n")
    _, out = copy(path, {0: "-1", 1: "=1", 2: "=2"}, names=("=1", "-1", "=2"))
    assert out.read_text() == "label,x,label_before\n-1,1,'=1\n=1,2,-1\n'=2,3,-1\n"


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    path = text(tmp_path / "d.csv", "label,Label_Before,label_before_2\ncat,x,y\n")
    done, out = copy(path, {0: "dog"})
    assert done.before == "label_before_3"
    assert out.read_text() == ("label,Label_Before,label_before_2,label_before_3\ndog,x,y,cat\n")


def test_columns_without_a_name_stay(tmp_path: Path) -> None:
    path = text(tmp_path / "d.csv", ",,label,\n0,,cat,\n1,,dog,\n")
    _, out = copy(path, {0: "dog"})
    assert out.read_text() == ",,label,,label_before\n0,,dog,,cat\n1,,dog,,dog\n"


CELLS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from('",\n\r =-'), max_size=6
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(CELLS, st.sampled_from(["a", 'b"', "c,d", "=e"]), CELLS), min_size=1),
    st.integers(0, 2**32),
    # With a plain line feed csv would write a carriage return without quotation marks.
    st.sampled_from([(csv.QUOTE_MINIMAL, "\r\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_ALL, "\n")]),
)
def test_every_other_cell_is_as_it_was(
    tmp_path: Path, rows: list[tuple[str, str, str]], seed: int, form: tuple[int, str]
) -> None:
    content = io.StringIO(newline="")
    writer = csv.writer(content, quoting=form[0], lineterminator=form[1])  # type: ignore[arg-type]
    writer.writerows([("one", "label", "two"), *rows])
    path = text(tmp_path / "d.csv", content.getvalue())
    names = ("a", 'b"', "c,d", "=e")
    new = [names[k] for k in np.random.default_rng(seed).integers(4, size=len(rows))]
    _, out = copy(path, dict(enumerate(new)), names=names)
    with out.open(newline="", encoding="utf-8") as file:
        read = list(csv.reader(file, strict=True))
    assert read[0] == ["one", "label", "two", "label_before"]
    present = {row[1] for row in rows}
    for old, label, made in zip(rows, new, read[1:], strict=True):
        spelled = label if label in present or label != "=e" else "'=e"
        before = "'=e" if old[1] == "=e" else old[1]
        assert made == [old[0], spelled, old[2], before]


@pytest.mark.parametrize(
    ("column", "names", "new"),
    [
        (pa.array(["cat", "dog", "cat"]), ("cat", "dog"), {0: "dog"}),
        (pa.array([3, 7, 3], pa.int16()), ("3", "7"), {0: "7"}),
        (pa.array([3.0, 7.0, 3.0]), ("3", "7"), {2: "7"}),
        (pa.array([True, False, True]), ("False", "True"), {1: "True"}),
        (pa.array(["cat", "dog", "cat"], pa.large_string()), ("cat", "dog"), {1: "cat"}),
        (pa.array(["cat", "dog", "cat"]).dictionary_encode(), ("cat", "dog"), {0: "dog"}),
        (pa.array(["=1", "-1", "=1"]), ("=1", "-1"), {1: "=1"}),
    ],
    ids=["string", "int16", "double", "bool", "large_string", "dictionary", "formula"],
)
def test_parquet_keeps_its_types(
    tmp_path: Path, column: pa.Array, names: tuple[str, ...], new: dict[int, str]
) -> None:
    table = pa.table({"x": pa.array([1, 2, 3], pa.int8()), "label": column, "z": [[1], [], [2, 3]]})
    path = tmp_path / "d.parquet"
    pq.write_table(table, path, row_group_size=2, compression="gzip")
    done, out = copy(path, new, names=names)
    made = pq.read_table(out)
    assert done.changed == 1
    assert made.column_names == ["x", "label", "z", "label_before"]
    assert made.schema.field("label").type == column.type
    assert made.drop_columns(["label", "label_before"]).equals(table.drop_columns(["label"]))
    assert made["label_before"].to_pylist() == column.to_pylist()
    plain = dict(zip(open_table(path).texts("label"), column.to_pylist(), strict=True))
    expected = column.to_pylist()
    for row, name in new.items():
        expected[row] = plain[name]
    assert made["label"].to_pylist() == expected
    about = pq.ParquetFile(out).metadata
    assert about.num_row_groups == 2
    assert about.row_group(0).column(0).compression == "GZIP"


def test_a_class_that_no_row_of_a_parquet_file_has(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    for column, expected in (
        (pa.array([3, 3], pa.int32()), [7, 3]),
        (pa.array(["3", "3"]).dictionary_encode(), ["7", "3"]),
    ):
        pq.write_table(pa.table({"label": column}), path)
        _, out = copy(path, {0: "7"}, names=("3", "7"))
        made = pq.read_table(out)
        assert made["label"].to_pylist() == expected
        assert made["label"].type == column.type
    pq.write_table(pa.table({"label": pa.array([3, 3])}), path)
    with pytest.raises(InputError, match='holds int64 values, so the class "dog" cannot be'):
        copy(path, {0: "dog"}, names=("3", "dog"))


def test_pandas_reads_its_own_file_back(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"label": pd.Categorical(["cat", "dog", "cat"]), "when": pd.date_range("2020", periods=3)},
        index=pd.Index(["a", "b", "c"], name="key"),
    )
    frame.to_parquet(tmp_path / "d.parquet")
    _, out = copy(tmp_path / "d.parquet", {0: "dog"})
    made = pd.read_parquet(out)
    assert made["label"].tolist() == ["dog", "dog", "cat"]
    assert made["label_before"].tolist() == ["cat", "dog", "cat"]
    assert made.index.equals(frame.index)
    assert made["when"].equals(frame["when"])


def test_a_file_that_is_being_changed(tmp_path: Path) -> None:
    path = text(tmp_path / "d.csv", "label,x\ncat,1\ndog,2\n")
    table = open_table(path)
    one = TableCorrection(table, "label", np.array([0]), np.array([1]), ("cat", "dog"), {"cat": 0})
    for content in ("label,x\ncat,1\n", "label,x\ncow,1\ndog,2\n", "label,x\ncat,1\ndog,2\ncat,3"):
        text(path, content)
        with pytest.raises(InputError, match="changed while it was read"):
            one.write(tmp_path / "copy.csv")
        assert not (tmp_path / "copy.csv").exists()


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson.gz"])
def test_json_lines_keep_the_spelling_of_every_value(suffix: str, tmp_path: Path) -> None:
    lines = (
        '{"v": 1.50, "label": "cat", "big": 123456789012345678901}\n'
        '\n{" label ":"dog","v":null}\n{"v":"=1+1","label":"c\\u0061t"}\n'
    )
    path = text(tmp_path / "a.jsonl", lines)
    done, out = copy(
        path, {0: "dog", 1: "cow"}, names=("cat", "dog", "cow"), out=tmp_path / f"b{suffix}"
    )
    assert done.changed == 2
    content = gzip.decompress(out.read_bytes()) if suffix.endswith(".gz") else out.read_bytes()
    assert content.decode().splitlines() == [
        '{"v":1.50,"label":"dog","big":123456789012345678901,"label_before":"cat"}',
        '{" label ":"cow","v":null,"label_before":"dog"}',
        '{"v":"=1+1","label":"c\\u0061t","label_before":"c\\u0061t"}',
    ]
    assert open_table(out).texts("label") == ["dog", "cow", "cat"]


@pytest.mark.parametrize("suffix", [".feather", ".arrow"])
def test_feather_keeps_its_types(suffix: str, tmp_path: Path) -> None:
    columns = {
        "when": pa.array([1, 2, None], pa.timestamp("ms")),
        "label": pa.array(["cat", "dog", "cat"]).dictionary_encode(),
        "v": pa.array([1.5, None, 3.0], pa.float32()),
    }
    table = pa.table(columns).replace_schema_metadata({"pandas": "{}"})
    path = tmp_path / f"a{suffix}"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write(table)
    _, out = copy(path, {0: "dog"})
    found = open_table(out).table  # type: ignore[union-attr]
    assert found.schema.metadata == {b"pandas": b"{}"}
    assert found.select(["when", "v"]).equals(table.select(["when", "v"]))
    assert found["label"].to_pylist() == ["dog", "dog", "cat"]
    assert found["label"].type == found["label_before"].type == table["label"].type
    assert found["label_before"].to_pylist() == ["cat", "dog", "cat"]


def test_a_sheet_keeps_its_values_and_texts_are_no_formulas(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    page = book.active
    page.title = "data"
    book.create_sheet("other").append(["label"])
    moment = datetime(2026, 1, 2, 3, 4, 5)
    rows = [[], ["v", "label", 2026], [1.5, "cat", moment], [], [True, "dog"], ["t", "cat", -3]]
    for row in rows:
        page.append(row)
    page["A6"] = "=1+1"
    page["A6"].data_type = "s"
    path, out = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    book.save(path)
    table = open_table(path, "data")
    names = ("cat", "dog", "=cmd()")
    new = TableCorrection(
        table, "label", np.array([0, 1]), np.array([1, 2]), names, {"cat": 0, "dog": 1}
    )
    assert new.write(out) == CopyResult(2, "label_before")
    made = openpyxl.load_workbook(out)
    assert made.sheetnames == ["data"]
    assert [list(row) for row in made["data"].iter_rows(values_only=True)] == [
        ["v", "label", 2026, "label_before"],
        [1.5, "dog", moment, "cat"],
        [True, "=cmd()", None, "dog"],
        ["=1+1", "cat", -3, "cat"],
    ]
    assert not [cell for row in made["data"].iter_rows() for cell in row if cell.data_type == "f"]
    assert open_table(out).texts("v") == ["1.5", "true", "=1+1"]


def test_a_packed_copy_of_json_lines(tmp_path: Path) -> None:
    path = text(tmp_path / "a.jsonl", '{"v": 1, "label": "cat"}\n{"v": 2, "label": "dog"}\n')
    _, out = copy(path, {0: "dog"}, out=tmp_path / "copy.csv.gz")
    lines = gzip.decompress(out.read_bytes()).decode().split()
    assert lines == ["v,label,label_before", "1,dog,cat", "2,dog,dog"]
