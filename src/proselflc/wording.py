"""How options and commands are written in messages: as the reader would type them.

Messages below the command line name an option by `option("lr")`. The command line has it written
`--lr`; everywhere else it is a keyword argument, `lr=`. No other module spells an option.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Value = str | int | float | bool | tuple[str | int | float, ...] | None


def _keyword(field: str, value: Value) -> str:
    own = field.removeprefix("method.")
    if own != field:
        field = f'parameters["{own}"]'
        return field if value is None else f"{field} = {value!r}"
    if isinstance(value, tuple):
        value = value[0] if len(value) == 1 else value
    return f"{field}=" if value is None else f"{field}={value!r}"


def _flag(field: str, value: object) -> str:
    name = "--" + field.replace("_", "-")
    if value is None or value is True:
        return name
    texts = [str(one) for one in value] if isinstance(value, tuple) else [str(value)]
    plain = [shlex.quote(text) for text in texts if not text.startswith("-")]
    # Apart from its flag, a text that begins with a dash would be read as another flag.
    dashed = [shlex.quote(f"{name}={text}") for text in texts if text.startswith("-")]
    return " ".join([name, *plain, *dashed] if plain or not dashed else dashed)


_spelling: ContextVar[Callable[[str, Value], str]] = ContextVar("spelling", default=_keyword)


@contextmanager
def on_command_line() -> Iterator[None]:
    """Write options as flags: `--lr` instead of `lr=`."""
    token = _spelling.set(_flag)
    try:
        yield
    finally:
        _spelling.reset(token)


def is_command_line() -> bool:
    """Return whether options are written as flags, to start processes that do the same."""
    return _spelling.get() is _flag


def option(field: str, value: Value = None) -> str:
    """Return an option as the reader would type it.

    Args:
        field: its Python name; a method's own parameter is "method.NAME".
        value: a value to show with it; True for a flag, a tuple for several values.

    >>> option("lr"), option("clip", 1), option("resume", True), option("method.epsilon")
    ('lr=', 'clip=1', 'resume=True', 'parameters["epsilon"]')
    >>> with on_command_line():
    ...     option("batch_size"), option("clip", 1), option("resume", True), option("method.b")
    ('--batch-size', '--clip 1', '--resume', '--method.b')
    >>> with on_command_line():
    ...     option("ignore_column", ("age", "home town", "-x"))
    "--ignore-column age 'home town' --ignore-column=-x"
    """
    return _spelling.get()(field, value)


def command(name: str, *arguments: object, **options: object) -> str:
    """Return a command for the shell, quoted where needed.

    Options that are None, False or an empty tuple are left out; True is a flag without a value, and
    a tuple is an option with several values.

    >>> command("train", data="my data.csv", epochs=30, resume=True, out=None)
    "proselflc train --data 'my data.csv' --epochs 30 --resume"
    >>> command("export", "runs/a", ignore_column=("x", "y"))
    'proselflc export runs/a --ignore-column x y'
    >>> command("train", ignore_column=(), seeds=(1, 2), data="-x.csv")
    'proselflc train --seeds 1 2 --data=-x.csv'
    """
    words = [shlex.quote(str(word)) for word in arguments]
    given = {field: v for field, v in options.items() if v not in (None, ()) and v is not False}
    words += [_flag(field, value) for field, value in given.items()]
    return " ".join(["proselflc", name, *words])
