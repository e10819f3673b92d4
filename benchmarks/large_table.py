"""Peak memory of training on a large table with columns of several kinds, read from CSV.

20 columns: 13 numbers (half of them with missing cells), 5 categories, a boolean and a date. The
table is written first, by the same process; the training has a process of its own, whose peak
resident memory is measured. `load` is the machine's load average at the end. A network is what
learns so large a table by default; it must stay within the limit.

    python benchmarks/large_table.py           # 5 million rows, also written to results/
    python benchmarks/large_table.py --quick   # 50,000 rows and no files
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import result_file
import torch

ROWS, QUICK = 5_000_000, 50_000
BLOCK = 250_000  # rows that are written together
LIMIT = 4.0  # GB
MODELS = {"mlp": ("--epochs", "1", "--batch-size", "4096"), "boosting": ("--epochs", "1")}


def block(rng: np.random.Generator, rows: int) -> pa.Table:
    """Return some rows of the table."""
    y = rng.integers(0, 3, rows)
    columns: dict[str, pa.Array] = {}
    for k in range(12):
        values = rng.normal(y * (k % 3) * 0.5, 1, rows).round(3)
        columns[f"number {k}"] = pa.array(values, mask=rng.random(rows) < 0.05 * (k % 2))
    for k in range(5):
        levels = np.array([f"level {j}" for j in range(4 * (k + 1))])
        which = (rng.integers(0, len(levels), rows) + y) % len(levels)
        columns[f"category {k}"] = pa.array(levels[which], mask=rng.random(rows) < 0.02)
    columns["flag"] = pa.array(np.where(rng.random(rows) < 0.3 + 0.2 * y, "yes", "no"))
    days = np.datetime64("2015-01-01") + rng.integers(0, 3000, rows)
    columns["day"] = pa.array(days.astype(str))
    columns["score"] = pa.array(rng.integers(0, 100, rows))
    columns["label"] = pa.array(np.array(["a", "b", "c"])[y])
    return pa.table(columns)


def write(path: Path, rows: int) -> None:
    """Write the table, a block at a time."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, BLOCK):
        some = block(rng, min(BLOCK, rows - start))
        writer = writer or pyarrow.csv.CSVWriter(path, some.schema)
        writer.write_table(some)
    assert writer is not None
    writer.close()


def measure(path: Path, model: str, rows: int) -> dict[str, Any]:
    """Train on the table in a process of its own; return its seconds and its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "proselflc", "train", str(path), "--label", "label"]
        command += ["--model", model, *MODELS[model], "--quiet"]
        started = time.perf_counter()
        done = subprocess.Popen([*command, "--out", f"{folder}/run"])
        _, status, used = os.wait4(done.pid, 0)
        seconds = time.perf_counter() - started
    done.returncode = os.waitstatus_to_exitcode(status)
    if done.returncode:
        raise SystemExit(f"training with {model} ended with {done.returncode}")
    return {
        "model": model,
        "rows": rows,
        "peak_gb": round(used.ru_maxrss * 1024 / 1e9, 2),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def table(found: list[dict[str, Any]], megabytes: float) -> str:
    """Return the measurements as Markdown."""
    lines = [
        f"A CSV file of {megabytes:,.0f} MB, 20 columns of several kinds; the limit is {LIMIT:g} "
        "GB for the network, which is the default here. One epoch, or one round of trees per "
        "model.",
        "",
        "| model | rows | peak memory | seconds | CPU seconds |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {one['model']} | {one['rows']:,} | {one['peak_gb']:.2f} GB | {one['seconds']:.0f} | "
        f"{one['cpu_seconds']:.0f} |"
        for one in found
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    options = parser.parse_args()
    rows = QUICK if options.quick else ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.csv"
        write(path, rows)
        megabytes = path.stat().st_size / 1e6
        found = [measure(path, model, rows) for model in options.models]
    text = table(found, megabytes)
    print(text)
    if not options.quick:
        made_with = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "pyarrow": pa.__version__,
            "machine": platform.machine(),
            "page_size": resource.getpagesize(),
        }
        config = {"rows": rows, "columns": 20, "options": MODELS}
        result_file.write("large_table", found, text, config=config, made_with=made_with)
    if any(one["peak_gb"] > LIMIT and one["model"] == "mlp" for one in found):
        raise SystemExit(f"more than {LIMIT:g} GB")


if __name__ == "__main__":
    main()
