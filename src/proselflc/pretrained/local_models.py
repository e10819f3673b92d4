"""Local models as encoders: a function of the user, timm, Hugging Face.

Nothing is downloaded, weights that could run code are not read, and no code that comes with weights
is run. A model that a library of its own once downloaded is found in the local cache by its name.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from proselflc.errors import InputError, invalid_option
from proselflc.files.regular import content_of, is_regular
from proselflc.files.typed import read_json
from proselflc.models.factory import call_factory, import_timm, words
from proselflc.models.pixels import IMAGENET
from proselflc.models.weights import load_strictly, read_state
from proselflc.pretrained.encoder import Encoder
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
    size: int | None = None  # height and width of images that it was made for; None for any
    files: tuple[Path, ...] = ()  # which say, besides its weights, how it computes


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
            raise _own_weights(kind)
        return _hugging_face(_directory(name))
    if kind == "sentence-transformers":
        if weights is not None:
            raise _own_weights(kind)
        return _sentence_transformer(name)
    module = call_factory(kind, name, arguments={}, gives="maps a batch to embeddings [N, D]")
    if weights is not None:
        load_strictly(module, read_state(weights), weights)
    return Embedder(module, tokenize=getattr(module, "tokenize", None))


def _own_weights(kind: str) -> InputError:
    return InputError(
        f"an {kind}: directory holds its own weights",
        field="weights",
        fix=f"remove {option('weights')}",
    )


def _timm(name: str, weights: Path | None) -> Embedder:
    timm = import_timm(name)
    weights = weights or _cached_timm(timm, name)
    if weights is None:
        raise InputError(
            f"the weights of timm:{name} are not in the local cache, and nothing is downloaded",
            field="model",
            fix=f'run timm.create_model("{name}", pretrained=True) once, which keeps them there',
        )
    state = read_state(weights)
    module = timm.create_model(name, pretrained=False)
    config = getattr(module, "pretrained_cfg", {})
    head = state.get(f"{config.get('classifier', '')}.weight")
    if head is not None:  # fine-tuned weights may have other classes; the head is removed below
        module = timm.create_model(name, pretrained=False, num_classes=len(head))
    load_strictly(module, state, weights)
    module.reset_classifier(0)
    mean, std = config.get("mean", IMAGENET.mean), config.get("std", IMAGENET.std)
    size = config.get("input_size", (3, None))[-1]
    return Embedder(module, tuple(mean), tuple(std), size=size, files=(weights,))


def _cached_timm(timm: ModuleType, name: str) -> Path | None:
    """Return the file that timm once downloaded for a model, if it is in the local cache."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    config = timm.get_pretrained_cfg(name)
    repository = getattr(config, "hf_hub_id", None)
    if not repository:
        return None
    found = try_to_load_from_cache(repository, "model.safetensors")
    return Path(found) if isinstance(found, str) else None


def _directory(name: str) -> Path:
    """Return the directory of that name, or of a model of that name in the local cache."""
    directory = Path(name)
    if directory.exists() or directory.is_absolute() or name.startswith("."):
        return directory
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, local_files_only=True))
    # It is not in the cache, or its name cannot be one of Hugging Face's.
    except (ImportError, OSError, ValueError):
        return directory


_KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")


def _sentence_transformer(name: str) -> Embedder:
    """Return a model of sentence-transformers, without that library: tokens, mean, length 1."""
    directory = _directory(name if "/" in name else f"sentence-transformers/{name}")
    embedder = _hugging_face(directory)
    path = directory / "modules.json"
    modules = read_json(path, list[_Module]) if is_regular(path) else []
    others = [one.type for one in modules if one.type.rpartition(".")[2] not in _KNOWN_MODULES]
    path = directory / "1_Pooling" / "config.json"
    pooling = read_json(path, _Pooling) if is_regular(path) else _Pooling()
    if others or not pooling.pooling_mode_mean_tokens or embedder.tokenize is None:
        raise InputError(
            f"{name} does not take the mean of the tokens of a text",
            field="model",
            fix="write a function that makes it and pass package.module:factory",
        )
    return replace(embedder, module=_MeanOfTokens(embedder.module))


