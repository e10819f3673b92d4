"""CSV, TSV and Parquet: which columns become what, and which cells are refused by name."""

import codecs
import csv
import io
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from proselflc.data.dataset import Dataset, ModelNeeds
from proselflc.data.inputs import Features, ImageFiles, Texts
from proselflc.data.request import Request
from proselflc.data.tables import table, table_file
from proselflc.data.tables.parquet import open_parquet
from proselflc.errors import InputError

HAUSA = Path(__file__).parents[3] / "../shared/data/hausa-newsclass"


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def refused(path: Path, match: str, *, field: str | None = None, **options: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        table.read(path, Request(**options)).dataset()
    assert "\n" not in str(caught.value)
    assert field is None or caught.value.field == field


def texts(data: Dataset) -> tuple[str, ...]:
    assert isinstance(data.train.inputs, Texts)
    return data.train.inputs.texts


def features(data: Dataset) -> Features:
    assert isinstance(data.train.inputs, Features)
    return data.train.inputs


def test_texts_labels_and_row_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", 'text,label\nhello, spam \n"a ""b"", c\nd",ham\nx,spam\n')
    data = table.read(path).dataset()
    assert texts(data) == ("hello", 'a "b", c\nd', "x")
    assert data.names == ("ham", "spam")
    assert data.train.labels.tolist() == [1, 0, 1]
    assert data.train.ids == ("0", "1", "2")
    assert data.name == str(path)
    assert (data.test, data.validation, data.clean, data.skipped) == (None, None, None, ())


@pytest.mark.parametrize("before", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_dialects(tmp_path: Path, before: bytes, newline: str, delimiter: str) -> None:
    rows = [["Label", "Sentence"], ["a", "één; zwei, drei"], ["b", "x\ty"], [], ["a", '"']]
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator=newline).writerows(rows)
    path = written(tmp_path / "a.CSV", before + stream.getvalue().encode())
    data = table.read(path).dataset()
    assert texts(data) == ("één; zwei, drei", "x\ty", '"')
    assert data.train.labels.tolist() == [0, 1, 0]


def test_tsv_quoted_as_spreadsheets_do(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", 'text\tlabel\n"say ""hi"""\ta\n"two\nlines"\tb\n')
    assert texts(table.read(path).dataset()) == ('say "hi"', "two\nlines")


@pytest.mark.parametrize("second", ['7" disc\tb', 'ends"\tb', '"\tb'])
def test_tsv_with_bare_quotation_marks(tmp_path: Path, second: str) -> None:
    path = written(tmp_path / "a.tsv", f'text\tlabel\n"open\ta\n{second}\nx\ta\n')
    data = table.read(path).dataset()
    assert texts(data) == ('"open', second.split("\t")[0], "x")
    assert data.train.labels.tolist() == [0, 1, 0]


def test_pandas_index_and_id_columns(tmp_path: Path) -> None:
    indexed = written(tmp_path / "a.csv", ",text,label\n7,x,a\n5,y,b\n")
    assert table.read(indexed).dataset().train.ids == ("7", "5")
    both = written(tmp_path / "b.csv", "index,id,text,label\n0,p,x,a\n1,q,y,b\n")
    assert table.read(both).dataset().train.ids == ("p", "q")
    assert table.read(both, Request(id_column="index")).dataset().train.ids == ("0", "1")
    assert table.read(both, Request(id_column="text")).dataset().train.ids == ("x", "y")
    twice = written(tmp_path / "c.csv", "id,text,label\np,x,a\np,y,b\n")
    refused(twice, 'the id "p" more than once', id_column="id")
    hole = written(tmp_path / "d.csv", "id,text,label\np,x,a\n,y,b\n")
    refused(hole, r'line 3 of .*d\.csv has no id in the column "id"', id_column="id")


def test_repeated_ids_that_nobody_asked_for_are_not_ids(tmp_path: Path) -> None:
    rows = "".join(f"{100 + k // 2},{k % 7}.5,{'ab'[k % 2]}\n" for k in range(40))
    path = written(tmp_path / "a.csv", "ID,v,class\n" + rows)
    data = table.read(path).dataset()
    assert data.train.ids == tuple(map(str, range(40)))
    assert features(data).columns == ("v",)
    assert data.notes == (
        'the column "ID" is named like ids, but holds 20 different values in 40 rows, so it is '
        "ignored and rows are numbered from 0; if it describes the examples, learn from it with "
        "categorical='ID'",
    )
    asked = table.read(path, Request(categorical=("id",))).dataset()
    assert asked.train.inputs.columns == ("ID", "v")
    assert asked.notes == ()
    found = table.find_label_cells(path, Request())
    assert found.ids == data.train.ids  # as export and review match them

    hole = written(tmp_path / "b.csv", "id,index,text,label\np,0,x,a\n,1,y,b\n")
    data = table.read(hole).dataset()
    assert data.train.ids == ("0", "1")
    assert "1 value in 2 rows, 1 empty, so it is ignored" in data.notes[0]
    assert 'the ids are those of "index"' in data.notes[0]

    parts = written(tmp_path / "c.csv", "id,v,label,split\n1,1,a,train\n2,2,b,train\n1,3,a,test\n")
    data = table.read(parts).dataset()
    assert data.train.ids == ("1", "2")
    assert data.notes == ()


def test_cells_with_line_breaks_stay_as_they_are(tmp_path: Path) -> None:
    content = '"the\ntext",label,"my\r\nid"\n"x\ny","a\nb","p  q\nr"\nz,c,s\n'
    path = written(tmp_path / "a.csv", content)
    data = table.read(path, Request(text_column="the text", id_column="my id")).dataset()
    assert texts(data) == ("x\ny", "z")
    assert data.names == ("a\nb", "c")
    assert data.train.ids == ("p  q\nr", "s")
    broken = written(tmp_path / "b.csv", 'path,label\n"x\ny.png",a\nz.png,b\n')
    refused(broken, r'line 2 of .* has a line break in its path, "x y\.png"')


def test_empty_texts_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,label\nx,a\n ,b\n,b\n")
    refused(path, r"line 3 \(and 1 more row\) .* has no text")


def test_integer_labels_keep_their_order(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "y,text\n10,a\n9,b\n-1,c\n9,d\n")
    data = table.read(path).dataset()
    assert data.names == ("-1", "9", "10")
    assert data.train.labels.tolist() == [2, 1, 0, 1]


def test_names_with_numbers_are_sorted_naturally(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "class,text\ngrade 10,a\ngrade 9,b\nGrade 1,c\n")
    assert table.read(path).dataset().names == ("Grade 1", "grade 9", "grade 10")


def test_labels_of_very_many_digits(tmp_path: Path) -> None:
    long = "9" * 5000
    path = written(tmp_path / "a.csv", f"class,text\n{long},a\n8,b\n1{long},c\n")
    assert table.read(path).dataset().names == ("8", long, "1" + long)


@pytest.mark.parametrize("cell", ["", "NA", "N/A", "NaN", "null", "NULL", "None", "<NA>", "?"])
def test_rows_without_a_label_are_kept(tmp_path: Path, cell: str) -> None:
    for labels in (("a", "b"), ("1", "2")):
        path = written(tmp_path / "a.csv", f"text,label\nx,{labels[0]}\ny,{cell}\nz,{labels[1]}\n")
        data = table.read(path).dataset()
        assert data.names == labels
        assert data.train.labels.tolist() == [0, -1, 1]
        assert data.train.ids == ("0", "1", "2")


def test_what_means_no_label_can_be_said(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,label\nw,a\nx,NA\ny,todo\nz,\n")
    data = table.read(path, Request(unlabelled="todo")).dataset()
    assert data.names == ("NA", "a")
    assert data.train.labels.tolist() == [1, 0, -1, -1]
    data = table.read(path, Request(unlabelled="")).dataset()
    assert data.names == ("NA", "a", "todo")
    assert data.train.labels.tolist() == [1, 0, 2, -1]


def test_missing_labels_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,label,split\nx,a,train\nz,b,train\ny,,test\n")
    refused(path, r'line 4 of .*a\.csv has no label in the column "label"')
    path = written(tmp_path / "a.csv", "text,label\nx,\ny,\n")
    refused(path, r"none of the 2 training examples of .*a\.csv has a label")
    refused(written(tmp_path / "a.csv", "text,label\nx,a\ny,\n"), 'one class only, "a"')
    numbers = written(tmp_path / "b.csv", "text,label\nx,1\ny,nan\nz,2\n")
    assert table.read(numbers).dataset().train.labels.tolist() == [0, -1, 1]
    bread = written(tmp_path / "c.csv", "text,label\nx,nan\ny,pita\n")
    assert table.read(bread).dataset().names == ("nan", "pita")


def test_one_class(tmp_path: Path) -> None:
    refused(written(tmp_path / "a.csv", "text,label\nx,a\ny,a\n"), 'one class only, "a"')


def test_label_column_is_found_or_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,lable,other\nx,a,1\ny,b,2\n")
    suggestion = r'no label column; did you mean "lable"\?.*text, lable, other'
    refused(path, suggestion, field="label_column")
    refused(path, r'unknown column "lbale"; did you mean "lable"\?', label_column="lbale")
    assert table.read(path, Request(label_column="LABLE")).dataset().names == ("a", "b")
    numbers = written(tmp_path / "c.csv", "age,diagnosis\n1,a\n2,b\n")
    refused(numbers, r"no label column\. .*age, diagnosis", field="label_column")
    two = written(tmp_path / "b.csv", "text,label,target\nx,a,1\ny,b,2\n")
    refused(two, "several columns for one purpose, label and target", field="label_column")
    assert table.read(two, Request(label_column="target")).dataset().names == ("1", "2")


def test_label_column_is_not_learned_from(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "title,text\na,x\nb,y\n")
    data = table.read(path, Request(label_column="title")).dataset()
    assert (data.names, texts(data)) == (("a", "b"), ("x", "y"))


def test_very_wide_tables_are_not_listed_whole(tmp_path: Path) -> None:
    names = ",".join(f"column{i}" for i in range(5000))
    path = written(tmp_path / "a.csv", f"{names}\n")
    with pytest.raises(InputError, match="no label column") as caught:
        table.read(path).dataset()
    assert len(str(caught.value)) < 1000


def test_clean_labels(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,label,clean_label\nx,a,b\ny,b,b\nz,a,c\n")
    data = table.read(path).dataset()
    assert data.names == ("a", "b", "c")
    assert data.train.labels.tolist() == [0, 1, 0]
    assert data.clean is not None
    assert data.clean.tolist() == [1, 1, 2]
    flags = written(tmp_path / "b.csv", "text,label,clean\nx,a,True\ny,b,False\n")
    refused(flags, 'the column "clean" of .* shares no class with the labels')
    both = written(tmp_path / "c.csv", "text,label,clean,clean_label\nx,a,a,a\ny,b,b,b\n")
    refused(both, "several columns for one purpose, clean and clean_label")


def test_split_column(tmp_path: Path) -> None:
    rows = "x1,b,train\nx2,a,TEST\nx3,a,train\nx4,b,dev\nx5,b,test\n"
    path = written(tmp_path / "a.csv", f"text,label,split\n{rows}")
    data = table.read(path).dataset()
    assert texts(data) == ("x1", "x3")
    assert data.train.labels.tolist() == [1, 0]
    assert data.test is not None
    assert data.validation is not None
    assert (data.test.ids, data.test.labels.tolist()) == (("1", "4"), [0, 1])
    assert (data.validation.ids, data.validation.labels.tolist()) == (("3",), [1])
    wrong = written(tmp_path / "b.csv", "text,label,split\nx,a,train\ny,b,tset\n")
    refused(wrong, r'line 3 of .*: unknown split "tset"; did you mean "test"\?')
    strange = written(tmp_path / "c.csv", "text,label,split\nx,a,train\ny,b,train\nz,c,test\n")
    refused(strange, 'has "c" in line 4, a class without training examples')
    without = written(tmp_path / "d.csv", "text,label,split\nx,a,test\ny,b,test\n")
    refused(without, "a class without training examples")


def test_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "id,height,label,weight\np,1.5,a,-2\nq, 3e2 ,b,0\n")
    data = table.read(path).dataset()
    assert features(data).columns == ("height", "weight")
    np.testing.assert_array_equal(features(data).values, [[1.5, -2], [300, 0]])
    assert features(data).values.dtype == np.float32
    assert data.train.ids == ("p", "q")


@pytest.mark.parametrize(
    ("cell", "match"),
    [
        ("inf", 'the column "w" of .* holds inf in line 3'),
        ("1e39", r'the column "w" of .* holds 1e\+39 in line 3'),
    ],
)
def test_cells_that_are_no_numbers_are_named(tmp_path: Path, cell: str, match: str) -> None:
    refused(written(tmp_path / "a.csv", f"v,w,y\n1,2,a\n1,{cell},b\n"), match)


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    refused(written(tmp_path / "a.csv", "id,label\np,a\nq,b\n"), "nothing to learn from")


def test_image_paths(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "sub").mkdir()
    for name in ("lists/1.png", "lists/sub/2.png", "3.png"):
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    absolute = tmp_path / "lists" / "1.png"
    path = written(
        tmp_path / "lists" / "a.csv",
        f"file_name,label,clean\n./sub/2.png,a,a\n../3.png,b,a\n{absolute},b,b\n",
    )
    data = table.read(path).dataset()
    assert isinstance(data.train.inputs, ImageFiles)
    assert [p.resolve() for p in data.train.inputs.paths] == [
        (tmp_path / name).resolve() for name in ("lists/sub/2.png", "3.png", "lists/1.png")
    ]
    assert data.train.ids == ("sub/2.png", "../3.png", str(absolute))


def test_bad_images_by_policy(tmp_path: Path) -> None:
    for name in ("1.png", "2.png", "4.png"):
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    written(tmp_path / "3.png", "garbage")
    path = written(
        tmp_path / "a.csv",
        "path,label,clean\n1.png,a,a\n3.png,b,b\nnone.png,a,b\n2.png,b,a\n4.png,a,b\n",
    )
    refused(path, r"3\.png \(and 1 more\): it is not a JPEG")
    data = table.read(path, Request(on_bad_image="skip")).dataset()
    assert data.train.ids == ("1.png", "2.png", "4.png")
    assert data.train.labels.tolist() == [0, 1, 0]
    assert data.clean is not None
    assert data.clean.tolist() == [0, 0, 1]
    assert [s.id for s in data.skipped] == ["3.png", "none.png"]


def test_paths_or_texts_must_be_chosen(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2)).save(tmp_path / "1.png")
    Image.new("RGB", (2, 2)).save(tmp_path / "2.png")
    path = written(tmp_path / "a.csv", "image,text,label\n1.png,x,a\n2.png,y,b\n")
    refused(path, 'a path column "image" and a text column "text": choose')
    assert texts(table.read(path, Request(text_column="text")).dataset()) == ("x", "y")
    assert table.read(path, Request(path_column="image")).dataset().train.ids == ("1.png", "2.png")
    refused(path, "a path column", field="path_column", path_column="image", text_column="text")
    other = written(tmp_path / "b.csv", "headline,title,label\nx,u,a\ny,v,b\n")
    refused(other, "several columns for one purpose, headline and title", field="text_column")
    any_name = written(tmp_path / "c.csv", "says,label\nx,a\ny,b\n")
    assert texts(table.read(any_name, Request(text_column="says")).dataset()) == ("x", "y")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("text,label\n", "has column names but no rows"),
        ("text,label\nx,a\ny\n", r"line 3 of .* has 1 cell, but the first line names 2 columns"),
        ("text,label\nx,a\n\ny,b,c\n", "line 4 of .* has 3 cells"),
        ('text,label\n"x\ny",a\nz\n', "line 4 of .* has 1 cell,"),
        ('text,label\nx,a\n"y,b\n', r"line 3 of .* cannot be read .*quotation mark"),
        ('text,label\nx,a\n"y"z,b\n', r"line 3 of .* cannot be read"),
        ("text,label\nx,a\n" + "y" * 17_000_000 + ",b\n", "line 3 .*field larger than field limit"),
        ("text,label\nx,a\ny\0,b\n", "line 3 of .* holds a NUL byte"),
        ("text,label,text\nx,a,1\ny,b,2\n", 'two columns named "text"'),
        ("text,label,\nx,a,1\ny,b,2\n", r"column 3 of .* has cells but no name"),
        (b"text,label\nx,a\n\xe9\x01,b\n", r"line 3 of .*a\.csv is not UTF-8.*Save as → CSV UTF-8"),
    ],
)
def test_damaged_text(tmp_path: Path, content: str | bytes, match: str) -> None:
    refused(written(tmp_path / "a.csv", content), match)


def test_what_is_not_text_is_refused_at_its_first_wrong_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for wrong, match in (
        (b"\0", "line 300001 of .* holds a NUL byte"),
        (b"\xe9", "line 300001 of .* holds a NUL byte"),
        (b"\xe9\x01" + b"a" * (1 << 20), "line 300001 of .* is not UTF-8"),
    ):
        with path.open("wb") as file:
            file.write(b"text,label\n" + "é,a\n".encode() * 299_999 + wrong)
            file.truncate(1 << 36)  # a hole that takes minutes to read
        refused(path, match)
    path.write_bytes(b"text,label\n\x02,a\n" + "é,a\n".encode() * 299_998 + "é".encode()[:1])
    refused(path, "line 300001 of .* is not UTF-8")


def test_trailing_delimiters(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,label,,\nx,a,,\ny,b,,\n")
    assert texts(table.read(path).dataset()) == ("x", "y")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    refused(tmp_path / "none.csv", "does not exist")
    (tmp_path / "folder.csv").mkdir()
    refused(tmp_path / "folder.csv", "is a folder, and only regular files are read")
    os.mkfifo(tmp_path / "pipe.csv")
    refused(tmp_path / "pipe.csv", "is a named pipe, and only regular files are read")
    os.mkfifo(tmp_path / "pipe.parquet")
    refused(tmp_path / "pipe.parquet", "is a named pipe, and only regular files are read")
    refused(
        written(tmp_path / "a.ods", "x"), r"is not a table by its suffix: expected one of \.csv"
    )


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.csv", "text,label\nx,a\ny,b\n")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # root may read everything
    refused(path, r"cannot read .*a\.csv: Permission denied")


def test_parquet_texts_and_kinds_of_labels(tmp_path: Path) -> None:
    words = ["x", "y", "z"]
    labels: dict[str, tuple[pa.Array, tuple[str, ...], list[int]]] = {
        "string": (pa.array(["b", "a", "b"]), ("a", "b"), [1, 0, 1]),
        "int": (pa.array([10, 9, 10]), ("9", "10"), [1, 0, 1]),
        "float": (pa.array([2.0, 1.0, 2.0]), ("1", "2"), [1, 0, 1]),
        "bool": (pa.array([True, False, True]), ("False", "True"), [1, 0, 1]),
        "dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), [1, 0, 1]),
        "binary": (pa.array([b"b", b"a", b"b"]), ("a", "b"), [1, 0, 1]),
    }
    for kind, (column, names, expected) in labels.items():
        path = parquet(tmp_path / f"{kind}.parquet", {"text": words, "label": column})
        data = table.read(path).dataset()
        assert texts(data) == ("x", "y", "z"), kind
        assert data.names == names, kind
        assert data.train.labels.tolist() == expected, kind


def test_parquet_numbers_ids_and_splits(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "a.parquet",
        {
            "id": pa.array([2**60 + 1, 2**60 + 2, 5]),  # more digits than a float holds
            "a.b": pa.array([1, 2, 3], pa.int8()),
            "v": pa.array([0.5, -1, 2], pa.float32()),
            "flag": [True, False, True],
            "d": pa.array([1, 2, 3]).dictionary_encode(),
            "label": ["x", "y", "x"],
            "split": ["train", "train", "test"],
        },
    )
    data = table.read(path).dataset()
    assert features(data).columns == ("a.b", "v", "flag", "d")
    np.testing.assert_array_equal(features(data).values, [[1, 0.5, 1, 1], [2, -1, 0, 2]])
    assert data.train.ids == (str(2**60 + 1), str(2**60 + 2))
    assert data.test is not None
    assert data.test.ids == ("5",)


def test_parquet_cells_are_named(tmp_path: Path) -> None:
    def of(**columns: Any) -> Path:
        return parquet(tmp_path / "a.parquet", columns)

    data = table.read(of(text=["x", "y", "z"], label=["a", None, "b"])).dataset()
    assert data.train.labels.tolist() == [0, -1, 1]
    refused(of(text=["x", None], label=["a", "b"]), "row 2 of .* has no text")
    refused(of(v=[1.0, np.inf], label=["a", "b"]), 'column "v" .* holds inf in row 2')
    refused(of(v=[[1.0], [2.0]], label=["a", "b"]), 'the column "v" of .* holds list')
    refused(of(text=["x", "y"], label=[["a"], ["b"]]), 'the column "label" of .* holds list')
    refused(of(text=["x", "y"], lable=["a", "b"]), 'did you mean "lable"')
    refused(of(text=pa.array([], pa.string()), label=pa.array([], pa.string())), "no rows")
    refused(of(text=["x", "y"], label=[b"\xff", b"a"]), "cannot read the Parquet file")


def test_damaged_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": ["x", "y"], "label": ["a", "b"]})
    whole = path.read_bytes()
    for content in (b"", b"PAR1", b"garbage" * 20, whole[:-20], whole[: len(whole) // 2]):
        path.write_bytes(content)
        refused(path, r"cannot read the Parquet file .*a\.parquet")


def test_parquet_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    piece = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**20, np.int32)), ["a"])
    rows = pa.table({"label": pa.chunked_array([piece] * 70)})
    pq.write_table(rows, path, row_group_size=2**27, max_rows_per_page=2**27)
    assert path.stat().st_size < 50_000
    refused(path, r"bytes, but its header claims 73,400,320 rows")


def repeated(path: Path, columns: dict[str, Any], rows: int, groups: int, size: int = 0) -> Path:
    """A valid Parquet file of constant columns, whose row groups are all the same bytes.

    Args:
        path: where.
        columns: the value of each.
        rows: of a group.
        groups: how many there are.
        size: bytes that it takes at least.
    """
    pq.write_table(pa.table({k: pa.array([v] * rows) for k, v in columns.items()}), path)
    about = one = pq.read_metadata(path)
    footer = path.with_suffix(".footer")
    for _ in range(groups - 1):
        about.append_row_groups(one if about is not one else pq.read_metadata(path))
    about.write_metadata_file(footer)
    content = path.read_bytes()
    data = content[: -8 - int.from_bytes(content[-8:-4], "little")]
    path.write_bytes(data.ljust(size, b"\0") + footer.read_bytes()[4:])
    footer.unlink()
    return path


def test_parquet_of_very_many_rows_is_refused_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = repeated(tmp_path / "a.parquet", {"text": "x", "label": "a"}, 10**6, 400, 5_000_000)
    assert pq.read_metadata(path).num_rows == 4 * 10**8
    assert pq.ParquetFile(path).read_row_group(399)["label"].unique().to_pylist() == ["a"]
    size = path.stat().st_size
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("it was read"))
    refused(
        path,
        rf"has {size:,} bytes, but its header claims 400,000,000 rows .* at most {20 * size:,} "
        "rows are possible",
    )
    with pytest.raises(InputError, match="400,000,000 rows"):
        table.read_labels(path)


def test_parquet_of_many_columns_is_refused_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {f"x{k}": 1.5 for k in range(100)}
    path = repeated(tmp_path / "a.parquet", {**columns, "label": "a"}, 20_000, 100)
    size = path.stat().st_size
    assert open_parquet(path).read(["x0"])["x0"].unique().to_pylist() == [1.5]  # that is no burden
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(InputError) as refusal:
        open_parquet(path).numbers(list(columns))
    assert f"{path} has {size:,} bytes, but its 2,000,000 rows would take about" in str(
        refusal.value
    )
    assert "1,600,000,000 bytes of memory, where at most 1,073,741,824" in str(refusal.value)


def test_read_labels(tmp_path: Path) -> None:
    plain = written(tmp_path / "a.csv", "label\nb\na\nb\n")
    assert table.read_labels(plain) == (None, ("b", "a", "b"))
    by_id = written(tmp_path / "b.tsv", "id\tclass\nq\tb\np\ta\n")
    assert table.read_labels(by_id) == (("q", "p"), ("b", "a"))
    by_path = written(tmp_path / "c.csv", "path,label\nx/1.png,a\nx/2.png,b\n")
    assert table.read_labels(by_path) == (("x/1.png", "x/2.png"), ("a", "b"))
    stored = parquet(tmp_path / "d.parquet", {"key": [3, 4], "new": ["a", "b"]})
    got = table.read_labels(stored, label_column="new", id_column="key")
    assert got == (("3", "4"), ("a", "b"))
    twice = written(tmp_path / "e.csv", "id,label\np,a\nq,b\np,b\n")
    with pytest.raises(InputError, match='the id "p" twice, again in line 4'):
        table.read_labels(twice)
    hole = written(tmp_path / "f.csv", "label\na\n\nb\n\n")
    with pytest.raises(InputError, match=r"line 3 of .*f\.csv is empty, but rows follow"):
        table.read_labels(hole)
    with pytest.raises(InputError, match='unknown column "x"'):
        table.read_labels(plain, label_column="x")


@pytest.mark.skipif(not HAUSA.is_dir(), reason="the Hausa news titles are not beside the checkout")
def test_real_news_titles() -> None:
    clean = table.read(HAUSA / "train_clean.tsv").dataset()
    noisy = table.read(HAUSA / "train_clean_noisy_labels.tsv").dataset()
    assert clean.names == noisy.names == ("Africa", "Health", "Nigeria", "Politics", "World")
    assert len(clean.train) == len(noisy.train) == 2045
    assert texts(clean) == texts(noisy)
    assert noisy.train.ids == clean.train.ids == tuple(str(i) for i in range(2045))
    rate = float((clean.train.labels != noisy.train.labels).mean())
    assert round(rate, 3) == 0.504
    ids, labels = table.read_labels(HAUSA / "train_clean_noisy_labels.tsv")
    assert ids == clean.train.ids
    assert [noisy.names[k] for k in noisy.train.labels] == list(labels)
    assert '"Juyin Mulki"' in "".join(texts(table.read(HAUSA / "dev.tsv").dataset()))
    assert len(table.read(HAUSA / "test.tsv").dataset().train) == 582


def test_examples_with_any_id_and_a_label_of_any_kind(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"id": [7, 8], "h": [0.5, 1.5], "y": [2.0, 1.0]})
    found = table.read(path, needs=ModelNeeds(("1", "2"))).parts["train"]
    assert found.ids == ("7", "8")
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0]
    unlabelled = parquet(tmp_path / "b.parquet", {"h": [0.5, 1.5], "y": [None, float("nan")]})
    assert table.read(unlabelled, needs=ModelNeeds(("1", "2"))).parts["train"].labels is None
    with pytest.raises(
        InputError, match=r'"y" of .*, row 1: unknown class "2"; .*, ignore the column'
    ):
        table.read(path, needs=ModelNeeds(("1",)))


def test_a_table_of_nothing_but_labels_has_its_inputs_elsewhere(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "id,label\np,a\nq,b\n")
    data = table.read(path, Request(features=Path("x.npy"))).dataset()
    assert features(data).values.shape == (2, 0)
    assert data.train.ids == ("p", "q")
    found = table.read(path, Request(features=Path("x.npy")), ModelNeeds(("a", "b"))).parts["train"]
    assert found.ids == ("p", "q")
    with pytest.raises(InputError, match="nothing to learn from"):
        table.read(path, needs=ModelNeeds(("a", "b")))


def test_column_names(tmp_path: Path) -> None:
    assert table.column_names(written(tmp_path / "a.csv", "id, h ,y\n")) == ("id", "h", "y")


def fuzz(path: Path, data: bytes) -> None:
    """Read it in all ways; only InputError, in one line, may come out."""
    path.write_bytes(data)
    needs = ModelNeeds(("a", "b"))
    for read in (table.read, table.read_labels, partial(table.read, needs=needs)):
        message = "fine"
        try:
            read(path)
        except InputError as error:
            message = str(error)
        assert message
        assert "\n" not in message


CELLS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(["", "a", "b", "1", "nan", '"', "1e400", "label", "text", "id", "\r", "train"]),
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=6)
HEADERS = st.sampled_from(
    ["text,label", "label", ",text,label", "a,b,y", "text;label;split", "text\tlabel", "id,path,y"]
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([".csv", ".tsv"]), st.one_of(st.binary(max_size=80), st.tuples(HEADERS, ROWS))
)
def test_fuzzed_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, content: bytes | tuple[str, list[Any]]
) -> None:
    if isinstance(content, tuple):
        header, rows = content
        delimiter = next((d for d in ",;\t" if d in header), ",")
        body = "\n".join(delimiter.join(row) for row in rows)
        content = f"{header}\n{body}".encode()
    fuzz(tmp_path_factory.getbasetemp() / f"fuzz{suffix}", content)


PIECES = st.sampled_from(
    [
        "a",
        "1",
        ",",
        ",",
        "\n",
        "\r",
        "\r\n",
        " ",
        "é",
        "\x0b",
        "\u2028",
        "x,y\n",
        "\ufeff",
        "'",
        '"',
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=25), st.booleans())
def test_arrow_reads_text_as_csv_does_or_leaves_it_to_csv(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], has_header: bool
) -> None:
    content = ("h,k\n" * has_header + "".join(pieces)).encode()
    path = written(tmp_path_factory.getbasetemp() / "both.csv", content)
    found = table_file._read_with_arrow(path, ",", "utf-8-sig")
    if found is not None:
        expected = table_file._read_with_csv(path, ",", False, "utf-8-sig")
        assert found[0] == expected[0]
        assert [column.to_pylist() for column in found[1]] == [
            column.to_pylist() for column in expected[1]
        ]


def valid_parquet() -> list[bytes]:
    files = []
    n = 20
    for compression in ("none", "snappy"):
        stream = io.BytesIO()
        columns = {"text": [f"t{i}" for i in range(n)], "label": ["a", "b"] * (n // 2)}
        pq.write_table(pa.table(columns), stream, compression=compression)
        files.append(stream.getvalue())
        stream = io.BytesIO()
        numbers = {"v": np.arange(n) / 7, "w": np.arange(n), "label": np.arange(n) % 3}
        pq.write_table(pa.table(numbers), stream, compression=compression, use_dictionary=False)
        files.append(stream.getvalue())
    return files


PARQUET = valid_parquet()


@st.composite
def mutated_parquet(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(PARQUET)))
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    first = draw(st.sampled_from((0, footer)))  # what is wrong there is seen before any page is
    for _ in range(draw(st.integers(1, 6))):
        data[draw(st.integers(first, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=60), mutated_parquet()))
def test_fuzzed_parquet_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    fuzz(tmp_path_factory.getbasetemp() / "fuzz.parquet", data)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip),
            st.sampled_from(["a", "b", "c"]),
        ),
        min_size=3,
    ).filter(lambda rows: len({label for _, label in rows}) > 1),
    st.sampled_from([(".csv", ","), (".csv", ";"), (".tsv", "\t")]),
)
def test_what_csv_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    dialect: tuple[str, str],
) -> None:
    suffix, delimiter = dialect
    path = tmp_path_factory.getbasetemp() / f"round{suffix}"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([("text", "label"), *rows])
    data = table.read(path).dataset()
    assert texts(data) == tuple(text.strip() for text, _ in rows)
    assert [data.names[k] for k in data.train.labels] == [label for _, label in rows]


def test_ignored_columns_are_not_learned_from(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.csv",
        "h,City,title,split,w,label\n1,Bonn,Dr,x,3,a\n2,Kiel,,y,4,b\n",
    )
    data = table.read(path, Request(ignore_column=("city", "title", "split"))).dataset()
    assert features(data).columns == ("h", "w")
    assert data.test is None
    found = table.read(
        path,
        Request(ignore_column=("City", "title", "split", "label")),
        needs=ModelNeeds(("a", "b")),
    ).parts
    assert found["train"].labels is None
    refused(path, 'unknown column "Cit"; did you mean "City"', ignore_column=("Cit",))
    refused(
        path,
        'column "h" of .* is given by ',
        field="ignore_column",
        label_column="h",
        ignore_column=("h",),
    )


def test_labels_are_not_what_is_learned_from(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "kind,text\nx,u\ny,v\n")
    for role in ("text_column", "path_column"):
        words = 'the column "kind" of .* holds the labels'
        refused(path, words, field=role, label_column="kind", **{role: "Kind"})
    named = written(tmp_path / "b.csv", "class,split\nx,train\ny,train\n")
    found = table.read(named, Request(text_column="class"), ModelNeeds(("a", "b"))).parts["train"]
    assert found.labels is None
    refused(named, "has no label column", text_column="class")


def test_a_table_that_is_cut_short_or_gone_still_has_its_rows_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,label\n1,a\n2,b\n3,a\n")
    table = table_file.open_table(path)
    assert table.where(2) == "line 4"
    path.write_text("x,label\n1,a\n")
    assert table.where(2) == "row 3"
    path.unlink()
    assert table.where(2) == "row 3"


def test_numbers_alone_are_a_matrix_as_before_there_were_kinds(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(50, 7)) * 10.0 ** draw.integers(-6, 6, (50, 7))
    rows = [",".join([*map(repr, map(float, row)), "ab"[k % 2]]) for k, row in enumerate(values)]
    header = ",".join([*(f"c{k}" for k in range(7)), "label"])
    path = written(tmp_path / "a.csv", "\n".join([header, *rows]) + "\n")
    inputs = table.read(path).dataset().train.inputs
    assert isinstance(inputs, Features)
    assert inputs.values.tobytes() == values.astype(np.float32).tobytes()


def test_a_title_among_measurements_is_one_column_of_many(tmp_path: Path) -> None:
    rows = [
        f"The film {k} {k % 7},{k},{k / 2},{'' if k % 5 else k},{'ab'[k % 2]}" for k in range(30)
    ]
    path = written(tmp_path / "a.csv", "\n".join(["title,votes,rating,budget,label", *rows]))
    data = table.read(path).dataset()
    assert data.train.inputs.columns == ("title", "votes", "rating", "budget")
    alone = table.read(path, Request(text_column="title")).dataset()
    assert texts(alone)[1] == "The film 1 1"
    judged = table.read(path, needs=ModelNeeds(("a", "b"))).parts["train"]
    assert isinstance(judged.inputs, Texts)  # by a model of texts
    few = written(tmp_path / "b.csv", "title,votes,label\nx,1,a\ny,2,b\n")
    assert texts(table.read(few).dataset()) == ("x", "y")
    asked = table.read(few, Request(text=("title",))).dataset()
    assert asked.train.inputs.columns == ("title", "votes")
