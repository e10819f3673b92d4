"""Columns that hold no numbers are all named, with advice that can be followed."""

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proselflc.data.inputs import Floats
from proselflc.data.request import Request
from proselflc.data.tables import table
from proselflc.data.tables.columns import looks_like_ids, similar_classes
from proselflc.errors import InputError
from proselflc.run.config import Config
from proselflc.run.prepare import prepare
from proselflc.wording import on_command_line


def said(path: Path, **options: str) -> str:
    with on_command_line(), pytest.raises(InputError) as caught:
        table.read(path, Request(**options)).dataset()  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(path: Path, columns: dict[str, list[str]]) -> Path:
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


BASE = {"age": ["1", "2", "3"], "label": ["a", "b", "a"]}


def test_all_are_named_and_the_advice_can_be_followed(tmp_path: Path) -> None:
    other = {"name": ["Ann", "Bob", "Cy"], "home town": ["Bonn", "Kiel", "Bonn"]}
    path = written(tmp_path / "a.tsv", {**BASE, **other, "sex": ["f", "m", "m"]})
    message = said(path)
    assert f'column "name" of {path} holds "Ann", which is not a number, in line 2' in message
    assert ', and "home town" and "sex" have cells that are not numbers too: ' in message
    assert "--id-column name and ignore the others" in message
    assert "--text-column" not in message
    names = shlex.split(message.partition("--ignore-column ")[2])
    assert names == ["home town", "sex"]
    data = table.read(path, Request(id_column="name", ignore_column=tuple(names))).dataset()
    assert data.train.ids == ("Ann", "Bob", "Cy")
    # Where something names the rows already, nothing else is to.
    assert shlex.split(said(path, id_column="age").partition("--text-column ")[2]) == ["home town"]
    more = written(tmp_path / "b.tsv", {**BASE, **other, "key": ["x", "y", "z"]})
    message = said(more, id_column="key")
    assert "--id-column" not in message
    assert message.endswith("ignore them with --ignore-column name 'home town'")


def test_of_very_many_ten_are_named(tmp_path: Path) -> None:
    many = {f"c{k}": ["x", "x", "y"] for k in range(14)}
    message = said(written(tmp_path / "a.tsv", {**BASE, **many}))
    assert '"c8", "c9" and 4 more have cells that are not numbers too' in message
    assert message.endswith("--ignore-column " + " ".join(many))
    endless = {f"{k}" * 500: ["x", "x", "y"] for k in range(1, 10)}
    message = said(written(tmp_path / "b.tsv", {**BASE, **endless}))
    assert message.endswith(" …")
    assert len(message) < 4000


def test_long_texts_and_image_files_can_be_learned_from(tmp_path: Path) -> None:
    texts = {"note": ["a long story about a patient " * 2, "no pain at all " * 4, "well " * 9]}
    message = said(written(tmp_path / "a.tsv", {**BASE, **texts}))
    assert message.endswith("--ignore-column note, or learn from texts with --text-column note")
    files = {"shot": ["1.png", "2.JPG", "3.png"]}
    message = said(written(tmp_path / "b.tsv", {**BASE, **files}))
    assert message.endswith("or learn from images with --path-column shot")
    alone = {"says": ["x", "y", "z"], "label": BASE["label"]}
    message = said(written(tmp_path / "c.tsv", alone))
    assert message.endswith(": learn from texts with --text-column says")


@pytest.mark.parametrize(
    "cells", [["17,99", "3", "4,5"], ["1,001", "2", "1,234.5"], ["1.234,5"] * 3]
)
def test_commas_in_numbers(cells: list[str], tmp_path: Path) -> None:
    message = said(written(tmp_path / "a.tsv", {**BASE, "price": cells}))
    assert f'holds "{cells[0]}", which is not a number, in line 2: decimal commas' in message
    assert message.endswith("save the numbers with decimal points")
    both = {**BASE, "price": cells, "sex": ["f", "m", "m"]}
    message = said(written(tmp_path / "b.tsv", both))
    ending = 'numbers of "price" with decimal points; ignore the column with --ignore-column sex'
    assert message.endswith(ending)


@pytest.mark.parametrize("cell", ["", "NA", "nan", "inf"])
def test_gaps_are_filled_or_left_out(cell: str, tmp_path: Path) -> None:
    message = said(written(tmp_path / "a.tsv", {**BASE, "blood p": ["1", cell, "3"]}))
    assert "in line 3" in message
    ending = "fill it in or drop the row, or ignore the column with --ignore-column 'blood p'"
    assert message.endswith(ending)


