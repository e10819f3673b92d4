"""Errors that tell the user what was given, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from proselflc.wording import option


class RunError(Exception):
    """A run could not continue although its input was valid. The message is one sentence."""


class InputError(ValueError):
    """The user's input was wrong. The message is one sentence that ends with what to do.

    The command line prints it alone on stderr and exits with 2. File names and cells are
    untrusted, so line breaks and terminal codes in them are escaped.

    Args:
        reason: what was given and what was expected.
        field: the option at fault, by its Python name, such as "batch_size" or "method.epsilon".
        fix: what to do, as a clause that follows a colon.

    >>> print(InputError("cannot read a\\nb\\x1b[31m.png", fix="remove the file"))
    cannot read a\\nb\\x1b[31m.png: remove the file
    """

    def __init__(self, reason: str, *, field: str | None = None, fix: str | None = None) -> None:
        self.reason = printable(reason)
        self.field = field
        self.fix = None if fix is None else printable(fix)
        super().__init__(self.reason if self.fix is None else f"{self.reason}: {self.fix}")


def invalid_option(field: str, expected: str, *, fix: str | None = None) -> InputError:
    """Return the error for an option whose value cannot be used.

    Args:
        field: its Python name.
        expected: the rest of a sentence that begins with the option.
        fix: what to do, if the sentence does not say it.

    >>> print(invalid_option("lr", "must be positive, got -1"))
    lr= must be positive, got -1
    """
    return InputError(f"{option(field)} {expected}", field=field, fix=fix)


def printable(text: str) -> str:
    """Return untrusted text as it may go to a terminal: line breaks and codes are escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence that says `name` is not a known `kind`, and which one was probably meant.

    >>> unknown("method", "proselfc", ["proselflc", "cce"])
    'unknown method "proselfc"; did you mean "proselflc"? Known: cce, proselflc'
    >>> unknown("class", "zebra", ["cat", "dog"])
    'unknown class "zebra"; known: cat, dog'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    hint = f'did you mean "{close[0]}"? Known' if close else "known"
    return f'unknown {kind} "{name}"; {hint}: {", ".join(names)}'
