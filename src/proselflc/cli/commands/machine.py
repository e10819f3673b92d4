"""The command about the machine itself."""

from __future__ import annotations

import sys

from proselflc.errors import RunError
from proselflc.terminal.printing import print_json


def doctor(*, json: bool = False) -> None:
    """Say what is installed, what is not and how to get it, and what is odd on this machine.

    The exit code is 1 if something is missing without which nothing works.

    Args:
        json: print the result as JSON.
    """
    from proselflc.cli import doctor as examination

    found = examination.diagnose()
    if json:
        print_json(found.to_json())
    else:
        sys.stdout.write(examination.in_words(found))
    if found.faults:
        raise RunError("; ".join(found.faults))
