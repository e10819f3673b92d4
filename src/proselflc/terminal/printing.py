"""What commands say: results on the standard output, all else on the standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

from proselflc.errors import printable


def is_main() -> bool:
    """Whether this is the process that speaks, of those that torchrun has started."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Tell the user something that is no result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_notes(notes: Iterable[str]) -> None:
    """Tell the user what may not be expected, a line each."""
    for note in notes:
        say(f"note: {printable(note)}")


def complain(text: str) -> None:
    """Tell the user what is wrong, in a line."""
    # Once on every machine: what is wrong may be wrong on one of them alone.
    if os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0":
        sys.stderr.write(printable(" ".join(text.split())) + "\n")


def print_json(value: object) -> None:
    """Print a result for programs."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a result for people."""
    widths = [max(len(row[k]) for row in (heading, *rows)) for k in range(len(heading))]
    for row in (heading, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
