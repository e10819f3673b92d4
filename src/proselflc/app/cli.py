"""The command `proselflc`.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import io
import json as json_format
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Dict

from proselflc import __version__
from proselflc.app.config import Config
from proselflc.data.opening import DATASETS, InputsRequest, Request
from proselflc.errors import InputError, shown
from proselflc.options import Whole

app = App(
    name="proselflc",
    help="Learn from wrongly labelled data.",
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
)


class RunError(Exception):
    """A run could not go on, by no mistake in the input. The message is one sentence."""


def main() -> None:
    """Run the command line and leave with its exit code.

    0 done, 2 the user's input was wrong, 130 interrupted. Anything else that is raised is a fault
    of ours: Python shows it and leaves with 1.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that knows no ε
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(run(sys.argv[1:]))
    try:
        code = run(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        code = 1
    if code == 0:
        sys.exit()
    # One of several processes must not wait at its end for others that are gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    try:
        _read_config(arguments)
        app(
            arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
    except (InputError, CycloptsError) as error:
        _complain(str(error))
        return 2
    except RunError as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt as error:
        _complain(str(error) or "interrupted")
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write("cannot write the output: no space is left where it goes\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _is_main() -> bool:
    """Whether this is the process that speaks, of those that torchrun has started."""
    return os.environ.get("RANK", "0") == "0"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _complain(text: str) -> None:
    # Once on every machine: what is wrong may be wrong on one of them alone.
    if os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0":
        sys.stderr.write(shown(" ".join(text.split())) + "\n")


@app.command
def datasets(*, json: bool = False) -> None:
    """List the data sets that have a name, and where the paper uses them.

    Args:
        json: print the list as JSON.
    """
    rows = {
        name: {
            "title": one.title,
            "classes": one.classes,
            "train": one.train,
            "test": one.test,
            "where": one.where,
        }
        for name, one in DATASETS.items()
    }
    if json:
        _print_json(rows)
        return
    table = [
        (name, f"{one.classes:,}", f"{one.train:,}", f"{one.test:,}", one.where, one.title)
        for name, one in DATASETS.items()
    ]
    _print_table(("name", "classes", "train", "test", "paper", "what it is"), table)
    sys.stdout.write(
        "\n--data also takes an image folder, a .csv, .tsv or .parquet table, and an .npz file.\n"
    )


@app.command
def methods(*, json: bool = False) -> None:
    """List the methods, where the paper has them, what they need, cost and minimise.

    What some need beside the data: a teacher run is --method.teacher, a trusted part --trusted, a
    mask --method.mask. The cost is that of a step beside one of cross entropy, as measured with a
    ResNet-20; the second decimal is within what one measurement differs from the next.

    Args:
        json: print the list as JSON.
    """
    from proselflc.app.method_cost import costs
    from proselflc.correction.catalogue import METHODS

    cost = costs()
    if json:
        _print_json(
            {
                name: {
                    "title": one.title,
                    "criterion": one.criterion,
                    "where": one.where,
                    "loss": one.loss,
                    "entropy": one.entropy,
                    "semantic_class": one.semantic_class,
                    "needs": None if one.needs == "–" else one.needs,
                    "cost": cost.get(name),
                    "when": one.when,
                }
                for name, one in METHODS.items()
            }
        )
        return
    _print_table(
        ("name", "paper", "needs", "cost", "loss", "title"),
        [
            (
                name,
                one.where,
                one.needs,
                f"× {cost[name]:.1f}" if name in cost else "–",
                one.loss,
                one.title,
            )
            for name, one in METHODS.items()
        ],
    )


@app.command
def models(*, json: bool = False) -> None:
    """List the models, what they take and where the paper uses them.

    Args:
        json: print the list as JSON.
    """
    from proselflc.models.catalogue import MODELS
    from proselflc.models.shape import KINDS

    rows = {
        name: {
            "title": one.title,
            "where": one.where,
            "takes": [KINDS[kind] for kind in one.takes],
            "optimizer": one.optimizer,
            "lr": one.lr,
            "weight_decay": one.weight_decay,
        }
        for name, one in MODELS.items()
    }
    if json:
        _print_json(rows)
        return
    _print_table(
        ("name", "takes", "paper", "optimiser", "what it is"),
        [
            (
                name,
                ", ".join(KINDS[kind] for kind in one.takes),
                one.where,
                f"{one.optimizer}, lr {one.lr:g}",
                one.title,
            )
            for name, one in MODELS.items()
        ],
    )
    sys.stdout.write(
        "\n--model also takes package.module:factory, timm:NAME and torchvision:NAME.\n"
    )


@app.command(usage="Usage: proselflc train [OPTIONS]")  # working it out takes a tenth of the time
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
    from proselflc.analysis.run import Run
    from proselflc.app import auditing
    from proselflc.app.display import Silent, chosen
    from proselflc.app.run import train as run_train
    from proselflc.app.start import Start
    from proselflc.training.fit import DivergenceError
    from proselflc.training.processes import is_lost_process
    from proselflc.training.run_directory import RunDirectory

    try:
        display = chosen(quiet) if _is_main() else Silent(notes=False)
        path = run_train(options, Start(out, resume, overwrite), display)
    except DivergenceError as error:
        raise RunError(str(error)) from None
    except RuntimeError as error:
        if not is_lost_process(error):
            raise
        raise RunError(
            "another process of the run is gone or cannot be reached, start them again with "
            f"--resume ({' '.join(str(error).split())[:200]})"
        ) from None
    if not _is_main():
        return
    directory = RunDirectory(path)
    if json:
        _print_json({"run": str(path), **directory.read_json(directory.summary)})
    elif not quiet:
        if directory.audit.is_file():
            found = Run(path)
            _say("\n" + auditing.in_words(found, found.audit, found.examples, 3))
        sys.stdout.write(f"{shown(str(path))}\n")


@app.command(usage="Usage: proselflc search [OPTIONS]")
def search(
    *,
    out: Path | None = None,
    space: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)] = (),
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
        storage: address of a database for the trials, such as postgresql://…, that machines
            share; left out, a file in the study.
        no_retrain: do not learn from all the training data at the end.
        resume: go on with the study in --out, or take part in it.
        overwrite: replace a study that is in --out.
        config: a TOML file with any of these options, or a recipe: cifar100,
            cifar100-small, clothing1m, imagenet.
        quiet: show no progress.
        json: print the result as JSON.
        options: what is fixed.
    """
    from proselflc.app import search as searching
    from proselflc.app import study
    from proselflc.app.display import chosen
    from proselflc.app.search_part import SearchError
    from proselflc.app.start import Start

    how = searching.Options(tuple(space), trials, prune, storage, jobs, not no_retrain, quiet)
    try:
        start = Start(out, resume, overwrite)
        found = searching.search(options, how, start, chosen(quiet))
    except SearchError as error:
        raise RunError(str(error)) from None
    if json:
        _print_json(study.to_json(found))
    elif quiet:
        sys.stdout.write(f"{shown(str(found.directory.path))}\n")
    else:
        sys.stdout.write(study.told(found))


@app.command
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
    from proselflc.analysis.run import load_run
    from proselflc.app import prediction

    if not request.data and request.features is None:
        raise InputError("say with --data what the model is to look at")
    if out is not None:
        prediction.check_out(out, overwrite)
    judged = prediction.judge(load_run(run, model=model), request, split, workers=workers)
    if out is not None:
        prediction.write(judged, out)
    accuracy = judged.accuracy
    if accuracy is not None:
        _say(f"{len(judged.examples):,} examples, {accuracy:.1%} predicted as they are labelled")
    for one in judged.examples.skipped:
        _say(f"note: {shown(one.id)} was left out: {shown(one.reason)}")
    if json:
        _print_json(
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
        sys.stdout.write(f"{shown(str(out))}\n")


@app.command
def audit(
    run: Path,
    /,
    *,
    folds: Whole | None = None,
    worst: Whole = 10,
    model: str | None = None,
    data: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Say which labels of a finished run are probably wrong, and what they should be.

    Args:
        run: the run's directory.
        folds: train so many models anew, each without a part of the examples, and judge every
            label by the one that has not seen it; 0 for what was seen in training; left out,
            folds if there have been any.
        worst: how many suspects to list.
        model: package.module:factory, for folds of a run whose model is your own.
        data: where the run's data is now, if it has moved; for folds.
        quiet: show no progress.
        json: print the result as JSON.
    """
    from proselflc.analysis.run import load_run
    from proselflc.app import auditing
    from proselflc.app.display import chosen
    from proselflc.training.fit import DivergenceError

    if worst < 0:
        raise InputError(f"--worst must be at least 0, got {worst}")
    audited = load_run(run, model=model)
    try:
        found = auditing.audit(audited, folds=folds, data=data, display=chosen(quiet))
    except DivergenceError as error:
        raise RunError(str(error)) from None
    if json:
        listed = auditing.worst(audited.examples, worst)
        _print_json({"run": str(run), **found.to_json(), "worst": listed})
    else:
        sys.stdout.write(auditing.in_words(audited, found, audited.examples, worst))


@app.command
def report(
    run: Path,
    /,
    *runs: Path,
    out: Path | None = None,
    data: str | None = None,
    figures: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write one self-contained HTML page about a run, or about several compared.

    Args:
        run: the run's directory.
        runs: more of them; the suspects shown are those of the first.
        out: the page; left out, report.html in the run, or of several runs right here.
        data: where the first run's data is now, if it has moved.
        figures: a folder for the page's figures as SVG and PNG files.
        overwrite: replace a file that is no report, or a page whose examples are gone by now.
        json: print the result as JSON.
    """
    from proselflc.app import reporting

    written = reporting.write((run, *runs), out, data=data, folder=figures, overwrite=overwrite)
    for note in written.notes:
        _say(f"note: {shown(note)}")
    if json:
        _print_json(
            {
                "report": str(written.path),
                "runs": [str(one) for one in (run, *runs)],
                "figures": [str(one) for one in written.figures],
                "suspects_shown": written.shown,
                "notes": list(written.notes),
            }
        )
    else:
        sys.stdout.write(f"{shown(str(written.path))}\n")


@app.command
def export(
    run: Path,
    /,
    *,
    format: Literal["csv", "parquet", "npz", "cleanlab"] | None = None,
    out: Path | None = None,
    copy: Path | None = None,
    links: Path | None = None,
    link: Literal["symbolic", "hard", "copy"] = "symbolic",
    soft: bool = False,
    min_confidence: float | None = None,
    reviewed: bool = False,
    only_suspects: bool = False,
    data: str | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write the corrected labels of a finished run: a table, arrays, your own file, or folders.

    Args:
        run: the run's directory.
        format: of the labels; left out, what --out ends in, else csv. cleanlab is a table with
            cleanlab's column names.
        out: a .csv, .tsv, .parquet or .npz file; without it, --copy and --links, the labels are
            printed.
        copy: a corrected copy of the table that the run was made from: the same rows and columns,
            other labels, and a last column with what they were.
        links: a folder with one folder per class, in it links to the images that belong there.
        link: whether those are symbolic links, hard links or copies.
        soft: add the probability of every class, or of the five likeliest of more than 100.
        min_confidence: keep a given label where the run is less sure of a better one than this,
            from 0 to 1.
        reviewed: follow what a person has decided in review and, unless --min-confidence says how
            sure they must be, no suggestions.
        only_suspects: leave out the examples whose labels are probably right.
        data: where the run's data is now, if it has moved; for --copy and --links.
        overwrite: replace what is there.
        json: print a summary as JSON.
    """
    from proselflc.analysis.run import load_run
    from proselflc.app import exporting

    what = exporting.Export(
        format,
        out,
        copy,
        links,
        link,
        soft,
        min_confidence,
        only_suspects,
        data,
        overwrite,
        reviewed,
    )
    if what.is_printed and not json:
        if what.kind in ("parquet", "npz") and sys.stdout.isatty():
            raise InputError(f"{what.kind} is no text: say with --out which file it goes to")
        for piece in exporting.printed(load_run(run), what):
            sys.stdout.buffer.write(piece)
        return
    done = exporting.export(load_run(run), what)
    for note in done.notes:
        _say(f"note: {shown(note)}")
    _say(
        f"{done.corrections:,} of {done.examples:,} labels corrected, {done.suspects:,} are suspect"
        + (f", {done.reviewed:,} were decided by a person" if done.reviewed else "")
    )
    if json:
        _print_json({"run": str(run), **asdict(done)})
    else:
        sys.stdout.write("".join(f"{shown(path)}\n" for path in done.written.values()))


@app.command
def review(
    run: Path,
    /,
    *,
    sample: Whole | None = None,
    seed: Whole = 0,
    data: str | None = None,
    model: str | None = None,
    host: str = "127.0.0.1",
    port: Whole = 8642,
    name: str | None = None,
    no_browser: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Open a page on this machine to accept or reject the suggested labels by hand.

    Every decision is written to review.jsonl in the run before the page goes on. End it with
    Ctrl-C and come back at any time.

    Args:
        run: the run's directory.
        sample: go through so many suspects alone, drawn by chance, to measure how many are right.
        seed: of that draw.
        data: where the run's data is now, if it has moved.
        model: package.module:factory, for a run whose model is your own.
        host: name or address to serve the page at; anything but this machine alone lets others in
            who have the address.
        port: to serve it at; if it is taken, the next one that is free.
        name: of who reviews; left out, who is logged in.
        no_browser: open none, print the address.
        quiet: say nothing but the address.
        json: print what was decided as JSON at the end.
    """
    from proselflc.analysis.run import load_run
    from proselflc.app import reviewing

    def say(text: str) -> None:
        if not quiet:
            _say(f"note: {shown(text)}")

    def show(address: str) -> None:
        stream = sys.stderr if json else sys.stdout
        stream.write(f"{shown(address)}\n")
        stream.flush()
        if not quiet:
            _say("The page is open until you press Ctrl-C here.")

    place = reviewing.Place(host, port, name, not no_browser)
    done = reviewing.review(
        load_run(run, model=model), place, data=data, sample=sample, seed=seed, say=say, show=show
    )
    if json:
        _print_json({"run": str(run), **reviewing.outcome(done)})
    elif not quiet:
        _say("\n" + reviewing.in_words(done, data))


@app.command
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
    from proselflc.app import demo as demonstration

    if seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {seeds}")
    outcome = demonstration.run(out, seeds, lambda text: None if quiet else _say(text))
    if json:
        _print_json({"best": outcome.best, "report": str(outcome.report), "runs": outcome.runs})
    else:
        sys.stdout.write(("" if quiet else "\n") + demonstration.in_words(outcome))


@app.command
def noise(
    *,
    kind: str,
    out: Path,
    rate: str | None = None,
    seed: Whole = 0,
    transition: Path | None = None,
    human: Path | None = None,
    pairs: str | None = None,
    overwrite: bool = False,
    json: bool = False,
    request: Annotated[Request, Parameter(name="*")] = Request(),  # noqa: B008
) -> None:
    """Corrupt the labels of any data, reproducibly, and write a file that --data reads back.

    Args:
        kind: symmetric, pair, or a full name: sym_exclusive_bernoulli, sym_exclusive_exact,
            sym_exclusive_exact_per_class, sym_inclusive, asym_cifar100_pair,
            asym_cifar100_pair_legacy, asym_cifar100_cyclic, asym_cifar10, asym_mnist, pairflip,
            instance_dependent, confusable_pairs, transition, human. KIND:RATE works too.
        out: a .npz for arrays, a .csv or .tsv for image files, texts and tables, or a name ending
            in labels.npz for the labels alone, to use with --labels.
        rate: the share of labels to corrupt, from 0 to 1.
        seed: of the random stream: the same seed gives the same labels everywhere.
        transition: for kind transition: a .npy, .npz or .csv file, row = true class.
        human: for kind human: a file with the labels that people gave.
        pairs: for kind confusable_pairs: class names, as in "cat:dog,truck:car"; estimated from
            the data if left out.
        overwrite: replace a file that is there.
        json: print the result as JSON.
        request: which data to open.
    """
    from proselflc.app.corruption import Corruption, corrupt_data

    result = corrupt_data(
        request, Corruption(kind, out, rate, seed, transition, human, pairs, overwrite)
    )
    for note in result.notes:
        sys.stderr.write(f"note: {shown(note)}\n")
    if json:
        _print_json(asdict(result))
        sys.stderr.write(str(result))
    else:
        sys.stdout.write(str(result))


@app.command
def embed(
    *,
    model: str,
    out: Path,
    weights: Path | None = None,
    batch_size: Whole = 64,
    size: Whole = 224,
    workers: Whole = 2,
    overwrite: bool = False,
    quiet: bool = False,
    json: bool = False,
    request: Annotated[Request, Parameter(name="*")] = Request(),  # noqa: B008
) -> None:
    """Turn images or texts into numbers once, by a model that is already here, for --features.

    Args:
        model: package.module:factory, timm:NAME with --weights, or hf:DIR, a local directory.
        out: an .npy file, or an .npz file where there is a test part too.
        weights: a safetensors file or a state dict.
        batch_size: how many examples at once.
        size: images are warped to this many pixels a side.
        workers: processes that decode image files.
        overwrite: replace a file that is there.
        quiet: show no progress.
        json: print the result as JSON.
        request: which data to open.
    """
    from proselflc.app import embedding

    result = embedding.embed(
        request,
        model=model,
        out=out,
        weights=weights,
        batch_size=batch_size,
        size=size,
        workers=workers,
        overwrite=overwrite,
        quiet=quiet,
    )
    if json:
        _print_json(result)
    else:
        written = "{dimensions} numbers per example written to {out}".format(**result)
        sys.stdout.write(f"{shown(written)}\n")


@app.command
def reproduce(
    name: str | None = None,
    *,
    scale: Literal["cpu", "paper"] = "cpu",
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
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Make a table or figure of the paper, by its number.

    Runs are kept in --out by a hash of their options: what is there is not done again, an
    interrupted reproduction goes on, and several processes or machines may share the directory.

    Args:
        name: table1 to table7, figure1 to figure5.
        scale: cpu, small enough to finish here, or paper, its exact recipes, for a GPU.
        seeds: of the runs, such as 0,1,2; left out, as many as the committed results have.
        out: the directory that keeps records and results.
        data_root: where data is; left out, it is downloaded where that is allowed.
        jobs: processes that train side by side, with a thread each if there are several.
        dry_run: print every run that is not there yet, with its options, and train nothing.
        list: list the paper's tables and figures.
        report: train nothing, show what there is; cells not yet run are "–".
        keep_runs: keep the run directories, not only what they came to.
        weights: for table6, a file of ImageNet's weights of a ResNet-50 to start from.
        mask: for table6, a file of 0 and 1, row = true class: what Masking is told.
        quiet: show no progress.
        json: print the result as JSON.
    """
    from proselflc.app.reproduction import command

    if list:
        rows = command.listed()
        if json:
            _print_json(rows)
        else:
            heading = ("name", "runs at cpu scale", "what it is")
            _print_table(heading, [(n, str(r["runs"]), str(r["title"])) for n, r in rows.items()])
        return
    if name is None:
        raise InputError("say which table or figure, such as table4; --list lists them")
    one = command.asked(name, scale, seeds, out, data_root, keep_runs, weights, mask)
    if dry_run:
        plan = command.plan(one)
        if json:
            _print_json(plan)
        else:
            sys.stdout.write(command.plan_in_words(plan))
        return
    if not report:
        command.run(one, jobs, None if quiet else _say)
    result = command.finished(one)
    if json:
        _print_json(result)
    else:
        sys.stdout.write(str(result["markdown"]))


@app.command
def doctor(*, json: bool = False) -> None:
    """Say what is installed, what is not and how to get it, and what is odd on this machine.

    The exit code is 1 if something is missing without which nothing works.

    Args:
        json: print the result as JSON.
    """
    from proselflc.app import doctor as examination

    found = examination.diagnose()
    if json:
        _print_json(found.to_json())
    else:
        sys.stdout.write(examination.in_words(found))
    if found.faults:
        raise RunError("; ".join(found.faults))


@app.command
def completion(shell: Literal["bash", "zsh", "fish"] = "bash", /) -> None:
    """Print a script that has a shell complete commands and options by the Tab key.

    For bash, put it into ~/.local/share/bash-completion/completions/proselflc; for fish, into
    ~/.config/fish/completions/proselflc.fish; for zsh, into _proselflc in a folder of $fpath.

    Args:
        shell: which one.
    """
    sys.stdout.write(app.generate_completion(prog_name="proselflc", shell=shell))


def _read_config(arguments: Sequence[str]) -> None:
    """Have a TOML file stand behind the flags of a command: --config, or what is to be resumed."""
    from proselflc.app import config
    from proselflc.training.run_directory import read_toml

    kept = {"train": "config.toml", "search": "study.toml"}
    for command in kept:
        app[command].config = ()
    if not arguments or arguments[0] not in kept:
        return
    command = arguments[0]
    name = config.flag_value(arguments, "--config")
    if name is not None:
        path = config.find(name)
    else:
        out = config.flag_value(arguments, "--out")
        if out is None or not any(word.partition("=")[0] == "--resume" for word in arguments):
            return
        path = Path(out) / kept[command]
        if not path.is_file():
            return
        if command == "search":
            from proselflc.app.study_directory import StudyDirectory

            StudyDirectory(Path(out)).read()  # another version's may not even have these options
    table = dict(read_toml(path))
    own = config.of_search(table, path) if command == "search" else {}
    values = config.options(table, path, arguments)
    model = values.get("model", "")
    if name is None and ":" in model and config.flag_value(arguments, "--model") is None:
        raise InputError(
            f"the run in {out} has a model of its own making, {model}, and a run from a stranger "
            f"could name any code: say that you trust it with --model {model}"
        )
    # By command: among flat keys, "noise" would be taken for the command of that name and dropped.
    app[command].config = (Dict({command: {**values, **own}}, source=str(path)),)


def _print_json(value: object) -> None:
    json_format.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[k]) for row in (heading, *rows)) for k in range(len(heading))]
    for row in (heading, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
