"""Commands that learn, and that use what was learned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from proselflc.data.request import InputsRequest
from proselflc.errors import InputError, RunError, printable
from proselflc.files.regular import is_regular
from proselflc.options import MOST_PROCESSES, Several, Whole
from proselflc.run.config import Config
from proselflc.terminal.printing import is_main, print_json, say, say_notes


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
    """Train a robust model on data whose labels may be wrong; everything goes into a run directory.

    Args:
        out: the run's directory; left out, a new one below runs.
        resume: go on with the run in --out where its last checkpoint left it.
        overwrite: replace a run that is in --out.
        config: a TOML file with any of these options, or a recipe: cifar100,
            cifar100-small, clothing1m, imagenet.
        quiet: show no progress.
        json: print the run's summary as JSON.
        options: what to do.
    """
    from proselflc.run import audit as auditing
    from proselflc.run.output_options import OutputOptions
    from proselflc.run.reader import Run
    from proselflc.run.train import train as run_train
    from proselflc.terminal.display import Silent, chosen
    from proselflc.training.fit import DivergenceError
    from proselflc.training.processes import is_lost_process
    from proselflc.training.run_directory import RunDirectory

    try:
        display = chosen(quiet) if is_main() else Silent(notes=False)
        path = run_train(options, OutputOptions(out, resume, overwrite), display)
    except DivergenceError as error:
        raise RunError(str(error)) from None
    except RuntimeError as error:
        if not is_lost_process(error):
            raise
        raise RunError(
            "another process of the run is gone or cannot be reached, start them again with "
            f"--resume ({' '.join(str(error).split())[:200]})"
        ) from None
    if not is_main():
        return
    directory = RunDirectory(path)
    if json:
        print_json({"run": str(path), **directory.read_json(directory.summary)})
    elif not quiet:
        if is_regular(directory.audit):
            found = Run(path)
            say("\n" + auditing.in_words(found, found.audit, found.examples, 3))
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
    """Choose training length, optimiser and a method's parameters as the paper does.

    First epochs and learning rate, with cross entropy, for all methods alike; then
    each method's own parameters; then the method learns from all the training data.
    Trusted examples choose: --trusted, else the data's own validation part, else a
    fifth of the training data, with its true labels where they are known. The test
    set chooses nothing. What an option below fixes is not searched. --method takes
    several names with commas between them.

    Args:
        out: the study's directory; left out, a new one below runs.
        space: what to choose from, instead of the default: lr=0.01,0.1 for values, lr=0.01..1 for
            a range, lr=0.01..1:log for one of magnitudes; several, one after the other. Names are
            epochs or steps, batch_size, optimizer, lr, momentum, weight_decay, schedule, warmup,
            clip, ema, and a method's own such as epsilon, sharpness, or boot_soft.epsilon.
        trials: how many in a stage that has a range; values are all tried.
        prune: end a trial early that is behind most others, from half of its training on.
        jobs: processes that do trials at the same time, with one thread each.
        storage: address of a database for the trials that machines share, such as
            postgresql://…, or of a gRPC proxy to one, grpc://host:port; left out, a file in the
            study.
        no_retrain: do not learn from all the training data at the end.
        resume: go on with the study in --out, or take part in it.
        overwrite: replace a study that is in --out.
        config: a TOML file with any of these options, or a recipe: cifar100,
            cifar100-small, clothing1m, imagenet.
        quiet: show no progress.
        json: print the result as JSON.
        options: what is fixed.
    """
    from proselflc.run.output_options import OutputOptions
    from proselflc.searching import search as searching
    from proselflc.searching import study
    from proselflc.searching.search_part import SearchError
    from proselflc.terminal.display import chosen

    how = searching.Options(tuple(space), trials, prune, storage, jobs, not no_retrain, quiet)
    try:
        start = OutputOptions(out, resume, overwrite)
        found = searching.search(options, how, start, chosen(quiet))
    except SearchError as error:
        raise RunError(str(error)) from None
    if json:
        print_json(study.to_json(found))
    elif quiet:
        sys.stdout.write(f"{printable(str(found.directory.path))}\n")
    else:
        sys.stdout.write(study.told(found))


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
    """Ask the model of a finished run about any data, with or without labels.

    Args:
        run: the run's directory.
        out: a .csv, .tsv, .parquet or .npz file; left out, the table is printed.
        split: which part of the data; left out, the test part where there is one, else all.
        model: package.module:factory, for a run whose model is your own.
        workers: processes that decode image files.
        overwrite: replace a file that is there.
        json: print a summary as JSON.
        request: which data to look at.
    """
    from proselflc.run import prediction
    from proselflc.run.reader import load_run

    if not 0 <= workers <= MOST_PROCESSES:
        raise InputError(f"--workers must be from 0 to {MOST_PROCESSES:,}, got {workers}")
    if not request.data and request.features is None:
        raise InputError("say with --data what the model is to look at")
    if out is not None:
        prediction.check_out(out, overwrite)
    found = load_run(run, model=model)
    say_notes(found.notes)
    judged = prediction.judge(found, request, split, workers=workers)
    if out is not None:
        prediction.write(judged, out)
    accuracy = judged.accuracy
    if accuracy is not None:
        say(f"{len(judged.examples):,} examples, {accuracy:.1%} predicted as they are labelled")
    for one in judged.examples.skipped:
        say(f"note: {printable(one.id)} was left out: {printable(one.reason)}")
    if json:
        print_json(
            {
                "run": str(run),
                "data": judged.examples.name,
                "examples": len(judged.examples),
                "accuracy": accuracy,
                "out": None if out is None else str(out),
                "skipped": len(judged.examples.skipped),
            }
        )
    elif out is None:
        sys.stdout.write(prediction.table(judged))
    else:
        sys.stdout.write(f"{printable(str(out))}\n")


def demo(
    *, out: Path = Path("runs/demo"), seeds: Whole = 3, quiet: bool = False, json: bool = False
) -> None:
    """Show the idea in a minute: five methods on digits, two in five of whose labels are wrong.

    Args:
        out: where the runs go; those of an earlier demo are replaced.
        seeds: how often to repeat it, with another noise and another start.
        quiet: show no progress.
        json: print the results as JSON.
    """
    from proselflc.cli import demo as demonstration

    if seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {seeds}")
    outcome = demonstration.run(out, seeds, lambda text: None if quiet else say(text))
    if json:
        print_json({"best": outcome.best, "report": str(outcome.report), "runs": outcome.runs})
    else:
        sys.stdout.write(("" if quiet else "\n") + demonstration.in_words(outcome))
