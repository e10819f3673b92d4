"""Embeddings made once by a model that is already here, to learn from afterwards.

A few thousand photos on a CPU: embed them once with a good model, then train on the numbers.
Nothing is fetched from a network, and no weights are read that could run code.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proselflc.data.batches import Order
from proselflc.data.dataset import Floats, ImageFiles, Images, Inputs, Part, Texts
from proselflc.data.opening import open_data
from proselflc.data.preprocessing import ImageScaling
from proselflc.data.request import Request
from proselflc.data.streaming import FileLoader
from proselflc.errors import InputError
from proselflc.files.regular import content_of, is_regular
from proselflc.files.whole import whole_file
from proselflc.models.factory import call_factory, import_timm
from proselflc.models.pixels import IMAGENET
from proselflc.models.weights import load_strictly, read_state, words

IMAGENET_MEAN, IMAGENET_STD = IMAGENET.mean, IMAGENET.std

Tokenize = Callable[[list[str]], "Tensor | Mapping[str, Tensor]"]


@dataclass(frozen=True)
class Embedder:
    """A model, and how its inputs are made.

    Attributes:
        module: maps a batch to [N, D], or to an object with `pooler_output` or
            `last_hidden_state`.
        mean, std: of pixels / 255 in the images it was trained on, three numbers each.
        tokenize: makes a batch of texts into what the module takes, or None if it takes none.
    """

    module: nn.Module
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    tokenize: Tokenize | None = None


def embed(
    request: Request,
    *,
    model: str,
    out: Path,
    weights: Path | None = None,
    batch_size: int = 64,
    size: int = 224,
    workers: int = 2,
    overwrite: bool = False,
    quiet: bool = False,
) -> dict[str, object]:
    """Embed every example of a data set and write the numbers, row for row.

    Images are warped to `size` × `size` and scaled as the model was trained; grey ones become
    three equal channels. Features are passed on as they are. Texts need a model that knows how to
    take them apart: `hf:`, or a factory whose module has a method `tokenize(list of str)`.

    Args:
        request: which data to open.
        model: `package.module:factory` (called without arguments, gives an `nn.Module`),
            `timm:NAME` with `weights`, or `hf:DIR`, a directory that `save_pretrained` wrote.
        out: an `.npz` file with `x` and, where the data has such parts, `x_test` and
            `x_validation`; or an `.npy` file with their rows one after the other. `--features`
            takes both.
        weights: a safetensors file or a state dict, all of whose names must fit the model.
        workers: processes that decode image files.

    Returns:
        what was done: `out`, `rows` per part, and `dimensions`.
    """
    if batch_size < 1 or size < 1:
        raise InputError(f"batch size and size must be positive, got {batch_size} and {size}")
    if out.suffix not in (".npy", ".npz"):
        raise InputError(f'--out must end in .npy or .npz, got "{out.name}"')
    if not out.parent.is_dir():
        raise InputError(f"there is no directory {out.parent} to write {out.name} into: make it")
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists: choose another name or pass --overwrite")
    embedder = load_embedder(model, weights=weights)
    dataset = open_data(request)
    parts = {"x": dataset.train, "x_test": dataset.test, "x_validation": dataset.validation}
    present = {name: part for name, part in parts.items() if part is not None}
    arrays = {
        name: embeddings(
            part, embedder, batch_size=batch_size, size=size, workers=workers, quiet=quiet
        )
        for name, part in present.items()
    }
    _write(out, arrays)
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
    """[n, D] float32 the embedding of every example of a part, in its order.

    The module runs in evaluation mode without gradients and is left in evaluation mode. Progress
    goes to stderr unless `quiet`.
    """
    embedder.module.eval()
    rows: list[Floats] = []
    done = 0
    with torch.inference_mode():
        batches = _batches(part, embedder, batch_size=batch_size, size=size, workers=workers)
        for count, arguments in batches:
            rows.append(_embedded(embedder.module, arguments, count))
            if not quiet:
                _progress(done, done + count, len(part))
            done += count
    if len({row.shape[1] for row in rows}) > 1:
        raise InputError("the model gives embeddings of different sizes for different batches")
    return np.concatenate(rows)


def _embedded(module: nn.Module, arguments: Tensor | Mapping[str, Tensor], count: int) -> Floats:
    """[N, D] what the module makes of one batch."""
    mask = None
    try:
        if isinstance(arguments, Tensor):
            output = module(arguments)
        else:
            mask = arguments.get("attention_mask")
            output = module(**arguments)
    except Exception as error:  # it is the user's code, and may fail in any way
        raise InputError(
            f"the model failed on a batch of {count}: {type(error).__name__}: {words(error)}"
        ) from None
    return _pooled(output, count, mask)


def load_embedder(model: str, *, weights: Path | None = None) -> Embedder:
    """The model that a string names; see `embed`."""
    kind, _, name = model.partition(":")
    if not kind or not name:
        raise InputError(f'model "{model}" is none of package.module:factory, timm:NAME and hf:DIR')
    if kind == "timm":
        return _timm(name, weights)
    if kind == "hf":
        if weights is not None:
            raise InputError("an hf: directory holds its own weights: leave --weights out")
        return _hugging_face(Path(name))
    module = call_factory(kind, name, arguments={}, gives="maps a batch to embeddings [N, D]")
    if weights is not None:
        load_strictly(module, read_state(weights), weights)
    return Embedder(module, tokenize=getattr(module, "tokenize", None))


def _timm(name: str, weights: Path | None) -> Embedder:
    if weights is None:
        raise InputError(
            f"timm:{name} needs --weights, a file with its trained weights: nothing is downloaded, "
            "and a network without training gives no useful embeddings"
        )
    timm = import_timm(name)
    state = read_state(weights)
    module = timm.create_model(name, pretrained=False)
    config = getattr(module, "pretrained_cfg", {})
    head = state.get(f"{config.get('classifier', '')}.weight")
    if head is not None:  # weights tuned to other classes fit as well: the head is taken off
        module = timm.create_model(name, pretrained=False, num_classes=len(head))
    load_strictly(module, state, weights)
    module.reset_classifier(0)
    mean, std = config.get("mean", IMAGENET_MEAN), config.get("std", IMAGENET_STD)
    return Embedder(module, tuple(mean), tuple(std))


def _hugging_face(directory: Path) -> Embedder:
    if not is_regular(directory / "config.json"):
        raise InputError(
            f"{directory} holds no config.json: hf:DIR takes a local directory that "
            "save_pretrained wrote; nothing is downloaded"
        )
    for path in directory.iterdir():
        if not path.is_dir():
            is_regular(path)  # transformers opens what it finds, and would wait at a pipe
    try:
        import transformers  # type: ignore[import-not-found, unused-ignore]
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f'transformers cannot be imported ({words(error)}): pip install "proselflc[hf]"'
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
        raise InputError(f"cannot load the model in {directory}: {words(error)}") from None
    mean, std = _image_statistics(directory / "preprocessor_config.json")
    return Embedder(module, mean, std, tokenize)


@contextmanager
def _without_bars(transformers: Any) -> Iterator[None]:
    """Weights from the disk are there at once; a bar for them is of no use, least when quiet."""
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the environment wants them
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _image_statistics(path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation that the model's image processor uses; ImageNet's where it says none."""
    if not is_regular(path):
        return IMAGENET_MEAN, IMAGENET_STD
    try:
        config = json.loads(content_of(path))
        mean = tuple(float(v) for v in config.get("image_mean", IMAGENET_MEAN))
        std = tuple(float(v) for v in config.get("image_std", IMAGENET_STD))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"cannot read {path}: {words(error)}") from None
    if len(mean) != 3 or len(std) != 3 or not all(0 < s < 1e6 for s in std):
        raise InputError(f"{path} must hold three numbers in image_mean and in image_std")
    return mean, std


