"""EfficientNet-Lite0 with weights trained on ImageNet, as an encoder of images.

In an encoder the weights are constant, so batch norm is part of the convolutions. Channels lie
beside each other in memory, and few images are encoded together, so that their maps stay in the
cache: on one core this takes a quarter of the time of the plain forward pass.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from proselflc.models.efficientnet import FEATURES, PIXELS, Convolution, EfficientNetLite0
from proselflc.models.weights import load_strictly, read_state
from proselflc.pretrained.encoder import Encoder

WEIGHTS = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # sha256
CLASSES = 1000  # of ImageNet
SIDE = 160  # pixels; see docs/decisions/0013-pretrained-features.md

_TOGETHER = 16 * 128 * 128  # pixels that are encoded together


def load(path: Path) -> Encoder:
    """Return the encoder from the file of its weights."""
    network = EfficientNetLite0(CLASSES)
    load_strictly(network, read_weights(path), path)
    digest = hashlib.sha256(f"efficientnet_lite0 1 {WEIGHTS}".encode()).hexdigest()
    encode = Folded(network)
    return Encoder("efficientnet_lite0", "image", FEATURES, digest, encode, side=SIDE)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in the file by their names in our network."""
    return {_renamed(name): value for name, value in read_state(path, sha256=WEIGHTS).items()}


class Folded:
    """The features of images, from a network in evaluation that is changed for this purpose."""

    def __init__(self, network: EfficientNetLite0) -> None:
        network.eval().requires_grad_(False)
        for part in network.modules():
            if isinstance(part, Convolution):
                part.fold()
        self.network: EfficientNetLite0 = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Return features [N, 1280] of images [N, 3, h, w] uint8."""
        height, width = pixels.shape[2:]
        together = max(1, _TOGETHER // (height * width))
        starts = range(0, len(pixels), together)
        return torch.cat([self._features(pixels[i : i + together]) for i in starts])

    def _features(self, pixels: Tensor) -> Tensor:
        x = pixels.to(torch.float32, memory_format=torch.channels_last)
        x = x.div_(255 * PIXELS.std[0]).sub_(PIXELS.mean[0] / PIXELS.std[0])
        return self.network.features(x)


_NAMES = {  # of the published weights, beside ours
    "_conv_stem.": "stem.conv.",
    "_bn0.": "stem.bn.",
    "_conv_head.": "head.conv.",
    "_bn1.": "head.bn.",
    "_fc.": "fc.",
}
_NAMES_IN_BLOCKS = {
    "_blocks.": "blocks.",
    "_expand_conv.": "expand.conv.",
    "_bn0.": "expand.bn.",
    "_depthwise_conv.": "depthwise.conv.",
    "_bn1.": "depthwise.bn.",
    "_project_conv.": "project.conv.",
    "_bn2.": "project.bn.",
}


def _renamed(name: str) -> str:
    """Return our name of a parameter.

    >>> _renamed("_blocks.3._bn0.weight")
    'blocks.3.expand.bn.weight'
    """
    names = _NAMES_IN_BLOCKS if name.startswith("_blocks.") else _NAMES
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name
