"""A large table with columns of several kinds is read in little memory.

benchmarks/large_table.py measures 5 million rows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROWS = 200_000
PER_ROW = 550  # bytes, 377 when this was written; 5 million rows then take 2.75 GB
READ = """
import resource, sys
from proselflc.data.opening import open_data
from proselflc.data.request import Request
import pyarrow.compute, torch, proselflc.data.tables.encoding
open_data(Request(sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = open_data(Request(sys.argv[1]))
assert len(data.train) == int(sys.argv[3])
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


def write(path: Path, rows: int) -> None:
    columns = [f"n{k}" for k in range(13)] + [f"c{k}" for k in range(5)] + ["flag", "day", "label"]
    lines = [",".join(columns)]
    for k in range(rows):
        cells = ("" if (k + j) % 20 == 0 else f"{(k * (j + 3)) % 997 / 100}" for j in range(13))
        numbers = ",".join(cells)
        words = ",".join(f"level {(k + j) % (4 * j + 4)}" for j in range(5))
        day = f"2021-{k % 12 + 1:02d}-{k % 28 + 1:02d}"
        lines.append(f"{numbers},{words},{'yes' if k % 3 else 'no'},{day},{'abc'[k % 3]}")
    path.write_text("\n".join(lines) + "\n")


def test_many_rows_take_little_memory(tmp_path: Path) -> None:
    large, small = tmp_path / "large.csv", tmp_path / "small.csv"
    write(large, ROWS)
    write(small, 100)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(large), str(small), str(ROWS)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < PER_ROW * ROWS, int(done.stdout) / ROWS
