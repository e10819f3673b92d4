"""Commands that make data of data."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from proselflc.data.request import Request
from proselflc.errors import printable
from proselflc.options import Whole
from proselflc.terminal.printing import print_json


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
    from proselflc.data.corruption import Corruption, corrupt_data

    result = corrupt_data(
        request, Corruption(kind, out, rate, seed, transition, human, pairs, overwrite)
    )
    for note in result.notes:
        sys.stderr.write(f"note: {printable(note)}\n")
    if json:
        print_json(asdict(result))
        sys.stderr.write(str(result))
    else:
        sys.stdout.write(str(result))


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
    from proselflc.cli import embedding

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
        print_json(result)
    else:
        written = "{dimensions} numbers per example written to {out}".format(**result)
        sys.stdout.write(f"{printable(written)}\n")