class _MeanOfTokens(nn.Module):
    """The mean of the last hidden states, with length 1."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, **arguments: Tensor) -> Tensor:
        """Return [N, D] of N texts."""
        h = self.transformer(**arguments).last_hidden_state
        return F.normalize(_mean_of_tokens(h, arguments.get("attention_mask")), dim=1)


@dataclass(frozen=True)
class _Module:
    """The part of an entry of `modules.json` that is read."""

    type: str


@dataclass(frozen=True)
class _Pooling:
    """The part of `1_Pooling/config.json` that is read."""

    pooling_mode_mean_tokens: bool = False


_DESCRIPTIONS = (".json", ".txt", ".model")  # of a network and its tokenizer


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
    size = getattr(module.config, "image_size", None)
    return Embedder(
        module,
        scaling.image_mean,
        scaling.image_std,
        tokenize,
        size if isinstance(size, int) else None,
        tuple(sorted(file for file in directory.iterdir() if file.suffix in _DESCRIPTIONS)),
    )


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


_USUAL_SIZE = 224  # pixels


def load_encoder(name: str) -> Encoder:
    """Return the local model of a name as an encoder."""
    embedder = load_embedder(name)
    embedder.module.eval().requires_grad_(False)
    digest = _digest(name, embedder)
    if embedder.tokenize is not None:
        texts = _Texts(embedder)
        return Encoder(name, "text", texts(["example"]).shape[1], digest, texts)
    images, side = _Images(embedder), embedder.size or _USUAL_SIZE
    width = images(torch.zeros(1, 3, side, side, dtype=torch.uint8)).shape[1]
    return Encoder(name, "image", width, digest, images, side=side)


def as_embedder(encoder: Encoder) -> Embedder:
    """Return an encoder as a model that takes prepared batches."""
    if encoder.medium == "text":
        return Embedder(nn.Identity(), tokenize=encoder.encode)
    return Embedder(_FromPixels(encoder), (0.0,) * 3, (1 / 255,) * 3)


class _FromPixels(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Return features [N, D] of images [N, 3, h, w] with values from 0 to 255."""
        if x.dim() != 4:
            raise ValueError(f"{self.encoder.name} takes images")
        return self.encoder.encode(x.round().clamp(0, 255).to(torch.uint8))


@dataclass(frozen=True)
class _Texts:
    embedder: Embedder

    @torch.inference_mode()
    def __call__(self, texts: list[str]) -> Tensor:
        """Return features [N, D] of N texts."""
        assert self.embedder.tokenize is not None
        tokens = self.embedder.tokenize(list(texts))
        return embed_batch(self.embedder.module, tokens, len(texts))


@dataclass(frozen=True)
class _Images:
    embedder: Embedder

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Return features [N, D] of images [N, 3, h, w] uint8, resized if a size is expected."""
        mean, std = (
            torch.tensor(some)[:, None, None] for some in (self.embedder.mean, self.embedder.std)
        )
        x = (pixels / 255 - mean) / std
        size = self.embedder.size
        if size is not None and tuple(x.shape[2:]) != (size, size):
            x = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
        return embed_batch(self.embedder.module, x, len(x))


def _digest(name: str, embedder: Embedder) -> str:
    """Return a hash of the model's weights and of all that is known of how it computes."""
    kind, _, architecture = name.partition(":")
    if embedder.files:  # they tell the architecture, wherever they lie
        architecture = ""
    what = f"{kind} {architecture} {embedder.mean} {embedder.std} {embedder.size}"
    digest = hashlib.sha256(what.encode())
    for key, value in embedder.module.state_dict().items():
        digest.update(f"{key} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for path in embedder.files:
        digest.update(content_of(path))
    return digest.hexdigest()


def model_error(problem: str, fix: str | None = None) -> InputError:
    return InputError(f"the model {problem}", field="model", fix=fix)


def embed_batch(module: nn.Module, arguments: Arguments, count: int) -> Tensor:
    """Return the embeddings of one batch of `count` examples, [N, D]."""
    mask = None
    try:
        if isinstance(arguments, Tensor):
            output = module(arguments)
        else:
            mask = arguments.get("attention_mask")
            output = module(**arguments)
    except Exception as error:  # the user's code may fail in any way
        raise model_error(
            f"failed on a batch of {count}: {type(error).__name__}: {words(error)}"
        ) from None
    return _pool(output, count, mask)


def _pool(output: Any, count: int, mask: Tensor | None) -> Tensor:
    """Return the pooled output of a model, or its mean over positions, for N = `count` examples.

    The output is [N, D], tokens [N, T, D], a map [N, D, h, w], or an object that holds one of
    them; the mask [N, T] chooses the tokens of a text to include.
    """
    if not isinstance(output, Tensor):
        pooled = getattr(output, "pooler_output", None)
        output = pooled if pooled is not None else getattr(output, "last_hidden_state", None)
    if not isinstance(output, Tensor):
        raise model_error(
            "returned neither a tensor nor an object with pooler_output or last_hidden_state"
        )
    if output.dim() == 3:
        output = _mean_of_tokens(output, mask)
    elif output.dim() == 4:
        output = output.mean((2, 3))
    if output.dim() != 2 or len(output) != count:
        raise model_error(
            f"returned {list(output.shape)} for a batch of {count}, expected [{count}, D]"
        )
    if not bool(torch.isfinite(output).all()):
        raise model_error("returned NaN or infinite embeddings", "check its weights")
    features: Tensor = output.to(torch.float32).cpu()
    return features


def _mean_of_tokens(h: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean [N, D] of tokens [N, T, D] that the mask [N, T] does not leave out."""
    if mask is None or mask.shape != h.shape[:2]:
        return h.mean(1)
    weight = mask[:, :, None].to(h.dtype)
    return (h * weight).sum(1) / weight.sum(1).clamp_min(1)
