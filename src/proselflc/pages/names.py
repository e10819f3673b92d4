"""A stranger's text as it may stand on a page: short, on one line, its codes visible."""

from __future__ import annotations

import math
import re

from proselflc.errors import printable
from proselflc.models.named_code import names_code

NAME = 60  # characters of a class, a run or an option's value that are shown
TITLE = 150  # and that are told where a pointer rests on it
TEXT = 280  # characters of an example's text

_CODES = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # controls, and halves of characters
_ENOUGH = 5  # times what is shown is looked at: texts may have a megabyte


def on_page(text: str, limit: int = NAME) -> str:
    """The text on one line, cut at its end where it is longer than `limit`.

    Unlike `errors.shown` it keeps what joins letters of some scripts; a page holds text of any
    direction apart by itself.

    >>> on_page("a\\n  b\\x1b[31m")
    'a b\\\\x1b[31m'
    >>> on_page("x" * 10, 4)
    'xxx…'
    """
    line = _line(text[: _ENOUGH * limit])
    whole = len(line) <= limit and len(text) <= _ENOUGH * limit
    return line if whole else line[: limit - 1] + "…"


def in_the_middle(text: str, limit: int = NAME) -> str:
    """The text on one line, cut in its middle: of a path, the end says most.

    >>> in_the_middle("train/cats/0001.png", 11)
    'train…1.png'
    """
    if len(text) > 2 * _ENOUGH * limit:
        text = text[: _ENOUGH * limit] + text[-_ENOUGH * limit :]
    line = _line(text)
    if len(line) <= limit:
        return line
    tail = limit // 2
    return line[: limit - 1 - tail] + "…" + line[-tail:]


def warning_of_code(model: object) -> str:
    """A line before a command that would execute what a run says makes its model; else nothing.

    >>> warning_of_code("evil:make").partition(":")[0]
    '# The model of this run is made by code that is not part of proselflc, evil'
    >>> warning_of_code("mlp")
    ''
    """
    if not names_code(model):
        return ""
    return (
        "# The model of this run is made by code that is not part of proselflc, "
        f"{printable(on_page(str(model), TITLE))}: add it with --model if you trust it\n"
    )


def distinct(names: list[str], limit: int = 32) -> list[str]:
    """Short names that differ from each other, in their order.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    found: list[str] = []
    for name in names:
        short = in_the_middle(name, limit) or "run"
        again = 1
        while short in found:
            again += 1
            short = f"{in_the_middle(name, limit)} ({again})"
        found.append(short)
    return found


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 in words; empty where it is unknown.

    >>> percent(0.774), percent(0.384, 0), percent(None)
    ('77.4%', '38%', '')
    """
    if share is None or not math.isfinite(share):
        return ""
    return f"{share:.{digits}%}"


def chance(share: float | None) -> str:
    """A probability in words, never more certain than it is; empty where it is unknown.

    >>> chance(0.774), chance(0.001), chance(0.999), chance(None)
    ('77%', '<1%', '>99%', '')
    """
    if share is not None and 0 <= share < 0.005:
        return "<1%"
    return ">99%" if share is not None and 0.995 < share <= 1 else percent(share, 0)


def _line(text: str) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return _CODES.sub(lambda code: ascii(code[0])[1:-1], line)


def in_ten(share_of_1: float) -> str:
    """A share as people say it.

    >>> in_ten(0.88), in_ten(0.97), in_ten(0.01)
    ('about 9 in 10', 'nearly all', 'hardly any')
    """
    tenths = round(10 * share_of_1)
    if tenths >= 10:
        return "nearly all"
    return f"about {tenths} in 10" if tenths > 0 else "hardly any"
