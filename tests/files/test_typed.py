"""Files that do not hold what they should are refused in one sentence."""

from __future__ import annotations

import pytest

from proselflc.errors import InputError
from proselflc.files.typed import Count, Share, convert, decode_json


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": ', "JSON is malformed|truncated"),
        ('{"a": "\ud800"}', "surrogates"),
        ('{"a": 1.5}', r"expected `int`, got `float` at `\$\[...\]`"),
        ('{"a": -1}', "expected `int` >= 0"),
        ('{"a": NaN}', "malformed"),
        ("[" * 100_000, "recursion|malformed|expected"),
    ],
)
def test_damaged_json_is_named(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"^x.json is damaged: .*({reason})"):
        decode_json(text, dict[str, Count], "x.json")


def test_a_share_is_from_0_to_1() -> None:
    assert convert(1, Share, "x") == 1.0
    with pytest.raises(InputError, match="x is damaged"):
        convert(1.1, Share, "x")
