"""What a command of proselflc takes, in a process of its own.

The system's figure for a process's peak of memory is at least what its parent had when it was
started. So this file is also a small program, which starts the command and prints what it took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict


class Cost(TypedDict):
    """Wall and processor seconds, and the peak of memory."""

    seconds: float
    processor_seconds: float
    peak_gigabytes: float


def measure(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Cost:
    """Run `proselflc ARGUMENTS` in a folder, with additions to the environment.

    Raises:
        SystemExit: the command failed.
    """
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"proselflc {' '.join(arguments)} failed")
    cost: Cost = json.loads(done.stdout)
    return cost


def main() -> None:
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "proselflc", *sys.argv[1:]], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cost: Cost = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "peak_gigabytes": 1024 * used.ru_maxrss / 1e9,
    }
    print(json.dumps(cost))
    sys.exit(process.returncode)


if __name__ == "__main__":
    main()