def _batches(
    part: Part, embedder: Embedder, *, batch_size: int, size: int, workers: int
) -> Iterator[tuple[int, Tensor | Mapping[str, Tensor]]]:
    """The number of examples and the model's arguments, batch by batch."""
    inputs: Inputs = part.inputs
    order = Order(batch_size, shuffle=False)
    if isinstance(inputs, ImageFiles):
        scaling = ImageScaling(embedder.mean, embedder.std, (size, size), (size, size))
        for batch in FileLoader(part, scaling, order, workers=workers).batches():
            yield len(batch.y), batch.x
        return
    if isinstance(inputs, Texts) and embedder.tokenize is None:
        raise InputError(
            "this model does not take texts: give hf:DIR with a tokenizer, or a factory whose "
            "module has a method tokenize(list of str)"
        )
    for share in order.shares(len(part), epoch=0):
        some = inputs.take(share.positions)
        if isinstance(some, Images):
            yield len(some), _resized(some, embedder, size)
        elif isinstance(some, Texts):
            assert embedder.tokenize is not None
            yield len(some), embedder.tokenize(list(some.texts))
        else:
            assert not isinstance(some, ImageFiles)
            yield len(some), torch.from_numpy(np.array(some.values, np.float32))


def _resized(images: Images, embedder: Embedder, size: int) -> Tensor:
    """[N, 3, size, size] normalised."""
    pixels = torch.from_numpy(np.array(images.pixels)).permute(0, 3, 1, 2)
    height, width = pixels.shape[2:]
    scaling = ImageScaling(embedder.mean, embedder.std, (height, width), (height, width))
    x = scaling.normalized(pixels.expand(-1, 3, -1, -1))
    if (height, width) == (size, size):
        return x
    return F.interpolate(x, (size, size), mode="bilinear", antialias=True)


def _pooled(output: Any, count: int, mask: Tensor | None) -> Floats:
    """[N, D] from what the model gave: its pooled output, or the mean over places.

    Args:
        output: [N, D]; tokens [N, T, D]; a map [N, D, h, w]; or an object that holds one of them.
        count: N.
        mask: [N, T] which tokens of a text count, or None.
    """
    if not isinstance(output, Tensor):
        pooled = getattr(output, "pooler_output", None)
        output = pooled if pooled is not None else getattr(output, "last_hidden_state", None)
    if not isinstance(output, Tensor):
        raise InputError(
            "the model gave neither a tensor nor an object with pooler_output or last_hidden_state"
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
        raise InputError(
            f"the model gave {list(output.shape)} for a batch of {count}, expected [{count}, D]"
        )
    if not bool(torch.isfinite(output).all()):
        raise InputError("the model gave NaN or infinite embeddings: are these its weights?")
    array: Floats = output.to(torch.float32).cpu().numpy()
    return array


def _write(path: Path, arrays: dict[str, Any]) -> None:
    with whole_file(path) as file:
        if path.suffix == ".npy":
            np.save(file, np.concatenate(list(arrays.values())), allow_pickle=False)
        else:
            np.savez(file, **arrays)


def _progress(before: int, done: int, total: int) -> None:
    """Say how far it is: on one line of a terminal, or a line every tenth elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rembedded {done:,} of {total:,}" + "\n" * (done == total))
    elif 10 * done // total > 10 * before // total:
        sys.stderr.write(f"embedded {done:,} of {total:,}\n")
    sys.stderr.flush()
