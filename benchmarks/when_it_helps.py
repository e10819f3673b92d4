"""When ProSelfLC helps and when not: digits, trained too short, well, and far too long.

ProSelfLC begins to trust the network at half of training. So what counts is what the network knows
by then: few of the right labels (too short), the right ones and not the wrong ones (well), or the
wrong ones by heart (too long). The same network and noise, four lengths of training, the shortest
and the longest with a lower learning rate too, three seeds.

    python benchmarks/when_it_helps.py                # what is not there yet, then table and figure
    python benchmarks/when_it_helps.py --jobs 2
    python benchmarks/when_it_helps.py --report       # from the committed results

Runs are recorded in results/paper, by a hash of their options.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import result_file

from proselflc.data.request import Request
from proselflc.paper import command
from proselflc.paper.command import Artefact, Reproduction
from proselflc.paper.output import Output, ResultTable, difference, mean_std
from proselflc.paper.plan import SCALES, PendingRun, RunPlan
from proselflc.paper.records import RunRecord
from proselflc.run.config import Config
from proselflc.training.recipe import Recipe

SEEDS = (0, 1, 2)
NOISES = ("symmetric:0.4", "pair:0.4")
TRAININGS = (  # epochs, rate
    *((5, 0.002), (5, 0.05), (20, 0.05), (60, 0.05), (240, 0.05)),
    (240, 0.005),
)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "cross entropy": ("cce", {}),
    "ProSelfLC": ("proselflc", {}),
    "ProSelfLC, midpoint 0.25": ("proselflc", {"midpoint": 0.25}),
    "ProSelfLC, B = 20": ("proselflc", {"sharpness": 20.0}),
}


def wanted(noise: str, training: tuple[int, float], variant: str, seed: int) -> PendingRun:
    """A run."""
    epochs, lr = training
    method, parameters = VARIANTS[variant]
    config = Config(
        Request("digits"),
        noise=noise,
        method=method,
        parameters=parameters,
        model="mlp",
        recipe=Recipe(
            epochs=epochs, batch_size=64, optimizer="sgd", lr=lr, weight_decay=0.0, seed=seed
        ),
        eval_epochs=max(1, epochs // 20),
    )
    return PendingRun(config, f"{noise}, {epochs} epochs at {lr:g}, {variant}, seed {seed}")


def table(plan: RunPlan) -> Output:
    """Accuracy at the end beside what was known at half of training."""
    tables = {}
    for noise in NOISES:
        rows = []
        for training in TRAININGS:
            found: dict[str, list[RunRecord | None]] = {
                name: [plan.record(wanted(noise, training, name, seed)) for seed in plan.seeds]
                for name in VARIANTS
            }
            plain = found["cross entropy"]
            accuracy = {name: end(records, "test_accuracy") for name, records in found.items()}
            rows.append(
                (
                    "{} at {:g}".format(*training),
                    mean_std(half(plain, "correct_fitting")),
                    mean_std(half(plain, "wrong_fitting")),
                    mean_std(end(found["ProSelfLC"], "epsilon")),
                    mean_std(accuracy["cross entropy"]),
                    *(
                        difference(accuracy[name], accuracy["cross entropy"])
                        for name in list(VARIANTS)[1:]
                    ),
                )
            )
        columns = (
            f"{noise.replace(':', ' ')}: epochs at a rate",
            "right labels learned at half of training, %",
            "wrong labels learned at half, %",
            "mean ε of ProSelfLC at the end, %",
            "cross entropy at the end, test %",
            *(f"{name}, more" for name in list(VARIANTS)[1:]),
        )
        tables[noise.partition(":")[0]] = ResultTable(columns, tuple(rows))
    words = (
        "scikit-learn's digits, a small network, SGD, three seeds, each with wrong labels "
        "of its own. What is learned at half of training is cross entropy's. Differences are "
        "points of test accuracy, paired by seed, with a 95 % interval.",
    )
    return Output("When ProSelfLC helps", tables, words)


def end(records: Sequence[RunRecord | None], column: str) -> list[float | None]:
    """In percent, at the last step."""
    return [None if one is None else 100 * float(one.history[-1][column]) for one in records]


def half(records: Sequence[RunRecord | None], column: str) -> list[float | None]:
    """In percent, at the evaluation point next to half of training."""

    def distance(line: Mapping[str, Any]) -> float:
        return abs(float(line["progress"]) - 0.5)

    return [
        None if one is None else 100 * float(min(one.history, key=distance)[column])
        for one in records
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only what is there")
    options = parser.parse_args()
    artefact = Artefact("when_it_helps", "when ProSelfLC helps", table)
    one = Reproduction(artefact, SCALES["cpu-wide"], SEEDS, result_file.RESULTS / "paper")
    if not options.report:
        command.run(one, options.jobs, functools.partial(print, flush=True))
    output, plan = one.evaluate()
    print(output.markdown())
    found = [plan.store.record(run.config) for run in plan.requested.values()]
    made_with = sorted({str(record.facts["made_with"]) for record in found if record is not None})
    result_file.write(
        artefact.name,
        {name: {"columns": one.columns, "rows": one.rows} for name, one in output.tables.items()},
        output.markdown(pictures=True),
        config={"data": "digits", "noises": NOISES, "trainings": TRAININGS, "variants": VARIANTS},
        seeds=SEEDS,
        made_with=made_with,
    )


if __name__ == "__main__":
    main()