def test_ids_as_labels_are_refused_and_the_labels_are_not_to_be_ignored(tmp_path: Path) -> None:
    """Advice to ignore the column of the labels would lead on into the mistake."""
    ids = [f"p{k}" for k in range(25)]
    words = ["a", "b", "c", "b", "a"] * 5
    heights = list(map(str, range(25)))

    def refused(columns: dict[str, list[str]], name: str) -> str:
        path = written(tmp_path / "a.tsv", columns)
        with pytest.raises(InputError) as error:
            table.read(path, Request(label_column=name))
        assert error.value.field == "label_column"
        return str(error.value).removeprefix(f'the column "{name}" of {path} ')

    reason = "holds a different label in every row, so it looks like an id: name the column of the "
    columns = {"patient": ids, "height": heights, "label": words}
    assert refused(columns, "patient") == f"{reason}labels with label_column='label'"
    columns = {"patient": ids, "height": heights, "finding": words}
    assert refused(columns, "patient") == f"{reason}labels with label_column="
    few = {"id": ids[:3], "height": heights[:3], "class": words[:3]}
    assert refused(few, "id") == f"{reason}labels with label_column='class'"


def test_a_slip_is_repaired(tmp_path: Path) -> None:
    message = said(written(tmp_path / "a.tsv", {**BASE, "w": ["1", "tall", "3"]}))
    assert message.endswith(": fix the cells, or ignore the column with --ignore-column w")


def test_hostile_names_stay_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {"-x": ["f", "f"], "a\n\x1b[31m; rm": ["g", "g"], "n": [True, False]}
    pq.write_table(pa.table({**columns, "label": ["a", "b"]}), path)
    message = said(path)
    assert "\x1b" not in message
    assert message.endswith("--ignore-column=-x")


N = 40


def noted(path: Path, columns: dict[str, list[object]], **options: object) -> list[str]:
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    notes: list[str] = []
    request = Request(data=str(path), label_column="kind", **options)  # type: ignore[arg-type]
    with on_command_line():
        prepare(Config(request=request), report=notes.append)
    return notes


def measured(many: int) -> dict[str, list[object]]:
    return {f"m{k}": [round(i * 0.37 + k, 3) for i in range(N)] for k in range(many)}


KIND: dict[str, list[object]] = {"kind": ["ham", "spam"] * (N // 2)}


def test_a_column_of_ids_is_noted(tmp_path: Path) -> None:
    ids: list[object] = [1000 + 7 * k for k in range(N)]
    age: list[object] = [20 + k % 30 for k in range(N)]
    table = {"patient no": ids, "age": age, **measured(9), **KIND}
    path = tmp_path / "a.csv"
    assert noted(path, table) == [
        "learning from 11 columns: patient no, age, m0, m1, m2, m3, m4, m5 and 3 more; "
        "\"patient no\" looks like an id: use it as ids with --id-column 'patient no', or "
        "ignore it with --ignore-column 'patient no'"
    ]
    assert noted(path, table, id_column="patient no") == []
    assert noted(path, table, ignore_column=("patient no",)) == []
    visits: list[object] = list(range(N))
    two = {**table, "visit": visits}
    assert noted(path, two)[0].endswith(
        '"patient no" and "visit" look like ids: use one as ids with --id-column '
        "'patient no', or "
        "ignore them with --ignore-column 'patient no' visit"
    )


def test_classes_that_differ_by_case_are_noted(tmp_path: Path) -> None:
    kinds: list[object] = ["ham", "Ham", "spam", "HAM"] * (N // 4)
    [note] = noted(tmp_path / "a.csv", {**measured(2), "kind": kinds})
    assert note == (
        'the classes "HAM", "Ham" and "ham" differ only in case or surrounding spaces; if they are '
        "the same class, give them one name"
    )
    assert similar_classes(["a ", "b", "A", "c"]) == [["a ", "A"]]


@pytest.mark.parametrize(
    ("column", "are"),
    [
        (np.arange(5000), True),
        (np.arange(5000) // 2, False),
        (np.arange(5000) * 0.5, False),
        (np.arange(10), False),  # so few may be measurements
        (np.concatenate([np.arange(2000), [0]]), False),  # seen late alone
        (np.array([842302, 911320502, *range(84300000, 84300000 + 10**6, 5003)]), True),
        (np.full(50, 2.0**30), False),
    ],
)
def test_what_looks_like_ids(column: Floats, are: bool) -> None:
    assert looks_like_ids(column.astype(np.float32)) is are
