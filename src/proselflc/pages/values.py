"""Values of untrusted files as a page may show them: numbers that are numbers, text on one line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from proselflc.errors import printable
from proselflc.models.factory import names_code
from proselflc.wording import on_command_line, option

NAME = 60  # characters of a class, a run or an option's value
ID = 100  # characters of an example's id, which may be a path
TITLE = 150  # characters of a tooltip
TEXT = 280  # characters of an example's text

_CODES = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # controls, and halves of characters
_ENOUGH = 5  # times the limit is processed: texts may have a megabyte


def shorten(text: str, limit: int = NAME) -> str:
    """Return a text on one line, cut at its end if it is longer than `limit`.

    Unlike `errors.printable` it keeps joiners, which some scripts need; a page isolates text of
    any direction.

    >>> shorten("a\\n  b\\x1b[31m")
    'a b\\\\x1b[31m'
    >>> shorten("x" * 10, 4)
    'xxx…'
    """
    line = _line(text[: _ENOUGH * limit])
    whole = len(line) <= limit and len(text) <= _ENOUGH * limit
    return line if whole else line[: limit - 1] + "…"


def shorten_middle(text: str, limit: int = NAME) -> str:
    """Return a text on one line, cut in its middle: the end of a path says most.

    >>> shorten_middle("train/cats/0001.png", 11)
    'train…1.png'
    """
    if len(text) > 2 * _ENOUGH * limit:
        text = text[: _ENOUGH * limit] + text[-_ENOUGH * limit :]
    line = _line(text)
    if len(line) <= limit:
        return line
    tail = limit // 2
    return line[: limit - 1 - tail] + "…" + line[-tail:]


def code_warning(model: object) -> str:
    """Return a comment for a command that would execute code named by a run, else nothing.

    >>> code_warning("evil:make").partition(":")[0]
    '# The model of this run is made by code that is not part of proselflc, evil'
    >>> code_warning("mlp")
    ''
    """
    if not names_code(model):
        return ""
    with on_command_line():
        name = option("model")
    return (
        "# The model of this run is made by code that is not part of proselflc, "
        f"{printable(shorten(str(model), TITLE))}: add it with {name} if you trust it\n"
    )


def _line(text: str) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return _CODES.sub(lambda code: ascii(code[0])[1:-1], line)


def distinct_names(names: list[str], limit: int = 32) -> list[str]:
    """Return short names that differ from each other, in the same order.

    >>> distinct_names(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    found: list[str] = []
    for name in names:
        short = shorten_middle(name, limit) or "run"
        again = 1
        while short in found:
            again += 1
            short = f"{shorten_middle(name, limit)} ({again})"
        found.append(short)
    return found


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; empty if it is unknown.

    >>> percent(0.774), percent(0.384, 0), percent(None)
    ('77.4%', '38%', '')
    """
    if share is None or not math.isfinite(share):
        return ""
    return f"{share:.{digits}%}"


def format_chance(share: float | None) -> str:
    """Return a probability as a percentage that never claims certainty; empty if unknown.

    >>> format_chance(0.774), format_chance(0.001), format_chance(0.999), format_chance(None)
    ('77%', '<1%', '>99%', '')
    """
    if share is not None and 0 <= share < 0.005:
        return "<1%"
    return ">99%" if share is not None and 0.995 < share <= 1 else percent(share, 0)


def share_in_words(share_of_1: float) -> str:
    """Return a share in words.

    >>> share_in_words(0.88), share_in_words(0.97), share_in_words(0.01)
    ('about 9 in 10', 'nearly all', 'hardly any')
    """
    tenths = round(10 * share_of_1)
    if tenths >= 10:
        return "nearly all"
    return f"about {tenths} in 10" if tenths > 0 else "hardly any"


def finite(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of many digits
        return None


def number(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the finite number of that name, or None."""
    return finite(facts.get(name))


def share(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the number in [0, 1] of that name, or None."""
    return in_unit(facts.get(name))


def text(facts: Mapping[str, Any], name: str) -> str:
    """Return the string of that name; empty where there is none."""
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def in_unit(value: object) -> float | None:
    """Return a number in [0, 1], or None."""
    found = finite(value)
    return found if found is not None and 0 <= found <= 1 else None


def flattened(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a config without inner tables; the method's name is `method`.

    >>> flattened({"seed": 0, "method": {"name": "elr", "beta": 0.7}})
    {'seed': 0, 'method': 'elr', 'method.beta': 0.7}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= {
                key if key == "method" and name == "name" else f"{key}.{name}": inner
                for name, inner in value.items()
            }
        else:
            flat[key] = value
    return flat
