"""How the CPU scale of `proselflc reproduce` was chosen: by what cross entropy learns, and when.

In the paper's regime a network memorises wrong labels late. So the scale was to be a setting in
which cross entropy predicts at most a fifth of the wrong labels at half of training, and at least
three fifths at the end, under symmetric and under asymmetric noise of 0.4. The candidates are ways
to train a small network on 10 classes of CIFAR-100; the one that is marked has both. No other
method and no test accuracy was looked at.

    python benchmarks/cpu_scale.py                # what is not there yet, then the tables
    python benchmarks/cpu_scale.py --jobs 2
    python benchmarks/cpu_scale.py --report       # from the committed results

Runs are recorded in results/paper, by a hash of their options.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import result_file
from settings import DATA_ROOT
from when_it_helps import end, half

from proselflc.paper import command, printed
from proselflc.paper.command import Artefact, Reproduction
from proselflc.paper.output import Output, ResultTable, mean_std
from proselflc.paper.plan import SCALES, PendingRun, RunPlan, noise_title

SEEDS = (0, 1, 2)  # of the chosen candidate; the others have seed 0
NOISES = ("symmetric:0.4", "pair:0.4")
CANDIDATES: Mapping[str, Mapping[str, Any]] = {  # what differs from the recipe
    "mirrored images, weight decay 0.002": {"augment": "flip", "weight_decay": 2e-3},
    "mirrored images, weight decay 0.001": {"augment": "flip", "weight_decay": 1e-3},
    "weight decay 0.002": {"weight_decay": 2e-3},
    "weight decay 0.002, rate 0.4": {"weight_decay": 2e-3, "lr": 0.4},
    "weight decay 0.003 (chosen)": {},
}


def wanted(noise: str, changes: Mapping[str, Any], seed: int) -> PendingRun:
    """A run of cross entropy."""
    config = SCALES["cpu"].config("cifar100", "cce", {}, seed=seed, noise=noise)
    own = {name: value for name, value in changes.items() if name != "augment"}
    config = replace(
        config,
        augment=changes.get("augment", config.augment),
        recipe=replace(config.recipe, **own),
    )
    what = ", ".join(f"{name} {value}" for name, value in changes.items()) or "the recipe"
    return PendingRun(config, f"{noise_title(noise)}, cross entropy, {what}, seed {seed}")


def table(plan: RunPlan) -> Output:
    """What cross entropy has learned at half of training and at the end."""

    def learned(noise: str, changes: Mapping[str, Any], seeds: tuple[int, ...]) -> list[str]:
        records = [plan.record(wanted(noise, changes, seed)) for seed in seeds]
        columns = ("wrong_fitting", "correct_fitting")
        return [mean_std(at(records, name)) for name in columns for at in (half, end)]

    measured = (
        "wrong labels learned at half of training, %",
        "at the end",
        "right labels learned at half, %",
        "at the end",
    )
    rows = [
        (name, noise_title(noise), *learned(noise, changes, (0,)))
        for name, changes in CANDIDATES.items()
        for noise in NOISES
    ]
    chosen = [(noise_title(noise), *learned(noise, {}, SEEDS)) for noise in printed.NOISES]
    words = (
        f"Cross entropy. Candidates differ from the recipe of {SCALES['cpu'].title} in what is "
        "named, and have seed 0.",
    )
    tables = {
        "candidates": ResultTable(("candidate", "noise", *measured), tuple(rows)),
        "chosen": ResultTable(("chosen, seeds 0, 1, 2", *measured), tuple(chosen)),
    }
    return Output("How the CPU scale was chosen", tables, words)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only what is there")
    options = parser.parse_args()
    artefact = Artefact("cpu_scale", "how the CPU scale was chosen", table)
    out = result_file.RESULTS / "paper"
    one = Reproduction(artefact, SCALES["cpu"], SEEDS, out, DATA_ROOT)
    if not options.report:
        command.run(one, options.jobs, functools.partial(print, flush=True))
    output, plan = one.evaluate()
    print(output.markdown())
    found = [plan.store.record(run.config) for run in plan.requested.values()]
    made_with = sorted({str(record.facts["made_with"]) for record in found if record is not None})
    result_file.write(
        artefact.name,
        {name: {"columns": one.columns, "rows": one.rows} for name, one in output.tables.items()},
        output.markdown(),
        config={"noises": NOISES, "candidates": CANDIDATES},
        seeds=SEEDS,
        made_with=made_with,
    )


if __name__ == "__main__":
    main()
