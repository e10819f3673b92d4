"""Commands that write new data: `noise` and `embed`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from proselflc.data.request import Request
from proselflc.errors import printable
from proselflc.options import Whole
from proselflc.terminal import print_json, say_notes


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
    """Add reproducible label noise to any data and write a file that --data can read.

    Args:
        kind: kind of noise: symmetric, pair, or the full name of a generator. KIND:RATE sets the
            rate too.
        out: output file: .npz for arrays; .csv or .tsv for image files, texts and tables; or a name
            ending in labels.npz for the labels alone, to be read by --labels.
        rate: share of labels to change, from 0 to 1.
        seed: random seed; the same seed gives the same labels on every machine.
        transition: transition matrix for kind transition: a .npy, .npz or .csv file with one row
            per true class.
        human: file of human labels for kind human.
        pairs: pairs of class names for kind confusable_pairs, as in "cat:dog,truck:car" (default:
            estimated from the data).
        overwrite: replace an existing file.
        json: print the result as JSON.
        request: data to change.
    """
    from proselflc.data.corruption import Corruption, corrupt_data

    result = corrupt_data(
        request, Corruption(kind, out, rate, seed, transition, human, pairs, overwrite)
    )
    say_notes(result.notes)
    if json:
        print_json(asdict(result))
    (sys.stderr if json else sys.stdout).write(str(result))


def noise_with_kinds() -> Callable[..., None]:
    """Return the command `noise` with the names of all generators in its help."""
    from proselflc.data.noise_generators import GENERATORS, GENERATORS_WITHOUT_RATE

    @functools.wraps(noise)
    def named(*args: Any, **kwargs: Any) -> None:
        noise(*args, **kwargs)

    names = ", ".join((*GENERATORS, *GENERATORS_WITHOUT_RATE))
    named.__doc__ = (noise.__doc__ or "").replace("of a generator.", f"of a generator: {names}.")
    return named


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
    """Compute embeddings of images or texts with a local model, for --features.

    Args:
        model: package.module:factory, timm:NAME with --weights, or hf:DIR for a local directory.
        out: output file: .npy, or .npz if the data has a test part.
        weights: weights of the model, a safetensors file or a state dict.
        batch_size: number of examples per batch.
        size: height and width that images are resized to.
        workers: number of processes that decode image files.
        overwrite: replace an existing file.
        quiet: show no progress.
        json: print the result as JSON.
        request: data to embed.
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
