"""`proselflc demo`: a comparison of methods in a minute, on data that comes with scikit-learn.

The runs are long enough for early learning to precede memorisation, as in the paper: a network with
one hidden layer, 60 epochs, and a learning rate that drops after half of training. Cross entropy
then memorises most of the wrong labels. All methods have the same budget.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proselflc import methods
from proselflc.data.batches import one_thread
from proselflc.data.request import Request
from proselflc.reporting import command as reporting
from proselflc.run.config import Config, OutputOptions
from proselflc.run.train import train
from proselflc.terminal import Display
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import RunDirectory

COMPARED = ("cce", "label_smoothing", "confidence_penalty", "boot_soft", "proselflc")
MEASURES = {
    "test_accuracy": "test accuracy",
    "wrong_fitting": "wrong labels learned",
    "label_accuracy_after": "labels right after",
}


@dataclass(frozen=True)
class Outcome:
    """The results of the demo."""

    runs: tuple[dict[str, Any], ...]  # the summary of every run, with its directory as `run`
    report: Path  # a page about the runs of the first seed

    @property
    def best(self) -> str:
        """Return the run whose suggested labels are most often right; test data is not used."""
        return str(max(self.runs, key=lambda run: run["label_accuracy_after"])["run"])

    def rows(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return mean and standard deviation over the seeds of every measure, by method."""
        return {
            method: {
                measure: _mean_std([run[measure] for run in self.runs if run["method"] == method])
                for measure in MEASURES
            }
            for method in COMPARED
        }


def config(method: str, seed: int) -> Config:
    """Return the options of one run."""
    return Config(
        request=Request(data="digits"),
        noise="pair:0.4",
        method=method,
        model="mlp",
        recipe=Recipe(epochs=60, batch_size=64, seed=seed),
        eval_epochs=10,
    )


def run(out: Path, seeds: int, report: Callable[[str], None]) -> Outcome:
    """Train every method with every seed, replacing the runs of an earlier demo."""
    page = out / reporting.NAME
    if page.exists():
        reporting.check_out(page, overwrite=False)  # before anything is trained
    runs = []
    for seed in range(seeds):
        for method in COMPARED:
            output = OutputOptions(out / f"{method}-{seed}", overwrite=True)
            with one_thread():  # a network this small is slower with two
                path = train(config(method, seed), output, Display(notes=False))
            directory = RunDirectory(path)
            summary = directory.read_json(directory.summary)
            runs.append({"run": str(path), **summary})
            report(
                f"seed {seed}  {methods.find(method).title:20}  "
                f"test accuracy {summary['test_accuracy']:6.1%}"
            )
    first = sorted(runs[: len(COMPARED)], key=lambda run: str(run["method"]) != "proselflc")
    written = reporting.write([Path(str(run["run"])) for run in first], page)
    return Outcome(tuple(runs), written.path)


def describe(outcome: Outcome) -> str:
    """Return a table of the results, and the commands to try next."""
    before = statistics.mean(run["label_accuracy_before"] for run in outcome.runs)
    seeds = len(outcome.runs) // len(COMPARED)
    lines = [
        f"digits, {1 - before:.0%} of the training labels wrong, {seeds} "
        f"seed{'s' if seeds != 1 else ''}, mean ± std",
        "",
        f"{'':20}" + "".join(f"{title:>24}" for title in MEASURES.values()),
    ]
    for method, row in outcome.rows().items():
        cells = "".join(f"{f'{m:.1%} ± {s:.1%}':>24}" for m, s in row.values())
        lines.append(f"{methods.find(method).title:20}" + cells)
    best = outcome.best
    return "\n".join(
        [
            *lines,
            "",
            f"The run that corrected most labels: {best}",
            f"Open in a browser: {outcome.report}",
            "",
            "Next:",
            f"  proselflc audit {best}            # list labels that are probably wrong",
            f"  proselflc review {best}           # accept or reject suggested labels",
            f"  proselflc export {best} --out labels.csv",
            "  proselflc train --data YOUR.csv           # a table, a folder of images, an .npz",
            "  proselflc methods                         # list all methods",
            "",
        ]
    )


def _mean_std(values: list[float]) -> tuple[float, float]:
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
