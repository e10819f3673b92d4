"""Messages for the user: what came, what was expected, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class RunError(Exception):
    """A run could not go on, by no mistake in the input. The message is one sentence."""


class InputError(ValueError):
    """The user's input was wrong. Its message is one sentence that says what to do about it.

    The command line prints it alone on stderr and exits with 2. File names and cells come from
    strangers, so line breaks and terminal codes in them are shown, not obeyed.

    >>> print(InputError("cannot read a\\nb\\x1b[31m.png"))
    cannot read a\\nb\\x1b[31m.png
    """

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


def shown(text: str) -> str:
    """A stranger's text as it may go to a terminal: line breaks and codes visible, not obeyed."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that `name` is not a known `kind`, and which one was probably meant.

    >>> unknown("method", "proselfc", ["proselflc", "cce"])
    'unknown method "proselfc"; did you mean "proselflc"? Known: cce, proselflc'
    >>> unknown("class", "zebra", ["cat", "dog"])
    'unknown class "zebra"; known: cat, dog'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    hint = f'did you mean "{close[0]}"? Known' if close else "known"
    return f'unknown {kind} "{name}"; {hint}: {", ".join(names)}'
