"""A text model: the mean of the embeddings of a text's n-grams, and a linear layer."""

from collections import OrderedDict

from torch import nn

DIMENSIONS = 64


def embedding_bag(num_embeddings: int, num_classes: int) -> nn.Sequential:
    """Maps bags [N, L] int64, filled up with 0, to logits [N, C].

    Zeros do not count: the mean is over the others, and an empty bag has embedding 0, so that its
    logits are the linear layer's bias.
    """
    return nn.Sequential(
        OrderedDict(
            embedding=nn.EmbeddingBag(num_embeddings, DIMENSIONS, mode="mean", padding_idx=0),
            fc=nn.Linear(DIMENSIONS, num_classes),
        )
    )
