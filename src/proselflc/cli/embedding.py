"""Embeddings of a data set by a local model, to train on afterwards.

A few thousand photos can be embedded once on a CPU by a good model, and then trained on in seconds.
Nothing is downloaded, and weights that could run code are not read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from proselflc.cli.data import EmbedOptions
from proselflc.data.batches import Order
from proselflc.data.dataset import Part
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Bytes, Floats
from proselflc.data.opening import open_all
from proselflc.data.request import Request
from proselflc.data.serving import FileLoader
from proselflc.errors import InputError, invalid_option, unknown
from proselflc.files.regular import whole_file
from proselflc.options import check_least, check_out
from proselflc.pretrained.catalogue import BACKBONES, encoder
from proselflc.pretrained.local_models import (
    Arguments,
    Embedder,
    as_embedder,
    embed_batch,
    load_embedder,
    model_error,
)


def embed(request: Request, options: EmbedOptions) -> dict[str, object]:
    """Embed every example and return the path `out`, the `rows` of each part and `dimensions`.

    Images are resized to `size` × `size` and normalised as the model was trained; greyscale images
    get three equal channels. Features are passed on unchanged. Texts need a model with a tokenizer:
    `hf:`, or a factory whose module has a method `tokenize(list of str)`. An `.npz` file holds `x`
    and, if the data has such parts, `x_test` and `x_validation`; an `.npy` file the rows of all.
    """
    check_least(options, {"batch_size": 1, "size": 1})
    out = options.out
    check_out(out, options.overwrite, (".npy", ".npz"))
    embedder = _load(options.model, options.weights)
    dataset = open_all(request)
    parts = {"x": dataset.train, "x_test": dataset.test, "x_validation": dataset.validation}
    present = {name: part for name, part in parts.items() if part is not None}
    how = {"batch_size": options.batch_size, "size": options.size, "workers": options.workers}
    arrays = {
        name: embeddings(part, embedder, **how, quiet=options.quiet)
        for name, part in present.items()
    }
    with whole_file(out) as file:
        if out.suffix.lower() == ".npy":
            np.save(file, np.concatenate(list(arrays.values())), allow_pickle=False)
        else:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    return {
        "out": str(out),
        "rows": {name: len(array) for name, array in arrays.items()},
        "dimensions": int(arrays["x"].shape[1]),
    }


def _load(model: str, weights: Path | None) -> Embedder:
    """Return the model of a name, from the catalogue or the disk."""
    if model not in BACKBONES and ":" not in model:
        raise InputError(
            f"{unknown('pretrained model', model, BACKBONES)}; or package.module:factory, hf:DIR, "
            "timm:NAME or sentence-transformers:NAME",
            field="model",
        )
    if model not in BACKBONES:
        return load_embedder(model, weights=weights)
    if weights is not None:
        raise invalid_option("weights", f"is not for {model}, which has its own")
    return as_embedder(encoder(model))


def embeddings(
    part: Part,
    embedder: Embedder,
    *,
    batch_size: int = 64,
    size: int = 224,
    workers: int = 2,
    quiet: bool = True,
) -> Floats:
    """Return the embeddings of a part, [n, D] float32, in the order of its examples.

    The module runs without gradients in evaluation mode, and stays in it. Progress goes to stderr
    unless `quiet`.
    """
    embedder.module.eval()
    rows: list[Floats] = []
    done = 0
    with torch.inference_mode():
        batches = _batches(part, embedder, batch_size=batch_size, size=size, workers=workers)
        for count, arguments in batches:
            rows.append(embed_batch(embedder.module, arguments, count).numpy())
            if not quiet:
                _show_progress(done, done + count, len(part))
            done += count
    if len({row.shape[1] for row in rows}) > 1:
        raise model_error("returned embeddings of different sizes for different batches")
    return np.concatenate(rows)


def _batches(
    part: Part, embedder: Embedder, *, batch_size: int, size: int, workers: int
) -> Iterator[tuple[int, Arguments]]:
    """Yield the number of examples and the model's arguments of every batch."""
    inputs = part.inputs
    order = Order(batch_size, shuffle=False)
    if not inputs.in_memory:
        scaling = ImageScaling(embedder.mean, embedder.std, (size, size), (size, size))
        for batch in FileLoader(part, scaling, order, workers=workers).batches():
            yield len(batch.y), batch.x
        return
    if inputs.medium == "text" and embedder.tokenize is None:
        raise model_error(
            "does not take texts",
            "pass hf:DIR with a tokenizer, or a factory whose module has a method "
            "tokenize(list of str)",
        )
    for share in order.shares(len(part), epoch=0):
        some = inputs.take(share.positions)
        if some.strings is not None:
            assert embedder.tokenize is not None
            yield len(some), embedder.tokenize(list(some.strings[1]))
        elif some.medium == "image":
            yield len(some), _resize(np.array(some.numbers), embedder, size)
        else:
            yield len(some), torch.from_numpy(np.array(some.numbers, np.float32))


def _resize(images: Bytes, embedder: Embedder, size: int) -> Tensor:
    """Return normalised images, [N, 3, size, size]."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    height, width = pixels.shape[2:]
    scaling = ImageScaling(embedder.mean, embedder.std, (height, width), (height, width))
    x = scaling.normalized(pixels.expand(-1, 3, -1, -1))
    if (height, width) == (size, size):
        return x
    return F.interpolate(x, (size, size), mode="bilinear", antialias=True)


def _show_progress(before: int, done: int, total: int) -> None:
    """Write the progress to stderr: on one line of a terminal, otherwise a line every tenth."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rembedded {done:,} of {total:,}" + "\n" * (done == total))
    elif 10 * done // total > 10 * before // total:
        sys.stderr.write(f"embedded {done:,} of {total:,}\n")
    sys.stderr.flush()
