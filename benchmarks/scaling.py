"""What grows with the data: time and memory of the records, from 10⁴ examples to ImageNet's.

For n examples of C classes, each in a process of its own: an epoch of steps of 1024 is recorded
with the means of p and q̃ (beyond n·C = 10⁸ of their five largest classes), the epoch's file and a
checkpoint are written, then the means. The audit looks at ten copies of the epoch, and
`examples.parquet` and the report are made of that. The same epoch is also measured as an evaluation
point is. Networks are left out: their time is not ours.

Memory is by how much the peak rises above what the process had before. Slopes are those of a line
through the logarithms: 1 is linear. What does not grow, such as a batch, flattens the beginning, so
that they are given for large n alone as well.

`--many-classes` runs the commands themselves, with the network, on 200,000 examples of 20,000
classes, each in a process of its own whose peak memory is the system's figure for it, Python and
torch included. One number per example and class would take 8 GB in half precision, and one per
pair of classes 3.2 GB in double precision.

    python benchmarks/scaling.py            # the table, also written to benchmarks/results/
    python benchmarks/scaling.py --quick    # small sizes only and no result files
    python benchmarks/scaling.py --many-classes    # that case alone, and its result files
    python benchmarks/scaling.py --processes    # speed in two processes beside bare DDP, alone

`bare_ddp.py` says what the last one measures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bare_ddp
import commands
import numpy as np
import numpy.typing as npt
import result_file
import torch

from proselflc.auditing import verdict
from proselflc.auditing.audit import Audit
from proselflc.auditing.examples import write_parquet
from proselflc.auditing.fitting import Fitting
from proselflc.auditing.records import Records
from proselflc.correction.criteria import ProSelfLC
from proselflc.data.batches import Batch
from proselflc.data.labels import Labels
from proselflc.data.noise import fingerprint
from proselflc.reporting import command as reporting
from proselflc.run.config import Config
from proselflc.training import checkpoint, observations
from proselflc.training.observations import Recorder, observe
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.strategy import CorrectedBatch, Strategy

SIZES = (10_000, 40_000, 160_000, 640_000, 1_280_000)
QUICK_SIZES = (10_000, 40_000)
CLASSES = (10, 100, 1000)
LARGE = 160_000
BATCH = 1024
EPOCHS = 10  # that the audit looks at
MANY = (200_000, 20_000)  # examples and classes
QUICK_MANY = (4_000, 3_000)
WIDTH = 16  # features of each
MOST = 4.0  # GB that a command may take
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": (
        *("train", "--data", "data.npz", "--out", "run", "--noise", "symmetric:0.2", "--quiet"),
        *("--epochs", "4", "--eval-epochs", "4", "--batch-size", "512", "--lr", "0.005"),
    ),
    "audit": ("audit", "run"),
    "report": ("report", "run"),
    "predict": ("predict", "run", "--data", "data.npz", "--out", "predicted.csv"),
    "export csv": ("export", "run", "--soft", "--force", "--out", "labels.csv"),
    "export parquet": ("export", "run", "--soft", "--force", "--out", "labels.parquet"),
    "export npz": ("export", "run", "--soft", "--force", "--out", "labels.npz"),
    "export cleanlab": ("export", "run", "--force", "--format", "cleanlab", "--out", "issues.csv"),
}
PARTS = (
    *("record", "write epoch", "checkpoint", "write means", "evaluate"),
    *("audit", "parquet", "report"),
)


def labelled(n: int, C: int) -> Labels:
    """Labels and ids of n examples."""
    given = np.random.default_rng(0).integers(0, C, n)
    ids, names = tuple(map(str, range(n))), tuple(f"class {k}" for k in range(C))
    flipped = np.zeros(n, bool)
    return Labels(given, None, flipped, np.eye(C), names, ids, "none", fingerprint(given, C))


def work(labels: Labels, path: Path) -> tuple[dict[str, float], int, int]:
    """Seconds of every part, the bytes of all that is kept, and those of the page."""
    n, C = len(labels.given), len(labels.names)
    seconds: dict[str, float] = {}
    directory = RunDirectory(path)
    folder = directory.dynamics
    recorder = Recorder(folder, n, C, epochs=1)
    strategy = Strategy(ProSelfLC(2))
    logits = 3 * torch.randn(BATCH, C, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    given = torch.from_numpy(labels.given)

    def record() -> None:
        for start in range(0, n, BATCH):
            index = order[start : start + BATCH]
            batch = Batch(logits[: len(index)], given[index], index)
            recorder.add(0, observe(CorrectedBatch(strategy, batch.x, batch, 0.5), means=True))

    def evaluate() -> None:
        fitting = Fitting(C, clean_known=False)
        for start in range(0, n, BATCH):
            y = given[start : start + BATCH]
            log_p = torch.log_softmax(logits[: len(y)], -1)
            fitting.add(log_p, y, None, torch.zeros(len(y)))
        fitting.result()

    def timed(name: str, what: Callable[[], object]) -> None:
        start = time.perf_counter()
        what()
        seconds[name] = time.perf_counter() - start

    timed("record", record)
    timed(
        "checkpoint",
        lambda: checkpoint.write(
            directory.checkpoints, checkpoint.State(1, recorder.tensors(), {})
        ),
    )
    timed("write epoch", lambda: recorder.end_epoch(0))
    timed("write means", recorder.end)
    timed("evaluate", evaluate)
    for epoch in range(1, EPOCHS):
        shutil.copy(folder / "epoch-00000.npy", folder / f"epoch-{epoch:05d}.npy")
    records = Records(observations.Epochs(folder))
    start = time.perf_counter()
    table, audit = verdict.audit_labels(labels, records)
    seconds["audit"] = time.perf_counter() - start
    kept = sum(file.stat().st_size for file in folder.glob("*.npy")) + table.nbytes
    start = time.perf_counter()
    write_parquet(table, directory.examples)
    seconds["parquet"] = time.perf_counter() - start
    del table
    finish(directory, labels, audit)
    timed("report", lambda: reporting.write([path], None))
    return {name: seconds[name] for name in PARTS}, kept, directory.report.stat().st_size


def finish(directory: RunDirectory, labels: Labels, audit: Audit) -> None:
    """Write what else a report looks at."""
    Config().write(directory.config, labels.fingerprint)
    labels.save(directory.labels)
    audit.save(directory)
    points = range(1, 21)
    history: list[Json] = [
        {"step": k, "epoch": float(k), "progress": k / 20, "train_accuracy": k / 40, "entropy": 1.0}
        for k in points
    ]
    directory.write_history(history)
    directory.write_json(directory.model, {"names": list(labels.names)})
    directory.write_json(directory.evaluation, {})
    directory.write_json(directory.summary, {"method": "proselflc", "data": "–", "steps": 20})


def print_case(n: int, C: int) -> None:
    """Do the work in this process and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        work(labelled(2 * BATCH, C), Path(folder))  # whatever the first use alone takes
    resident = _bytes("VmRSS")
    labels = labelled(n, C)
    with tempfile.TemporaryDirectory() as folder:
        seconds, kept, page = work(labels, Path(folder))
    peak = _bytes("VmHWM") - resident
    print(json.dumps({"seconds": seconds, "kept": kept, "peak": peak, "page": page}))


