"""Time and memory of finding neighbours, and duplicates and outliers from them.

Embeddings of 384 numbers are drawn from a normal distribution, and a tenth as many are the test
part. In tight clusters of 100 the neighbours are so near that they are compared in float64 too,
which is the worst case. Each size has a process of its own; memory is by how much its peak rises
above what it had with the embeddings alone. `load` is the machine's load average at the end of a
measurement: with other work beside it the seconds are longer, and CPU seconds on two threads tell
more.

    python benchmarks/neighbours.py           # also written to results/
    python benchmarks/neighbours.py --quick   # small sizes and no files
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from typing import Any

import numpy as np
import result_file
import torch
from loader_speed import peak_bytes

from proselflc.auditing.neighbours import Examination, neighbours_of
from proselflc.auditing.plain_features import plain_features
from proselflc.data.inputs import Features

WIDTH = 384
THREADS = 2
SIZES = ((10_000, False), (20_000, False), (50_000, False), (50_000, True))
QUICK = ((1_000, False), (2_000, True))


def measure(n: int, clustered: bool) -> dict[str, Any]:
    """Return seconds and bytes for n training examples and n / 10 test examples."""
    torch.set_num_threads(THREADS)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n + n // 10, WIDTH), dtype=np.float32)
    if clustered:
        x *= 0.01
        x += np.repeat(rng.standard_normal((len(x) // 100, WIDTH), dtype=np.float32), 100, axis=0)
    before = peak_bytes()
    cpu, started = time.process_time(), time.perf_counter()
    features = plain_features(Features(x))
    assert features is not None
    standardised = time.perf_counter()
    neighbours = neighbours_of(features, n)
    found = time.perf_counter()
    result = Examination.of(neighbours, rng.integers(0, 10, n))
    ended = time.perf_counter()
    assert not result.in_test.any() or clustered
    return {
        **{"n": n, "clustered": clustered, "load": round(os.getloadavg()[0], 2)},
        "features": round(standardised - started, 2),
        "neighbours": round(found - standardised, 2),
        "examination": round(ended - found, 2),
        "seconds": round(ended - started, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_bytes": peak_bytes() - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--measure", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], bool(options.measure[1]))))
        return
    found = []
    for n, clustered in QUICK if options.quick else SIZES:
        command = [sys.executable, __file__, "--measure", str(n), str(int(clustered))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout))
        print(row(found[-1]), flush=True)
    if not options.quick:
        write(found)


def row(one: dict[str, Any]) -> str:
    """Return a line of the table."""
    what = "tight clusters" if one["clustered"] else "normal"
    parts = " | ".join(f"{one[name]:.1f}" for name in ("features", "neighbours", "examination"))
    return (
        f"| {one['n']:,} × {WIDTH} | {what} | {parts} | {one['seconds']:.1f} | "
        f"{one['cpu_seconds']:.1f} | {one['peak_bytes'] / 1e6:,.0f} | {one['load']:.1f} |"
    )


def write(found: list[dict[str, Any]]) -> None:
    """Write the numbers and the table."""
    names = ("training examples", "values", "features", "neighbours", "examination", "seconds")
    head = " | ".join((*names, "CPU seconds", "MB above the embeddings", "load"))
    made_with = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": THREADS,
    }
    versions = ", ".join(f"{name} {version}" for name, version in made_with.items())
    text = "\n".join([f"| {head} |", "|---" * 9 + "|", *map(row, found), "", f"{versions}"])
    config = {"width": WIDTH, "test": 0.1, "sizes": [one["n"] for one in found]}
    result_file.write("neighbours", found, text, config=config, made_with=made_with)


if __name__ == "__main__":
    main()
