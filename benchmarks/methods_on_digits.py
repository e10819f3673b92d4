"""Every method on digits with the same budget: does it beat cross entropy under label noise?

The setting is that of `proselflc demo`: a network with one hidden layer, 60 epochs in all, however
many stages a method has; 1,297 training examples, pair noise or symmetric noise of 0.4, three
seeds; the parameters are the methods' defaults. What a method needs beside the data it is given:

- distillation: ProSelfLC's run with the same seed as the teacher, which has had its own 60 epochs;
- pseudo_label: a tenth of the examples with their true labels, which others do not have;
- masking: the pairs of classes that can be confused; under symmetric noise all are, so it is left
  out there.

    python benchmarks/methods_on_digits.py            # what is not there yet, then the table
    python benchmarks/methods_on_digits.py --report   # only the table

Runs are kept in results/methods_on_digits.json, each with a hash of its configuration.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import result_file

from proselflc import methods
from proselflc.cli import learning
from proselflc.data.batches import one_thread
from proselflc.paper.records import made_with
from proselflc.run.config import Config, OutputOptions
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.run_directory import RunDirectory

NOISES = ("pair:0.4", "symmetric:0.4")
SEEDS = (0, 1, 2)
CONFIG = {"data": "digits", "noises": NOISES}
TRUSTED = "0.1"
VERSION = 1  # raise where the same configuration trains differently
MEASURES = ("test_accuracy", "wrong_fitting", "label_accuracy_after", "ece")


def config(method: str, noise: str, seed: int, folder: Path) -> Config | None:
    """One run; None where the method has nothing to do."""
    one = replace(learning.demo_config(method, seed), noise=noise)
    if method == "distillation":
        return replace(one, parameters={"teacher": folder / f"proselflc-{noise}-{seed}"})
    if method == "pseudo_label":
        return replace(one, trusted=TRUSTED)
    if method == "masking":
        if noise != "pair:0.4":
            return None
        mask = folder / "mask.npy"
        np.save(
            mask, np.eye(10, dtype=np.int64) + np.eye(10, dtype=np.int64)[:, np.roll(range(10), 1)]
        )
        return replace(one, parameters={"mask": mask})
    return one


def key(method: str, noise: str, seed: int) -> str:
    """A hash of all that a run depends on."""
    table = learning.demo_config(method, seed).table() | {"noise": noise, "version": VERSION}
    return hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()[:16]


def run(known: dict[str, Any]) -> None:
    """Train what is not there yet, and write it down as it comes."""
    cases = [
        (method, noise, seed) for noise in NOISES for seed in SEEDS for method in methods.every()
    ]
    cases.sort(key=lambda case: case[0] != "proselflc")  # teachers come before their pupils
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for method, noise, seed in cases:
            teaches = method == "proselflc" and key("distillation", noise, seed) not in known
            wanted = config(method, noise, seed, folder)
            if wanted is None or (key(method, noise, seed) in known and not teaches):
                continue
            with one_thread():  # so small a network is slower with two
                out = OutputOptions(folder / f"{method}-{noise}-{seed}")
                directory = RunDirectory(train(wanted, out, Silent()))
            summary = directory.read_json(directory.summary)
            measured = {measure: summary[measure] for measure in MEASURES}
            known[key(method, noise, seed)] = {
                **{"method": method, "noise": noise, "seed": seed},
                **measured,
            }
            save(known)
            print(f"{noise}  seed {seed}  {method:20} {measured['test_accuracy']}", flush=True)


def save(known: dict[str, Any]) -> None:
    found = dict(sorted(known.items()))
    result_file.save("methods_on_digits", found, config=CONFIG, seeds=SEEDS, made_with=made_with())


def table(known: dict[str, Any]) -> str:
    """Mean ± standard deviation over the seeds: test accuracy, and wrong labels learned."""
    rows = [
        "| method | "
        + " | ".join(f"{noise}: test accuracy | wrong labels learned" for noise in NOISES)
        + " |",
        "|---|" + "---|---|" * len(NOISES),
    ]
    for method in methods.every():
        cells = []
        for noise in NOISES:
            found = [known[k] for s in SEEDS if (k := key(method, noise, s)) in known]
            for measure in ("test_accuracy", "wrong_fitting"):
                values = [one[measure] for one in found]
                if len(values) < len(SEEDS):
                    cells.append("–")
                    continue
                cells.append(f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}")
        rows.append(f"| {methods.find(method).title} (`{method}`) | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="only the table")
    arguments = parser.parse_args()
    before = result_file.read("methods_on_digits") or {"found": {}, "made_with": made_with()}
    known = before["found"]
    if not arguments.report:
        run(known)
    text = table(known)
    print(text)
    made = before["made_with"] if arguments.report else made_with()
    result_file.write("methods_on_digits", known, text, config=CONFIG, seeds=SEEDS, made_with=made)


if __name__ == "__main__":
    main()
