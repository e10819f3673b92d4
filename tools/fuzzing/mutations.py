"""Ways to damage any content, and content that is text: JSON, TOML, tables and lists.

Every function takes the content and a random generator and returns other content. Which one is
used, and how, follows from the generator alone, so that a case can be repeated by its number.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Random: TypeAlias = random.Random
Change: TypeAlias = Callable[[bytes, Random], bytes]
DEEP = 10_000  # levels of a value that is nested too deep
LONG = 100_000  # characters of a string that is too long
_RAW = "\x02raw:"  # marks text that goes into JSON as it is


# Any content


def flip_bits(content: bytes, draw: Random) -> bytes:
    """Flip from one to eight bits."""
    result = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8)) if content else 0):
        result[draw.randrange(len(result))] ^= 1 << draw.randrange(8)
    return bytes(result)


def truncate(content: bytes, draw: Random) -> bytes:
    """Truncate: keep nothing, a byte, a header, about half, or all but the end."""
    n = len(content)
    kept = (0, 1, 4, 8, 16, 64, n // 4, n // 2, n - 64, n - 8, n - 2, n - 1, draw.randrange(n + 1))
    return content[: max(0, min(n, draw.choice(kept)))]


def behead(content: bytes, draw: Random) -> bytes:
    """Drop the beginning."""
    return content[draw.choice((1, 2, 8, draw.randrange(len(content) + 1))) :]


def zero_block(content: bytes, draw: Random) -> bytes:
    """Fill a block with zeros or ones, as a disk with a lost sector does."""
    start, length = _block(content, draw)
    fill = draw.choice((b"\0", b"\0", b"\xff"))
    return content[:start] + fill * length + content[start + length :]


def double_block(content: bytes, draw: Random) -> bytes:
    """Repeat a block."""
    start, length = _block(content, draw)
    return content[: start + length] + content[start:]


def drop_block(content: bytes, draw: Random) -> bytes:
    """Remove a block."""
    start, length = _block(content, draw)
    return content[:start] + content[start + length :]


def swap_blocks(content: bytes, draw: Random) -> bytes:
    """Exchange two blocks of the same length."""
    one, length = _block(content, draw)
    two = draw.randrange(len(content) - length + 1) if content else 0
    one, two = min(one, two), max(one, two)
    length = min(length, two - one)
    first, second = content[one : one + length], content[two : two + length]
    return content[:one] + second + content[one + length : two] + first + content[two + length :]


def extreme_number(content: bytes, draw: Random) -> bytes:
    """Write an extreme number over some bytes, where a length or a count may be."""
    number = draw.choice(
        (
            b"\xff" * 4,
            b"\xff" * 8,
            b"\xff\xff\xff\x7f",
            b"\0\0\0\x80",
            b"\x7f\xff\xff\xff",
            b"\0" * 8,
        )
    )
    start = draw.randrange(min(len(content), draw.choice((64, 1 << 30))) + 1)
    return content[:start] + number + content[start + len(number) :]


def append(content: bytes, draw: Random) -> bytes:
    """Append bytes after the end."""
    return content + draw.choice((b"\0", b"\n", b"x" * 100, b"\0" * 4096, content, b"\xff\xfe{"))


def insert(content: bytes, draw: Random) -> bytes:
    """Insert odd bytes somewhere."""
    start = draw.randrange(len(content) + 1)
    odd = draw.choice((b"\0", b"\xff", b"\xef\xbb\xbf", b"\x1b[31m", b"\r", "é".encode(), b"\n\n"))
    return content[:start] + odd + content[start:]


def noise(content: bytes, draw: Random) -> bytes:
    """Return random bytes of the same length."""
    return draw.randbytes(len(content))


def empty(content: bytes, draw: Random) -> bytes:
    """Return nothing."""
    return b""


def _block(content: bytes, draw: Random) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(len(content) - start, draw.choice((1, 2, 8, 64, 512, len(content) // 2 + 1)))


BYTES: tuple[Change, ...] = (
    *(flip_bits, flip_bits, truncate, truncate, behead, zero_block, double_block, drop_block),
    *(swap_blocks, extreme_number, append, insert, noise, empty),
)


# JSON and TOML


def _odd(draw: Random) -> object:
    """Return a value that a reader may not expect; text after `_RAW` goes into JSON unchanged."""
    return draw.choice(
        (
            *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, -(10**400), 0.5, 1e308, -0.0),
            *("", "x", "0", "NaN", "../../outside", "a\0b", "a\nb", "\x1b[2J", "é" * 50),
            *([], {}, [[]], [None], {"": None}, [1, 2, 3], ["a"], {"a": {"b": []}}),
            *(_RAW + "NaN", _RAW + "Infinity", _RAW + "-Infinity", _RAW + "1e999"),
            *(_RAW + '"\\ud800"', _RAW + "[" * DEEP + "]" * DEEP, _RAW + "9" * 5000),
            *(_RAW + '{"a":' * DEEP + "1" + "}" * DEEP, "y" * LONG),
        )
    )


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path to every value within a value, its own first."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:50]))
    return [path, *(one for key, item in inner for one in _places(item, (*path, key)))]


def change_value(value: Any, draw: Random) -> Any:
    """Return a value with one change: something replaced, removed, wrapped or added."""
    path = draw.choice(_places(value))
    if not path:
        return draw.choice((_odd(draw), [value], {"value": value}, value))
    owner = value
    for key in path[:-1]:
        owner = owner[key]
    key, how = path[-1], draw.randrange(10)
    if how == 0:
        del owner[key]
    elif how == 1:
        owner[key] = [owner[key]]
    elif how == 2:
        owner[key] = str(owner[key])
    elif how == 3 and isinstance(owner[key], int | float):
        owner[key] = draw.choice((-owner[key], owner[key] * 10**6, owner[key] + 1, 0))
    elif how == 4 and isinstance(owner, list):
        owner.extend(owner[:] * draw.choice((1, 100)))
    elif how == 5 and isinstance(owner, dict):
        owner[draw.choice(("", "surprise", "__class__", "x" * 1000))] = _odd(draw)
    else:
        owner[key] = _odd(draw)
    return value


def _json_text(value: object) -> str:
    """Return JSON in which raw text is kept unchanged."""
    text = json.dumps(value)
    marker = json.dumps(_RAW)[1:-1]
    pieces = text.split('"' + marker)
    result = [pieces[0]]
    for piece in pieces[1:]:
        raw, rest = json.JSONDecoder().raw_decode('"' + piece)
        result.append(str(raw) + ('"' + piece)[rest:])
    return "".join(result)


def json_value(content: bytes, draw: Random) -> bytes:
    """Return JSON with a value changed."""
    try:
        value = json.loads(content)
    except ValueError:
        return flip_bits(content, draw)
    return _json_text(change_value(value, draw)).encode()


def json_double_key(content: bytes, draw: Random) -> bytes:
    """Return JSON with a repeated key."""
    text = content.decode()
    if not text.lstrip().startswith("{"):
        return flip_bits(content, draw)
    key = draw.choice([*json.loads(text), "x"])
    return text.replace(
        "{", "{" + json.dumps(key) + ": " + _json_text(_odd(draw)) + ", ", 1
    ).encode()


JSON: tuple[Change, ...] = (*(json_value,) * 12, json_double_key, *BYTES)


def json_line(content: bytes, draw: Random) -> bytes:
    """Return JSON lines with a line changed, removed, doubled, moved or inserted."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return b"{}\n"
    k, how = draw.randrange(len(lines)), draw.randrange(12)
    if how == 0:
        del lines[k]
    elif how == 1:
        lines.insert(k, lines[k])
    elif how == 2:
        j = draw.randrange(len(lines))
        lines[k], lines[j] = lines[j], lines[k]
    elif how == 3:
        lines.insert(k, draw.choice((b"\n", b"null\n", b"{}\n", b"garbage\n", b"[]\n", b"{\n")))
    elif how == 4:
        lines[-1] = lines[-1].rstrip(b"\n")
    elif how == 5:
        lines[k] = truncate(lines[k], draw)
    else:
        lines[k] = json_value(lines[k], draw) + b"\n"
    return b"".join(lines)


