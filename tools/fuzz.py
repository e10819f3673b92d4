"""Damage every file that proselflc reads in many ways, and count the outcomes of its commands.

python tools/fuzz.py --cases 20000             writes benchmarks/results/fuzz.json
python tools/fuzz.py --case 1281 --seed 0      repeats one case and prints all about it
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

from fuzzing.cases import Fuzzer, Result
from fuzzing.outcome import FAILURES

OUT = Path(__file__).parents[1] / "benchmarks" / "results" / "fuzz.json"
DRAWING = 10  # the figures of a report are drawn in one case out of ten
SILENT = 300  # seconds without a word after which a process is taken to hang


def work(line: Connection, numbers: range, seed: int) -> None:
    """Run cases in a worker process; send each result through the pipe, and None at the end."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for result in Fuzzer(Path(folder), seed, drawing=DRAWING).run(numbers):
            line.send(result)
    line.send(None)


def results(cases: int, processes: int, seed: int) -> Iterator[Result]:
    """Yield the results of all cases from several processes, killing one that hangs."""
    context = multiprocessing.get_context("spawn")
    running = {}
    for k in range(processes):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(there, range(k, cases, processes), seed))
        process.start()
        there.close()
        running[here] = (process, k, 0)
    while running:
        ready_now = wait(list(running), timeout=1)
        for ready in ready_now:
            assert isinstance(ready, Connection)
            process, number, _ = running[ready]
            try:
                result = ready.recv()
            except EOFError:
                yield Result(number, "run", "", "", "", "traceback", "the process ended")
                result = None
            if result is None:
                process.join()
                del running[ready]
            else:
                running[ready] = (process, result.number, 0)
                yield result
        for line, (process, number, waited) in list(running.items() if not ready_now else ()):
            running[line] = (process, number, waited + 1)
            if waited >= SILENT:
                process.kill()
                del running[line]
                yield Result(number, "run", "", "", "", "hang", "the process was killed")


def main() -> int:
    """Run the cases, print the failures, write the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--case", type=int, help="repeat this one alone")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.case is not None:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            for one in Fuzzer(Path(folder), options.seed).run([options.case]):
                print(*(f"{name}: {value}" for name, value in one._asdict().items()), "", sep="\n")
        return 0
    counts: dict[str, Counter[str]] = {}
    seen: dict[str, set[int]] = {}
    began, failures = time.monotonic(), 0
    files: set[str] = set()

    def write() -> int:
        """Write the counts so far, and return the number of cases."""
        cases = sum(map(len, seen.values()))
        groups = {
            group: {"cases": len(seen[group]), **dict(sorted(counts[group].items()))}
            for group in sorted(counts)
        }
        written = {"cases": cases, "seed": options.seed, "files": len(files), "groups": groups}
        options.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
        return cases

    for number, one in enumerate(results(options.cases, options.processes, options.seed)):
        counts.setdefault(one.group, Counter())[one.kind] += 1
        seen.setdefault(one.group, set()).add(one.number)
        files.add(one.subject)
        if one.kind in FAILURES:
            failures += 1
            print(f"case {one.number}, {one.subject}, {one.damage}, {one.command}: {one.kind}")
            print(one.words[-3000:])
            print(f"repeat it: python tools/fuzz.py --case {one.number} --seed {options.seed}\n")
        if number % 1000 == 999:
            print(f"{write():,} cases, {number + 1:,} commands, {failures} failures", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{write():,} cases in {minutes:.0f} minutes, {failures} failures: {options.out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
