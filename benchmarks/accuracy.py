"""Every method on one table: real images, one budget, the same wrong labels, three seeds.

The setting is `cifar-pair` of `settings.py`: 10,000 images of 20 classes of CIFAR-100 at 16×16, a
small convolutional network, 60 epochs in all, however many stages a method has. 40 % of the labels
of eight classes, drawn within their coarse classes, are another's; the others are right. All
methods have the same optimiser and schedule, and the parameters in RECIPES: what their papers give
for CIFAR-100 with asymmetric noise, or their default here, which is the papers' scaled to any
number of epochs. Nothing was chosen by accuracy on this test set.

What some are told beside the given labels: `distillation` is taught by ProSelfLC's run, which had
60 epochs of its own; `pseudo_label` knows the true labels of a tenth of the examples; `masking`
knows the coarse classes, within which all of this noise is.

    python benchmarks/accuracy.py                    # what is not there yet, then the table
    python benchmarks/accuracy.py --jobs 2           # two runs side by side, a thread each
    python benchmarks/accuracy.py --method elr sat   # some methods
    python benchmarks/accuracy.py --time             # time per epoch instead
    python benchmarks/accuracy.py --report           # only the table, from the committed results

Every run is a file in results/accuracy/, named by a hash of all that it depends on, so an
interrupted sitting continues; cells not yet run are shown as "–".
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy_table import MEASURES, in_markdown
from settings import DATA_ROOT, SETTINGS, Setting
from stepping import steps
from trainings import WORK, Case, hashed, read_json, write_json

from proselflc.app.config import Config
from proselflc.data.writing import whole_file
from proselflc.errors import InputError
from proselflc.training.fit import DivergenceError
from proselflc.training.methods import TRAINABLE, Parameters, resolved
from proselflc.training.recipe import Recipe

SETTING = SETTINGS["cifar-pair"]
SEEDS = (0, 1, 2)
RESULTS = Path(__file__).parent / "results"
KEPT = RESULTS / "accuracy"
TIMES = RESULTS / "accuracy_time.json"
TIMED_EPOCHS = 10

# ε and B are what Table 5 has as best under asymmetric noise of 0.4, for each of the paper's own.
PROSELFLC = {"sharpness": 8.0}
RECIPES: dict[str, dict[str, Any]] = {
    "label_smoothing": {"parameters": {"epsilon": 0.25}},
    "confidence_penalty": {"parameters": {"epsilon": 0.5}},
    "boot_soft": {"parameters": {"epsilon": 0.5}},
    "proselflc": {"parameters": PROSELFLC},
    "distillation": {"taught_by": {"method": "proselflc", "parameters": PROSELFLC}},
    "pseudo_label": {"trusted": 0.1},
    "backward": {"clip": 1.0},  # its loss has no lower bound: without, it diverges
    "gce_truncated": {"parameters": {"begin": 80 / 150}},
    "elr": {"parameters": {"momentum": 0.9, "weight": 7.0}},
}


@dataclass(frozen=True)
class Entry:
    """One run of the table."""

    method: str
    seed: int

    @property
    def recipe(self) -> dict[str, Any]:
        """What `Case.run` is told of it."""
        return {"method": self.method, **RECIPES.get(self.method, {})}

    @property
    def path(self) -> Path:
        """The committed file of what was measured."""
        case = Case(SETTING, self.seed, DATA_ROOT)
        given = dict(self.recipe.get("parameters", {}))
        if "taught_by" in self.recipe:
            given["teacher"] = Path()
        own = resolved(self.method, Parameters(**given))
        every = {name: str(v) for name, v in own.given().items() if name != "teacher"}
        key = hashed({**case.depends, **self.recipe, "parameters": every})
        return KEPT / f"{SETTING.name}-{self.seed}-{self.method}-{key}.json"

    def measured(self) -> dict[str, Any] | None:
        """What was measured, or None if it was not yet."""
        return read_json(self.path) if self.path.is_file() else None


def measure(entry: Entry, root: Path, work: Path) -> str:
    """Train what is not trained yet and write down how it went."""
    torch.set_num_threads(1)
    case = Case(SETTING, entry.seed, root, work)
    try:
        run, cost = case.run(**entry.recipe)
    except DivergenceError as error:
        failed = {"method": entry.method, "seed": entry.seed, "diverged": str(error)}
        nothing = dict.fromkeys((*MEASURES, "auroc"))
        about = {"recipe": entry.recipe, "made_with": made_with()}
        write_json(entry.path, {**failed, **nothing, **about})
        return f"seed {entry.seed}  {entry.method} has diverged"
    summary = run.summary
    detection = summary["detection"]
    assert isinstance(detection, Mapping)
    found = {name: summary[name] for name in MEASURES if name in summary}
    one = {
        "method": entry.method,
        "seed": entry.seed,
        "recipe": entry.recipe,
        "setting": SETTING.to_json(),
        "config": run.config,
        **found,
        "auroc": detection["auroc"],
        "f1": detection["f1"],
        "processor_seconds": round(cost.seconds, 1),
        "notes": summary.get("notes", []),
        "fingerprint": summary["fingerprint"],
        "made_with": made_with(),
    }
    one["config"]["method"].pop("teacher", None)  # a path; the recipe says whose run it is
    write_json(entry.path, one)
    return (
        f"seed {entry.seed}  {entry.method:22} {found['test_accuracy']:.4f}  {cost.seconds:.0f} s"
    )


def made_with() -> str:
    return (
        f"python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"{platform.machine()}, one thread"
    )


def complete(entries: list[Entry], root: Path, work: Path, jobs: int) -> None:
    """Measure what is not there yet; what cannot be is said and left out."""
    missing = [entry for entry in entries if entry.measured() is None]
    KEPT.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pending = {pool.submit(measure, entry, root, work): entry for entry in missing}
        for done in as_completed(pending):
            entry = pending[done]
            try:
                print(done.result(), flush=True)
            except InputError as error:
                print(f"seed {entry.seed}  {entry.method} is left out: {error}", flush=True)


def time_per_epoch(methods: list[str], root: Path) -> None:
    """How many times as long as cross entropy's a run of few epochs takes.

    Steps of a method and of cross entropy take turns, so that whatever else the machine does slows
    both; all that the method does between them counts too. Processor time of one thread, with the
    records of every example, without evaluations and the audit. What a method does once, however
    long training is, counts for more than in a whole run.
    """
    torch.set_num_threads(1)
    known: dict[str, Any] = read_json(TIMES)["times"] if TIMES.is_file() else {}
    short = replace(SETTING, epochs=TIMED_EPOCHS)
    dataset = short.labelled(root, seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        short.fit(dataset, method="proselflc", seed=0, out=folder / "teacher")
        for method in methods:
            both = (
                steps(_config(short, one, folder / "teacher"), dataset, folder / f"{method}-{k}")
                for k, one in enumerate((method, "cce"))
            )
            theirs, plain = 0.0, 0.0
            for (_, _, seconds), (_, _, beside) in zip(*both, strict=True):
                theirs, plain = theirs + seconds, plain + beside
            known[method] = round(theirs / plain, 3)
            print(f"{method:22} × {known[method]:.2f}", flush=True)
            facts = {"epochs": TIMED_EPOCHS, "made_with": made_with()}
            write_json(TIMES, {**facts, "times": {m: known[m] for m in TRAINABLE if m in known}})


def _config(setting: Setting, method: str, teacher: Path) -> Config:
    """The options of a method's run in a setting."""
    recipe = Entry(method, 0).recipe
    parameters = dict(recipe.get("parameters", {}))
    if "taught_by" in recipe:
        parameters["teacher"] = teacher
    return Config(
        method=method,
        parameters=Parameters(**parameters),
        trusted=None if "trusted" not in recipe else str(recipe["trusted"]),
        model=setting.model,
        augment=setting.augment,
        recipe=Recipe(
            epochs=setting.epochs,
            batch_size=setting.batch_size,
            optimizer="sgd",
            lr=setting.lr,
            weight_decay=setting.weight_decay,
            clip=recipe.get("clip"),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", nargs="*", choices=list(TRAINABLE), default=list(TRAINABLE))
    parser.add_argument("--seed", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--report", action="store_true", help="only the table")
    parser.add_argument("--time", action="store_true", help="measure time per epoch instead")
    options = parser.parse_args()
    if options.time:
        time_per_epoch(options.method, options.data_root)
    elif not options.report:
        chosen = [Entry(method, seed) for seed in options.seed for method in options.method]
        complete(chosen, options.data_root, options.work, options.jobs)
    every = [Entry(method, seed).measured() for method in TRAINABLE for seed in SEEDS]
    measured = [one for one in every if one is not None]
    times = read_json(TIMES)["times"] if TIMES.is_file() else {}
    text = in_markdown(measured, times, list(TRAINABLE), SEEDS)
    print(text)
    with whole_file(RESULTS / "accuracy.md") as file:
        file.write(text.encode() + b"\n")


if __name__ == "__main__":
    main()