JSONL: tuple[Change, ...] = (*(json_line,) * 14, *BYTES)


def toml_value(content: bytes, draw: Random) -> bytes:
    """Return TOML with a value changed; values that TOML cannot hold become strings."""
    import tomli_w

    try:
        table = tomllib.loads(content.decode())
    except ValueError:
        return flip_bits(content, draw)
    value = change_value(table, draw)
    if not isinstance(value, dict):
        value = {"value": value}

    def plain(one: Any) -> Any:
        if isinstance(one, dict):
            return {str(key): plain(item) for key, item in one.items()}
        if isinstance(one, list):
            return [plain(item) for item in one]
        if isinstance(one, str) and one.startswith(_RAW):
            return float("nan") if len(one) < 30 else one[5:2000]
        return "null" if one is None else one

    return tomli_w.dumps(plain(value)).encode("utf-8", "replace")


def toml_line(content: bytes, draw: Random) -> bytes:
    """Return TOML with a line doubled or removed, or an odd line added."""
    lines = content.splitlines(keepends=True)
    k = draw.randrange(len(lines) + 1)
    odd = (
        *(b"[[[\n", b"a = " + b"[" * DEEP + b"]" * DEEP + b"\n", b"x = nan\n", b"= 1\n"),
        *(b"lr = inf\n", b'method = "x"\n', b"[method]\n", b"format = 999\n", b"epochs = -1\n"),
        *(b"epochs = " + b"9" * 30 + b"\n", b'model = "os:system"\n', b"a" * LONG + b" = 1\n"),
        *(b'data = "/dev/zero"\n', b"a.b.c.d = 1\n", b"d = 1979-05-27T07:32:00Z\n", b"\0\n"),
    )
    how = draw.randrange(4)
    if how == 0 and lines:
        del lines[min(k, len(lines) - 1)]
    elif how == 1 and lines:
        lines.insert(k, lines[min(k, len(lines) - 1)])
    else:
        lines.insert(k, draw.choice(odd))
    return b"".join(lines)


