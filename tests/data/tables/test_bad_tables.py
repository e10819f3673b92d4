"""Bad tables: one sentence with the line and the remedy, or a counted note."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.data.request import Request
from proselflc.data.tables import column_notes, summary, table
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.run.audit import audit
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import load_run
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe
from proselflc.wording import on_command_line


def said(path: Path, content: str, **options: str) -> str:
    path.write_text(content)
    with on_command_line(), pytest.raises(InputError) as caught:
        table.read(path, Request(**options)).dataset()  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def lines(*rows: object) -> str:
    return "".join(f"{row}\n" for row in rows)


def test_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    measured = lines("v,label", *(f"{k},{k * 1.37:.2f}" for k in range(40)))
    message = said(path, measured)
    assert 'the column "label"' in message
    assert (
        "holds 40 different numbers in 40 rows, such as 0.00, so this looks like regression"
        in message
    )
    assert message.endswith(
        "divide the numbers into classes, or name another column with --label-column"
    )
    nearly = lines("v,label", *(f"{k},n{k // 2 if k < 4 else k}" for k in range(40)))
    assert "holds 38 labels in 40 rows, so it looks like an id" in said(path, nearly)
    assert "holds a different label in every row" in said(
        path, lines("v,label", *(f"{k},n{k}" for k in range(40)))
    )
    assert "has examples of one class only" in said(path, lines("v,label", "1,a", "2,a"))
    assert "has examples of one class only" in said(path, lines("v,label", "1,a"))
    assert "has no label column" in said(path, lines("v,w", "1,a"))
    assert 'unknown column "kind"' in said(path, lines("v,w", "1,a"), label_column="kind")


def test_the_shape_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    twice = said(path, lines("v,v,label", "1,2,a", "1,2,b"))
    assert twice.endswith('has two columns named "v", the columns 1 and 2: rename one of them')
    assert "line 3 of" in said(path, lines("v,label", "1,a", "1,b,c"))
    gone = said(path, lines("v,w,label", ",NA,a", "?,-,b"))
    assert 'ignored, "v" (all cells are missing), "w" (all cells are missing)' in gone


def test_a_column_without_cells_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(lines("v,w,label", *(f"{k}.5,,{'ab'[k % 2]}" for k in range(9))))
    inputs = table.read(path).dataset().train.inputs
    assert isinstance(inputs, MixedColumns)
    assert inputs.columns == ("v",)
    assert inputs.found[1].kind.reason == "all cells are missing"
    assert summary.in_short(inputs.found) == (
        'learning from 1 number (v), ignoring "w" (all cells are missing)'
    )


def test_ten_thousand_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    names = [f"c{k}" for k in range(10_000)]
    rows = [",".join([*("" if k == 3 else str(k % 7) for k in range(10_000)), c]) for c in "abab"]
    path.write_text(lines(",".join([*names, "label"]), *rows))
    inputs = table.read(path).dataset().train.inputs
    assert isinstance(inputs, MixedColumns)
    assert len(inputs.cells) == 9_999


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    path = tmp_path / "messy.csv"
    rows = []
    for k in range(60):
        label = "ab"[int(draw.integers(2))]
        rows.append(f"p{k},{1000 + k},one,{label * 2},{draw.normal():.3f},{label}")
    path.write_text(lines("key,no,same,copy,v,label", *rows))
    return path


def test_constant_id_like_and_leaking_columns_are_noted_by_name(messy: Path) -> None:
    found = {c.column: c for c in summary.summarize(messy, Request()).columns}
    assert found["key"].kind == "ignored"
    assert found["key"].note == "id-like: different in every row"
    assert found["no"].note == "id-like: different in every row"
    assert found["same"].note == "constant"
    assert found["copy"].note == "predicts the label perfectly"
    assert found["v"].note == ""
    assert found["label"].kind == "label"

    def notes() -> Iterator[str]:
        with on_command_line():
            yield from summary.notes(table.read(messy).dataset())

    kinds, same, ids = notes()
    assert kinds == (
        "learning from 2 numbers (no, v), 2 categories (same, copy), "
        'ignoring "key" (id-like: different in every row)'
    )
    assert same == 'the column "same" is constant'
    assert ids.endswith("--ignore-column no")
    assert summary.leaking(table.read(messy).dataset()) == ("copy",)


def test_a_leak_is_a_caution_beside_the_result_and_in_later_audits(messy: Path) -> None:
    config = Config(request=Request(data=str(messy)), model="boosting", recipe=Recipe(epochs=3))
    for path in (
        train(config, OutputOptions(messy.parent / "trees"), Silent()),
        train(replace(config, model="mlp"), OutputOptions(messy.parent / "network"), Silent()),
    ):
        for again in (False, True):
            if again:
                audit(path)
            run = load_run(path)
            warnings: Any = run.summary["warnings"]
            found = {one["code"]: one["message"] for one in warnings}
            assert found["leaking_columns"].startswith('"copy" predicts every label perfectly')
            assert found["leaking_columns"].endswith("train without it: ignore_column='copy'")
            assert "leaking_columns" in [one.code for one in run.audit.warnings]


@pytest.mark.parametrize(
    ("values", "labels", "leaks"),
    [
        (np.arange(40.0), np.arange(40) // 20, True),
        (np.arange(40.0), np.arange(40) % 2, False),
        (np.arange(40.0) % 4, np.arange(40) % 2, True),
        (np.zeros(40), np.arange(40) % 2, False),
        (np.arange(10.0), np.arange(10) // 5, False),  # so few may be so by chance
        (np.arange(40.0), np.zeros(40), False),
    ],
)
def test_what_predicts_the_label(values: np.ndarray, labels: np.ndarray, leaks: bool) -> None:
    gone = np.zeros(len(values), np.bool_)
    assert summary.leaks(values, gone, labels.astype(np.int64), False) == leaks
    gone[0] = True
    assert summary.leaks(values, gone, labels.astype(np.int64), False) == leaks


def test_many_notes_are_few_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    heading = [f"c{k}" for k in range(50)] + [f"m{k}" for k in range(12)] + ["label"]
    rows = [
        ",".join(["7"] * 50 + ["oops" if row == 9 else str(row)] * 12 + ["xy"[row % 2]])
        for row in range(60)
    ]
    path.write_text(lines(",".join(heading), *rows))
    notes = list(summary.notes(table.read(path).dataset()))
    assert 'the 50 columns "c0", "c1"' in notes[1]
    assert notes[1].endswith('"c7" and 42 more are constant')
    assert sum('"oops" in line 11' in note for note in notes) == 8
    assert any(note.startswith("4 more such notes are shown by") for note in notes)


def test_a_leak_is_found_although_some_labels_are_missing(messy: Path) -> None:
    heading, *rows = messy.read_text().splitlines()
    gone = [
        row[:-1] + ("" if k % 9 == 0 else "NA") if k % 3 == 0 else row for k, row in enumerate(rows)
    ]
    messy.write_text(lines(heading, *gone))
    found = {c.column: c.note for c in summary.summarize(messy, Request()).columns}
    assert found["copy"] == "predicts the label perfectly"
    assert found["v"] == ""


@pytest.mark.parametrize(
    ("labels", "is_refused", "is_noted"),
    [
        ([k % 10 for k in range(200)], False, False),  # digits
        ([k % 100 for k in range(300)], False, False),  # 100 classes, counted from 0
        ([k % 100 + 1 for k in range(300)], False, False),
        ([18 + k * k % 71 for k in range(150)], True, False),  # ages
        ([18 + k * k % 71 for k in range(900)], False, True),
        ([f"{k % 40},5" for k in range(900)], True, False),
        ([1 + k % 9 / 2 for k in range(200)], False, False),  # grades
    ],
)
def test_whole_numbers_are_classes_or_measurements(
    labels: list[object], is_refused: bool, is_noted: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    rows = (f"{k * 7 % 11};{label}" for k, label in enumerate(labels))
    path.write_text(lines("v;label", *rows))
    label = summary.summarize(path, Request()).columns[1]
    assert ("this is regression" in label.note) is (is_refused or is_noted)
    if is_refused:
        assert "so this looks like regression" in said(path, path.read_text())
        return
    notes = " ".join(column_notes.notes(Request(data=str(path)), table.read(path).dataset()))
    assert ("if they are measurements, this is regression" in notes) is is_noted


def test_integers_that_differ_in_every_row_may_be_regression(tmp_path: Path) -> None:
    counted = lines("v,label", *(f"{k % 5},{k * 3}" for k in range(40)))
    assert "looks like an id or like regression" in said(tmp_path / "a.csv", counted)
