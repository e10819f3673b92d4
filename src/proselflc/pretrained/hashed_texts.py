"""Texts as hashed n-grams: features that need no weights and know no language."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from proselflc.pretrained.encoder import Encoder
from proselflc.pretrained.ngrams import Ngrams
from proselflc.pretrained.tokens import LETTERS

WIDTH = 4096

_NGRAMS = Ngrams(words=(1, 2), characters=(3, 5), letters=LETTERS)
_BUCKETS = 2**24
_TEXTS = 1024  # encoded together


def load() -> Encoder:
    """Return the encoder; nothing is read, and nothing depends on the texts of a data set."""
    what = f"hashed 1 {WIDTH} {_BUCKETS} {_NGRAMS}"
    digest = hashlib.sha256(what.encode()).hexdigest()
    return Encoder("hashed", "text", WIDTH, digest, encode, is_kept=False)


def encode(texts: Sequence[str]) -> Tensor:
    """Return [N, D] rows of length 1 for N texts, zeros for a blank text.

    Every distinct run of words or characters adds 1 to a column or takes 1 from it, as its hash
    says (Weinberger et al. 2009), so that the inner product of two texts is about the number of
    runs that they share, over the lengths of both.
    """
    features = np.zeros((len(texts), WIDTH), np.float32)
    for start in range(0, len(texts), _TEXTS):
        row = start
        for chunk in _NGRAMS.chunks(texts[start : start + _TEXTS]):
            owner, bucket = _NGRAMS.buckets(chunk, _BUCKETS)
            sign = np.where(bucket < _BUCKETS // 2, 1.0, -1.0)
            cells = np.bincount(owner * WIDTH + bucket % WIDTH, sign, len(chunk) * WIDTH)
            features[row : row + len(chunk)] = cells.reshape(len(chunk), WIDTH)
            row += len(chunk)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return torch.from_numpy(features / np.maximum(lengths, 1))