def case(n: int, C: int) -> dict[str, object]:
    """One size, in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", str(n), str(C)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout)
    seconds = measured["seconds"]
    return {
        "n": n,
        "C": C,
        "top_five": n * C > observations.LARGEST,
        "total_seconds": sum(seconds.values()),
        "peak_megabytes": measured["peak"] / 1e6,
        "kept_megabytes": measured["kept"] / 1e6,
        "page_megabytes": measured["page"] / 1e6,
        "seconds": seconds,
    }


def many_classes(n: int, C: int) -> dict[str, object]:
    """Return seconds and peak memory of every command on n examples of C classes."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_clusters(folder / "data.npz", n, C)
        for command, arguments in COMMANDS.items():
            cost = commands.measure(arguments, folder, {"OMP_NUM_THREADS": "1"})
            rows.append({"command": command, **cost})
            print(show_command(rows[-1]), flush=True)
        run = folder / "run"
        summary = json.loads((run / "summary.json").read_bytes())
        kept = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
        page = (run / "report.html").stat().st_size
    return {
        "n": n,
        "C": C,
        "rows": rows,
        "run_megabytes": kept / 1e6,
        "page_megabytes": page / 1e6,
        "train_accuracy": summary["correct_fitting"],
        "estimated_noise_rate": summary["estimated_noise_rate"],
        "realised_noise_rate": summary["realised_noise_rate"],
    }


