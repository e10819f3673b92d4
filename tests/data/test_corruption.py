"""What `proselflc noise` needs to be told, said before any data is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proselflc.data import corruption
from proselflc.data.corruption import Corruption, corrupt_data
from proselflc.data.request import Request
from proselflc.errors import InputError


@pytest.fixture(autouse=True)
def _nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(_: Request) -> None:
        raise AssertionError("the data was opened")

    monkeypatch.setattr(corruption, "open_data", opened)


@pytest.mark.parametrize(
    ("options", "field", "sentence"),
    [
        (
            {"kind": "pair"},
            "rate",
            'noise "pair" needs a rate between 0 and 1',
        ),
        (
            {"kind": "sym_inclusive"},
            "rate",
            'noise "sym_inclusive" needs a rate between 0 and 1',
        ),
        ({"kind": "pear"}, None, 'unknown kind of noise "pear"; did you mean "pair"?'),
        ({"kind": "transition"}, "transition", "noise transition needs a matrix"),
        ({"kind": "human"}, "human", "noise human needs labels given by people"),
        (
            {"kind": "pair:0.2", "transition": Path("T.npy")},
            "transition",
            "transition= needs kind='transition', but the kind is pair",
        ),
        (
            {"kind": "transition", "human": Path("h.csv")},
            "human",
            "human= needs kind='human', but the kind is transition",
        ),
        (
            {"kind": "symmetric", "rate": "0.2", "pairs": "a:b"},
            "pairs",
            "pairs= needs kind='confusable_pairs', but the kind is symmetric",
        ),
    ],
)
def test_what_is_missing_or_idle_is_said(
    tmp_path: Path, options: dict[str, Any], field: str | None, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        corrupt_data(Request("digits"), Corruption(out=tmp_path / "x.npz", **options))
    assert caught.value.field == field
    assert caught.value.reason.startswith(sentence)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "transition", "transition": Path("T.npy")},
        {"kind": "human", "human": Path("h.csv")},
        {"kind": "confusable_pairs:0.2", "pairs": "a:b"},
        {"kind": "confusable_pairs", "rate": "0.2"},
    ],
)
def test_what_is_complete_goes_on_to_the_data(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="the data was opened"):
        corrupt_data(Request("digits"), Corruption(out=tmp_path / "x.npz", **options))
