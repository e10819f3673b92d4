"""Output of commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

from proselflc.errors import printable


def is_main() -> bool:
    """Return whether this is the first of the processes that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Write a line that is not a result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_notes(notes: Iterable[str]) -> None:
    """Write notes, a line each."""
    for note in notes:
        say(f"note: {printable(note)}")


def complain(text: str) -> None:
    """Write an error, in one line."""
    # Once on every machine, since an error may occur on one of them alone.
    if os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0":
        sys.stderr.write(printable(" ".join(text.split())) + "\n")


def print_json(value: object) -> None:
    """Print a result as JSON."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a result as a table of aligned columns."""
    widths = [max(len(row[k]) for row in (heading, *rows)) for k in range(len(heading))]
    for row in (heading, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
