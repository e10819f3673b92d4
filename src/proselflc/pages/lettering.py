"""Names in figures: what may stand there, how much of it, and how wide that is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from hashlib import sha256

from proselflc.errors import printable
from proselflc.pages.names import in_the_middle

NAME = 32  # letters of a run's name
TOLD = 6  # runs whose numbers an alternative text says


def told(said: Sequence[str]) -> str:
    """What alternative text says of runs: of the first ones all, of the others how many."""
    return ", ".join([*said[:TOLD], *([f"{len(said) - TOLD} more"] if len(said) > TOLD else [])])


def label(text: str, limit: int = NAME) -> str:
    """A stranger's text on one line, cut in its middle; what XML cannot hold is made visible."""
    return in_the_middle(printable(in_the_middle(text, limit)), limit)


def extent(text: str, size: float) -> float:
    """About how wide a text is, in points, in a wide font; it need not be drawn for that."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.58 * len(text) + 0.42 * wide)


def named_after(run: str, name: str) -> str:
    """The name of a run's figure; that of another run differs, whatever the two are called.

    >>> named_after("", "quality"), named_after("a b", "quality")
    ('quality', 'a-b-c8687a08-quality')
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", run[:40]).strip("-")
    if plain != run:
        plain = (
            f"{plain or 'run'}-{sha256(run.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"
        )
    return f"{plain}-{name}" if run else name
