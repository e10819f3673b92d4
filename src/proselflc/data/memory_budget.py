"""How much memory numbers per example and class, or per pair of classes, may take.

With n examples and C classes, n·C and C² outgrow any machine long before n, C and the data do.
This is the one place that says where a dense array ends: beyond it only the largest numbers of each
example or the cells that are not 0 are kept, or the work is streamed in blocks. What needs every
number is refused before anything is computed, with the figure.
"""

from __future__ import annotations

import os
from pathlib import Path

from proselflc.errors import InputError

DENSE_CLASSES = 2000  # classes up to which a [C, C] matrix is an array, 32 MB of float64
DENSE_NUMBERS = 10**8  # n·C up to which [n, C] is kept whole, 200 MB of float16
LIMIT = 4 * 10**9  # bytes that one thing may take, unless the user says otherwise
VARIABLE = "PROSELFLC_MEMORY_GB"

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def is_dense(num_classes: int) -> bool:
    """Return whether a matrix of these classes is an array rather than a list of cells."""
    return num_classes <= DENSE_CLASSES


def keeps_all(num_examples: int, num_classes: int) -> bool:
    """Return whether a number per example and class is kept, rather than the largest of each."""
    return num_examples * num_classes <= DENSE_NUMBERS


def limit() -> int:
    """Return the bytes that one thing may take: `LIMIT`, or what the environment variable says."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return LIMIT
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e9:
        raise InputError(
            f"the environment variable {VARIABLE} is {text[:40]!r}: expected gigabytes, such as 16"
        )
    return int(found * 1e9)


def available() -> int | None:
    """Return the bytes of memory that the system can give; None where it does not tell.

    In a container that may have less than the machine has, it is what the container has left.
    """
    found = []
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        found.append(1024 * int(fields["MemAvailable"].split()[0]))
    except (OSError, ValueError, LookupError):
        pass
    try:
        most = int((_CGROUP / "memory.max").read_text(encoding="ascii"))  # or the word max
        lines = (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        used = dict(line.split() for line in lines)["anon"]  # the rest can be given back
        found.append(max(0, most - int(used)))
    except (OSError, ValueError, LookupError):
        pass
    return min(found, default=None)


def require(needed: int, what: str, instead: str) -> None:
    """Refuse what takes more memory than there is, or than one thing may take.

    `what` is the subject of the sentence, such as "the method elr keeps … and", and `instead` what
    to do, as an imperative clause.
    """
    most, free = limit(), available()
    if needed > most:
        raise InputError(
            f"{what} needs {gigabytes(needed)} of memory, and the limit is {gigabytes(most)}: "
            f"{instead}, or raise the limit with {VARIABLE}={-(-needed // 10**9)}"
        )
    if free is not None and needed > free:
        raise InputError(
            f"{what} needs {gigabytes(needed)} of memory, and {gigabytes(free)} are free: {instead}"
        )


def gigabytes(size: int) -> str:
    """Return a number of bytes in words.

    >>> gigabytes(16 * 10**9), gigabytes(31_000_000)
    ('16.0 GB', '0.031 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e9:.2g} GB"