TOML: tuple[Change, ...] = (*(toml_value,) * 10, *(toml_line,) * 6, *BYTES)


# Tables and lines of text


def text_cell(content: bytes, draw: Random) -> bytes:
    """Return a table or list with a cell replaced."""
    lines = content.split(b"\n")
    k = draw.randrange(len(lines))
    separator = b"\t" if b"\t" in content else b" " if b"," not in content else b","
    cells = lines[k].split(separator)
    cells[draw.randrange(len(cells))] = draw.choice(
        (
            *(b"", b"nan", b"inf", b"1e999", b"-1", b"9" * 400, b"x", b'"', b"'", b"=1+1", b"\0"),
            *(
                b"\xff\xfe",
                b"../../outside/canary",
                b"/dev/zero",
                b"a" * LONG,
                b"  ",
                b"1,5",
                b"\r",
            ),
            *(b"\xe2\x80\xae", b"NULL", b"0x10", b"1_000", b"True", separator * 3),
        )
    )
    lines[k] = separator.join(cells)
    return b"\n".join(lines)


def text_line(content: bytes, draw: Random) -> bytes:
    """Return text with lines doubled, removed, joined, truncated or in another encoding."""
    lines = content.split(b"\n")
    k, how = draw.randrange(len(lines)), draw.randrange(9)
    if how == 0:
        del lines[k]
    elif how == 1:
        lines.insert(k, lines[k])
    elif how == 2:
        lines = lines[:1]
    elif how == 3:
        lines = lines[:2] + lines[2:] * 3
    elif how == 4:
        return b"\r\n".join(lines)
    elif how == 5:
        return content.decode("utf-8", "replace").encode(
            draw.choice(("utf-16", "utf-32", "utf-8-sig"))
        )
    elif how == 6:
        lines[k] = lines[k][: len(lines[k]) // 2]
    elif how == 7:
        lines.insert(k, draw.choice((b"", b",,,,,,,", b"# comment", b'"open', b"\t\t", b"\0")))
    else:
        draw.shuffle(lines)
    return b"\n".join(lines)


TEXT: tuple[Change, ...] = (*(text_cell,) * 8, *(text_line,) * 8, *BYTES)
