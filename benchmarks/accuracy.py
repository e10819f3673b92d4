"""Every method on one table: real images, one budget, the same wrong labels, three seeds.

The setting is that of `proselflc reproduce --scale cpu-wide` (recipe `cifar100-small`): 10,000
images of 20 classes of CIFAR-100 at 16×16, a small convolutional network, 60 epochs in all, however
many stages a method has. 40 % of the labels of eight classes, drawn within their coarse
classes, are another's; the others are right. All methods have the same optimiser and schedule, and
the parameters in RECIPES: what their papers give for CIFAR-100 with asymmetric noise, or their
default here, which is the papers' scaled to any number of epochs. Nothing was chosen by accuracy on
this test set.

What some are told beside the given labels: `distillation` is taught by ProSelfLC's run, which had
60 epochs of its own; `pseudo_label` knows the true labels of a tenth of the examples; `masking`
knows the coarse classes, within which all of this noise is.

    python benchmarks/accuracy.py                    # what is not there yet, then the table
    python benchmarks/accuracy.py --jobs 2           # two runs side by side, a thread each
    python benchmarks/accuracy.py --time             # time per epoch instead
    python benchmarks/accuracy.py --report           # only the table, from the committed results

Runs are shared with the reproduction of the paper: each is recorded in results/paper by a hash of
all that it depends on, so an interrupted sitting continues; cells not yet run are shown as "–".
"""

from __future__ import annotations

import argparse
import functools
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import result_file
import torch
from accuracy_table import MEASURES, to_markdown
from settings import DATA_ROOT, SETTINGS
from stepping import steps

from proselflc.data.request import Request
from proselflc.methods import every, find
from proselflc.paper import command
from proselflc.paper.command import Artefact, Reproduction
from proselflc.paper.output import Output
from proselflc.paper.plan import SCALES, PendingRun, RunPlan
from proselflc.paper.records import RecordStore, RunRecord
from proselflc.queue.run_store import key
from proselflc.run.config import Config

SCALE = SCALES["cpu-wide"]
NOISE = "pair:0.4"
SEEDS = (0, 1, 2)
PAPER = result_file.RESULTS / "paper"
TIMED_EPOCHS = 10

# ε and B are what Table 5 has as best under asymmetric noise of 0.4, for each of the paper's own.
PARAMETERS: dict[str, dict[str, Any]] = {
    "label_smoothing": {"epsilon": 0.25},
    "confidence_penalty": {"epsilon": 0.5},
    "boot_soft": {"epsilon": 0.5},
    "proselflc": {"sharpness": 8.0},
    "gce_truncated": {"begin": 80 / 150},
    "elr": {"momentum": 0.9, "weight": 7.0},
}
TEACHERS = {"distillation": "proselflc"}
TRUSTED = {"pseudo_label": 0.1}
CLIPS = {"backward": 1.0}  # its loss has no lower bound: without, it diverges


def wanted(method: str, seed: int) -> PendingRun:
    """The run of a method."""
    parameters = dict(PARAMETERS.get(method, {}))
    teacher = None
    if method in TEACHERS:
        teacher = wanted(TEACHERS[method], seed).config
        parameters["teacher"] = Path(key(teacher))
    config = SCALE.config(
        "cifar100", method, parameters, seed=seed, noise=NOISE, trusted=TRUSTED.get(method)
    )
    config = replace(config, recipe=replace(config.recipe, clip=CLIPS.get(method)))
    return PendingRun(config, f"{find(method).title}, seed {seed}", teacher)


def measured(record: RunRecord, method: str, seed: int) -> dict[str, Any]:
    """What the table looks at."""
    said = {"method": method, "seed": seed}
    if "diverged" in record.facts:
        return {**said, **dict.fromkeys((*MEASURES, "auroc")), "diverged": True}
    summary = record.summary
    detection = summary["detection"]
    assert isinstance(detection, Mapping)
    return {**said, **{k: summary[k] for k in MEASURES}, "auroc": detection["auroc"]}


def table(methods: Sequence[str], plan: RunPlan) -> Output:
    """Asks for the runs of some methods; the table is of all that is there."""
    for seed in plan.seeds:
        for method in methods:
            plan.record(wanted(method, seed))
    return Output("")


def write(store: RecordStore, times: Mapping[str, float], made: str) -> str:
    """Write the table of all runs that are there and of the times; return it."""
    found = []
    for method in every():
        for seed in SEEDS:
            record = store.record(wanted(method, seed).config)
            if record is not None:
                found.append(measured(record, method, seed))
    text = to_markdown(found, times, list(every()), SEEDS)
    result_file.write(
        "accuracy",
        {"times": {m: times[m] for m in every() if m in times}, "measured": found},
        text,
        config={"data": "cifar100-small", "noise": NOISE, "timed_epochs": TIMED_EPOCHS},
        seeds=SEEDS,
        made_with=made,
    )
    return text


def known_times() -> tuple[dict[str, float], str]:
    """Return what an epoch takes, × cross entropy's, by method, and on which machine."""
    before = result_file.read("accuracy")
    return ({}, made_with()) if before is None else (before["found"]["times"], before["made_with"])


def made_with() -> str:
    return (
        f"python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"{platform.machine()}, one thread"
    )


def time_per_epoch(methods: list[str], root: Path, store: RecordStore) -> None:
    """How many times as long as cross entropy's a run of few epochs takes.

    Steps of a method and of cross entropy take turns, so that whatever else the machine does slows
    both; all that the method does between them counts too. Processor time of one thread, with the
    records of every example, without evaluations and the audit. What a method does once, however
    long training is, counts for more than in a whole run.
    """
    torch.set_num_threads(1)
    known, _ = known_times()
    short = replace(SETTINGS["cifar-pair"], epochs=TIMED_EPOCHS)
    dataset = short.labelled(root, seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        short.fit(dataset, method="proselflc", seed=0, out=folder / "teacher")
        for method in methods:
            both = (
                steps(_short(one, folder / "teacher"), dataset, folder / f"{method}-{k}")
                for k, one in enumerate((method, "cce"))
            )
            theirs, plain = 0.0, 0.0
            for (_, _, seconds), (_, _, beside) in zip(*both, strict=True):
                theirs, plain = theirs + seconds, plain + beside
            known[method] = round(theirs / plain, 3)
            print(f"{method:22} × {known[method]:.2f}", flush=True)
            write(store, known, made_with())


def _short(method: str, teacher: Path) -> Config:
    """A run of few epochs on data that is there with its labels."""
    config = wanted(method, 0).config
    parameters = config.parameters
    if method in TEACHERS:
        parameters = {**parameters, "teacher": teacher}
    recipe = replace(config.recipe, epochs=TIMED_EPOCHS, deterministic=False)
    return replace(config, request=Request(), noise=None, parameters=parameters, recipe=recipe)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", nargs="*", choices=list(every()), default=list(every()))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    parser.add_argument("--out", type=Path, default=PAPER, help="the directory of the records")
    parser.add_argument("--report", action="store_true", help="only the table")
    parser.add_argument("--time", action="store_true", help="measure time per epoch instead")
    options = parser.parse_args()
    if options.time:
        time_per_epoch(options.method, options.data_root, RecordStore(options.out))
    make = functools.partial(table, tuple(options.method))
    artefact = Artefact("accuracy", "every method on one table", make)
    one = Reproduction(artefact, SCALE, SEEDS, options.out, options.data_root)
    if not (options.report or options.time):
        command.run(one, options.jobs, functools.partial(print, flush=True))
    print(write(one.store, *known_times()))


if __name__ == "__main__":
    main()
