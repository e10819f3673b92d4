"""Columns that cannot be used are named, with advice that can be followed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proselflc.data.inputs import Floats
from proselflc.data.request import Request
from proselflc.data.tables import table
from proselflc.data.tables.column_notes import looks_like_ids, similar_classes
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


@pytest.mark.parametrize("cell", ["inf", "1e39"])
def test_infinite_numbers_are_refused(cell: str, tmp_path: Path) -> None:
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


def test_hostile_names_stay_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {"-x": [None, None], "a\n\x1b[31m; rm": [None, None]}
    pq.write_table(pa.table({**columns, "label": ["a", "b"]}), path)
    message = said(path)
    assert "\x1b" not in message
    assert "all cells are missing" in message


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
