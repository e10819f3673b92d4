"""Cells that a spreadsheet would execute: found, made harmless, and read back as they were."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proselflc.data.tables.cells import format_row, neutralize, quote, restore

# What spreadsheets take for the beginning of a formula or a command.
BEGINNINGS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "﹦", "﹢", "﹣", "﹫", "−")
FORMULAS = [
    "=1+1",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "-",
    "--1",
    "-1-1",
    "+49 30 1",
    "\t=1",
    "\r=1",
    "\n=1",
    "\tharmless",
    " =1",
    "\u00a0=1",  # a space that does not break
    "\u200b=1",  # a space without width
    "\ufeff@x",
    "-inf",
    "-0x1",
    "-١",  # a digit that is not ASCII
]


@pytest.mark.parametrize("cell", [*FORMULAS, *(f"{c}1()" for c in BEGINNINGS)])
def test_a_formula_gets_an_apostrophe(cell: str) -> None:
    assert neutralize(cell) == "'" + cell


@pytest.mark.parametrize(
    "cell",
    [
        "",
        " ",
        "cat",
        "a=b",
        "1-2",
        "-1",
        "+1",
        "-1.5",
        "-.5",
        "-1.",
        "-1e-5",
        " -1 ",
        "'",
        "''",
        "'a'",
        "p(=1)",
        "été",
        "猫",
        "😀",
        "/etc",
        "#1",
        "%",
        "train/-1.png",
        "'-1",
    ],
)
def test_numbers_and_texts_stay(cell: str) -> None:
    assert neutralize(cell) == cell
    assert restore(cell) == cell


@given(st.text())
def test_what_was_neutralised_is_read_back(cell: str) -> None:
    assert restore(neutralize(cell)) == cell


@given(st.text(alphabet="'=+-@ \t\r\n1a＝", max_size=6))
def test_apostrophes_that_were_there_stay(cell: str) -> None:
    assert restore(neutralize(cell)) == cell


@given(st.text(alphabet=" \u00a0\u200b\t\r\n", max_size=3), st.sampled_from(BEGINNINGS), st.text())
def test_nothing_that_begins_like_a_formula_is_left(space: str, begin: str, rest: str) -> None:
    written = neutralize(space + begin + rest)
    if written == space + begin + rest:
        assert float(written) == float(written.strip())  # a number
        assert begin in "+-"
    else:
        assert written[0] == "'"


@given(st.lists(st.text(), min_size=2, max_size=4), st.sampled_from(",\t;"))
def test_a_line_is_what_csv_reads(cells: list[str], delimiter: str) -> None:
    written = format_row(cells, delimiter)
    assert written.endswith("\n")
    (read,) = csv.reader(io.StringIO(written, newline=""), delimiter=delimiter, strict=True)
    assert [restore(cell) for cell in read] == cells


def test_what_is_no_text_is_written_as_it_is() -> None:
    assert format_row([-1.5, True, None, -3, "-x"]) == "-1.5,True,,-3,'-x\n"


def test_quotation_marks_only_where_they_are_needed() -> None:
    assert quote("a b") == "a b"
    assert quote('a "b", c') == '"a ""b"", c"'
    assert quote("a;b", ",") == "a;b"
    assert quote("a;b", ";") == '"a;b"'