def write_clusters(path: Path, n: int, C: int) -> None:
    """Write n examples, each near the centre of its class, and a twentieth as many for testing."""
    generator = np.random.default_rng(0)
    centres = 3 * generator.normal(size=(C, WIDTH)).astype(np.float32)
    parts: dict[str, npt.NDArray[Any]] = {}
    for suffix, y in (("", np.arange(n) % C), ("_test", generator.integers(0, C, n // 20))):
        noise = 0.3 * generator.normal(size=(len(y), WIDTH)).astype(np.float32)
        parts |= {f"x{suffix}": centres[y] + noise, f"y{suffix}": y}
    np.savez(path, allow_pickle=False, **parts)


def show_command(row: dict[str, object]) -> str:
    return (
        f"{row['command']:<16}{row['seconds']:>9.0f}{row['processor_seconds']:>19.0f}"
        f"{row['peak_gigabytes']:>9.2f}"
    )


def measure_many_classes(size: tuple[int, int], *, is_kept: bool) -> None:
    """Print what the commands take, and keep it if it is to be kept.

    Raises:
        SystemExit: a command takes more memory than `MOST`.
    """
    head = f"{'command':<16}{'seconds':>9}{'processor seconds':>19}{'GB peak':>9}"
    print(head, flush=True)
    found = many_classes(*size)
    rows = found["rows"]
    assert isinstance(rows, list)
    most = max(row["peak_gigabytes"] for row in rows)
    after = (
        f"{found['n']:,} examples of {found['C']:,} classes: at most {most:.2f} GB of memory, "
        f"{MOST:.0f} are allowed;\n{found['run_megabytes']:.0f} MB are kept in the run, the page "
        f"has {found['page_megabytes']:.2f} MB"
    )
    print(after)
    if most > MOST:
        raise SystemExit(f"a command took {most:.2f} GB, more than {MOST:.0f}")
    if is_kept:
        known = facts()
        lines = [header(known), head, *map(show_command, rows), "", after]
        result_file.write(
            "scaling_many_classes",
            found,
            result_file.preformatted("\n".join(lines)),
            config={"examples": size[0], "classes": size[1], "width": WIDTH},
            made_with=known,
        )


def slope(rows: list[dict[str, object]], x: str, y: str) -> float | None:
    """Of the line through (log x, log y); None where there are not two points."""
    if len(rows) < 2:
        return None
    pairs = np.log([[float(str(row[key])) for key in (x, y)] for row in rows])
    return float(np.polyfit(pairs[:, 0], pairs[:, 1], 1)[0])


def slopes(rows: list[dict[str, object]]) -> dict[str, dict[str, float | None]]:
    """Per number of classes: of time against n, and of memory against what is kept."""
    result = {}
    for C in CLASSES:
        every = [row for row in rows if row["C"] == C]
        large = [row for row in every if int(str(row["n"])) >= LARGE]
        result[str(C)] = {
            "time": slope(every, "n", "total_seconds"),
            "time_of_large_n": slope(large, "n", "total_seconds"),
            "memory": slope(every, "kept_megabytes", "peak_megabytes"),
            "memory_of_large_n": slope(large, "kept_megabytes", "peak_megabytes"),
        }
    return result


def straight(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Straight lines through time and memory against n, for each C and kind of mean.

    What grows per example is the slope; R² is 1 where a line is all there is to it.
    """
    result: list[dict[str, object]] = []
    for C in CLASSES:
        for top_five in (False, True):
            some = [row for row in rows if row["C"] == C and row["top_five"] is top_five]
            if len(some) < 3:
                continue
            n = np.array([float(str(row["n"])) for row in some])
            one: dict[str, object] = {"C": C, "top_five": top_five}
            for name, key, unit in (
                ("microseconds", "total_seconds", 1e6),
                ("bytes", "peak_megabytes", 1e6),
            ):
                y = unit * np.array([float(str(row[key])) for row in some])
                b, a = np.polyfit(n, y, 1)
                one[f"{name}_per_example"] = float(b)
                one[f"{name}_r2"] = float(
                    1 - ((y - a - b * n) ** 2).sum() / ((y - y.mean()) ** 2).sum()
                )
            result.append(one)
    return result


def show_straight(found: list[dict[str, object]]) -> str:
    lines = ["straight lines against n: slope per example, and R²"]
    lines += [
        f"C = {one['C']:>4}, {'five' if one['top_five'] else 'all':>4} classes: "
        f"{one['microseconds_per_example']:6.1f} µs ({one['microseconds_r2']:.3f}), "
        f"{one['bytes_per_example']:7.0f} bytes ({one['bytes_r2']:.3f})"
        for one in found
    ]
    return "\n".join(lines)


def show(row: dict[str, object]) -> str:
    parts = row["seconds"]
    assert isinstance(parts, dict)
    mode = "five" if row["top_five"] else "all"
    return (
        f"{row['n']:>10,}{row['C']:>6}{mode:>9}{row['total_seconds']:>9.2f}"
        + "".join(f"{parts[name]:>13.2f}" for name in PARTS)
        + f"{row['kept_megabytes']:>10,.0f}{row['peak_megabytes']:>10,.0f}"
        + f"{row['page_megabytes']:>9.2f}"
    )


def show_slopes(found: dict[str, dict[str, float | None]]) -> str:
    lines = ["slopes, where 1 is linear; in brackets for n ≥ " + f"{LARGE:,} alone"]
    for C, one in found.items():
        time_, time_large, memory, memory_large = (
            "–" if value is None else f"{value:.2f}" for value in one.values()
        )
        lines.append(
            f"C = {C:>4}: time against n {time_} ({time_large}), "
            f"memory against bytes kept {memory} ({memory_large})"
        )
    return "\n".join(lines)


def _bytes(field: str) -> int:
    """A field of this process's status. (getrusage's maximum would include our parent's.)"""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise SystemExit("peak memory can be measured on Linux only")


def facts() -> dict[str, object]:
    """Return what the figures depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 2),
    }


def header(known: dict[str, object]) -> str:
    """Return the first lines of a result, whose last is empty."""
    return (
        f"python {known['python']}, torch {known['torch']}, numpy {known['numpy']}, "
        f"{known['threads']} thread\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, no result files")
    parser.add_argument("--many-classes", action="store_true", help="200,000 × 20,000 alone")
    parser.add_argument("--processes", action="store_true", help="beside bare DDP, alone")
    parser.add_argument("--case", nargs=2, type=int, metavar=("N", "C"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # waiting for a second one is what a busy machine is slow at
    if arguments.case:
        print_case(*arguments.case)
        return
    if arguments.many_classes:
        quick = arguments.quick
        measure_many_classes(QUICK_MANY if quick else MANY, is_kept=not quick)
        return
    if arguments.processes:
        known = facts()
        bare_ddp.report(known, header(known), quick=arguments.quick)
        return
    head = (
        f"{'n':>10}{'C':>6}{'classes':>9}{'seconds':>9}"
        + "".join(f"{name:>13}" for name in PARTS)
        + f"{'MB kept':>10}{'MB peak':>10}{'MB page':>9}"
    )
    lines, rows = [head], []
    print(head, flush=True)
    for C in CLASSES:
        for n in QUICK_SIZES if arguments.quick else SIZES:
            rows.append(case(n, C))
            lines.append(show(rows[-1]))
            print(lines[-1], flush=True)
    found = slopes(rows)
    fitted = straight(rows)
    lines += ["", show_slopes(found), "", show_straight(fitted)]
    print("\n".join(lines[-3:]))
    if arguments.quick:
        return
    known = facts()
    result_file.write(
        "scaling",
        {"rows": rows, "slopes": found, "straight": fitted},
        result_file.preformatted("\n".join([header(known), *lines])),
        config={"sizes": SIZES, "classes": CLASSES},
        made_with=known,
    )
    measure_many_classes(MANY, is_kept=True)


if __name__ == "__main__":
    main()
