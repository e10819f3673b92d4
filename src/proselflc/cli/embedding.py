"""Embeddings of a data set by a local model, to train on afterwards.

A few thousand photos can be embedded once on a CPU by a good model, and then trained on in seconds.
Nothing is downloaded, and weights that could run code are not read.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from proselflc.cli.data import EmbedOptions
from proselflc.data.batches import Order
from proselflc.data.dataset import Part
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Bytes, Floats
from proselflc.data.opening import open_all
from proselflc.data.request import Request
from proselflc.data.serving import FileLoader
from proselflc.errors import InputError, invalid_option
from proselflc.files.regular import is_regular, whole_file
from proselflc.files.typed import read_json
from proselflc.models.factory import call_factory, import_timm, words
from proselflc.models.pixels import IMAGENET
from proselflc.models.weights import load_strictly, read_state
from proselflc.options import check_least, check_out
from proselflc.wording import option

Three = Meta(min_length=3, max_length=3)
Arguments = Tensor | Mapping[str, Tensor]  # of a module: a batch, or keyword arguments
Tokenize = Callable[[list[str]], Arguments]


@dataclass(frozen=True)
class Embedder:
    """A model and the preparation of its inputs.

    The module maps a batch to [N, D], or to an object with `pooler_output` or `last_hidden_state`.
    """

    module: nn.Module
    mean: tuple[float, ...] = IMAGENET.mean  # of pixels / 255, for each of three channels
    std: tuple[float, ...] = IMAGENET.std
    tokenize: Tokenize | None = None  # None if the module takes no texts


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
    embedder = load_embedder(options.model, weights=options.weights)
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
            rows.append(_embed_batch(embedder.module, arguments, count))
            if not quiet:
                _show_progress(done, done + count, len(part))
            done += count
    if len({row.shape[1] for row in rows}) > 1:
        raise _model_error("returned embeddings of different sizes for different batches")
    return np.concatenate(rows)


def _model_error(problem: str, fix: str | None = None) -> InputError:
    return InputError(f"the model {problem}", field="model", fix=fix)


def _embed_batch(module: nn.Module, arguments: Arguments, count: int) -> Floats:
    """Return the embeddings of one batch of `count` examples, [N, D]."""
    mask = None
    try:
        if isinstance(arguments, Tensor):
            output = module(arguments)
        else:
            mask = arguments.get("attention_mask")
            output = module(**arguments)
    except Exception as error:  # the user's code may fail in any way
        raise _model_error(
            f"failed on a batch of {count}: {type(error).__name__}: {words(error)}"
        ) from None
    return _pool(output, count, mask)


def load_embedder(model: str, *, weights: Path | None = None) -> Embedder:
    """Return the model that a string names; see `embed`."""
    kind, _, name = model.partition(":")
    if not kind or not name:
        raise invalid_option(
            "model", f'must be package.module:factory, timm:NAME or hf:DIR, got "{model}"'
        )
    if kind == "timm":
        return _timm(name, weights)
    if kind == "hf":
        if weights is not None:
            fix = f"remove {option('weights')}"
            raise InputError("an hf: directory holds its own weights", field="weights", fix=fix)
        return _hugging_face(Path(name))
    module = call_factory(kind, name, arguments={}, gives="maps a batch to embeddings [N, D]")
    if weights is not None:
        load_strictly(module, read_state(weights), weights)
    return Embedder(module, tokenize=getattr(module, "tokenize", None))


def _timm(name: str, weights: Path | None) -> Embedder:
    if weights is None:
        raise InputError(
            f"timm:{name} needs a file with its trained weights, because nothing is downloaded",
            field="weights",
            fix=f"pass {option('weights')}",
        )
    timm = import_timm(name)
    state = read_state(weights)
    module = timm.create_model(name, pretrained=False)
    config = getattr(module, "pretrained_cfg", {})
    head = state.get(f"{config.get('classifier', '')}.weight")
    if head is not None:  # fine-tuned weights may have other classes; the head is removed below
        module = timm.create_model(name, pretrained=False, num_classes=len(head))
    load_strictly(module, state, weights)
    module.reset_classifier(0)
    mean, std = config.get("mean", IMAGENET.mean), config.get("std", IMAGENET.std)
    return Embedder(module, tuple(mean), tuple(std))


def _hugging_face(directory: Path) -> Embedder:
    if not is_regular(directory / "config.json"):
        raise InputError(
            f"{directory} has no config.json; nothing is downloaded",
            field="model",
            fix="pass hf:DIR with a local directory written by save_pretrained",
        )
    for path in directory.iterdir():
        if not path.is_dir():
            is_regular(path)  # transformers opens every file, and would block on a pipe
    try:
        import transformers  # type: ignore[import-not-found, unused-ignore]
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"transformers cannot be imported ({words(error)})",
            field="model",
            fix='pip install "proselflc[hf]"',
        ) from None
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        with _without_bars(transformers):
            module = transformers.AutoModel.from_pretrained(
                directory, use_safetensors=True, **local
            )
        tokenize = None
        if any((directory / f).is_file() for f in ("tokenizer.json", "tokenizer_config.json")):
            tokenizer = transformers.AutoTokenizer.from_pretrained(directory, **local)

            def tokenize(texts: list[str]) -> Mapping[str, Tensor]:
                return dict(tokenizer(texts, padding=True, truncation=True, return_tensors="pt"))

    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise InputError(
            f"cannot load the model in {directory}: {words(error)}", field="model"
        ) from None
    path = directory / "preprocessor_config.json"
    scaling = read_json(path, _ImageProcessor) if is_regular(path) else _ImageProcessor()
    return Embedder(module, scaling.image_mean, scaling.image_std, tokenize)


@contextmanager
def _without_bars(transformers: Any) -> Iterator[None]:
    """Disable the progress bars of transformers, which are useless for local weights."""
    bars = transformers.utils.logging
    was_enabled = bars.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a setting of the environment may ask for bars
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            bars.enable_progress_bar()


@dataclass(frozen=True)
class _ImageProcessor:
    """The part of `preprocessor_config.json` that is read."""

    image_mean: Annotated[tuple[float, ...], Three] = IMAGENET.mean
    image_std: Annotated[tuple[Annotated[float, Meta(gt=0, lt=1e6)], ...], Three] = IMAGENET.std


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
        raise _model_error(
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


def _pool(output: Any, count: int, mask: Tensor | None) -> Floats:
    """Return the pooled output of a model, or its mean over positions, for N = `count` examples.

    The output is [N, D], tokens [N, T, D], a map [N, D, h, w], or an object that holds one of
    them; the mask [N, T] chooses the tokens of a text to include.
    """
    if not isinstance(output, Tensor):
        pooled = getattr(output, "pooler_output", None)
        output = pooled if pooled is not None else getattr(output, "last_hidden_state", None)
    if not isinstance(output, Tensor):
        raise _model_error(
            "returned neither a tensor nor an object with pooler_output or last_hidden_state"
        )
    if output.dim() == 3:
        if mask is not None and mask.shape == output.shape[:2]:
            weight = mask[:, :, None].to(output.dtype)
            output = (output * weight).sum(1) / weight.sum(1).clamp_min(1)
        else:
            output = output.mean(1)
    elif output.dim() == 4:
        output = output.mean((2, 3))
    if output.dim() != 2 or len(output) != count:
        raise _model_error(
            f"returned {list(output.shape)} for a batch of {count}, expected [{count}, D]"
        )
    if not bool(torch.isfinite(output).all()):
        raise _model_error("returned NaN or infinite embeddings", "check its weights")
    array: Floats = output.to(torch.float32).cpu().numpy()
    return array


def _show_progress(before: int, done: int, total: int) -> None:
    """Write the progress to stderr: on one line of a terminal, otherwise a line every tenth."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rembedded {done:,} of {total:,}" + "\n" * (done == total))
    elif 10 * done // total > 10 * before // total:
        sys.stderr.write(f"embedded {done:,} of {total:,}\n")
    sys.stderr.flush()
