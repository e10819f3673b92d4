"""The same table in every format gives the same columns, and hostile files are refused."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.tables import encodings, standard_input, summary, table
from proselflc.data.tables.mixed import MixedColumns
from proselflc.data.tables.table_file import open_table
from proselflc.errors import InputError

COLOURS = ["rot", "grün", "blau"]
ROWS = [
    {"v": k / 4 if k % 5 else None, "colour": COLOURS[k % 3], "label": "ab"[k % 2]}
    for k in range(24)
]


def arrow() -> pa.Table:
    return pa.Table.from_pylist(ROWS)


def text(separator: str = ",", mark: str = ".") -> str:
    lines = [separator.join(ROWS[0])]
    for row in ROWS:
        value = "NA" if row["v"] is None else str(row["v"]).replace(".", mark)
        lines.append(separator.join((value, str(row["colour"]), str(row["label"]))))
    return "\n".join(lines) + "\n"


def jsonl() -> bytes:
    kept = ({k: v for k, v in row.items() if v is not None} for row in ROWS[1:])
    return "".join(json.dumps(row) + "\n" for row in (ROWS[0], *kept)).encode()


def feather() -> bytes:
    out = io.BytesIO()
    pyarrow.feather.write_feather(arrow(), out)
    return out.getvalue()


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(arrow(), out)
    return out.getvalue()


def excel(*, sheets: int = 1) -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    page = book.active
    page.title = "data"
    page.append(list(ROWS[0]))
    for row in ROWS:
        page.append(list(row.values()))
    for k in range(1, sheets):
        book.create_sheet(f"other {k}")
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    "a.csv": lambda: text().encode(),
    "bom.csv": lambda: text().encode("utf-8-sig"),
    "semicolons.csv": lambda: text(";", ",").encode(),
    "bars.csv": lambda: text("|").encode(),
    "a.tsv": lambda: text("\t").encode(),
    "western.csv": lambda: text(";", ",").encode("cp1252"),
    "wide.csv": lambda: text().encode("utf-16"),
    "a.jsonl": jsonl,
    "a.feather": feather,
    "a.parquet": parquet,
    "a.xlsx": excel,
}
FORMATS |= {f"{name}.gz": partial for name, partial in FORMATS.items()}


def written(folder: Path, name: str) -> Path:
    path = folder / name
    content = FORMATS[name]()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_the_same_columns(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    found = open_table(path)
    assert found.columns == ("v", "colour", "label")
    assert found.form
    data = table.read(path).dataset()
    inputs = data.train.inputs
    assert isinstance(inputs, MixedColumns)
    assert [kind.kind for kind in inputs.kinds] == ["number", "category"]
    values, words = inputs.cells
    for k, row in enumerate(ROWS):
        assert words.cell(k) == row["colour"]
        assert values.cell(k) == ("" if row["v"] is None else f"{row['v']:g}")
    assert [data.names[k] for k in data.train.labels] == [row["label"] for row in ROWS]


@pytest.mark.parametrize("name", FORMATS)
def test_standard_input_is_recognised_and_saved(name: str, tmp_path: Path) -> None:
    content = written(tmp_path, name).read_bytes()
    saved = standard_input.save(tmp_path / "runs", io.BytesIO(content))
    assert open_table(saved).columns == ("v", "colour", "label")
    assert standard_input.save(tmp_path / "runs", io.BytesIO(content)) == saved


def test_empty_standard_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard input is empty"):
        standard_input.save(tmp_path, io.BytesIO(b""))


def test_sheets_are_named_and_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(excel(sheets=3))
    with pytest.raises(InputError, match="has the sheets data, other 1, other 2: choose") as caught:
        open_table(path)
    assert caught.value.field == "sheet"
    with pytest.raises(InputError, match='no sheet "x", only data'):
        open_table(path, "x")
    with pytest.raises(InputError, match=r'the sheet "other 1" .* is empty'):
        open_table(path, "other 1")
    assert len(table.read(path, Request(sheet="data")).dataset().train) == 24
    plain = written(tmp_path, "a.csv")
    with pytest.raises(InputError, match="is not an Excel file"):
        open_table(plain, "data")


def test_the_sheet_with_the_label_column_is_suggested(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    pages: dict[str, list[list[object]]] = {
        "notes": [["class of 2020"]],
        "patients": [[], ["age", " Kind "], [1, "a"], [2, "b"]],
        "old": [["age", "label"], [1, "a"], [2, "b"]],
    }
    for name, rows in pages.items():
        page = book.create_sheet(name)
        for row in rows:
            page.append(row)
    del book["Sheet"]
    path = tmp_path / "a.xlsx"
    book.save(path)
    for asked, sheet in ((None, "old"), ("kind", "patients"), ("elsewhere", "patients")):
        request = Request(data=str(path), label_column=asked)
        for reads in (lambda r: table.read(path, r), lambda r: summary.summarize(path, r)):
            with pytest.raises(InputError, match=f"choose one with sheet='?{sheet}") as caught:
                reads(request)
            assert caught.value.field == "sheet"


def test_formulas_are_not_computed_and_rows_are_named(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["v", "w", "label"], [1, "=1+1", "a"], [2, "=A1", None], [3, 4, "b"]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    found = open_table(tmp_path / "a.xlsx")
    assert found.texts("w") == ["", "", "4"]  # nothing has computed them
    assert found.where(1) == "row 3"
    data = table.read(tmp_path / "a.xlsx").dataset()
    assert data.train.labels.tolist() == [0, -1, 1]
    assert data.notes == (
        f'found in {tmp_path / "a.xlsx"}: sheet "Sheet"',
        "2 formulas have no computed value and count as missing, the first in cell B2; to use "
        "them, open the file in a spreadsheet and save it",
    )
    assert summary.summarize(tmp_path / "a.xlsx", Request()).notes == data.notes[1:]


def test_what_was_found_of_a_file_is_said_where_it_is_not_usual(tmp_path: Path) -> None:
    rows = [("größe", "preis", "label"), *(("ä", f"{k},5", "ab"[k % 2]) for k in range(30))]
    text = "".join(";".join(row) + "\n" for row in rows)
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("cp1252"))
    assert table.read(path).notes == (
        f'found in {path}: separated by semicolons, Windows-1252, decimal commas in "preis"',
    )
    path.write_text("v,label\n1,a\n2,b\n")
    assert table.read(path).notes == ()
    tabs = tmp_path / "a.tsv"
    tabs.write_text("v\tlabel\n1\ta\n2\tb\n")
    assert table.read(tabs).notes == ()


def test_bombs_are_refused_before_they_unpack(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", bytes(300 << 20))
    with pytest.raises(InputError, match="more than 100 times as many"):
        open_table(path)
    monkeypatch.setattr(encodings, "_HARMLESS", 1 << 16)
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(b"a,label\n" + b"1,a\n" * (1 << 20)))
    with pytest.raises(InputError, match="unpacks to more than"):
        open_table(packed)


@pytest.mark.parametrize("name", ["a.feather", "a.jsonl", "a.xlsx", "a.parquet.gz", "a.csv.gz"])
def test_damage_is_one_sentence(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2 + 5], b"PK\x03\x04" + bytes(50), b"\xff" * 40):
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            table.read(path).dataset()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("[1, 2]", "line 2 of .* holds a list"),
        ("{", "line 2 of .* is not JSON"),
        ('{"v": [1]}', 'key "v" in line 2 .* holds a list'),
        ("[" * 100_000, "line 2"),
    ],
)
def test_lines_that_are_not_objects(line: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"v": 1, "label": "a"}\n' + line + "\n")
    with pytest.raises(InputError, match=match):
        open_table(path)


def test_bytes_that_are_no_text_in_any_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"v,label\n1,a\n\xff\x01,b\n")
    with pytest.raises(InputError, match=r"line 3 of .* is not UTF-8 text"):
        open_table(path)


def two_sheets(path: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "A"
    for row in (["v", "label"], *([k, "ab"[k % 2] if k else "NA"] for k in range(8))):
        book.active.append(row)
    other = book.create_sheet("B")
    for row in (["v", "label"], *([k, "ba"[k % 2]] for k in range(8))):
        other.append(row)
    book.save(path)
    return path


def test_the_sheet_of_other_labels(tmp_path: Path) -> None:
    both = two_sheets(tmp_path / "two.xlsx")
    plain = tmp_path / "t.csv"
    plain.write_text("v,label\n" + "".join(f"{k},{'ab'[k % 2]}\n" for k in range(8)))
    data = open_data(Request(str(plain), labels=both, sheet="B"))
    assert [data.names[k] for k in data.train.labels] == list("babababa")
    request = Request(str(plain), labels=both, sheet="B", label_column="label")
    assert open_data(request).train.labels.tolist() == data.train.labels.tolist()
    one = tmp_path / "one.xlsx"
    one.write_bytes(excel())  # whose only sheet has another name
    assert table.label_sheet(one, Request(str(both), sheet="B")) is None
    assert table.label_sheet(both, Request(str(both), sheet="B")) == "B"
    assert table.label_sheet(plain, Request(str(both), sheet="B")) is None


def test_words_for_no_label_are_looked_for_in_the_sheet(tmp_path: Path) -> None:
    path = two_sheets(tmp_path / "two.xlsx")
    assert table.words_for_no_label(path, Request(str(path), sheet="A")) == ["NA"]
    assert table.words_for_no_label(path, Request(str(path), sheet="B")) == []


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="an older version of Arrow")
def test_feather_with_views_as_polars_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.feather"
    texts = {
        name: pa.array([row[name] for row in ROWS], pa.string_view())
        for name in ROWS[0]
        if name != "v"
    }
    whole = pa.table({"v": arrow()["v"], **texts})
    with pa.ipc.new_file(path, whole.schema) as writer:
        writer.write_table(whole)
    data = table.read(path).dataset()
    assert [data.names[k] for k in data.train.labels] == [row["label"] for row in ROWS]


@pytest.mark.parametrize("cut", [1, 3])
def test_damaged_utf_16_is_one_sentence(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text().encode("utf-16")[:-cut])
    with pytest.raises(InputError, match="begins as UTF-16 text, but is damaged in line"):
        open_table(path)
    path.write_bytes("v,label\n1,a\n".encode("utf-16") + b"\x00\xd8\x41\x00\x0a\x00")
    with pytest.raises(InputError, match="begins as UTF-16 text, but is damaged in line"):
        open_table(path)


def test_many_keys_and_many_rows_are_refused_before_they_are_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROSELFLC_MEMORY_GB", "0.1")
    path = tmp_path / "a.jsonl"
    first = json.dumps({f"k{k}": 1 for k in range(50_000)})
    path.write_text(first + "\n" + "{}\n" * 40_000)
    with pytest.raises(InputError, match=r"32,768 rows and 50,000 columns, needs 13\.1 GB"):
        open_table(path)


def test_feather_beyond_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.feather"
    pyarrow.feather.write_feather(pa.table({"v": [0.0] * 200_000}), path)
    monkeypatch.setenv("PROSELFLC_MEMORY_GB", "0.001")
    with pytest.raises(InputError, match=r"reading .* needs .* GB of memory"):
        open_table(path)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("suffix", [".feather", ".arrow"])
def test_feather_is_refused_before_it_is_decompressed(
    compression: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a{suffix}"
    words = pa.array(["x" * 2_000_000, "y"]).dictionary_encode()
    values = pa.table({"v": [0.0] * 1_000_000, "w": words.take(pa.array([0] * 1_000_000))})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_file if suffix == ".feather" else pa.ipc.new_stream
    with new(path, values.schema, options=options) as writer:
        writer.write(values)
    assert len(open_table(path)) == 1_000_000
    assert path.stat().st_size < 100_000
    monkeypatch.setenv("PROSELFLC_MEMORY_GB", "0.01")
    monkeypatch.setattr("pyarrow.ipc.open_stream", lambda _: pytest.fail("it was unpacked"))
    with pytest.raises(InputError, match=r"reading .* needs .* GB of memory"):
        open_table(path)


def test_rows_beyond_the_last_of_a_sheet_and_blank_rows(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["v", "label"], [1, "a"], [], [2, "b"]):
        book.active.append(row)
    path, far = tmp_path / "a.xlsx", tmp_path / "far.xlsx"
    book.save(path)
    found = open_table(path)
    assert found.texts("v") == ["1", "2"]
    assert found.where(1) == "row 4"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(far, "w") as new:
        for name in old.namelist():
            content = old.read(name).replace(b'<row r="4"', b'<row r="20000000"')
            new.writestr(name, content)
    with pytest.raises(InputError, match="has a row beyond 1,048,576"):
        open_table(far)


def test_json_lines_with_blank_lines_equal_keys_and_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"v": 1}\n\n\n{"v": 2}\n')
    assert open_table(path).where(1) == "line 4"
    path.write_text('{"a": 1, " a": 2}\n')
    with pytest.raises(InputError, match=r'line 1 of .* has two keys "a" that differ only in'):
        open_table(path)
    for content in ("", "\n\n", "{}\n"):
        path.write_text(content)
        with pytest.raises(InputError, match="holds no cells: expected one JSON object per line"):
            open_table(path)
