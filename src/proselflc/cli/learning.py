"""Commands that train: `train`, `search`, `predict`, `demo` and `reproduce`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from proselflc import methods
from proselflc.data.request import InputsRequest, Request
from proselflc.errors import InputError, RunError, invalid_option, printable
from proselflc.files.regular import is_regular
from proselflc.options import MOST_PROCESSES, Several, Whole, check_out
from proselflc.run.config import Config
from proselflc.terminal import Silent, chosen, is_main, print_json, print_table, say, say_notes
from proselflc.training.recipe import Recipe

COMPARED = ("cce", "label_smoothing", "confidence_penalty", "boot_soft", "proselflc")
MEASURES = {
    "test_accuracy": "test accuracy",
    "wrong_fitting": "wrong labels learned",
    "label_accuracy_after": "labels right after",
}


def train(
    *,
    out: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    config: str | None = None,
    quiet: bool = False,
    json: bool = False,
    options: Annotated[Config, Parameter(name="*")] = Config(),  # noqa: B008
) -> None:
    """Train a robust model on data whose labels may be wrong; writes a run directory.

    Args:
        out: run directory (default: a new one in runs).
        resume: continue the run in --out from its last checkpoint.
        overwrite: replace the run in --out.
        config: TOML file with any of these options, or the name of a recipe: cifar100,
            cifar100-small, cifar100-tiny, clothing1m, imagenet.
        quiet: show no progress.
        json: print the run's summary as JSON.
        options: how to train.
    """
    from proselflc.reporting import onset
    from proselflc.run import audit as auditing
    from proselflc.run.config import OutputOptions
    from proselflc.run.reader import Run
    from proselflc.run.train import train as run_train
    from proselflc.training.loop import DivergenceError
    from proselflc.training.processes import end_group, is_lost_process
    from proselflc.training.run_directory import RunDirectory

    try:
        display = chosen(quiet) if is_main() else Silent()
        path = run_train(options, OutputOptions(out, resume, overwrite), display)
    except DivergenceError as error:
        raise RunError(str(error)) from None
    except RuntimeError as error:
        if not is_lost_process(error):
            raise
        raise RunError(
            "another process of the run ended or cannot be reached: start all of them again with "
            f"--resume ({' '.join(str(error).split())[:200]})"
        ) from None
    end_group()
    if not is_main():
        return
    directory = RunDirectory(path)
    warnings: list[dict[str, str]] = []
    if is_regular(directory.audit):
        found = Run(path)
        warnings = [asdict(warning) for warning in found.audit.warnings]
        if quiet or json:
            for caution in auditing.cautions(found, found.audit, abstaining=True):
                say(printable(caution))
        else:
            began = onset.read(found.summary)
            if began is not None:
                say("\n" + "\n".join(onset.sentences(began)))
            say("\n" + auditing.describe(found, found.audit, found.examples, 3))
    if json:
        summary = directory.read_json(directory.summary)
        print_json({"run": str(path), **summary, "warnings": warnings})
    elif not quiet:
        sys.stdout.write(f"{printable(str(path))}\n")


def search(
    *,
    out: Path | None = None,
    space: Several = (),
    trials: Whole = 20,
    prune: bool = False,
    jobs: Whole = 1,
    storage: str | None = None,
    no_retrain: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    config: str | None = None,
    quiet: bool = False,
    json: bool = False,
    options: Annotated[Config, Parameter(name="*")] = Config(),  # noqa: B008
) -> None:
    """Tune training length, optimiser and method parameters with the paper's protocol.

    The search first chooses epochs and learning rate with cross entropy, for all methods alike,
    then the parameters of each method, and finally trains each method on all the training data.
    Candidates are compared on trusted examples: those of --trusted, else the data's own validation
    part, else a fifth of the training data, with its true labels if they are known. The test set
    is never used. An option that you give below is fixed instead of searched. --method takes
    several names separated by commas.

    Args:
        out: study directory (default: a new one in runs).
        space: values to search instead of the default: lr=0.01,0.1 lists values, lr=0.01..1 is a
            range, and lr=0.01..1:log is a range on a logarithmic scale; separate several by spaces.
            Names are epochs or steps, batch_size, optimizer, lr, momentum, weight_decay, schedule,
            warmup, clip, ema, and a method's own parameters such as epsilon, sharpness, or
            boot_soft.epsilon.
        trials: number of trials in a stage that searches a range; listed values are all tried.
        prune: stop a trial that is worse than most others, from half of its training on.
        jobs: number of processes that run trials in parallel, with one thread each.
        storage: URL of a database for the trials, for machines that work together, such as
            postgresql://…, or of a gRPC proxy to one, grpc://host:port (default: a file in the
            study).
        no_retrain: skip the final training on all the data.
        resume: continue the study in --out, or join it as another worker.
        overwrite: replace the study in --out.
        config: TOML file with any of these options, or the name of a recipe: cifar100,
            cifar100-small, cifar100-tiny, clothing1m, imagenet.
        quiet: show no progress.
        json: print the result as JSON.
        options: fixed options of training.
    """
    from proselflc.run.config import OutputOptions
    from proselflc.searching import search as searching
    from proselflc.searching import study

    how = searching.Options(tuple(space), trials, prune, storage, jobs, not no_retrain, quiet)
    start = OutputOptions(out, resume, overwrite)
    found = searching.search(options, how, start, chosen(quiet))
    if json:
        print_json(study.to_json(found))
    elif quiet:
        sys.stdout.write(f"{printable(str(found.directory.path))}\n")
    else:
        sys.stdout.write(study.describe(found))


def predict(
    run: Path,
    /,
    *,
    out: Path | None = None,
    split: Literal["test", "train", "all"] | None = None,
    model: str | None = None,
    workers: Whole = 2,
    overwrite: bool = False,
    json: bool = False,
    request: Annotated[InputsRequest, Parameter(name="*")] = InputsRequest(),  # noqa: B008
) -> None:
    """Predict the classes of any data, labelled or not, with the model of a finished run.

    Args:
        run: run directory.
        out: output file, .csv, .tsv, .parquet or .npz; without it, a table is printed.
        split: part of the data to predict (default: the test part if there is one, otherwise all).
        model: package.module:factory, for a run whose model is your own code.
        workers: number of processes that decode image files.
        overwrite: replace an existing file.
        json: print a summary as JSON.
        request: data to predict.
    """
    from proselflc.data.tables.standard_input import title
    from proselflc.run import prediction
    from proselflc.run.reader import load_run

    if not 0 <= workers <= MOST_PROCESSES:
        raise invalid_option("workers", f"must be from 0 to {MOST_PROCESSES:,}, got {workers}")
    if not request.data and request.features is None:
        raise InputError("there is no data to predict", field="data", fix="pass --data")
    if out is not None:
        check_out(out, overwrite, prediction.SUFFIXES)
    found = load_run(run, model=model)
    say_notes(found.notes)
    predicted = prediction.predict(found, request, split, workers=workers)
    if out is not None:
        prediction.write(predicted, out)
    accuracy = predicted.accuracy
    if accuracy is not None:
        n = len(predicted.examples)
        say(f"{n:,} examples, {accuracy:.1%} of the predictions match the labels")
    say_notes(predicted.notes)
    say_notes(f"{file.id} was skipped: {file.reason}" for file in predicted.skipped)
    if json:
        print_json(
            {
                "run": str(run),
                "data": title(predicted.data),
                "examples": len(predicted.examples),
                "accuracy": accuracy,
                "out": None if out is None else str(out),
                "skipped": len(predicted.skipped),
            }
        )
    elif out is None:
        sys.stdout.write(prediction.table(predicted))
    else:
        sys.stdout.write(f"{printable(str(out))}\n")


def demo(
    *, out: Path = Path("runs/demo"), seeds: Whole = 3, quiet: bool = False, json: bool = False
) -> None:
    """Compare five methods on digits with 40 % wrong labels, in about a minute.

    Args:
        out: folder for the runs; replaces the runs of an earlier demo.
        seeds: number of repetitions, each with its own noise and initial weights.
        quiet: show no progress.
        json: print the results as JSON.
    """
    if seeds < 1:
        raise invalid_option("seeds", f"must be at least 1, got {seeds}")
    runs, page = run_demo(out, seeds, lambda text: None if quiet else say(text))
    # The changed labels are compared, so that test data chooses nothing.
    ours = [run for run in runs if run["method"] == "proselflc"]
    best = str(max(ours, key=lambda run: run["label_accuracy_after"])["run"])
    if json:
        print_json({"best": best, "report": str(page), "runs": runs})
    else:
        sys.stdout.write(("" if quiet else "\n") + describe_demo(runs, page, best))


def demo_config(method: str, seed: int) -> Config:
    """Return the options of a run of the demo.

    The run is long enough for early learning to precede memorisation, as in the paper. Cross
    entropy then memorises most of the wrong labels. All methods have the same budget.
    """
    return Config(
        request=Request(data="digits"),
        noise="pair:0.4",
        method=method,
        model="mlp",
        recipe=Recipe(epochs=60, batch_size=64, seed=seed),
        eval_epochs=10,
    )


def run_demo(
    out: Path, seeds: int, report: Callable[[str], None]
) -> tuple[list[dict[str, Any]], Path]:
    """Train every method with every seed, replacing the runs of an earlier demo.

    Return the summary of each run, with its directory as `run`, and a page about the first seed.
    """
    from proselflc.data.batches import one_thread
    from proselflc.reporting import command as reporting
    from proselflc.run.config import OutputOptions
    from proselflc.run.train import train as run_train
    from proselflc.training.run_directory import RunDirectory

    page = out / reporting.NAME
    if page.exists():
        reporting.check_out(page, overwrite=False)  # before anything is trained
    runs = []
    for seed in range(seeds):
        for method in COMPARED:
            output = OutputOptions(out / f"{method}-{seed}", overwrite=True)
            with one_thread():  # a network this small is slower with two
                path = run_train(demo_config(method, seed), output, Silent())
            directory = RunDirectory(path)
            summary = directory.read_json(directory.summary)
            runs.append({"run": str(path), **summary})
            report(
                f"seed {seed}  {methods.find(method).title:20}  "
                f"test accuracy {summary['test_accuracy']:6.1%}"
            )
    first = sorted(runs[: len(COMPARED)], key=lambda run: str(run["method"]) != "proselflc")
    return runs, reporting.write([Path(str(run["run"])) for run in first], page).path


def describe_demo(runs: Sequence[Mapping[str, Any]], page: Path, best: str) -> str:
    """Return mean and standard deviation over the seeds as a table, and commands to try next."""
    before = statistics.mean(run["label_accuracy_before"] for run in runs)
    seeds = len(runs) // len(COMPARED)
    lines = [
        f"digits, {1 - before:.0%} of the training labels wrong, {seeds} "
        f"seed{'s' if seeds != 1 else ''}, mean ± std",
        "",
        f"{'':20}" + "".join(f"{title:>24}" for title in MEASURES.values()),
    ]
    for method in COMPARED:
        line = f"{methods.find(method).title:20}"
        for measure in MEASURES:
            values = [run[measure] for run in runs if run["method"] == method]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            line += f"{f'{statistics.mean(values):.1%} ± {deviation:.1%}':>24}"
        lines.append(line)
    return "\n".join(
        [
            *lines,
            "",
            f"The ProSelfLC run that corrected most labels: {best}",
            f"Open in a browser: {page}",
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


def reproduce(
    name: str | None = None,
    *,
    scale: Literal["cpu", "cpu-wide", "paper"] = "cpu",
    seeds: str | None = None,
    out: Path = Path("reproduction"),
    data_root: Path | None = None,
    jobs: Whole = 1,
    dry_run: bool = False,
    list: bool = False,
    report: bool = False,
    keep_runs: bool = False,
    weights: Path | None = None,
    mask: Path | None = None,
    gpu: Literal["V100", "A100", "RTX3090", "H100"] = "V100",
    steps_per_second: float | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Reproduce a table or figure of the paper, by its number.

    Runs are kept in --out by a hash of their options: finished runs are not repeated, an
    interrupted reproduction continues, and several processes or machines may share the directory.

    Args:
        name: table1 to table7, or figure1 to figure5.
        scale: cpu for runs that finish on a CPU, cpu-wide for more classes that are memorised less,
            or paper for the paper's exact recipes, for a GPU.
        seeds: seeds of the runs, such as 0,1,2 (default: those of the committed results).
        out: directory for records and results.
        data_root: folder that holds the data (default: the data is downloaded if allowed).
        jobs: number of processes that train in parallel, with one thread each if there are several.
        dry_run: print the runs that are missing, with their options, their time and disk space, and
            at paper scale the commands for several GPUs or a SLURM array; train nothing.
        list: list the paper's tables and figures.
        report: show the results so far and train nothing; a missing cell is "–".
        keep_runs: keep the run directories as well as their records.
        weights: for table6, ImageNet weights of a ResNet-50 to start from.
        mask: for table6, the mask of Masking: a file of 0 and 1 with one row per true class.
        gpu: with --dry-run at paper scale, the GPU whose data sheet the hours are estimated from.
        steps_per_second: with --dry-run, a measured speed to compute the hours from instead.
        quiet: show no progress.
        json: print the result as JSON.
    """
    from proselflc.cli import several_gpus
    from proselflc.paper import command
    from proselflc.paper.cost import Speed

    if list:
        rows = command.list_artefacts()
        if json:
            print_json(rows)
        else:
            heading = ("name", "runs at cpu scale", "what it is")
            print_table(heading, [(n, str(r["runs"]), str(r["title"])) for n, r in rows.items()])
        return
    if name is None:
        raise InputError(
            "there is no name of a table or figure",
            field="name",
            fix="pass one, such as table4; --list lists them",
        )
    reproduction = command.request(name, scale, seeds, out, data_root, keep_runs, weights, mask)
    if dry_run:
        plan = command.plan(reproduction, Speed(gpu, steps_per_second))
        if plan["runs"] and scale == "paper":
            plan["commands"] = several_gpus.commands(reproduction.arguments, plan["hours"])
        if json:
            print_json(plan)
        else:
            sys.stdout.write(command.describe(plan))
        return
    if not report:
        command.run(reproduction, jobs, None if quiet else say)
    result = command.write_results(reproduction)
    if json:
        print_json(result)
    else:
        sys.stdout.write(str(result["markdown"]))
        if not quiet:
            first, *others = result["files"]
            say(f"written: {first} and {len(others)} files beside it")
