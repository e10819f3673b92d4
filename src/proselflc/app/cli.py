"""The command `proselflc`.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import io
import json as json_format
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import App, CycloptsError, Parameter, Token

from proselflc import __version__
from proselflc.data.opening import DATASETS, Request
from proselflc.errors import InputError, shown


def _whole_number(_: type, tokens: Sequence[Token]) -> int:
    """An integer as it is written; 1.5 is not rounded to one."""
    return int(tokens[0].value)


Whole: TypeAlias = Annotated[int, Parameter(converter=_whole_number)]

app = App(
    name="proselflc",
    help="Learn from wrongly labelled data.",
    version=__version__,
    help_format="plaintext",  # reading Markdown would take as long as all the rest
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
)


def main() -> None:
    """Run the command line and leave with its exit code.

    0 done, 2 the user's input was wrong, 130 interrupted. Anything else that is raised is a fault
    of ours: Python shows it and leaves with 1.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that knows no ε
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    try:
        app(
            arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
    except (InputError, CycloptsError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
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
    """List the methods, what they minimise and where the paper has them.

    Args:
        json: print the list as JSON.
    """
    from proselflc.correction.catalogue import METHODS

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
                }
                for name, one in METHODS.items()
            }
        )
        return
    _print_table(
        ("name", "paper", "loss", "title"),
        [(name, one.where, one.loss, one.title) for name, one in METHODS.items()],
    )


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


def _print_json(value: object) -> None:
    json_format.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[k]) for row in (heading, *rows)) for k in range(len(heading))]
    for row in (heading, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
