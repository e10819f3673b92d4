"""A stranger's text on a page: short, on one line, nothing in it obeyed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proselflc.pages.values import distinct_names, percent, shorten, shorten_middle

TEXTS = st.text(st.characters(codec=None), max_size=200)


@given(TEXTS, st.integers(2, 60))
def test_what_stands_on_a_page_is_one_short_line_that_can_be_encoded(text: str, limit: int) -> None:
    for short in (shorten(text, limit), shorten_middle(text, limit)):
        assert len(short) <= limit
        assert len(short.splitlines()) <= 1
        short.encode()  # no half of a character is left


def test_control_codes_are_seen_and_joined_letters_stay_joined() -> None:
    assert shorten("a\x00b\x1b\x7f") == r"a\x00b\x1b\x7f"
    assert shorten("\ud800") == r"\ud800"
    assert shorten("می‌خواهم 👩‍🚀") == "می‌خواهم 👩‍🚀"


def test_a_megabyte_is_cut_where_it_may_be_seen() -> None:
    assert shorten("ab " * 400_000, 9) == "ab ab ab…"
    assert shorten_middle("x" * 10**6 + "/end.png", 12) == "xxxxx…nd.png"
    assert shorten(" " * 10**6 + "late", 10).endswith("…")  # not taken for the whole text


def test_names_of_runs_differ() -> None:
    names = distinct_names(["a" * 50, "a" * 50, "", "b"])
    assert len(set(names)) == 4
    assert names[1].endswith("(2)")
    assert names[3] == "b"


def test_what_is_no_number_is_not_said() -> None:
    assert percent(float("nan")) == percent(float("inf")) == percent(None) == ""
    assert percent(1.0, 0) == "100%"
