"""Networks that a CPU trains in minutes: three convolutions, a perceptron, a bag of embeddings."""

import math
from collections import OrderedDict

from torch import nn

CONVOLUTIONS = (32, 64, 128)  # channels
COARSEST = 4  # the last maps are pooled to at most so many rows and columns
HIDDEN = 256
DIMENSIONS = 64  # of an embedding


def convnet(
    channels: int, height: int, width: int, num_classes: int, *, dropout: float = 0.0
) -> nn.Sequential:
    """Return three 3×3 convolutions of stride 2 and a linear layer with batch norm, and another.

    It maps [N, channels, height, width] to logits [N, C]. Up to 32 pixels the last maps are used as
    they are; larger ones are averaged over squares, to keep the linear layer small.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    before = channels
    for i, after in enumerate(CONVOLUTIONS, 1):
        layers[f"conv{i}"] = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        layers[f"bn{i}"] = nn.BatchNorm2d(after)
        layers[f"relu{i}"] = nn.ReLU(inplace=True)
        height, width = math.ceil(height / 2), math.ceil(width / 2)
        before = after
    if max(height, width) > COARSEST:
        # Not nn.AdaptiveAvgPool2d, whose gradient on CUDA is not deterministic.
        square = math.ceil(height / COARSEST), math.ceil(width / COARSEST)
        layers["pool"] = nn.AvgPool2d(square, ceil_mode=True)
        height, width = math.ceil(height / square[0]), math.ceil(width / square[1])
    layers["flatten"] = nn.Flatten()
    layers["hidden"] = nn.Linear(before * height * width, HIDDEN, bias=False)
    layers["bn"] = nn.BatchNorm1d(HIDDEN)
    layers["relu"] = nn.ReLU(inplace=True)
    layers["dropout"] = nn.Dropout(dropout)
    layers["fc"] = nn.Linear(HIDDEN, num_classes)
    return nn.Sequential(layers)


def mlp(inputs: int, num_classes: int, *, hidden: tuple[int, ...] = (128,)) -> nn.Sequential:
    """Return linear layers with ReLU between them, without batch norm.

    They map [N, …] with `inputs` numbers per example, images included, to logits [N, C].
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for i, width in enumerate(hidden, 1):
        layers[f"hidden{i}"] = nn.Linear(inputs, width)
        layers[f"relu{i}"] = nn.ReLU(inplace=True)
        inputs = width
    layers["fc"] = nn.Linear(inputs, num_classes)
    return nn.Sequential(layers)


def embedding_bag(num_embeddings: int, num_classes: int) -> nn.Sequential:
    """Return the mean of the embeddings of a text's n-grams and a linear layer.

    They map bags [N, L] int64, padded with 0, to logits [N, C]. Padding does not count, and an
    empty bag has embedding 0, so that its logits are the linear layer's bias.
    """
    return nn.Sequential(
        OrderedDict(
            embedding=nn.EmbeddingBag(num_embeddings, DIMENSIONS, mode="mean", padding_idx=0),
            fc=nn.Linear(DIMENSIONS, num_classes),
        )
    )
